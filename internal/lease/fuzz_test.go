package lease_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/lease"
)

// An owner of other software is never trusted without a heartbeat, and so is never taken over.
func FuzzOwner(f *testing.F) {
	id, _ := lease.NewConnectionID(time.Second, true)
	f.Add(id + ":1")
	f.Add(id + ":1:label")
	f.Add("0b5fa6a0-3a4b-4c00-9d1e-2f3a4b5c6d7e:12")
	f.Add("")
	f.Fuzz(func(t *testing.T, owner string) {
		trust := lease.TrustIn(owner)
		require.GreaterOrEqual(t, lease.TrustInBytes(owner), time.Duration(0))
		if !lease.Ours(owner) {
			require.Zero(t, trust)
			require.Empty(t, lease.ClientIn(owner))
			return
		}
		require.LessOrEqual(t, trust, lease.MaxTrust)
		require.True(t, strings.HasPrefix(owner, lease.ClientIn(owner)))
		require.NotEmpty(t, lease.BeatKey(owner[:lease.ClientLength], 0))
	})
}
