package bench_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// Counters and rate limits, whose calls share what they send, beside Redis' own INCR and a plain script of the same
// algorithm: all goroutines on one key, and on 64.
func BenchmarkShared(b *testing.B) {
	for _, o := range shared {
		b.Run(o.name, o.run)
	}
}

var shared = func() (out []workload) {
	for _, way := range []struct {
		name string
		of   func(b *testing.B, s *redistest.Server) func(ctx context.Context, n int64) error
	}{
		{"floor-INCR", rawIncr},
		{"Incr", counterIncr},
		{"Incr-below-Max", boundedIncr},
		{"floor-INCR-of-64", rawIncrs},
		{"Incr-of-64", counterIncrs},
		{"floor-GCRA", func(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
			return rawLimit(b, s, 1)
		}},
		{"Allow", func(b *testing.B, s *redistest.Server) func(context.Context, int64) error { return allow(b, s, 1, 1e9) }},
		{"Allow-refused", func(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
			return allow(b, s, 1, 1)
		}},
		{"floor-GCRA-of-64", func(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
			return rawLimit(b, s, manyKeys)
		}},
		{"Allow-of-64", func(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
			return allow(b, s, manyKeys, 1e9)
		}},
	} {
		for _, goroutines := range []int{1, 2, 8, 64, 256} {
			out = append(out, workload{fmt.Sprintf("%s/%d", way.name, goroutines), func(b *testing.B) {
				claimWith(b, goroutines, way.of)
			}})
		}
	}
	return out
}()

func boundedIncr(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
	c, err := rcounter.New(dial(b, s), rcounter.Options{})
	require.NoError(b, err)
	k := c.Counter("s", rcounter.CounterOptions{Max: rcounter.Bound(1<<63 - 1), Min: rcounter.Bound(0)})
	return func(ctx context.Context, _ int64) error { _, err := k.Incr(ctx); return err }
}

const manyKeys = 64

func rawIncrs(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
	c := s.Client(b)
	return func(ctx context.Context, n int64) error {
		return c.Do(ctx, c.B().Incr().Key("s"+strconv.FormatInt(n%manyKeys, 10)).Build()).Error()
	}
}

func counterIncrs(b *testing.B, s *redistest.Server) func(context.Context, int64) error {
	c, err := rcounter.New(dial(b, s), rcounter.Options{})
	require.NoError(b, err)
	var all [manyKeys]*rcounter.Counter
	for i := range all {
		all[i] = c.Counter("s"+strconv.Itoa(i), rcounter.CounterOptions{})
	}
	return func(ctx context.Context, n int64) error { _, err := all[n%manyKeys].Incr(ctx); return err }
}

func rawLimit(b *testing.B, s *redistest.Server, keys int64) func(context.Context, int64) error {
	c, script := s.Client(b), rueidis.NewLuaScript(redistest.PlainLimit)
	return func(ctx context.Context, n int64) error {
		v, err := script.Exec(ctx, c, []string{"limit" + strconv.FormatInt(n%keys, 10)},
			[]string{"1", "1000000000"}).AsIntSlice()
		if err == nil && v[0] != 1 {
			err = fmt.Errorf("refused: %v", v)
		}
		return err
	}
}

func allow(b *testing.B, s *redistest.Server, keys, rate int64) func(context.Context, int64) error {
	c, err := ratelimit.New(dial(b, s), ratelimit.Options{AllowTimeout: 10 * time.Second})
	require.NoError(b, err)
	o := ratelimit.LimiterOptions{Rate: rate}
	if rate == 1 {
		o.Per = time.Hour
	}
	l := c.Limiter("limit", o)
	return func(ctx context.Context, n int64) error {
		a, err := l.Allow(ctx, strconv.FormatInt(n%keys, 10), 1)
		if err == nil && !a.Allowed && rate > 1 {
			err = fmt.Errorf("refused: %+v", a)
		}
		return err
	}
}
