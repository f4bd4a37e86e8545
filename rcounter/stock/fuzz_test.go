package stock

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/ledger"
	"github.com/redlatch/redlatch/internal/redistest"

	"github.com/redis/rueidis"
)

// What no script replies decides nothing.
func FuzzReplies(f *testing.F) {
	for _, reply := range []string{
		"*\n:0\n:1\n:1700000000000\n:0\n$S;,1,1,7;bob\n:0\n.",
		"*\n:0\n:1\n:1700000000000\n:0\n$R1700000060000;a,1,1,0|b,2,1,0;bob\n:1\n.",
		"*\n:0\n:9223372036854775807\n:-9223372036854775808\n:0\n$R9223372036854775807;;\n:0\n.", "*\n:0\n:1\n.", "_",
	} {
		f.Add(reply, uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, acts uint8) {
		r, ok := decodeReply(redistest.Reply(text))
		if !ok {
			return
		}
		all, ok := r.decode(int(acts), time.Now())
		if !ok {
			return
		}
		require.Len(t, all, int(acts))
		for _, d := range all {
			if a, ok := parseRecord("id", d.text, d.at); ok {
				requireAnswer(t, a, d.text)
			}
		}
	})
}

// Of a record that no script writes no order is read.
func FuzzRecord(f *testing.F) {
	for _, record := range []string{"17", "S;,1,1,7;bob", "R1700000060000;a,1,1,0|b,2,1,0;bob;with;signs", "F;;",
		"C;a,1,0,0;u", "R9223372036854775807;;", "S;,,,;", "99999999999999999999", "S;a,1,1,7,8;u", ";;"} {
		f.Add("id", record, int64(1700000000000))
	}
	f.Fuzz(func(t *testing.T, id, record string, now int64) {
		if a, ok := parseRecord(id, record, &moment{epoch: 1, now: now, sent: time.Now()}); ok {
			requireAnswer(t, a, record)
		}
		if p, err := parsePart(id); err == nil {
			require.Positive(t, p.n)
			require.Positive(t, p.first)
		}
	})
}

func requireAnswer(t *testing.T, a Answer, record string) {
	t.Helper()
	require.NotEmpty(t, a.State, record)
	if a.State == Reserved {
		require.Less(t, time.Until(a.Until).Abs(), time.Duration(math.MaxInt64), record)
	}
	if a.State == Closed {
		require.Empty(t, a.Lines, record)
	}
}

// An entry that no script writes is an error, and stops the mover.
func FuzzEntry(f *testing.F) {
	f.Add("7-0", "1", "sold", "item", "id", "bob", "", "1", "1", "7", "1700000000000000", "0")
	f.Add("x", "1", "none", "", "", "", "", "", "", "", "9223372036854775807", "-9223372036854775808")
	f.Fuzz(func(t *testing.T, id, epoch, kind, item, order, user, why, asked, n, ordinal, at, until string) {
		e, serial, err := ledger.Decode(rueidis.XRangeEntry{ID: id, FieldValues: map[string]string{"e": epoch, "k": kind,
			"i": item, "d": order, "u": user, "w": why, "a": asked, "n": n, "o": ordinal, "at": at, "t": until}}, entry)
		if err == nil {
			require.Contains(t, kinds, e.Kind)
			require.Equal(t, serial, e.Serial)
			require.Equal(t, []string{item, order, user, why}, []string{e.Item, e.ID, e.User, e.Why})
		}
	})
}
