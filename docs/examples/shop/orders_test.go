package main

import (
	"path/filepath"
	"testing"

	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func TestTheOrderDatabaseTakesEntriesTwiceAndInAnyOrder(t *testing.T) {
	b, err := openOrders(filepath.Join(t.TempDir(), "orders.db"))
	require.NoError(t, err)
	defer b.close()
	first := []stock.Entry{
		{Serial: 9, Kind: stock.KindGrant, Epoch: 1, Ordinal: 1, N: 1, Claimant: "ann", Request: "a"},
		{Serial: 10, Kind: stock.KindGrant, Epoch: 1, Ordinal: 2, N: 1, Claimant: "bob", Request: "b"},
	}
	back := []stock.Entry{{Serial: 11, Kind: stock.KindReturn, Epoch: 1, Ordinal: 1, N: 1, Claimant: "ann", Request: "a"}}
	for _, entries := range [][]stock.Entry{first, back, first, back} {
		require.NoError(t, b.move(t.Context(), "sale", entries))
	}
	units, err := b.units(t.Context(), "sale")
	require.NoError(t, err)
	require.Equal(t, []unitRow{{2, "bob", "b"}}, units)
	peak, err := b.peak(t.Context(), "sale")
	require.NoError(t, err)
	require.EqualValues(t, 2, peak)
	first[1].Serial, first[1].Claimant = 12, "cid"
	require.ErrorIs(t, b.move(t.Context(), "sale", first), errReissued)
}
