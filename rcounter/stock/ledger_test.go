package stock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// books is a database into which ledgers are moved: a row for each entry, and for each opening the serial that comes
// next.
type ledgerCopy struct {
	rows map[[2]int64]stock.Entry
	next map[int64]int64
}

func newBooks() *ledgerCopy { return &ledgerCopy{map[[2]int64]stock.Entry{}, map[int64]int64{}} }

var errHole, errReissued = errors.New("a hole"), errors.New("a number that was given twice")

// move does what a transaction does.
func (b *ledgerCopy) move(_ context.Context, entries []stock.Entry) error {
	for _, e := range entries {
		next := max(1, b.next[e.Epoch])
		k := [2]int64{e.Epoch, e.Serial}
		if e.Serial > next {
			return fmt.Errorf("%w: %d, next is %d", errHole, e.Serial, next)
		}
		was, there := b.rows[k]
		was.At = e.At
		if there && was != e {
			return fmt.Errorf("%w: %+v, and %+v", errReissued, e, was)
		}
		b.rows[k], b.next[e.Epoch] = e, max(next, e.Serial+1)
	}
	return nil
}

// drain moves all that the ledger has.
func (b *ledgerCopy) drain(t testing.TB, s *stock.Stock) {
	t.Helper()
	for {
		n, err := s.Ledger(ctx, 7, b.move)
		require.NoError(t, err)
		if n == 0 {
			return
		}
	}
}

// units is who has what, by ordinal; back is what was returned, and held how many units reservations hold.
func (b *ledgerCopy) units(epoch int64) (units map[int64]string, back []int64, held int64) {
	units = map[int64]string{}
	holds := map[string]int64{}
	for serial := int64(1); serial < b.next[epoch]; serial++ {
		e := b.rows[[2]int64{epoch, serial}]
		switch e.Kind {
		case stock.KindHeld:
			holds[e.Request] = e.N
		case stock.KindExtended:
		default:
			delete(holds, e.Request)
		}
		for o := e.Ordinal; o > 0 && o < e.Ordinal+e.N; o++ {
			if e.Kind == stock.KindReturn {
				delete(units, o)
				back = append(back, o)
			} else {
				units[o] = e.Claimant + "/" + e.Request
			}
		}
	}
	for _, n := range holds {
		held += n
	}
	return units, back, held
}

// winners is what the books give to Restore.
func (b *ledgerCopy) winners(epoch int64) func(yield func(stock.Entry, error) bool) {
	units, back, _ := b.units(epoch)
	return func(yield func(stock.Entry, error) bool) {
		for o, who := range units {
			claimant, request, _ := strings.Cut(who, "/")
			yield(stock.Entry{Ordinal: o, N: 1, Claimant: claimant, Request: request}, nil)
		}
		for _, o := range back {
			yield(stock.Entry{Kind: stock.KindReturn, Ordinal: o}, nil)
		}
		yield(stock.Entry{Kind: stock.KindHeld, Epoch: epoch, Serial: b.next[epoch] - 1}, nil)
	}
}

// has is who has what by the stock's own records.
func hasUnits(t testing.TB, raw rueidis.Client) map[int64]string {
	units := map[int64]string{}
	for claimant, text := range hash(t, raw, "rc:{s}:u") {
		if o := first(text); o > 0 {
			units[o] = claimant + "/"
		}
	}
	for field, text := range hash(t, raw, "rc:{s}:r") {
		p := strings.Split(text, ";")
		switch {
		case field[0] == 'r' && p[0] == "G":
			for o := first(p[1]); o < first(p[1])+first(p[2]); o++ {
				units[o] = p[7] + "/" + field[2:]
			}
		case field[0] == 'a':
			own := map[int64]bool{}
			for o := first(p[0]); o < first(p[0])+first(p[1]); o++ {
				own[o] = true
			}
			for _, part := range p[2:] {
				var from, n int64
				fmt.Sscanf(part, "%d.%d.", &from, &n)
				for o := from; o < from+n; o++ {
					delete(own, o)
				}
			}
			for o := range own {
				units[o] = "/" + field[2:]
			}
		}
	}
	return units
}

func first(text string) (n int64) {
	fmt.Sscan(strings.SplitN(text, ";", 2)[0], &n)
	return n
}

// Whatever takes entries out of the stream, or puts some in, every verb of the stock says so, and sells nothing. The
// numbers are in the error.
func TestLedger_NotWhole_StopsTheSaleUntilRestore(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	for what, tc := range map[string]struct {
		damage []string
		says   string
	}{
		"deleted": {[]string{"DEL", "rc:{s}:l"}, "should have 4 entries, and has 0"},
		"trimmed": {[]string{"XTRIM", "rc:{s}:l", "MAXLEN", "1"}, "should have 4 entries, and has 1"},
		"one out": {[]string{"XDEL", "rc:{s}:l", "4-0"}, "should have 4 entries, and has 3"},
		"one in": {[]string{"XADD", "rc:{s}:l", "6-0", "k", "grant", "e", "1", "o", "5", "n", "1", "c", "eve", "r", "",
			"at", "1"}, "should have 4 entries, and has 5"},
	} {
		t.Run(what, func(t *testing.T) {
			must(t, raw, "FLUSHALL")
			s := on(t, raw, exact).Stock("s")
			epoch, err := s.Open(ctx, stock.Spec{Limit: 20, PerUser: 9, OpenFor: time.Hour, Ledger: true})
			require.NoError(t, err)
			claimed(t, s, "ann")
			b := newBooks()
			b.drain(t, s)
			for _, id := range []string{"h", "i"} {
				_, err = s.Reserve(ctx, "bob", stock.Request{ID: id, N: 1}, time.Hour)
				require.NoError(t, err)
			}
			claimed(t, s, "cid")
			_, err = s.Return(ctx, stock.Units{Claimant: "ann", Ordinal: 1})
			require.NoError(t, err)
			must(t, raw, tc.damage...)
			verbs := stockVerbs(s)
			for _, not := range []string{"Open", "OpenOrJoin", "EndSale", "Restore"} {
				delete(verbs, not)
			}
			before := counts(t, raw)
			for verb, call := range verbs {
				err := call()
				require.ErrorIs(t, err, errs.ErrCorrupt, verb)
				require.ErrorContains(t, err, `"rc:{s}:l" `+tc.says, verb)
			}
			require.Equal(t, before, counts(t, raw))
			_, err = s.Restore(ctx, b.winners(epoch))
			require.NoError(t, err)
			_, err = s.Confirm(ctx, "h")
			require.NoError(t, err)
			b.drain(t, s)
			units, _, _ := b.units(epoch)
			require.Equal(t, hasUnits(t, raw), units, "the database has what was lost")
			require.Len(t, units, 2)
			requireEnds(t, raw)
		})
	}
}

