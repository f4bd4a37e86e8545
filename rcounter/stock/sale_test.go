package stock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func TestSale_Crowd_SellsEachUnitOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		lossy := rig.NewLossy(t, srv, func() func() bool {
			n := 0
			return func() bool { n++; return n%7 == 0 }
		}())
		o := stock.Options{CallTimeout: 10 * time.Second, RetryTimeout: time.Minute}
		clients := []*stock.Client{on(t, srv.Client(t), o), on(t, lossy, o)}
		const limit, callers = 60, 16
		s := opened(t, clients[0], "s", spec(limit))
		var mu sync.Mutex
		owners := map[int64]string{} // by ordinal
		rig.Crowd(callers, 12, func(caller, i int) {
			at := clients[caller%2].Sale("s")
			order := stock.Order{User: fmt.Sprint("u", caller%8, ".", i)} // each user asks by two processes
			switch i % 3 {
			case 1:
				order = stock.Order{ID: fmt.Sprint("o", caller, ".", i), Lines: []stock.Line{{N: 2}}, UpTo: true, New: true}
			case 2:
				order = stock.Order{Anyone: true}
			}
			a, err := at.Buy(ctx, order)
			if !a.Won() {
				return // an order of Anyone has no second try
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			for _, l := range a.Lines {
				for ordinal := l.Ordinal; ordinal < l.Ordinal+l.N; ordinal++ {
					if was := owners[ordinal]; was != "" && was != a.ID {
						t.Errorf("unit %d is sold to %q and %q", ordinal, was, a.ID)
					}
					owners[ordinal] = a.ID
				}
			}
		})
		redistest.Eventually(t, 20*time.Second, "what nobody heard of comes back", func() bool {
			st := redistest.NoError(s.Inspect(ctx))(t)
			return st.Items[""].Sold <= limit && int(st.Items[""].Sold) >= len(owners)
		})
		b := &book{}
		redistest.NoError(s.Ledger(ctx, 10000, b.Move))(t)
		now := time.UnixMilli(rig.ServerNow(t, srv.Client(t)))
		_, items := stock.Fold(b.All, now, now)
		st := redistest.NoError(s.Inspect(ctx))(t)
		require.Equal(t, st.Items[""].Sold, items[""].Sold)
		held := map[string]int64{}
		for a, err := range s.Holders(ctx) {
			require.NoError(t, err)
			for _, l := range a.Lines {
				held[fmt.Sprint(a.ID, l.Ordinal)] = l.N
			}
		}
		sum := int64(0)
		for _, n := range held {
			sum += n
		}
		require.Equal(t, st.Items[""].Sold, sum)
	})
}

func TestAnyone_Units_ComeBackByTheirID(t *testing.T) {
	t.Parallel()
	s := opened(t, on(t, redistest.Embedded(t).Client(t), exact), "s", spec(5))
	a := redistest.NoError(s.Buy(ctx, stock.Order{Anyone: true, Lines: []stock.Line{{N: 3}}}))(t)
	require.Equal(t, []stock.Line{{N: 3, Ordinal: 1}}, a.Lines)
	for _, verb := range []func() (stock.Answer, error){
		func() (stock.Answer, error) { return s.Status(ctx, a.ID) },
		func() (stock.Answer, error) { return s.Pay(ctx, a.ID) },
		func() (stock.Answer, error) { return s.Cancel(ctx, a.ID) },
		func() (stock.Answer, error) { return s.Extend(ctx, a.ID, time.Hour) },
	} {
		is := redistest.NoError(verb())(t)
		require.Equal(t, []any{stock.Sold, a.Lines, a.ID}, []any{is.State, is.Lines, is.ID})
	}
	is := redistest.NoError(s.Return(ctx, a.ID, stock.Line{N: 1}))(t)
	require.Equal(t, []stock.Line{{N: 1, Ordinal: 1}}, is.Lines)
	require.Equal(t, []stock.Line{{N: 2}}, is.Refund(stock.Line{N: 3}))
	is = redistest.NoError(s.Return(ctx, a.ID))(t)
	require.Equal(t, []any{stock.Closed, stock.Returned}, []any{is.State, is.Why})
	_, err := s.Return(ctx, a.ID, stock.Line{N: 1}, stock.Line{Item: "x", N: 1})
	require.ErrorIs(t, err, errs.ErrInvalidOption)

	a, err = s.Buy(ctx, stock.Order{Anyone: true, Lines: []stock.Line{{N: 6}}}) // fewer will not do
	require.NoError(t, err)
	require.Equal(t, []any{stock.Refused, stock.SoldOut}, []any{a.State, a.Why})
	redistest.Eventually(t, 10*time.Second, "they come back", func() bool {
		st, err := s.Inspect(ctx)
		return err == nil && st.Items[""].Sold == 0
	})
}

