package wait_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/wait"
)

const entryProcess = "0f8b3c52-5a1e-8c61-9d0a-6f4f3a2b1c0d"

func TestEntry_Text_IsReadBack(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		entry wait.Entry
		text  string
	}{
		"lock": {wait.OwnerEntry(wait.EntryHash, entryProcess+":7:a label", 4*time.Second, 2500*time.Millisecond),
			"1 x 1 4000 2500 0 " + entryProcess + " - :7:a label"},
		"permits": {wait.Entry{Mode: wait.EntryPermits, Amount: 1 << 40, First: time.Microsecond, Stale: time.Second,
			LeavesAt: 1_800_000_000_000, Process: entryProcess, Rest: "13 bytes \x00\xff\n  label"},
			"1 n 1099511627776 1 1000 1800000000000 " + entryProcess + " - 13 bytes \x00\xff\n  label"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, x.text, x.entry.Text())
			read, ok := wait.ReadEntry(x.text)
			require.True(t, ok)
			require.Equal(t, x.text, read.Text())
			require.Equal(t, x.entry.Owner(), read.Owner())
		})
	}
}

// Two versions of the library may wait for one lock.
func TestEntry_OfALaterVersion_HasTheFieldsOfTheFirst(t *testing.T) {
	t.Parallel()
	read, ok := wait.ReadEntry("2 x 1 4000 2500 0 " + entryProcess + " holds=a,b :7")
	require.True(t, ok)
	first := wait.OwnerEntry(wait.EntryHash, entryProcess+":7", 4*time.Second, 2500*time.Millisecond)
	first.Amount = 1
	require.Equal(t, first, read)
}

func TestEntry_OtherTexts_AreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "owner 4000 2500", "v x 1 4000 2500 0 p - o", " x 1 4000 2500 0 p - o",
		"1 xx 1 4000 2500 0 p - o", "1 x 1 4000 2500 0 p -", "1 x 1 inf 2500 0 p - o", "1 x 1 4000 -1 0 p - o"} {
		_, ok := wait.ReadEntry(text)
		require.False(t, ok, text)
	}
}
