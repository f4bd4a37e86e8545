package bench_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// Counters: all goroutines increment one key, or 64.
func BenchmarkCounters(b *testing.B) {
	runs(b, counters)
	runs(b, countersOf64)
}

var (
	counters = with([]int{1, 8, 256}, rawIncr(1), map[string]maker{
		"Incr":           incr(1, rcounter.CounterOptions{}),
		"Incr-below-Max": incr(1, rcounter.CounterOptions{Max: rcounter.Bound(1<<63 - 1), Min: rcounter.Bound(0)}),
	}, "Incr", "Incr-below-Max")
	countersOf64 = with([]int{256}, rawIncr(64), map[string]maker{
		"Incr-of-64": incr(64, rcounter.CounterOptions{})}, "Incr-of-64")
)

func key(n, keys int64) string { return "k" + strconv.FormatInt(n%keys, 10) }

func rawIncr(keys int64) maker {
	return func(b *testing.B, s *redistest.Server) op {
		c := s.Client(b)
		return func(ctx context.Context, _ int, n int64) error {
			return c.Do(ctx, c.B().Incr().Key(key(n, keys)).Build()).Error()
		}
	}
}

func incr(keys int64, o rcounter.CounterOptions) maker {
	return func(b *testing.B, s *redistest.Server) op {
		c, err := rcounter.New(dial(b, s.Option()), rcounter.Options{CallTimeout: stall})
		require.NoError(b, err)
		all := make([]*rcounter.Counter, keys)
		for i := range all {
			all[i] = c.Counter(key(int64(i), keys), o)
		}
		return func(ctx context.Context, _ int, n int64) error { _, err := all[n%keys].Incr(ctx); return err }
	}
}

// Orders of a sale, each by another user: sold, unless the name says sold out. The floor is a script.
func BenchmarkClaims(b *testing.B) { runs(b, claims) }

// Reservations that are paid.
func BenchmarkReservations(b *testing.B) { runs(b, reservations) }

const plenty = 1<<53 - 1

var (
	claims = with([]int{1, 256}, floorOf(load.RawClaim), map[string]maker{
		"Buy":            buy(stock.Options{}, plenty, stock.Sold),
		"Buy-uncombined": buy(stock.Options{MaxBatch: -1}, plenty, stock.Sold),
		"Buy-sold-out":   buy(stock.Options{}, 1, stock.Refused),
		"Buy-anyone":     buyAnyone,
	}, "Buy", "Buy-uncombined", "Buy-sold-out", "Buy-anyone")
	reservations = with([]int{1, 256}, floorOf(load.RawReserve), map[string]maker{"Reserve-Pay": reserve}, "Reserve-Pay")
)

// floorOf is the floor that load makes of a client.
func floorOf(open func(context.Context, rueidis.Client) (load.Op, error)) maker {
	return func(b *testing.B, s *redistest.Server) op {
		do, err := open(b.Context(), s.Client(b))
		require.NoError(b, err)
		return func(ctx context.Context, _ int, n int64) error { return do(ctx, n) }
	}
}

func opened(b *testing.B, s *redistest.Server, o stock.Options, limit int64) *stock.Sale {
	o.CallTimeout = stall
	c, err := stock.New(dial(b, s.Option()), o)
	require.NoError(b, err)
	sale := c.Sale("s")
	require.NoError(b, sale.Open(context.Background(), stock.Spec{Limit: limit, OpenFor: time.Hour}))
	return sale
}

// as returns err, or one that says that the state is not the one that is measured.
func as(got stock.Answer, want stock.State, err error) error {
	if err == nil && got.State != want {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return err
}

func buy(o stock.Options, limit int64, want stock.State) maker {
	return func(b *testing.B, s *redistest.Server) op {
		sale := opened(b, s, o, limit)
		if want == stock.Refused {
			_, err := sale.Buy(context.Background(), stock.Order{User: "the first"})
			require.NoError(b, err)
		}
		return func(ctx context.Context, _ int, n int64) error {
			a, err := sale.Buy(ctx, stock.Order{User: strconv.FormatInt(n, 10)})
			return as(a, want, err)
		}
	}
}

func buyAnyone(b *testing.B, s *redistest.Server) op {
	sale := opened(b, s, stock.Options{}, plenty)
	return func(ctx context.Context, _ int, _ int64) error {
		a, err := sale.Buy(ctx, stock.Order{Anyone: true})
		return as(a, stock.Sold, err)
	}
}

func reserve(b *testing.B, s *redistest.Server) op {
	sale := opened(b, s, stock.Options{}, plenty)
	return func(ctx context.Context, _ int, n int64) error {
		user := strconv.FormatInt(n, 10)
		a, err := sale.Reserve(ctx, stock.Order{ID: "r" + user, User: user}, time.Hour)
		if err == nil {
			a, err = sale.Pay(ctx, "r"+user)
		}
		return as(a, stock.Sold, err)
	}
}

// Rate limits: all goroutines ask one key, or 64. The floor is a script of the same algorithm.
func BenchmarkLimits(b *testing.B) {
	runs(b, limits)
	runs(b, limitsOf64)
}

var (
	limits = with([]int{1, 256}, rawLimit(1), map[string]maker{"Allow": allow(1, 1e9), "Allow-refused": allow(1, 1)},
		"Allow", "Allow-refused")
	limitsOf64 = with([]int{256}, rawLimit(64), map[string]maker{"Allow-of-64": allow(64, 1e9)}, "Allow-of-64")
)

func rawLimit(keys int64) maker {
	return func(b *testing.B, s *redistest.Server) op {
		ask := load.RawLimit(s.Client(b), 1, 1_000_000_000)
		return func(ctx context.Context, _ int, n int64) error { _, err := ask(ctx, key(n, keys)); return err }
	}
}

func allow(keys, rate int64) maker {
	return func(b *testing.B, s *redistest.Server) op {
		c, err := ratelimit.New(dial(b, s.Option()), ratelimit.Options{AllowTimeout: stall})
		require.NoError(b, err)
		o := ratelimit.LimiterOptions{Rate: rate}
		if rate == 1 {
			o.Per = time.Hour
		}
		l := c.Limiter("limit", o)
		return func(ctx context.Context, _ int, n int64) error {
			a, err := l.Allow(ctx, key(n, keys), 1)
			if err == nil && !a.Allowed && rate > 1 {
				err = fmt.Errorf("refused: %+v", a)
			}
			return err
		}
	}
}