// The reply is lost, the caller leaves, and the request arrives once more after the units were given back.
func TestAnyone_GivenUp_NeverRuns(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	s := opened(t, on(t, raw, exact), "s", spec(5))
	require.NoError(t, s.Change(ctx, stock.Change{Items: map[string]stock.Item{"": {Limit: 6}}}))
	late := rig.NewLate(t, srv, func(args []string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "~") }) &&
			slices.Contains(args, "B")
	})
	caller := on(t, late, stock.Options{CallTimeout: 200 * time.Millisecond, RetryTimeout: 200 * time.Millisecond,
		SoldOutTrust: -1})
	_, err := caller.Sale("s").Buy(ctx, stock.Order{Anyone: true, Lines: []stock.Line{{N: 2}}})
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	redistest.Eventually(t, 10*time.Second, "the order is forbidden", func() bool {
		for id, record := range rig.Hash(t, raw, s.Keys()[1]) {
			return strings.HasPrefix(id, "~") && strings.HasPrefix(record, "F")
		}
		return false
	})
	late.Deliver(t)
	st := redistest.NoError(s.Inspect(ctx))(t)
	require.Zero(t, st.Items[""].Sold)
}

func TestOpen_Again_JoinsOrSaysInWhatItDiffers(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	c, forward := on(t, srv.Client(t), exact), srv.Clock()
	s := opened(t, c, "s", spec(5))
	first := redistest.NoError(s.Inspect(ctx))(t)
	other := spec(5)
	other.StartIn = time.Minute // counts from another moment for every caller
	require.NoError(t, s.Open(ctx, other))
	now := redistest.NoError(s.Inspect(ctx))(t)
	require.Equal(t, first, now)
	err := s.Open(ctx, spec(6))
	require.ErrorIs(t, err, errs.ErrMismatch)
	require.ErrorContains(t, err, `item "" 5, 1 a user, not item "" 6, 1 a user`)
	longer := spec(5)
	longer.OpenFor += time.Microsecond
	require.ErrorContains(t, s.Open(ctx, longer), "opened with OpenFor 1h0m0s, not OpenFor 1h0m0.001s")
	require.NoError(t, s.EndSale(ctx))
	require.NoError(t, s.Open(ctx, spec(5)), "ended, and stands")
	a := redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
	require.Equal(t, stock.Ended, a.Why)

	forward(2*time.Hour + time.Millisecond) // the retention is over
	_, err = s.Status(ctx, "ann")
	require.ErrorIs(t, err, stock.ErrNoStock)
	require.NotErrorIs(t, err, errs.ErrCorrupt)
	require.Empty(t, rig.Keys(t, srv.Client(t)))
	require.NoError(t, s.Open(ctx, spec(6)))
}

func TestOpen_LostSale_IsNotSoldTwice(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	s, b := openedWithBook(t, raw)
	_, err := s.Buy(ctx, stock.Order{User: "ann"})
	require.NoError(t, err)
	redistest.NoError(s.Ledger(ctx, 10, b.Move))(t)
	for _, lost := range [][]string{s.Keys()[:1], s.Keys()[1:2], s.Keys()} {
		rig.Must(t, raw, append([]string{"DEL"}, lost...)...)
		require.ErrorIs(t, s.Open(ctx, spec(5)), stock.ErrNoStock)
		_, err = s.Buy(ctx, stock.Order{User: "bob"})
		require.ErrorIs(t, err, stock.ErrNoStock)
		lostEntries := redistest.NoError(s.Restore(ctx, spec(5)))(t)
		require.Empty(t, lostEntries)
		require.NoError(t, s.Open(ctx, spec(5)))
		a := redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
		require.Equal(t, []any{int64(1), true}, []any{a.Lines[0].Ordinal, a.Again})
		rig.RequireEnds(t, raw)
	}
}

func TestOpen_ServerLosesAllBeforeAnyEntryIsMoved_IsNotSoldTwice(t *testing.T) {
	t.Parallel()
	raw, o, b := redistest.Embedded(t).Client(t), exact, &book{}
	withoutBook := on(t, raw, o).Sale("s")
	o.Books = func(string) stock.Book { return b }
	s := opened(t, on(t, raw, o), "s", spec(5))
	stand := redistest.NoError(s.Inspect(ctx))(t)
	require.Equal(t, stand.Epoch, b.Epoch)
	require.NoError(t, s.Open(ctx, spec(5)), "joins")
	rig.Must(t, raw, "FLUSHALL")
	require.ErrorIs(t, s.Open(ctx, spec(5)), stock.ErrNoStock)

	require.NoError(t, withoutBook.Open(ctx, spec(5)))
	err := s.Open(ctx, spec(5))
	require.ErrorIs(t, err, errs.ErrMismatch)
	require.ErrorContains(t, err, fmt.Sprintf("its book has the opening %d", b.Epoch))
	redistest.NoError(s.Restore(ctx, spec(5)))(t)
	require.NoError(t, s.Open(ctx, spec(5)))
}

