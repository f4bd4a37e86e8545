package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// limit asks for a unit of a key.
type limit func(ctx context.Context, key string) (allowed bool, err error)

const limitRate = 1_000_000_000 // nothing is refused, unless a benchmark wants it

// limitPeers are rate limiters, each on a server of its own. crowd, if set, makes n requests by itself, where limit
// would measure the way to the peer.
var limitPeers = []struct {
	name  string
	make  func(b *testing.B, s *redistest.Server, rate int64) limit
	crowd func(b *testing.B, s *redistest.Server, rate, keys int64, goroutines, n int)
}{
	{name: "floor", make: func(b *testing.B, s *redistest.Server, rate int64) limit {
		c, script := s.Client(b), rueidis.NewLuaScript(redistest.PlainLimit)
		return func(ctx context.Context, key string) (bool, error) {
			v, err := script.Exec(ctx, c, []string{key},
				[]string{fmt.Sprint(max(1, 1_000_000/rate)), fmt.Sprint(rate)}).AsIntSlice()
			return err == nil && v[0] == 1, err
		}
	}},
	{name: "redlatch", make: func(b *testing.B, s *redistest.Server, rate int64) limit {
		hub, err := pubsub.Dial(s.Option(), pubsub.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { hub.Close(context.Background()) })
		c, err := ratelimit.New(hub, ratelimit.Options{AllowTimeout: 10 * time.Second})
		require.NoError(b, err)
		l := c.Limiter("limit", ratelimit.LimiterOptions{Rate: rate})
		return func(ctx context.Context, key string) (bool, error) {
			a, err := l.Allow(ctx, key, 1)
			return a.Allowed, err
		}
	}},
	{name: "redis_rate", make: func(b *testing.B, s *redistest.Server, rate int64) limit {
		l := redis_rate.NewLimiter(dialGoRedis(b, s))
		return func(ctx context.Context, key string) (bool, error) {
			r, err := l.Allow(ctx, key, redis_rate.PerSecond(int(rate)))
			return err == nil && r.Allowed > 0, err
		}
	}},
	{name: "throttled", make: func(b *testing.B, s *redistest.Server, rate int64) limit {
		store, err := goredisstore.NewCtx(dialGoRedis(b, s), "throttled:")
		require.NoError(b, err)
		l, err := throttled.NewGCRARateLimiterCtx(store,
			throttled.RateQuota{MaxRate: throttled.PerSec(int(rate)), MaxBurst: int(rate)})
		require.NoError(b, err)
		return func(ctx context.Context, key string) (bool, error) {
			limited, _, err := l.RateLimitCtx(ctx, key, 1)
			return !limited, err
		}
	}},
	{name: "ulule", make: func(b *testing.B, s *redistest.Server, rate int64) limit {
		store, err := ulule.NewStore(dialGoRedis(b, s))
		require.NoError(b, err)
		l := limiter.New(store, limiter.Rate{Period: time.Second, Limit: rate})
		return func(ctx context.Context, key string) (bool, error) {
			x, err := l.Get(ctx, key)
			return !x.Reached, err
		}
	}},
	{name: "redisson", make: redissonLimit, crowd: redissonCrowd},
}

func dialGoRedis(b *testing.B, s *redistest.Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	b.Cleanup(func() { c.Close() })
	return c
}

// BenchmarkLimits is Allow and its peers, of one key, of many, and of one that is refused, in one run:
//
//	go -C bench/peers test -run '^$' -bench Limits .
func BenchmarkLimits(b *testing.B) {
	for _, of := range []struct {
		name string
		keys int64
		rate int64
	}{{"one-key", 1, limitRate}, {"64-keys", 64, limitRate}, {"refused", 1, 1}} {
		for _, goroutines := range []int{1, 64, 256} {
			for _, p := range limitPeers {
				b.Run(fmt.Sprintf("%s/%d/%s", of.name, goroutines, p.name), func(b *testing.B) {
					if p.crowd != nil {
						p.crowd(b, redistest.Start(b), of.rate, of.keys, goroutines, b.N)
						return
					}
					ask := p.make(b, redistest.Start(b), of.rate)
					_, err := ask(context.Background(), "0") // scripts, connections
					require.NoError(b, err)
					crowd(b, goroutines, of.keys, ask)
				})
			}
		}
	}
}

func crowd(b *testing.B, goroutines int, keys int64, ask limit) {
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range goroutines {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if _, err := ask(context.Background(), names[n%keys]); err != nil {
					failed.Add(1) // throttled tries a compare-and-set ten times, and gives up
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(failed.Load())/float64(b.N), "errors/op")
}

// Every peer lets the first units pass and refuses what is over its rate, in the form in which it is measured.
func TestLimitPeersLimit(t *testing.T) {
	for _, p := range limitPeers {
		t.Run(p.name, func(t *testing.T) {
			if p.crowd != nil {
				_, err := theJVM()
				needJava(t, err)
			}
			r := testing.Benchmark(func(b *testing.B) {
				ask := p.make(b, redistest.Start(b), 5)
				allowed := 0
				for range 40 {
					ok, err := ask(context.Background(), "k")
					require.NoError(b, err)
					if ok {
						allowed++
					}
				}
				if allowed < 4 || allowed > 30 {
					b.Fatalf("%d of 40 passed", allowed)
				}
			})
			require.Positive(t, r.N, "it failed")
		})
	}
}
