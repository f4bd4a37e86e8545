package ratelimit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// A primary that is killed takes with it what its replica had not received. The replica's level is not below zero: so a
// failover lets at most one burst more pass. Under Fail and Closed nothing passes while there is no primary.
func TestLimiter_Failover_LetsOneBurstMorePassAtMost(t *testing.T) {
	t.Parallel()
	srv := redistest.Sentinel(t)
	const rate, burst = 200, 300
	type count struct{ passed, refused, unanswered atomic.Int64 }
	policies := []ratelimit.Policy{ratelimit.Fail, ratelimit.Closed}
	counts := make([]count, len(policies))
	var after atomic.Bool // the primary was killed
	var again [2]atomic.Int64
	over := make(chan struct{})
	var wg sync.WaitGroup
	began := time.Now()
	for range 3 { // processes
		hub := redistest.NoError(pubsub.Dial(t.Context(), srv.Option(), pubsub.Options{CallTimeout: 20 * time.Second}))(t)
		t.Cleanup(func() { hub.Close(ctx) })
		c := redistest.NoError(ratelimit.New(hub, ratelimit.Options{RefusalTrust: -1}))(t)
		for i, policy := range policies {
			l := c.Limiter(string(policy), ratelimit.LimiterOptions{Rate: rate, Burst: burst, WhenDown: policy})
			for range 8 {
				wg.Go(func() {
					for {
						dead := after.Load()
						a, err := l.Allow(ctx, "", 1)
						switch {
						case err != nil || a.Down != nil:
							counts[i].unanswered.Add(1)
						case a.Allowed:
							counts[i].passed.Add(1)
							if dead {
								again[i].Add(1)
							}
						default:
							counts[i].refused.Add(1)
						}
						if a.Down != nil && a.Allowed {
							t.Error("it passed while there was no server")
						}
						select {
						case <-over:
							return
						case <-time.After(time.Millisecond):
						}
					}
				})
			}
		}
	}
	redistest.Eventually(t, time.Minute, "both limits refuse", func() bool {
		return counts[0].refused.Load() > 0 && counts[1].refused.Load() > 0
	})
	for _, addr := range srv.Addrs { // it is killed now: they need not wait for a second
		sentinel := &redistest.Server{Addrs: []string{addr}}
		sentinel.Ask(t, "SENTINEL", "SET", "main", "down-after-milliseconds", "400")
	}
	require.NoError(t, srv.Pairs[0].Primary.Process.Kill())
	after.Store(true)
	redistest.Eventually(t, time.Minute, "both let pass again", func() bool {
		return again[0].Load() > burst/4 && again[1].Load() > burst/4
	})
	close(over)
	wg.Wait()
	promised := burst + int64(time.Since(began).Seconds()*rate)
	for i, policy := range policies {
		t.Logf("%v: %d passed, %d after the failover, where %d may; %d had no answer", policy, counts[i].passed.Load(),
			again[i].Load(), promised, counts[i].unanswered.Load())
		require.LessOrEqual(t, counts[i].passed.Load(), promised+burst)
		require.Positive(t, counts[i].unanswered.Load())
	}
}
