package wait

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An entry that is read is written as it was, so nothing in it is lost or taken for something else.
func FuzzEntry(f *testing.F) {
	f.Add("1 x 1 30000 60000 0 0b5fa6a0-3a4b-8c00-9d1e-2f3a4b5c6d7e - :7:label with spaces")
	f.Add("1 n 3 30000 60000 1700000000000 0b5fa6a0-3a4b-8c00-9d1e-2f3a4b5c6d7e - base label")
	f.Add("2 x 1 1 1 1 p - r")
	f.Add("1  1 1 1 1 p - ")
	f.Fuzz(func(t *testing.T, text string) {
		entry, ok := ReadEntry(text)
		if !ok {
			return
		}
		require.GreaterOrEqual(t, entry.Amount, 0)
		require.GreaterOrEqual(t, entry.First, time.Duration(0))
		require.GreaterOrEqual(t, entry.Stale, time.Duration(0))
		require.GreaterOrEqual(t, entry.LeavesAt, int64(0))
		again, ok := ReadEntry(entry.Text())
		entry.Amount = max(1, entry.Amount)
		require.True(t, ok)
		require.Equal(t, entry, again)
	})
}

// A message grants only what it says in full.
func FuzzGrants(f *testing.F) {
	f.Add("7 30000 owner:1")
	f.Add("*7 30000 7 owner:18 30000 7 owner:2")
	f.Add("*7 30000 99 owner:1")
	f.Add("0 -1 ")
	f.Fuzz(func(t *testing.T, text string) {
		for _, grant := range parseGrants(text) {
			require.GreaterOrEqual(t, grant.Ticket, int64(0))
			require.Contains(t, text, grant.Owner)
			if !strings.Contains(text, "-") {
				require.GreaterOrEqual(t, grant.Lease, time.Duration(0))
			}
		}
	})
}