// slowBook has another process act after the second answer of Opened that it knows no opening.
type slowBook struct {
	*book
	answers   int
	meanwhile func()
}

func (q *slowBook) Opened(ctx context.Context) (int64, error) {
	epoch, err := q.book.Opened(ctx)
	if q.answers++; q.answers == 2 {
		q.meanwhile()
	}
	return epoch, err
}

func TestOpen_AnotherProcessTellsTheBookFirst_Joins(t *testing.T) {
	t.Parallel()
	raw, b := redistest.Embedded(t).Client(t), &book{}
	other, o := exact, exact
	other.Books = func(string) stock.Book { return b }
	restoring := on(t, raw, other).Sale("s")
	slow := &slowBook{book: b, meanwhile: func() {
		require.NoError(t, restoring.Open(ctx, spec(5)))
		_, err := restoring.Restore(ctx, spec(5)) // another epoch
		require.NoError(t, err)
	}}
	o.Books = func(string) stock.Book { return slow }
	s := opened(t, on(t, raw, o), "s", spec(5))
	stand := redistest.NoError(s.Inspect(ctx))(t)
	require.Equal(t, stand.Epoch, b.Epoch)
}

// A process asks the server, which has no sale; another opens the sale and tells the database; now the first asks it.
func TestOpen_OpenedMeanwhile_Joins(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	b, o := &book{}, exact
	o.Books = func(string) stock.Book { return b }
	b.Fail = func() error {
		if b.Epoch == 0 {
			opened(t, on(t, raw, exact), "s", spec(5))
			b.Epoch = rig.Number(t, raw, "HGET", "rc:{s}:sale", "epoch")
		}
		return nil
	}
	require.NoError(t, on(t, raw, o).Sale("s").Open(ctx, spec(5)))
}

// With MinReplicas 0 a failover forgets orders. A sold one is not refunded before the book was asked.
func TestPay_OrderThatAFailoverForgot_IsNotRefunded(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	s, b := openedWithBook(t, raw)
	for _, id := range []string{"sold", "given back"} {
		redistest.NoError(s.Reserve(ctx, stock.Order{ID: id}, time.Hour))(t)
	}
	paid := redistest.NoError(s.Pay(ctx, "sold"))(t)
	redistest.NoError(s.Cancel(ctx, "given back"))(t)
	redistest.NoError(s.Ledger(ctx, 10, b.Move))(t)
	// the replica that was promoted has heard of nothing but of the opening, and of the ledger
	rig.Must(t, raw, "DEL", s.Keys()[1], s.Keys()[2])
	rig.Must(t, raw, "HSET", s.Keys()[0], "fields", "0", "sold:", "0", "seq:", "0", "reservations", "0", "reserved:",
		"0", "own", "0")
	for range 2 { // the bank calls again
		for _, verb := range []func() (stock.Answer, error){
			func() (stock.Answer, error) { return s.Pay(ctx, "sold") },
			func() (stock.Answer, error) { return s.Cancel(ctx, "sold") },
			func() (stock.Answer, error) { return s.Return(ctx, "sold") },
		} {
			a, err := verb()
			require.ErrorIs(t, err, stock.ErrNoStock)
			require.Nil(t, a.Refund(stock.Line{N: 1}))
		}
	}
	a, err := s.Pay(ctx, "given back") // of that one the book says that it has no units
	require.NoError(t, err)
	require.Equal(t, []stock.Line{{N: 1}}, a.Refund(stock.Line{N: 1}))
	redistest.NoError(s.Restore(ctx, spec(5)))(t)
	a = redistest.NoError(s.Pay(ctx, "sold"))(t)
	require.Equal(t, paid.Lines, a.Lines)
	require.Nil(t, a.Refund(stock.Line{N: 1}))
}

func TestRestore_BookTakesAnotherOpening_SaysLater(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	s, b := openedWithBook(t, raw)
	first := b.Epoch
	b.Fail = func() error {
		if resumed := rig.Number(t, raw, "HGET", s.Keys()[0], "epoch"); resumed != first && resumed == b.Epoch {
			b.Epoch++ // another Restore, whose suspension a failover has forgotten
		}
		return nil
	}
	_, err := s.Restore(ctx, spec(5))
	require.ErrorIs(t, err, stock.ErrLater)
	require.ErrorContains(t, err, "run it again")
	b.Fail = nil
	_, err = s.Restore(ctx, spec(5))
	require.NoError(t, err)
	require.NoError(t, s.Open(ctx, spec(5)))
}

