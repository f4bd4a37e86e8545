package redpacket

import (
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/ledger"
)

// An entry that no script writes is an error, and stops the mover.
func FuzzEntry(f *testing.F) {
	f.Add("7-0", "1", grabbed, "bob", "1", "7", "100", "1700000000000000")
	f.Add("-1-0", "1", "none", "", "", "", "", "9223372036854775807")
	f.Fuzz(func(t *testing.T, id, epoch, kind, user, n, ordinal, cents, at string) {
		e, serial, err := ledger.Decode(rueidis.XRangeEntry{ID: id, FieldValues: map[string]string{"e": epoch, "k": kind,
			"u": user, "n": n, "o": ordinal, "m": cents, "at": at}}, entry)
		if err == nil {
			require.Contains(t, []string{grabbed, refunded}, e.Kind)
			require.Equal(t, serial, e.Serial)
			require.Equal(t, user, e.User)
		}
	})
}
