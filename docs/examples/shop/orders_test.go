package main

import (
	"path/filepath"
	"testing"

	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func TestTheOrderDatabaseFollowsTheLedgerThoughEntriesComeAgain(t *testing.T) {
	b, err := openOrders(filepath.Join(t.TempDir(), "orders.db"), "sale")
	require.NoError(t, err)
	defer b.close()
	require.NoError(t, b.mover.Announce(t.Context(), 1))
	entry := func(serial int64, kind stock.Kind, ordinal int64, user string) stock.Entry {
		return stock.Entry{Serial: serial, Kind: kind, Epoch: 1, Ordinal: ordinal, N: 1, Claimant: user,
			Request: "order of " + user}
	}
	all := []stock.Entry{
		entry(1, stock.KindHeld, 0, "ann"), entry(2, stock.KindHeld, 0, "bob"), entry(3, stock.KindHeld, 0, "cid"),
		entry(4, stock.KindGrant, 1, "ann"), entry(5, stock.KindExpired, 0, "bob"), entry(6, stock.KindExtended, 0, "cid"),
		entry(7, stock.KindCancelled, 0, "cid"),
		entry(8, stock.KindLate, 2, "bob"), entry(9, stock.KindReturn, 1, "ann"),
	}
	for _, part := range [][]stock.Entry{all[:4], all[2:7], all[:9], all[:2]} {
		require.NoError(t, b.mover.Move(t.Context(), part))
	}
	orders, err := b.orders(t.Context())
	require.NoError(t, err)
	require.Equal(t, []orderRow{
		{"order of ann", "ann", returned, 1, false}, {"order of bob", "bob", sold, 2, true},
		{"order of cid", "cid", cancelled, 0, false},
	}, orders)
	peak, err := b.peak(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, peak)
	require.ErrorIs(t, b.mover.Move(t.Context(), []stock.Entry{entry(11, stock.KindHeld, 0, "dan")}),
		redlatchledger.ErrHole)
}
