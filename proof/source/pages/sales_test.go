package pages_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
)

var errNothing = errors.New("nothing was sold")

// Announce opens the sale: 100 phones, for an hour from noon. Every process calls it when it starts.
func Announce(ctx context.Context, sales *stock.Client, noon time.Time) error {
	return sales.Sale("phones").Open(ctx,
		stock.Spec{Limit: 100, StartIn: max(0, time.Until(noon)), OpenFor: time.Hour})
}

// Buy returns the number of user's phone, 1 to 100, the same however often it is called.
func Buy(ctx context.Context, sales *stock.Client, user string) (phone int64, err error) {
	a, err := sales.Sale("phones").Buy(ctx, stock.Order{User: user})
	switch {
	case err != nil:
		return 0, err // ask again
	case a.Won():
		return a.Lines[0].Ordinal, nil
	}
	return 0, fmt.Errorf("%w: %s", errNothing, a.Why) // sold out, user limit, ended
}

// Checkout reserves a cart for ten minutes, all of it or nothing. Called again, it answers the same and adds no time.
func Checkout(ctx context.Context, sale *stock.Sale, order, user string, cart ...stock.Line) (stock.Answer, error) {
	return sale.Reserve(ctx, stock.Order{ID: order, User: user, Lines: cart}, 10*time.Minute)
}

// Bank pays money back: RefundUpTo pays what is missing to a total. Its idempotency key is the order with the total.
type Bank interface {
	RefundUpTo(ctx context.Context, order string, total []stock.Line) error
}

// OnPayment is called by the bank, or by a job that reads its payments. paid are all lines that were ever paid for the
// order, at least one. An error is HTTP 500, and the bank calls again.
func OnPayment(ctx context.Context, sale *stock.Sale, bank Bank, order string, paid ...stock.Line) error {
	a, err := sale.Pay(ctx, order, paid...)
	if err != nil {
		return err // nothing is decided, or nobody knows: never a refund
	}
	return bank.RefundUpTo(ctx, order, a.Refund(paid...))
}

// TakeBack ends an order, or leaves the customer the lines of keep.
func TakeBack(ctx context.Context, sale *stock.Sale, bank Bank, order string, paid []stock.Line,
	keep ...stock.Line) error {
	a, err := sale.Return(ctx, order, keep...)
	if err != nil {
		return err
	}
	return bank.RefundUpTo(ctx, order, a.Refund(paid...))
}

func TestBuy_AskedAgain_GivesTheSamePhone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		sales := srv.Open().Sales()
		for range 2 {
			require.NoError(t, Announce(t.Context(), sales, time.Now()))
		}
		buy := func(user string, phone int64) {
			got := redistest.NoError(Buy(t.Context(), sales, user))(t)
			require.Equal(t, phone, got)
		}
		for range 2 {
			srv.Break(redlatchtest.Fault{Kind: redlatchtest.LostReply, Times: 1})
			buy("ann", 1)
		}
		for n := range 99 {
			buy(fmt.Sprint("user ", n), int64(n+2))
		}
		_, err := Buy(t.Context(), sales, "bob")
		require.ErrorContains(t, err, stock.SoldOut)
		buy("ann", 1)
	})
}

// pageBank is a bank that pays back what is missing to a total.
type pageBank struct{ refunded map[string]int64 } // by item

func (b *pageBank) RefundUpTo(_ context.Context, _ string, total []stock.Line) error {
	if b.refunded == nil {
		b.refunded = map[string]int64{}
	}
	for _, l := range total {
		b.refunded[l.Item] = max(b.refunded[l.Item], l.N)
	}
	return nil
}