// A failover forgets entries that the book has, and the server gives their numbers to others.
func TestRestore_AfterAFailover_TellsWhatIsLost(t *testing.T) {
	t.Parallel()
	raw := redistest.Start(t).Client(t)
	s, b := openedWithBook(t, raw)
	buy := func(user string) stock.Answer {
		a := redistest.NoError(s.Buy(ctx, stock.Order{User: user}))(t)
		return a
	}
	ann := buy("ann")
	keys := s.Keys()[:6]
	copied := map[string]string{}
	for _, key := range keys {
		copied[key] = rig.Text(t, raw, "DUMP", key)
	}
	bob := buy("bob")
	redistest.NoError(s.Ledger(ctx, 10, b.Move))(t)
	rig.Must(t, raw, append([]string{"DEL"}, keys...)...)
	for key, dump := range copied {
		if dump != "(nil)" {
			rig.Must(t, raw, "RESTORE", key, "7200000", dump)
		}
	}
	require.EqualValues(t, 2, buy("cy").Lines[0].Ordinal, "as bob's")
	_, err := s.Ledger(ctx, 10, b.Move)
	require.ErrorIs(t, err, errs.ErrMismatch)
	lost := redistest.NoError(s.Restore(ctx, spec(5)))(t)
	require.Len(t, lost, 1)
	require.Equal(t, "cy", lost[0].ID)
	for user, was := range map[string]stock.Answer{"ann": ann, "bob": bob} {
		require.Equal(t, was.Lines, buy(user).Lines)
	}
	require.EqualValues(t, 3, buy("dee").Lines[0].Ordinal)
	redistest.NoError(s.Ledger(ctx, 10, b.Move))(t)
}

// A copy of the book that is older than what movers were given would sell units twice.
func TestRestore_BookLacksEntriesThatWereMoved_IsRefused(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	s, b := openedWithBook(t, raw)
	for _, user := range []string{"ann", "bob"} {
		redistest.NoError(s.Buy(ctx, stock.Order{User: user}))(t)
	}
	redistest.NoError(s.Ledger(ctx, 10, b.Move))(t)
	all := b.All
	b.All = all[:1:1]
	_, err := s.Restore(ctx, spec(5))
	require.ErrorIs(t, err, errs.ErrCorrupt)
	require.ErrorContains(t, err, `the book of "s" ends with entry 1, but movers received 2`)
	b.All = all
	redistest.NoError(s.Restore(ctx, spec(5)))(t)
	a := redistest.NoError(s.Status(ctx, "bob"))(t)
	require.EqualValues(t, 2, a.Lines[0].Ordinal)
}

// Restore finds out that its Spec is wrong when it has made the hash of a lost sale by it.
func TestRestore_LostSaleWithAnotherSpec_CanBeRestoredBetter(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	b := &book{}
	o := exact
	o.Books = func(string) stock.Book { return b }
	right := spec(0)
	right.Items = map[string]stock.Item{"cap": {Limit: 5}, "mug": {Limit: 1}}
	s := opened(t, on(t, raw, o), "s", right)
	redistest.NoError(s.Buy(ctx, stock.Order{ID: "x", Lines: []stock.Line{{Item: "mug", N: 1}}}))(t)
	redistest.NoError(s.Ledger(ctx, 10, b.Move))(t)
	rig.Must(t, raw, append([]string{"DEL"}, s.Keys()[:6]...)...)
	wrong := spec(0)
	wrong.Items = map[string]stock.Item{"cap": {Limit: 5}}
	_, err := s.Restore(ctx, wrong)
	require.ErrorContains(t, err, `has the item "mug", but the Spec does not`)
	redistest.NoError(s.Restore(ctx, right))(t)
	stand := redistest.NoError(s.Inspect(ctx))(t)
	require.Equal(t, "open", stand.Phase)
	require.EqualValues(t, 1, stand.Items["mug"].Sold)
}

