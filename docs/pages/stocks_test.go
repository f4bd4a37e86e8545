package pages_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
)

var errSoldOut = errors.New("sold out")

// Announce opens the sale: 100 units, for an hour from noon. Call it from one place.
func Announce(ctx context.Context, stocks *stock.Client, noon time.Time) error {
	_, err := stocks.Stock("sale").Open(ctx, stock.Spec{Limit: 100, StartIn: max(0, time.Until(noon)), OpenFor: time.Hour})
	if errors.Is(err, stock.ErrAlreadyOpen) {
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

// HoldCart holds the units of a cart for a quarter of an hour, all or none. missing names the stocks that were in the way.
func HoldCart(ctx context.Context, stocks *stock.Client, order, user string, cart []stock.Line) (missing []string, err error) {
	held, err := stocks.Group("sale").Reserve(ctx, order, user, cart, 15*time.Minute)
	if err != nil {
		return nil, err // call again, with the same order
	}
	for _, line := range held.Lines {
		if !held.Won() && line.Grant.Outcome != 0 {
			missing = append(missing, line.Stock)
		}
	}
	return missing, nil
}

// PayCart sells what an order holds. refund is how many units of each stock came too late and are gone.
func PayCart(ctx context.Context, stocks *stock.Client, order string, cart []stock.Line) (refund map[string]int64, err error) {
	sold, err := stocks.Group("sale").ConfirmLate(ctx, order)
	if err != nil {
		return nil, err // call again
	}
	refund = map[string]int64{}
	for _, line := range cart {
		refund[line.Stock] = line.N
	}
	for _, line := range sold.Lines {
		if line.Grant.Won() {
			refund[line.Stock] -= line.Grant.N
		}
	}
	return refund, nil
}

// Settle moves what was sold into a database, until ctx ends. Several processes may do so.
func Settle(ctx context.Context, stocks *stock.Client, insert func(context.Context, []stock.Entry) error) error {
	return stocks.Stock("sale").KeepLedger(ctx, time.Second, 500, insert)
}

// LivePage draws a page until ctx ends: news gets each entry that comes, and draw the stock as it is, at least every two seconds.
func LivePage(ctx context.Context, sale *stock.Stock, draw func(stock.Status), news func(stock.Entry)) error {
	for e, err := range sale.Events(ctx, 2*time.Second) {
		switch {
		case err != nil:
			return err
		case !e.Gap:
			news(e.Entry)
		default: // the page begins, or has missed something
			if now, err := sale.Inspect(ctx); err == nil {
				draw(now)
			}
		}
	}
	return nil
}

// Give sends a red packet: 20.00 in 10 shares, of at least 0.50 each.
func Give(ctx context.Context, packets *redpacket.Client) error {
	_, err := packets.Packet("new-year").Send(ctx, redpacket.Spec{Total: 2000, Shares: 10, Min: 50, OpenFor: 24 * time.Hour, Ledger: true})
	return err
}

// Open returns user's share in cents, or 0 if all are taken.
func Open(ctx context.Context, packets *redpacket.Client, user string) (int64, error) {
	share, err := packets.Packet("new-year").Grab(ctx, user)
	return share.Cents, err
}

// PayOut hands to pay who took what of a red packet, and what went back, until ctx ends. Several processes may do so.
func PayOut(ctx context.Context, packets *redpacket.Client, pay func(context.Context, []redpacket.Entry) error) error {
	return packets.Packet("new-year").KeepLedger(ctx, time.Second, 500, pay)
}

func TestABuyerHasOneUnitHoweverOftenItAsks(t *testing.T) {
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

func TestACartIsHeldAndPaidAsAWhole(t *testing.T) {
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

func TestWhatIsSoldIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stocks := redlatchtest.New(t).Open().Stocks()
		_, err := stocks.Stock("sale").Open(t.Context(), stock.Spec{Limit: 1, OpenFor: time.Hour, Ledger: true})
		require.NoError(t, err)
		_, err = Buy(t.Context(), stocks, "ann")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var books []stock.Entry
		Settle(ctx, stocks, func(_ context.Context, entries []stock.Entry) error {
			books = append(books, entries...)
			return nil
		})
		require.Len(t, books, 1)
		require.Equal(t, "ann", books[0].Claimant)
	})
}

func TestAPageShowsWhatWasSold(t *testing.T) {
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
		err = LivePage(ctx, sale, func(st stock.Status) {
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

func TestWhatWasTakenIsPaidOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		packets := redlatchtest.New(t).Open().RedPackets()
		require.NoError(t, Give(t.Context(), packets))
		cents, err := Open(t.Context(), packets, "ann")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var paid []redpacket.Entry
		PayOut(ctx, packets, func(_ context.Context, entries []redpacket.Entry) error {
			paid = append(paid, entries...)
			return nil
		})
		require.Len(t, paid, 1)
		require.Equal(t, "ann", paid[0].User)
		require.Equal(t, cents, paid[0].Cents)
	})
}

func TestTenSharesAreAllOfTheMoney(t *testing.T) {
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
	})
}
