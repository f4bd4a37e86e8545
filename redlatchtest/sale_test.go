package redlatchtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock/sale"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/stretchr/testify/require"
)

// How a user's test provokes the errors of package sale.
func TestSale_Errors_AreProvoked(t *testing.T) {
	t.Parallel()
	srv := redlatchtest.New(t)
	client, err := sale.New(srv.Hub(), sale.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close(context.Background())) })
	phones := client.Sale("phones")
	_, err = phones.Buy(t.Context(), sale.Order{User: "ann"})
	require.ErrorIs(t, err, sale.ErrNoStock) // it was never opened

	require.NoError(t, phones.Open(t.Context(), sale.Spec{Limit: 5, StartIn: time.Hour, OpenFor: time.Hour}))
	a, err := phones.Buy(t.Context(), sale.Order{User: "ann"})
	require.ErrorIs(t, err, sale.ErrLater)
	require.Equal(t, sale.NotStarted, a.Why)

	srv.Advance(time.Hour)
	_, err = phones.Buy(t.Context(), sale.Order{User: "ann"})
	require.NoError(t, err)
	srv.Redis().Del("rc:{phones}:orders") // as eviction does it
	_, err = phones.Pay(t.Context(), "ann")
	require.ErrorIs(t, err, sale.ErrNoStock)
}