// A mover has read entries before the sale was restored, and hands them to the book afterwards.
func TestRestore_MoverOfTheOldOpening_IsRefused(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	s, b := openedWithBook(t, raw)
	redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
	_, err := s.Ledger(ctx, 10, func(_ context.Context, entries []stock.Entry) error {
		redistest.NoError(s.Restore(ctx, spec(5)))(t)
		late := entries[0]
		late.Serial++ // as if the server had written it before it was lost
		require.ErrorIs(t, b.Move(ctx, []stock.Entry{late}), errs.ErrMismatch)
		return b.Move(ctx, entries)
	})
	require.NoError(t, err)
	redistest.NoError(s.Buy(ctx, stock.Order{User: "bob"}))(t)
	n := redistest.NoError(s.Ledger(ctx, 10, b.Move))(t)
	require.Equal(t, 1, n, "nothing was removed by the mover of the old opening")
}

func TestLedger_EntryLost_IsNoStock(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	s := opened(t, on(t, raw, exact), "s", spec(5))
	redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
	rig.Must(t, raw, "XTRIM", s.Keys()[4], "MAXLEN", "0")
	for name, ask := range map[string]func() error{
		"status": func() error { _, err := s.Status(ctx, "ann"); return err },
		"buy":    func() error { _, err := s.Buy(ctx, stock.Order{User: "bob"}); return err },
		"ledger": func() error { _, err := s.Ledger(ctx, 1, (&book{}).Move); return err },
	} {
		err := ask()
		require.ErrorIs(t, err, stock.ErrNoStock, name)
		require.ErrorIs(t, err, errs.ErrCorrupt, name)
	}
}

// Numbers and records that no script of ours writes decide nothing.
func TestSale_ImpossibleData_IsNoStock(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	c := on(t, raw, exact)
	for i, harm := range [][]string{
		{"HSET", "0", "sold:", "-1"}, {"HSET", "0", "sold:", "99"}, {"HSET", "0", "seq:", "0"}, {"HSET", "0", "limit:", "x"},
		{"HDEL", "0", "reserved:"}, {"HSET", "0", "epoch", "x"}, {"HSET", "0", "epoch", "-inf"},
		{"HSET", "0", "remember", "x"}, {"HDEL", "0", "fields"}, {"HDEL", "0", "gone"},
		{"HSET", "1", "held", "?"}, {"HSET", "1", "held", "R1;;"}, {"HSET", "1", "held", "S;,99999999999999999999,1,1;"},
	} {
		s := opened(t, c, fmt.Sprint("s", i), spec(9))
		redistest.NoError(s.Reserve(ctx, stock.Order{ID: "held"}, time.Hour))(t)
		redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
		at := s.Keys()[harm[1][0]-'0']
		rig.Must(t, raw, append([]string{harm[0], at}, harm[2:]...)...)
		before := rig.Hash(t, raw, s.Keys()[1])
		for name, verb := range map[string]func() (stock.Answer, error){
			"pay": func() (stock.Answer, error) { return s.Pay(ctx, "held") },
			"buy": func() (stock.Answer, error) { return s.Buy(ctx, stock.Order{ID: "new"}) },
		} {
			if harm[1] == "1" && name == "buy" {
				continue // it does not read that record
			}
			a, err := verb()
			require.ErrorIs(t, err, stock.ErrNoStock, "%v: %s %+v", harm, name, a)
			require.ErrorIs(t, err, errs.ErrCorrupt, harm)
			require.Nil(t, a.Refund(stock.Line{N: 1}))
		}
		require.Equal(t, before, rig.Hash(t, raw, s.Keys()[1]), harm)
		rig.Must(t, raw, "HSET", s.Keys()[0], "revision", "007")
		require.ErrorIs(t, s.EndSale(ctx), stock.ErrNoStock, harm)
		require.NoError(t, s.Delete(ctx), harm) // whatever the epoch is
		require.NoError(t, s.Open(ctx, spec(9)), harm)
	}
}

// A server, or a proxy in front of it, answers what no script does.
func TestSale_GarbledReplies_AreErrors(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	s := opened(t, on(t, raw, exact), "s", spec(5))
	redistest.NoError(s.Reserve(ctx, stock.Order{ID: "held"}, time.Hour))(t)
	garbled := &rig.Garbled{Client: raw, Match: func(args []string) bool {
		return args[0] == "EVALSHA" || args[0] == "HSCAN"
	}}
	o := exact
	o.Books = func(string) stock.Book { return &book{} }
	g := on(t, garbled, o).Sale("s")
	for name, verb := range map[string]func() (stock.Answer, error){
		"buy":     func() (stock.Answer, error) { return g.Buy(ctx, stock.Order{User: "ann"}) },
		"anyone":  func() (stock.Answer, error) { return g.Buy(ctx, stock.Order{Anyone: true}) },
		"reserve": func() (stock.Answer, error) { return g.Reserve(ctx, stock.Order{ID: "x"}, time.Hour) },
		"pay":     func() (stock.Answer, error) { return g.Pay(ctx, "held") },
		"return":  func() (stock.Answer, error) { return g.Return(ctx, "held") },
		"open":    func() (stock.Answer, error) { return stock.Answer{}, g.Open(ctx, spec(5)) },
		"change":  func() (stock.Answer, error) { return stock.Answer{}, g.EndSale(ctx) },
		"delete":  func() (stock.Answer, error) { return stock.Answer{}, g.Delete(ctx) },
		"inspect": func() (a stock.Answer, err error) { _, err = g.Inspect(ctx); return a, err },
		"restore": func() (a stock.Answer, err error) { _, err = g.Restore(ctx, spec(5)); return a, err },
		"ledger":  func() (a stock.Answer, err error) { _, err = g.Ledger(ctx, 1, (&book{}).Move); return a, err },
	} {
		a, err := verb()
		require.ErrorContains(t, err, "unexpected reply", name)
		require.Zero(t, a, name)
	}
	garbled.Match = func(args []string) bool { return args[0] == "HSCAN" }
	var last error
	for _, err := range g.Holders(ctx) {
		last = err
	}
	require.ErrorContains(t, last, "unexpected reply")
}

