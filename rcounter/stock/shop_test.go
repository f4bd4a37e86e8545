package stock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// ledgerBank is a bank that has paid back so many units of an item for an order. It fails as fail says, before or after
// it has paid.
type ledgerBank struct {
	back  map[string]int64 // by order and item
	calls int
	fail  func() bool
}

var errBank = errors.New("the bank did not answer")

func (b *ledgerBank) RefundUpTo(_ context.Context, order string, total []stock.Line) error {
	b.calls++
	if b.fail() {
		return errBank
	}
	for _, l := range total {
		key := order + " " + l.Item
		b.back[key] = max(b.back[key], l.N) // it pays what is missing to the total
	}
	if b.fail() {
		return errBank
	}
	return nil
}

// A shop does each step until it succeeds, in any order and by any process, and is killed between any two. In the end
// each customer has what was paid for, or the money. In between the server loses what it has.
func TestShop_KilledAtEveryStep_BooksAreExact(t *testing.T) {
	t.Parallel()
	for seed := range redistest.Sized(12, 12, 200) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(uint64(seed), 7))
			srv := redistest.Embedded(t)
			raw, forward := srv.Client(t), srv.Clock()
			b := &book{}
			off := 0
			w := &wire{Client: raw, copies: 1}
			o := exact
			o.Books = func(string) stock.Book { return b }
			c := on(t, w, o)
			paidBack := &ledgerBank{back: map[string]int64{}, fail: func() bool { return rnd.IntN(3) == 0 }}
			items := map[string]stock.Item{"red": {Limit: 12, PerUser: 9}, "blue": {Limit: 9, PerUser: 9}}
			is := stock.Spec{Items: items, OpenFor: 1000 * time.Hour, Ledger: true}
			s := opened(t, c, "phones", is)
			// try does a step until it succeeds; it may be cut off at any request.
			try := func(step func() error) {
				for n := 0; ; n++ {
					off = rnd.IntN(5)
					w.copies = 1 + rnd.IntN(2)
					w.off = func([]string) bool { off--; return off == 0 }
					err := step()
					w.off = nil
					if err == nil {
						return
					}
					require.Less(t, n, 200, err)
					if errors.Is(err, stock.ErrNoStock) || errors.Is(err, stock.ErrLater) {
						if err := repair(ctx, s, is); err != nil {
							t.Log("repair: ", err)
						}
					}
				}
			}
			paid := map[string][]stock.Line{}
			var setBack func()
			for n := range 25 {
				id, user := fmt.Sprint("order", n), fmt.Sprint("user", rnd.IntN(4))
				want := []stock.Line{{Item: "red", N: int64(1 + rnd.IntN(2))}, {Item: "blue", N: 1}}[rnd.IntN(2):]
				reserved := false
				try(func() error {
					a, err := reserve(ctx, s, id, user, want...)
					reserved = a.State == stock.Reserved
					return err
				})
				if rnd.IntN(3) == 0 {
					forward(11 * time.Minute) // late
				}
				if rnd.IntN(4) == 0 {
					paused := rnd.IntN(2) == 0
					try(func() error { return pause(ctx, s, paused) })
					try(func() error { return pause(ctx, s, false) })
				}
				if setBack != nil && rnd.IntN(2) == 0 { // the ledger was moved, and a failover forgets some of it
					try(func() error { _, err := s.Ledger(ctx, 1000, b.Move); return err })
					setBack()
					setBack = nil
					try(func() error { return repair(ctx, s, is) })
				}
				if rnd.IntN(4) == 0 {
					setBack = snapshot(t, raw, s)
				}
				if rnd.IntN(3) == 0 { // the ledger was moved, then all or a part is lost
					setBack = nil
					try(func() error { _, err := s.Ledger(ctx, 1000, b.Move); return err })
					rig.Must(t, raw, append([]string{"DEL"}, s.Keys()[rnd.IntN(2):2+rnd.IntN(5)]...)...)
				}
				switch x := rnd.IntN(6); {
				case x == 0:
					try(func() error { _, err := giveUp(ctx, s, id); return err })
				case reserved || x == 1:
					paid[id] = want
					for range 1 + rnd.IntN(2) {
						try(func() error { return webhook(ctx, s, paidBack, id, want...) })
					}
					if rnd.IntN(4) == 0 {
						try(func() error { return refund(ctx, s, paidBack, id, want, stock.Line{Item: "red", N: 1}) })
					}
					if rnd.IntN(5) == 0 {
						try(func() error { return refund(ctx, s, paidBack, id, want) })
					}
				}
			}
			try(func() error { _, err := s.Ledger(ctx, 1000, b.Move); return err })
			refunded := 0
			for n := range 25 {
				id := fmt.Sprint("order", n)
				var a stock.Answer
				try(func() (err error) { a, err = s.Status(ctx, id); return err })
				has := map[string]int64{}
				if a.State == stock.Sold {
					for _, l := range a.Lines {
						has[l.Item] += l.N
					}
				}
				for _, l := range paid[id] {
					back := paidBack.back[id+" "+l.Item]
					require.Equal(t, l.N, has[l.Item]+back, "%s of %s: %+v", l.Item, id, a)
					refunded += int(back)
				}
				if paid[id] == nil {
					require.Empty(t, has, id)
				}
			}
			require.Positive(t, refunded)
			st := redistest.NoError(s.Inspect(ctx))(t)
			for item, is := range st.Items {
				require.LessOrEqual(t, is.Sold+is.Reserved, items[item].Limit)
			}
		})
	}
}
