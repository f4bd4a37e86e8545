package pages_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
)

var errSoldOut = errors.New("sold out")

// Announce opens the sale: 100 units, for an hour from noon. Call it from one place.
func Announce(ctx context.Context, stocks *stock.Client, noon time.Time) error {
	_, err := stocks.Stock("sale").Open(ctx, stock.Spec{Limit: 100, StartIn: max(0, time.Until(noon)), OpenFor: time.Hour})
	if errors.Is(err, redlatch.ErrAlreadyOpen) {
		return nil
	}
	return err
}

// Buy returns the number of user's unit, from 1 to 100, the same however often it is called.
func Buy(ctx context.Context, stocks *stock.Client, user string) (int64, error) {
	unit, err := stocks.Stock("sale").Claim(ctx, user)
	switch {
	case err != nil:
		return 0, err // call again: the answer will be the same unit
	case unit.Won():
		return unit.Ordinal, nil
	default: // SoldOut, NotStarted, Ended, Paused, Suspended or NotOpen
		return 0, errSoldOut
	}
}

// HoldCart holds the units of a cart for a quarter of an hour, all or none. missing names the stocks that refused.
func HoldCart(ctx context.Context, stocks *stock.Client, order, user string,
	cart []stock.Line) (missing []string, err error) {
	held, err := stocks.Group("sale").Reserve(ctx, user, stock.CartRequest{ID: order, Lines: cart}, 15*time.Minute)
	if err != nil {
		return nil, err // call again, with the same order
	}
	for _, line := range held.Lines {
		if !held.Won() && line.Grant.Outcome != "" {
			missing = append(missing, line.Stock)
		}
	}
	return missing, nil
}

// PayCart sells what an order has paid for. Call it until it returns no error, and again whenever the bank calls.
// refund is how many units of each stock the order does not get. It is always the same, so refund each order and stock
// once.
func PayCart(ctx context.Context, stocks *stock.Client, order string,
	cart []stock.Line) (refund map[string]int64, err error) {
	sold, err := stocks.Group("sale").Confirm(ctx, order, cart...)
	switch {
	case err != nil:
		return nil, err
	case !sold.Outcome.Final():
		return nil, fmt.Errorf("the sale is %v", sold.Outcome)
	}
	refund = map[string]int64{}
	for _, line := range cart {
		refund[line.Stock] = line.N
	}
	for _, line := range sold.Lines {
		refund[line.Stock] -= line.Grant.N
	}
	return refund, nil
}

// Orders is the shop's table of orders. Decide writes the fate of an order unless it has one, and returns the fate
// that the order has. In SQL: UPDATE orders SET fate = $2 WHERE id = $1 AND fate IS NULL, and then SELECT fate.
type Orders interface {
	Decide(ctx context.Context, order, fate string) (string, error)
}

// HoldEach holds the units of an order for a quarter of an hour, in stocks that need not share a server. If one of them
// has too few, held is false, and the other units return to their stocks in half a minute, unless another call of the
// same order holds all of them. Use another order for the next attempt.
func HoldEach(ctx context.Context, order, user string, cart map[*stock.Stock]int64) (held bool, err error) {
	for sale, n := range cart {
		unit, err := sale.Reserve(ctx, user, stock.Request{ID: order, N: n}, 30*time.Second)
		if err != nil || !unit.Won() {
			return false, err // after an error call again, with the same order
		}
	}
	for sale := range cart {
		unit, err := sale.Extend(ctx, order, 15*time.Minute)
		if err != nil || !unit.Won() {
			return false, err
		}
	}
	return true, nil
}