// happens are what can happen to a sale of two units, which an order has reserved.
var happens = map[string]func(ctx context.Context, srv *redlatchtest.Server, sale *stock.Sale) error{
	"late": func(_ context.Context, srv *redlatchtest.Server, _ *stock.Sale) error {
		srv.Advance(11 * time.Minute)
		return nil
	},
	"one is sold": func(ctx context.Context, _ *redlatchtest.Server, sale *stock.Sale) error {
		_, err := sale.Buy(ctx, stock.Order{ID: "other"})
		return err
	},
	"two are sold": func(ctx context.Context, _ *redlatchtest.Server, sale *stock.Sale) error {
		_, err := sale.Buy(ctx, stock.Order{ID: "other", Lines: []stock.Line{{N: 2}}})
		return err
	},
	"cancelled": func(ctx context.Context, _ *redlatchtest.Server, sale *stock.Sale) error {
		_, err := sale.Cancel(ctx, "order")
		return err
	},
	"paused": func(ctx context.Context, _ *redlatchtest.Server, sale *stock.Sale) error {
		paused := true
		return sale.Change(ctx, stock.Change{Paused: &paused})
	},
	"ended": func(ctx context.Context, _ *redlatchtest.Server, sale *stock.Sale) error { return sale.EndSale(ctx) },
	"lost": func(_ context.Context, srv *redlatchtest.Server, _ *stock.Sale) error {
		srv.Redis().FlushAll()
		return nil
	},
}

// The table of the page, and afterwards the customer gives back one unit, and then all.
func TestOnPayment_EachCase_RefundsWhatThePageSays(t *testing.T) {
	for before, c := range map[string]struct {
		paid           int64
		state          stock.State
		sold, refunded int64
		err            error
	}{
		"":                   {paid: 2, state: stock.Sold, sold: 2},
		", a part":           {paid: 1, state: stock.Sold, sold: 1},
		", twice":            {paid: 4, state: stock.Sold, sold: 2, refunded: 2},
		"late":               {paid: 2, state: stock.Sold, sold: 2},
		"late, one is sold":  {paid: 2, state: stock.Sold, sold: 1, refunded: 1},
		"late, two are sold": {paid: 2, state: stock.Closed, refunded: 2},
		"cancelled":          {paid: 2, state: stock.Closed, refunded: 2},
		"paused":             {paid: 2, state: stock.Sold, sold: 2},
		"late, paused":       {paid: 2, err: stock.ErrLater},
		"ended":              {paid: 2, state: stock.Sold, sold: 2},
		"late, ended":        {paid: 2, state: stock.Closed, refunded: 2},
		"lost":               {paid: 2, err: stock.ErrNoStock},
	} {
		t.Run(before, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, bank := redlatchtest.New(t), &pageBank{}
				sale := srv.Open().Sales().Sale("tickets")
				require.NoError(t, sale.Open(t.Context(), stock.Spec{Limit: 2, PerUser: 2, OpenFor: time.Hour}))
				a := redistest.NoError(Checkout(t.Context(), sale, "order", "ann", stock.Line{N: 2}))(t)
				require.True(t, a.Won())
				for event := range strings.SplitSeq(before, ", ") {
					if do := happens[event]; do != nil {
						require.NoError(t, do(t.Context(), srv, sale))
					}
				}
				for range 2 {
					err := OnPayment(t.Context(), sale, bank, "order", stock.Line{N: c.paid})
					require.ErrorIs(t, err, c.err)
					require.Equal(t, c.refunded, bank.refunded[""])
				}
				if c.err != nil {
					return
				}
				a = redistest.NoError(sale.Status(t.Context(), "order"))(t)
				require.Equal(t, c.state, a.State)
				if c.sold > 0 {
					require.Equal(t, c.sold, a.Lines[0].N)
				}
				for keep := min(c.sold, 1); keep >= 0; keep-- {
					left := []stock.Line{{N: keep}}[:keep]
					require.NoError(t, TakeBack(t.Context(), sale, bank, "order", []stock.Line{{N: c.paid}}, left...))
					require.Equal(t, c.paid-keep, bank.refunded[""])
				}
			})
		})
	}
}
