package pages_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/redlatchtest"
)

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

// Rest returns the cents that go back to the sender after the end.
func Rest(ctx context.Context, packets *redpacket.Client) (int64, error) {
	rest, err := packets.Packet("new-year").Refund(ctx)
	return rest.Cents, err // redpacket.ErrNotEnded before the end
}

// PayOut calls pay with the shares that users took of a red packet, and with the refund, until ctx ends. Several
// processes may run it.
func PayOut(ctx context.Context, packets *redpacket.Client, pay func(context.Context, []redpacket.Entry) error) error {
	return packets.Packet("new-year").KeepLedger(ctx, time.Second, 500, pay)
}

func TestRest_AfterTheEnd_IsTheSameEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		packets := redlatchtest.New(t).Open().RedPackets()
		require.NoError(t, Give(t.Context(), packets))
		cents := redistest.NoError(Open(t.Context(), packets, "ann"))(t)
		_, err := Rest(t.Context(), packets)
		require.ErrorIs(t, err, redpacket.ErrNotEnded)
		time.Sleep(25 * time.Hour)
		for range 2 {
			require.Equal(t, 2000-cents, redistest.NoError(Rest(t.Context(), packets))(t))
		}
	})
}

func TestRedPacket_TenShares_AreAllOfTheMoneyAndPaidOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		packets := redlatchtest.New(t).Open().RedPackets()
		require.NoError(t, Give(t.Context(), packets))
		var sum int64
		for _, user := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "a", "late"} {
			cents := redistest.NoError(Open(t.Context(), packets, user))(t)
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