// FinishEach sells the units of an order (fate "sold") or returns them ("cancelled"), whichever was decided first. If
// they are sold, refund is how many units of each stock the order does not get, because it came too late.
func FinishEach(ctx context.Context, orders Orders, order, fate string,
	cart map[*stock.Stock]int64) (sold bool, refund map[*stock.Stock]int64, err error) {
	if fate, err = orders.Decide(ctx, order, fate); err != nil {
		return false, nil, err
	}
	sold, refund = fate == "sold", map[*stock.Stock]int64{}
	for sale, n := range cart {
		if !sold {
			if _, err := sale.Cancel(ctx, order); err != nil {
				return false, nil, err // call again: the fate stands
			}
			continue
		}
		unit, err := sale.Confirm(ctx, order, stock.Paid(n))
		switch {
		case err != nil:
			return false, nil, err
		case !unit.Outcome.Final():
			return false, nil, fmt.Errorf("the sale is %v", unit.Outcome)
		case unit.Missing > 0:
			refund[sale] = unit.Missing
		}
	}
	return sold, refund, nil
}

// Settle moves sales into a database until ctx ends. Several processes may run it.
func Settle(ctx context.Context, stocks *stock.Client, insert func(context.Context, []stock.Entry) error) error {
	return stocks.Stock("sale").KeepLedger(ctx, time.Second, 500, insert)
}

// LivePage updates a page until ctx ends. It calls news with each new entry, and draw with the state of the stock, at
// least every two seconds.
func LivePage(ctx context.Context, sale *stock.Stock, draw func(stock.State), news func(stock.Entry)) error {
	for e, err := range sale.Events(ctx, 2*time.Second) {
		switch {
		case err != nil:
			return err
		case !e.Gap:
			news(e.Entry)
		default: // the page begins, or has missed entries
			if now, err := sale.Inspect(ctx); err == nil {
				draw(now)
			}
		}
	}
	return nil
}

// Give sends a red packet: 20.00 in 10 shares, of at least 0.50 each.
func Give(ctx context.Context, packets *redpacket.Client) error {
	_, err := packets.Packet("new-year").Send(ctx,
		redpacket.Spec{Total: 2000, Shares: 10, Min: 50, OpenFor: 24 * time.Hour, Ledger: true})
	return err
}

// Open returns user's share in cents, or 0 if all are taken.
func Open(ctx context.Context, packets *redpacket.Client, user string) (int64, error) {
	share, err := packets.Packet("new-year").Grab(ctx, user)
	return share.Cents, err
}

// PayOut calls pay with the shares that users took of a red packet, and with the refund, until ctx ends. Several
// processes may run it.
func PayOut(ctx context.Context, packets *redpacket.Client, pay func(context.Context, []redpacket.Entry) error) error {
	return packets.Packet("new-year").KeepLedger(ctx, time.Second, 500, pay)
}

func TestBuy_AskedAgain_GivesTheSameUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		stocks := srv.Open().Stocks()
		require.NoError(t, Announce(t.Context(), stocks, time.Now()))
		require.NoError(t, Announce(t.Context(), stocks, time.Now()))
		for range 2 {
			srv.Break(redlatchtest.Fault{Kind: redlatchtest.LostReply, Times: 1})
			ordinal, err := Buy(t.Context(), stocks, "ann")
			require.NoError(t, err)
			require.EqualValues(t, 1, ordinal)
		}
		srv.SellOut("sale")
		_, err := Buy(t.Context(), stocks, "bob")
		require.ErrorIs(t, err, errSoldOut)
		ordinal, err := Buy(t.Context(), stocks, "ann")
		require.NoError(t, err)
		require.EqualValues(t, 1, ordinal)
	})
}