// WAIT waits only for what its own connection has written, so every decision comes with a write, the second time too.
func TestDecisions_Confirmed_ComeWithAWrite(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--hz", "100")
	raw := srv.Client(t)
	s := opened(t, on(t, raw, stock.Options{CallTimeout: 10 * time.Second, MinReplicas: 1,
		ReplicaTimeout: time.Millisecond, SoldOutTrust: -1}), "s", spec(1000))
	plain := on(t, raw, stock.Options{CallTimeout: 10 * time.Second, MinReplicas: 1,
		ReplicaTimeout: time.Millisecond}).Sale("plain")
	require.NoError(t, plain.Open(ctx, stock.Spec{Limit: 1000, OpenFor: time.Hour}))
	changes := func() string {
		for line := range strings.Lines(rig.Text(t, raw, "INFO", "persistence")) {
			if n, ok := strings.CutPrefix(line, "rdb_changes_since_last_save:"); ok {
				return n
			}
		}
		return ""
	}
	n := 0
	for _, state := range []string{"none", "reserved", "lapsed", "sold", "closed", "forbidden"} {
		for name, verb := range map[string]func(id string) (stock.Answer, error){
			"buy":     func(id string) (stock.Answer, error) { return s.Buy(ctx, stock.Order{ID: id}) },
			"own":     func(id string) (stock.Answer, error) { return plain.Buy(ctx, stock.Order{User: "own " + id}) },
			"reserve": func(id string) (stock.Answer, error) { return s.Reserve(ctx, stock.Order{ID: id}, time.Hour) },
			"extend":  func(id string) (stock.Answer, error) { return s.Extend(ctx, id, 2*time.Hour) },
			"pay":     func(id string) (stock.Answer, error) { return s.Pay(ctx, id) },
			"cancel":  func(id string) (stock.Answer, error) { return s.Cancel(ctx, id) },
			"return":  func(id string) (stock.Answer, error) { return s.Return(ctx, id) },
			"status":  func(id string) (stock.Answer, error) { return s.Status(ctx, id) },
			"ledger": func(string) (a stock.Answer, err error) {
				_, err = s.Ledger(ctx, 1, (&book{}).Move)
				return a, err
			},
		} {
			id := state + " " + name
			if state != "none" && state != "forbidden" {
				_, _ = s.Reserve(ctx, stock.Order{ID: id}, time.Hour)
			}
			switch state {
			case "lapsed":
				rig.Must(t, raw, "HSET", s.Keys()[1], id, "R1;,1,1,0;")
				rig.Must(t, raw, "ZADD", s.Keys()[2], "1", id)
				_, _ = s.Status(ctx, id)
			case "sold":
				_, _ = s.Pay(ctx, id)
			case "closed", "forbidden":
				_, _ = s.Cancel(ctx, id)
			}
			for again := range 2 {
				before := changes()
				a, err := verb(id)
				if err == nil {
					require.Empty(t, a.State, "%s confirmed by no replica", id)
					continue
				}
				require.ErrorIs(t, err, errs.ErrNotReplicated, id)
				require.NotEqual(t, before, changes(), "%s, %d", id, again)
				require.Empty(t, a.State, id)
				n++
			}
		}
	}
	require.Greater(t, n, 80)
}

