package rlock_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

func TestWait_SubscribeDenied_PollsAndLogsOneLine(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	root := s.Client(t)
	wire.Must(t, root, "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-subscribe")
	holder := newRig(t, s, rlock.Options{})
	log := &redistest.Logbook{}
	waiter := newRigWith(t, s, rlock.Options{PollCap: 50 * time.Millisecond, Logger: log.Logger()},
		func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "any" })
	for range 5 {
		h := lock(t, holder.locks.Reentrant("l"), within(t))
		got := pass(t, waiter.locks.Reentrant("l"))
		redistest.Eventually(t, 10*time.Second, "refused", func() bool {
			return log.Count("subscribe refused") == 1 && waiter.locks.Waiting("l") == 1
		})
		require.NoError(t, h.Unlock(within(t)))
		require.NoError(t, <-got)
	}
	require.Equal(t, 1, log.Count("subscribe refused"))
}