func TestCart_OfTwoStocks_IsHeldAndPaidAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		stocks := srv.Open().Stocks()
		for _, name := range []string{"shirt", "cap"} {
			_, err := stocks.Group("sale").Stock(name).Open(t.Context(), stock.Spec{Limit: 2, PerUser: 2, OpenFor: time.Hour})
			require.NoError(t, err)
		}
		cart := []stock.Line{{Stock: "shirt", N: 1}, {Stock: "cap", N: 2}}
		for range 2 {
			missing, err := HoldCart(t.Context(), stocks, "order-1", "ann", cart)
			require.NoError(t, err)
			require.Empty(t, missing)
		}
		missing, err := HoldCart(t.Context(), stocks, "order-2", "bob", cart)
		require.NoError(t, err)
		require.Equal(t, []string{"cap"}, missing)
		srv.Advance(20 * time.Minute)
		_, err = stocks.Group("sale").Stock("cap").Claim(t.Context(), "bob")
		require.NoError(t, err)
		for range 2 {
			refund, err := PayCart(t.Context(), stocks, "order-1", cart)
			require.NoError(t, err)
			require.Equal(t, map[string]int64{"shirt": 0, "cap": 1}, refund)
		}
	})
}

// fates is a table of orders.
type fates struct{ of map[string]string }

func (f *fates) Decide(_ context.Context, order, fate string) (string, error) {
	if f.of[order] == "" {
		f.of[order] = fate
	}
	return f.of[order], nil
}

// servers is a stock of two units on each of two servers.
func servers(t *testing.T) (srvs [2]*redlatchtest.Server, sales [2]*stock.Stock) {
	for i := range srvs {
		srvs[i] = redlatchtest.New(t)
		sales[i] = srvs[i].Open().Stocks().Stock("sale")
		_, err := sales[i].Open(t.Context(), stock.Spec{Limit: 2, PerUser: 2, OpenFor: time.Hour})
		require.NoError(t, err)
	}
	return srvs, sales
}

// requireUnits fails unless the stocks have sold so many units, and hold so many.
func requireUnits(t *testing.T, sales [2]*stock.Stock, sold, held [2]int64) {
	t.Helper()
	for i, s := range sales {
		is, err := s.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, [2]int64{sold[i], held[i]}, [2]int64{is.Sold, is.Held}, "server %d", i)
	}
}

func TestTwoServerCart_CallerDies_IsSoldOrGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for fate, sold := range map[string]int64{"sold": 1, "cancelled": 0} {
			for lost := range redistest.Sized(1, 2, 2) { // the server that does not answer for so long that the caller gives up
				srvs, sales := servers(t)
				orders, cart := &fates{of: map[string]string{}}, map[*stock.Stock]int64{sales[0]: 1, sales[1]: 2}
				srvs[lost].Break(redlatchtest.Fault{Kind: redlatchtest.LostReply, Times: 1000})
				_, err := HoldEach(t.Context(), "order", "ann", cart)
				require.Error(t, err)
				srvs[lost].Heal()
				for range 2 {
					held, err := HoldEach(t.Context(), "order", "ann", cart)
					require.NoError(t, err)
					require.True(t, held)
				}
				requireUnits(t, sales, [2]int64{}, [2]int64{1, 2})

				srvs[lost].Break(redlatchtest.Fault{Kind: redlatchtest.LostReply, Times: 1000})
				_, _, err = FinishEach(t.Context(), orders, "order", fate, cart)
				require.Error(t, err)
				srvs[lost].Heal()
				for _, asks := range []string{fate, "cancelled", "sold"} { // what was decided stands
					is, refund, err := FinishEach(t.Context(), orders, "order", asks, cart)
					require.NoError(t, err)
					require.Equal(t, fate == "sold", is)
					require.Empty(t, refund)
				}
				requireUnits(t, sales, [2]int64{sold, 2 * sold}, [2]int64{})
			}
		}
	})
}

