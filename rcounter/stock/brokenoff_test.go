package stock_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// Whatever a run had written when it was broken off: the numbers never say that more is left than the records do, and
// what the ledger tells is what the records say; or every next call says that a part is missing, and Restore makes a
// sale again in which nothing is sold twice.
func TestScripts_BrokenOff_SellTooLittleAtWorst(t *testing.T) {
	t.Parallel()
	raw := redistest.Start(t).Client(t)
	const far = "9007199254740991"
	for name, row := range map[string]struct {
		file string
		args []string
	}{
		"all verbs": {"act", []string{"0", far, "R", "new", far, "c", ",1", "3600000", "C", "cancel", far, "1",
			"P", "pay", far, "", "1", "G", "return", far, "", "1", "B", "more", far, "d", ",2", "C", "unknown", far, "1",
			"P", "late", far, "", "1", "P", "part", far, ",1", "1", "E", "extend", far, "7200000",
			"G", "keep", far, ",1", "1", "A", "~any", far, "16", "1"}},
		"what comes back": {"act", []string{"0", far, "C", "cancel", far, "1", "G", "return", far, "", "1"}},
		"in a straight line": {"act", []string{"0", far, "R", "new", far, "c", ",1", "3600000",
			"C", "cancel", far, "1", "P", "pay", far, "", "1", "B", "more", far, "d", ",2"}},
		"straight, more comes": {"act", []string{"0", far, "C", "cancel", far, "1", "P", "pay", far, "", "1"}},
		"a return":             {"act", []string{"0", far, "G", "plain", far, "", "1"}},
		"a cancellation":       {"act", []string{"0", far, "C", "cancel", far, "1"}},
		"a late payment":       {"act", []string{"0", far, "P", "late plain", far, "", "1"}},
		"a vain payment":       {"act", []string{"0", far, "C", "late plain", far, "1"}},
		"an extension":         {"act", []string{"0", far, "E", "extend", far, "7200000"}},
		"users":                {"buy", []string{"0", "eve", "fay"}},
		"what is over":         {"inspect", nil},
	} {
		for _, ledger := range []string{"none", "kept", "moved"} { // moved: the run makes its key anew
			t.Run(name+", ledger "+ledger, func(t *testing.T) {
				brokenOff(t, raw, name == "what is over", row.file, row.args, ledger)
			})
		}
	}
}

// taken is how many units the records say to be sold and reserved, and the highest ordinal.
func taken(records map[string]string) (sold, reserved, seq int64) {
	for id, text := range records {
		switch n, err := strconv.ParseInt(text, 10, 64); {
		case id[0] == 0:
			continue
		case err == nil:
			sold, seq = sold+1, max(seq, n)
			continue
		}
		of := strings.Split(strings.Split(text, ";")[1], "|")
		for _, line := range of {
			var asked, n, ordinal int64
			if _, err := fmt.Sscanf(line, ",%d,%d,%d", &asked, &n, &ordinal); err != nil {
				continue // of a forbidden id
			}
			switch text[0] {
			case 'R':
				reserved += n
			case 'S':
				sold, seq = sold+n, max(seq, ordinal+n-1)
			}
		}
	}
	return sold, reserved, seq
}

// brokenOff runs a script again and again, each time broken off one write later, until it runs whole. isOver: a
// reservation is over when it runs, and not ended.
func brokenOff(t *testing.T, raw rueidis.Client, isOver bool, file string, args []string, ledger string) {
	keeps := ledger != "none"
	noticed := 0
	for k, whole := 0, false; !whole; k++ {
		b := &book{}
		o := exact
		o.Books = func(string) stock.Book { return b }
		rig.Must(t, raw, "FLUSHALL")
		c := on(t, raw, o)
		is := spec(40)
		is.PerUser, is.Ledger = 5, keeps
		s := opened(t, c, "s", is)
		lines := func(n int64) []stock.Line { return []stock.Line{{N: n}} }
		_, _, err := s.Deeds(ctx, stock.Deed{Verb: "R", ID: "late plain", Lines: lines(1), TTL: time.Millisecond},
			stock.Deed{Verb: "R", ID: "late", User: "l", Lines: lines(2), TTL: time.Millisecond},
			stock.Deed{Verb: "R", ID: "cancel", User: "a", Lines: lines(3), TTL: time.Hour},
			stock.Deed{Verb: "R", ID: "pay", User: "a", Lines: lines(2), TTL: time.Hour},
			stock.Deed{Verb: "R", ID: "part", User: "p", Lines: lines(3), TTL: time.Hour},
			stock.Deed{Verb: "R", ID: "extend", User: "e", Lines: lines(1), TTL: time.Hour},
			stock.Deed{Verb: "B", ID: "return", User: "b", Lines: lines(4)},
			stock.Deed{Verb: "B", ID: "plain", Lines: lines(2)},
			stock.Deed{Verb: "B", ID: "keep", User: "k", Lines: lines(2)},
			stock.Deed{Verb: "B", ID: "~any", Lines: lines(9), UpTo: true})
		require.NoError(t, err)
		time.Sleep(3 * time.Millisecond) // "late" is over by the server's clock
		if !isOver {
			redistest.NoError(s.Status(ctx, "late"))(t)
		}
		if ledger == "moved" && !isOver {
			redistest.NoError(s.Ledger(ctx, 100, b.Move))(t)
		}
		whole = rig.BrokenOff(t, raw, k, stock.Source(file), s.Keys()[:6], args)
		at := fmt.Sprint("before write ", k)
		records := rig.Hash(t, raw, s.Keys()[1])
		sold, reserved, seq := taken(records)
		number := func(field string) int64 { return rig.Number(t, raw, "HGET", s.Keys()[0], field) }
		require.GreaterOrEqual(t, number("sold:")+number("reserved:"), sold+reserved, at)
		require.GreaterOrEqual(t, number("seq:"), seq, at)
		st, err := s.Inspect(ctx)
		if !keeps {
			if err != nil {
				noticed++
			}
			continue
		}
		if errors.Is(err, stock.ErrNoStock) {
			require.False(t, whole, err)
			noticed++
			_, err = s.Buy(ctx, stock.Order{User: "zoe"})
			require.ErrorIs(t, err, stock.ErrNoStock)
			redistest.NoError(s.Restore(ctx, is))(t)
			st, err = s.Inspect(ctx)
		}
		require.NoError(t, err)
		redistest.NoError(s.Ledger(ctx, 100, b.Move))(t)
		now := time.UnixMilli(rig.ServerNow(t, raw))
		orders, items := stock.Fold(b.All, now, now.Add(-time.Hour))
		require.Equal(t, rig.Hash(t, raw, s.Keys()[1]), orders, "before write %d", k)
		require.GreaterOrEqual(t, st.Items[""].Sold, items[""].Sold, at)
		require.GreaterOrEqual(t, st.Items[""].Reserved, items[""].Reserved, at)
		require.GreaterOrEqual(t, st.Items[""].Seq, items[""].Seq, at)
	}
	if keeps {
		require.Positive(t, noticed)
	}
}