// A mover reads entries, and is slow. A replica that has not heard of the last of them is promoted, and sells on: other
// entries have their numbers now.
func TestMover_EntryReplaced_RemovesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	s := on(t, raw, exact).Stock("s")
	epoch, err := s.Open(ctx, stock.Spec{Limit: 20, OpenFor: time.Hour, Ledger: true})
	require.NoError(t, err)
	claimed(t, s, "ann")
	old := snapshot(t, raw)
	claimed(t, s, "bob")
	b := newBooks()
	n, err := s.Ledger(ctx, 10, func(ctx context.Context, entries []stock.Entry) error {
		require.Len(t, entries, 2)
		old()
		claimed(t, s, "cid")
		claimed(t, s, "dan")
		return b.move(ctx, entries)
	})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.EqualValues(t, 3, number(t, raw, "XLEN", "rc:{s}:l"), "of ann, cid and dan")
	_, err = s.Ledger(ctx, 10, b.move)
	require.ErrorIs(t, err, errReissued)
	out, err := s.Restore(ctx, b.winners(epoch))
	require.NoError(t, err)
	require.Len(t, out.Displaced, 1, "cid has bob's ordinal")
	b.drain(t, s)
	units, _, _ := b.units(epoch)
	require.Equal(t, map[int64]string{1: "ann/", 2: "bob/", 3: "dan/"}, units)
}

func TestMovers_SideBySide_RemoveEachEntryOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	s := on(t, raw, exact).Stock("s")
	epoch, err := s.Open(ctx, stock.Spec{Limit: 100, OpenFor: time.Hour, Ledger: true})
	require.NoError(t, err)
	for i := range 9 {
		claimed(t, s, fmt.Sprint(i))
	}
	b := newBooks()
	_, err = s.Ledger(ctx, 3, func(_ context.Context, late []stock.Entry) error { // slow, and overtaken
		n, err := s.Ledger(ctx, 6, b.move)
		require.NoError(t, err)
		require.Equal(t, 6, n)
		return b.move(ctx, late)
	})
	require.NoError(t, err)
	require.EqualValues(t, 3, number(t, raw, "XLEN", "rc:{s}:l"))
	_, err = s.Ledger(ctx, 3, func(_ context.Context, some []stock.Entry) error { // overtaken by one that took fewer
		_, err := s.Ledger(ctx, 2, b.move)
		require.NoError(t, err)
		return b.move(ctx, some)
	})
	require.NoError(t, err)
	require.Zero(t, number(t, raw, "XLEN", "rc:{s}:l"))
	require.Equal(t, "9", hash(t, raw, "rc:{s}")["moved"])
	require.EqualValues(t, 10, b.next[epoch])
	claimed(t, s, "another")
	b.drain(t, s)
	require.EqualValues(t, 11, b.next[epoch])
}

// undo returns or ends something that there is.
func undo(s *stock.Stock, rnd *rand.Rand, units map[int64]string, records map[string]string) error {
	var holds []string
	for field, text := range records {
		if strings.HasPrefix(text, "H;") {
			holds = append(holds, field[2:])
		}
	}
	slices.Sort(holds)
	if len(holds) > 0 && rnd.IntN(2) == 0 {
		id := holds[rnd.IntN(len(holds))]
		if rnd.IntN(2) == 0 {
			_, err := s.Cancel(ctx, id)
			return err
		}
		_, err := s.Confirm(ctx, id)
		return err
	}
	var ordinals []int64
	for o := range units {
		ordinals = append(ordinals, o)
	}
	if len(ordinals) == 0 {
		return nil
	}
	slices.Sort(ordinals)
	o := ordinals[rnd.IntN(len(ordinals))]
	claimant, request, _ := strings.Cut(units[o], "/")
	var err error
	switch {
	case request == "":
		_, err = s.Return(ctx, stock.Units{Claimant: claimant, Ordinal: o})
	case claimant == "":
		_, err = s.Return(ctx,
			stock.Units{Request: stock.Grant{Outcome: stock.Granted, Ordinal: o, N: 1, Request: request}.Request,
				Ordinal: stock.Grant{Outcome: stock.Granted, Ordinal: o, N: 1, Request: request}.Ordinal,
				N:       stock.Grant{Outcome: stock.Granted, Ordinal: o, N: 1, Request: request}.N})
	case rnd.IntN(2) == 0:
		_, err = s.Return(ctx, stock.Units{Request: request, Keep: 1})
	default:
		_, err = s.Return(ctx, stock.Units{Request: request})
	}
	return err
}