// The first of two requests of one order is refused at b. Before its caller hears so, b has units again, and the second
// holds all: it is told that it has them, and has.
func TestTwoServerCart_CopyRefused_TakesNothingFromItsTwin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srvs, sales := servers(t)
		orders, cart := &fates{of: map[string]string{}}, map[*stock.Stock]int64{sales[0]: 1, sales[1]: 1}
		all, err := sales[1].ClaimAny(t.Context(), 2)
		require.NoError(t, err)
		held, err := HoldEach(t.Context(), "order", "ann", cart)
		require.NoError(t, err)
		require.False(t, held)
		_, err = sales[1].Return(t.Context(), stock.Units{Request: all.Request, Ordinal: all.Ordinal, N: all.N})
		require.NoError(t, err)
		held, err = HoldEach(t.Context(), "order", "ann", cart)
		require.NoError(t, err)
		require.True(t, held)
		for _, srv := range srvs {
			srv.Advance(14 * time.Minute)
		}
		sold, refund, err := FinishEach(t.Context(), orders, "order", "sold", cart)
		require.NoError(t, err)
		require.True(t, sold)
		require.Empty(t, refund)
		requireUnits(t, sales, [2]int64{1, 1}, [2]int64{})
	})
}

// What a refused order holds goes back by itself.
func TestTwoServerCart_Refused_HoldsNothingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srvs, sales := servers(t)
		_, err := sales[1].ClaimAny(t.Context(), 2)
		require.NoError(t, err)
		held, err := HoldEach(t.Context(), "order", "ann", map[*stock.Stock]int64{sales[0]: 1, sales[1]: 1})
		require.NoError(t, err)
		require.False(t, held)
		srvs[0].Advance(31 * time.Second)
		_, err = sales[0].Reap(t.Context())
		require.NoError(t, err)
		requireUnits(t, sales, [2]int64{0, 2}, [2]int64{})
	})
}

func TestTwoServerCart_PaidLate_IsRefundedInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srvs, sales := servers(t)
		orders, cart := &fates{of: map[string]string{}}, map[*stock.Stock]int64{sales[0]: 1, sales[1]: 2}
		_, err := HoldEach(t.Context(), "order", "ann", cart)
		require.NoError(t, err)
		for _, srv := range srvs {
			srv.Advance(20 * time.Minute)
		}
		_, err = sales[1].Claim(t.Context(), "bob")
		require.NoError(t, err)
		for range 2 {
			sold, refund, err := FinishEach(t.Context(), orders, "order", "sold", cart)
			require.NoError(t, err)
			require.True(t, sold)
			require.Equal(t, map[*stock.Stock]int64{sales[1]: 1}, refund)
		}
	})
}

func TestLivePage_UnitSold_ShowsBuyerAndRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stocks := redlatchtest.New(t).Open().Stocks()
		sale := stocks.Stock("sale")
		_, err := sale.Open(t.Context(), stock.Spec{Limit: 5, OpenFor: time.Hour, Ledger: true})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		go Settle(ctx, stocks, func(ctx context.Context, entries []stock.Entry) error { return sale.Publish(ctx, entries) })
		var left []int64
		var buyers []string
		err = LivePage(ctx, sale, func(st stock.State) {
			if left = append(left, st.Remaining); len(left) == 1 {
				_, err := Buy(t.Context(), stocks, "ann")
				require.NoError(t, err)
			}
		}, func(e stock.Entry) { buyers = append(buyers, e.Claimant) })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []string{"ann"}, buyers)
		require.EqualValues(t, 5, left[0])
		require.EqualValues(t, 4, left[len(left)-1])
		require.GreaterOrEqual(t, len(left), 9)
	})
}

func TestRedPacket_TenShares_AreAllOfTheMoneyAndPaidOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		packets := redlatchtest.New(t).Open().RedPackets()
		require.NoError(t, Give(t.Context(), packets))
		var sum int64
		for _, user := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "a", "late"} {
			cents, err := Open(t.Context(), packets, user)
			require.NoError(t, err)
			if user != "late" {
				require.GreaterOrEqual(t, cents, int64(50))
			}
			sum += cents
			if user == "a" && sum > cents { // the second time: the same share
				sum -= cents
			}
		}
		require.EqualValues(t, 2000, sum)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		PayOut(ctx, packets, func(_ context.Context, entries []redpacket.Entry) error {
			for _, e := range entries {
				require.NotEqual(t, "late", e.User)
				sum -= e.Cents
			}
			return nil
		})
		require.Zero(t, sum)
	})
}
