package locks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// Reentrant locks have more of these: TestHistoriesUnderMixedFaultsAreLinearizable.
func TestHistoriesOfEveryKindUnderFaultsAreLinearizable(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(c *rlock.Client, name string) *rlock.Lock{
		"NonReentrant": (*rlock.Client).NonReentrant,
		"Fenced":       (*rlock.Client).Fenced,
		"Fair":         (*rlock.Client).Fair,
		"Spin":         func(c *rlock.Client, name string) *rlock.Lock { return c.Spin(name, 0, 4*time.Millisecond) },
		"Plain":        func(c *rlock.Client, name string) *rlock.Lock { return c.Plain(name) },
	}
	for kind, lock := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const seed = 1
			s := redistest.Start(t)
			log := history.New()
			var ops atomic.Int64
			enough, stop := context.WithCancel(context.Background())
			defer stop()
			var proxies []*redistest.Proxy
			var rigs []*rig
			var workers, faults sync.WaitGroup
			for c := range 4 {
				p := redistest.NewProxy(t, s)
				proxies = append(proxies, p)
				r := newRig(t, p.Server(),
					rlock.Options{WatchdogTimeout: historyLease, CallTimeout: historyTimeout, PollCap: 50 * time.Millisecond})
				rigs = append(rigs, r)
				redistest.Eventually(t, 20*time.Second, "a first cycle", func() bool {
					return lock(r.locks, fmt.Sprint("warm", c)).Do(within(t), func(context.Context) error { return nil }) == nil
				})
				for w := range 3 {
					rnd := rand.New(rand.NewPCG(seed, uint64(10*c+w)))
					workers.Go(func() {
						for enough.Err() == nil {
							op := history.Op{Client: 3*c + w, Lock: fmt.Sprint("l", rnd.IntN(3)), Owner: log.Owner(), Kind: history.Acquire,
								Lease: historyLease, Renewed: true}
							var h *rlock.Hold
							got := ask(log, op, historyTimeout, func(cancelled *bool) history.Outcome {
								var err error
								if take := asking(lock(r.locks, op.Lock), &h, cancelled); rnd.IntN(3) == 0 {
									_, err = redistest.Impatient(rnd, take)
								} else {
									_, err = take(context.Background(), time.Duration(1+rnd.IntN(30))*time.Millisecond)
								}
								if err == nil {
									return history.OK
								}
								return history.Unknown
							})
							ops.Add(1)
							if got != history.OK {
								continue
							}
							redistest.Pause(context.Background(), time.Duration(rnd.IntN(300))*time.Microsecond)
							giveBack(log, op, h, history.Release)
							if ops.Add(1) >= 2000 && log.Count(history.Acquire, history.OK) > 200 {
								stop()
							}
						}
					})
				}
			}
			faults.Go(func() { inflict(t, enough, s, proxies, rand.New(rand.NewPCG(seed, 99))) })
			workers.Wait()
			faults.Wait()
			if kind != "Spin" { // whose waiters ask when their pauses are over
				thenWell(t, s, log, rigs, lock, 3)
			}
			require.NoError(t, history.LockModel{Slack: 2 * time.Millisecond, LateAcquire: 2 * time.Millisecond,
				Late: time.Second}.Check(log))
			require.Greater(t, log.Count(history.Acquire, history.OK), 200)
			direct := s.Client(t)
			redistest.Eventually(t, 20*time.Second, "nothing is left but last tokens", func() bool {
				return !slices.ContainsFunc(keys(t, direct), func(key string) bool {
					return !strings.HasPrefix(key, "redisson_lock_token:")
				})
			})
		})
	}
}