// An order of the user's own name is in no count, so each kind of order must look at the other.
func TestUserLimit_OwnName_CountsForOtherOrders(t *testing.T) {
	t.Parallel()
	c := on(t, redistest.Embedded(t).Client(t), exact)
	own := func(s *stock.Sale) (stock.Answer, error) { return s.Buy(ctx, stock.Order{User: "ann"}) }
	ownReserved := func(s *stock.Sale) (stock.Answer, error) { return s.Reserve(ctx, stock.Order{User: "ann"}, time.Hour) }
	other := func(s *stock.Sale) (stock.Answer, error) { return s.Buy(ctx, stock.Order{ID: "x", User: "ann"}) }
	otherReserved := func(s *stock.Sale) (stock.Answer, error) {
		return s.Reserve(ctx, stock.Order{ID: "y", User: "ann"}, time.Hour)
	}
	for i, pair := range [][2]func(*stock.Sale) (stock.Answer, error){
		{own, other}, {own, otherReserved}, {other, own}, {other, ownReserved}, {ownReserved, other}, {other, otherReserved},
	} {
		s := opened(t, c, fmt.Sprint("s", i), spec(100))
		a := redistest.NoError(pair[0](s))(t)
		require.True(t, a.Won())
		a = redistest.NoError(pair[1](s))(t)
		require.Equal(t, []any{stock.Refused, stock.UserLimit}, []any{a.State, a.Why}, i)
	}
	s := opened(t, c, "together", spec(100))
	answers, _, err := s.Deeds(ctx, stock.Deed{Verb: "B", ID: "ann", User: "ann", Lines: []stock.Line{{N: 1}}},
		stock.Deed{Verb: "R", ID: "x", User: "ann", Lines: []stock.Line{{N: 1}}, TTL: time.Hour})
	require.NoError(t, err)
	require.Equal(t, []any{true, false}, []any{answers[0].Won(), answers[1].Won()})
}

// Until its deadline is over a unit is its owner's, and from the next millisecond on another's.
func TestReservation_LastMillisecond_IsItsOwners(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	c, forward := on(t, srv.Client(t), exact), srv.Clock()
	for _, name := range []string{"paid", "lapses"} {
		s := opened(t, c, name, spec(1))
		_, err := s.Reserve(ctx, stock.Order{ID: "first"}, time.Minute)
		require.NoError(t, err)
		forward(time.Minute)
		a := redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
		require.Equal(t, stock.SoldOut, a.Why)
		if name == "lapses" {
			forward(time.Millisecond)
			a, err = s.Buy(ctx, stock.Order{User: "ann"})
		} else {
			require.NoError(t, pause(ctx, s, true)) // a lapsed order would hear ErrLater
			a, err = s.Pay(ctx, "first", stock.Line{N: 1})
		}
		require.NoError(t, err)
		require.Equal(t, stock.Sold, a.State, name)
		require.Equal(t, name == "lapses", a.User == "ann")
	}
}

// Hundreds of reservations are over: none of them keeps a customer from a unit.
func TestReservations_ManyAreOver_RefuseNobody(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	c, forward := on(t, srv.Client(t), exact), srv.Clock()
	s := opened(t, c, "s", spec(900))
	reserve := func(ttl time.Duration, ids ...string) {
		for chunk := range slices.Chunk(ids, 100) {
			var deeds []stock.Deed
			for _, id := range chunk {
				deeds = append(deeds, stock.Deed{Verb: "R", ID: id, Lines: []stock.Line{{N: 1}}, TTL: ttl})
			}
			_, _, err := s.Deeds(ctx, deeds...)
			require.NoError(t, err)
		}
	}
	var ids []string
	for i := range 900 {
		ids = append(ids, fmt.Sprint("o", i))
	}
	reserve(time.Minute, ids...)
	forward(2 * time.Minute)
	a := redistest.NoError(s.Buy(ctx, stock.Order{ID: "all", Lines: []stock.Line{{N: 900}}}))(t)
	require.Equal(t, stock.Sold, a.State)
	a = redistest.NoError(s.Pay(ctx, "o899"))(t)
	require.Equal(t, []any{stock.Closed, stock.Expired}, []any{a.State, a.Why})
}

