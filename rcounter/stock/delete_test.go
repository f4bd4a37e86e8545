package stock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// What is deleted leaves nothing, whatever its state, and the name can be opened again.
func TestDeleteLeavesNothingOfAStock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := on(t, raw, exact).Stock("s")
		require.NoError(t, s.Delete(ctx), "there is none")
		for name, state := range map[string]func() error{
			"open":      func() error { return nil },
			"paused":    func() error { return s.Change(ctx, stock.Change{Pause: true}) },
			"closed":    func() error { return s.EndSale(ctx) },
			"ended":     func() error { return s.Change(ctx, stock.Change{EndIn: stock.In(0)}) },
			"lost":      func() error { return raw.Do(ctx, raw.B().Del().Key("rc:{s}").Build()).Error() },
			"corrupt":   func() error { return raw.Do(ctx, raw.B().Del().Key("rc:{s}:u").Build()).Error() },
			"twice":     func() error { return s.Delete(ctx) },
			"abandoned": func() error { return raw.Do(ctx, raw.B().Hdel().Key("rc:{s}").Field("gone").Build()).Error() },
		} {
			o := spec(3)
			o.Ledger = true
			_, err := s.Open(ctx, o)
			require.NoError(t, err, name)
			require.EqualValues(t, 1, claimed(t, s, "ann").Ordinal, name)
			_, err = s.Reserve(ctx, "bob", stock.Request{ID: "r", N: 1}, time.Minute)
			require.NoError(t, err, name)
			_, err = s.Claim(ctx, "carl", stock.Request{ID: "q", N: 1})
			require.NoError(t, err, name)
			require.Equal(t, stock.SoldOut, claimed(t, s, "dora").Outcome, name)
			require.NoError(t, state(), name)
			require.NoError(t, s.Delete(ctx), name)
			require.Empty(t, keys(t, raw), name)
			require.Equal(t, stock.NotOpen, claimed(t, s, "ann").Outcome, name)
		}
	})
}

// A copy of a Delete that comes late removes no other opening, and neither does one for a stock that was lost.
func TestALateDeleteRemovesNoOtherOpening(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	for _, lost := range []bool{false, true} {
		s := opened(t, on(t, raw, exact), "s", 3)
		claimed(t, s, "ann")
		if lost {
			must(t, raw, "DEL", "rc:{s}")
		}
		late := newLate(t, srv, once(func(args []string) bool {
			n := len(args)
			return args[n-1] == "delete" && args[n-2] != "" // not the one that asks for the epoch
		}))
		require.NoError(t, on(t, late, exact).Stock("s").Delete(ctx))
		opened(t, on(t, raw, exact), "s", 3)
		require.EqualValues(t, 1, claimed(t, s, "bob").Ordinal)
		late.Deliver(t)
		_, ok, err := lookup(s, "bob")
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, s.Delete(ctx))
	}
}