func TestSoldOut_Known_IsAnsweredByTheProcess(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	o := stock.Options{CallTimeout: 10 * time.Second}
	one, two := on(t, srv.Client(t), o), on(t, srv.Client(t), o)
	s := opened(t, one, "s", spec(2))
	won := redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
	redistest.NoError(s.Buy(ctx, stock.Order{User: "bob"}))(t)
	n := 0
	loses := func(at *stock.Sale) {
		for _, o := range []stock.Order{{Anyone: true}, {ID: fmt.Sprint("new", n), New: true}} {
			n++
			a := redistest.NoError(at.Buy(ctx, o))(t)
			require.Equal(t, []any{stock.Refused, stock.SoldOut, won.Epoch}, []any{a.State, a.Why, a.Epoch})
		}
	}
	calls := func() int { return redistest.ScriptCalls(t, admin) }
	for _, c := range []*stock.Client{one, two} {
		redistest.Eventually(t, 20*time.Second, "answered by the process", func() bool {
			before := calls()
			loses(c.Sale("s"))
			loses(c.Sale("s"))
			return calls() == before
		})
	}
	a, err := s.Buy(ctx, stock.Order{User: "ann"}) // who may have won is never answered by the process
	require.NoError(t, err)
	require.True(t, a.Won())

	redistest.Eventually(t, 20*time.Second, "this process knows that it is sold out", func() bool {
		loses(s)
		return s.KnowsSoldOut("")
	})
	redistest.NoError(s.Return(ctx, "ann"))(t)
	require.False(t, s.KnowsSoldOut(""), "the news of its own return has yet to come from the server")
	a, err = s.Buy(ctx, stock.Order{ID: "again", New: true}) // this process knows of its own return at once
	require.NoError(t, err)
	require.EqualValues(t, 3, a.Lines[0].Ordinal)
	redistest.NoError(s.Return(ctx, "again"))(t)
	redistest.Eventually(t, 10*time.Second, "the other process hears of it", func() bool {
		n++
		a := redistest.NoError(two.Sale("s").Buy(ctx, stock.Order{ID: fmt.Sprint("hears", n), New: true}))(t)
		return a.Won()
	})
	redistest.Eventually(t, 20*time.Second, "sold out again", func() bool {
		before := calls()
		loses(two.Sale("s"))
		loses(two.Sale("s"))
		return calls() == before
	})
	require.NoError(t, s.EndSale(ctx))
	redistest.Eventually(t, 10*time.Second, "the other hears that it has ended", func() bool {
		a := redistest.NoError(two.Sale("s").Buy(ctx, stock.Order{Anyone: true}))(t)
		return a.Why == stock.Ended
	})
}

// What is sold out by reservations is not said to be so beyond the next deadline.
func TestSoldOut_ByReservations_EndsWithTheNextDeadline(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	s := opened(t, on(t, raw, exact), "s", spec(2))
	for i, ttl := range []time.Duration{time.Minute, time.Hour} {
		redistest.NoError(s.Reserve(ctx, stock.Order{ID: fmt.Sprint(i)}, ttl))(t)
	}
	require.InDelta(t, time.Minute.Milliseconds(), rig.Number(t, raw, "PTTL", s.Keys()[3]), 50)
	forward(time.Minute + time.Millisecond)
	a := redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
	require.True(t, a.Won())
	require.InDelta(t, 59*time.Minute.Milliseconds(), rig.Number(t, raw, "PTTL", s.Keys()[3]), 50)
	paused := true
	require.NoError(t, s.Change(ctx, stock.Change{Paused: &paused}))
	require.Zero(t, rig.Number(t, raw, "EXISTS", s.Keys()[3]))
}

// Copies that the network kept change nothing: of Open, when the sale was lost; of Change, when another came.
func TestLateCopies_OfTheOperator_ChangeNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	w := &wire{Client: raw, copies: 1, late: func(args []string) bool { return args[0] == "EVALSHA" }}
	s := opened(t, on(t, w, exact), "s", spec(5))
	end := 10 * time.Minute
	require.NoError(t, s.Change(ctx, stock.Change{EndIn: &end}))
	w.late = nil
	end = 20 * time.Minute
	revision := rig.Number(t, raw, "HGET", s.Keys()[0], "revision")
	w.copies = 2
	require.NoError(t, s.Change(ctx, stock.Change{EndIn: &end}))
	w.copies = 1
	require.Equal(t, revision+1, rig.Number(t, raw, "HGET", s.Keys()[0], "revision"), "the second run changes nothing")
	before := rig.Hash(t, raw, s.Keys()[0])
	for _, args := range w.kept { // after another change
		w.deliver(args)
	}
	require.Equal(t, before, rig.Hash(t, raw, s.Keys()[0]))
	forward(time.Minute)
	for _, args := range w.kept {
		w.deliver(args)
	}
	require.Equal(t, before, rig.Hash(t, raw, s.Keys()[0]))
	rig.Must(t, raw, append([]string{"DEL"}, s.Keys()...)...)
	forward(time.Minute)
	for _, args := range w.kept {
		w.deliver(args)
	}
	require.Empty(t, rig.Keys(t, raw))
	opened(t, on(t, raw, exact), "s", spec(7))
	before = rig.Hash(t, raw, s.Keys()[0])
	for _, args := range w.kept {
		w.deliver(args)
	}
	require.Equal(t, before, rig.Hash(t, raw, s.Keys()[0]))
}
