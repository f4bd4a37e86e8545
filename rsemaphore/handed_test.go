package rsemaphore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rsemaphore"
)

// exclusives are semaphores of one.
var exclusives = map[string]func(c *rsemaphore.Client) *rsemaphore.Semaphore{
	"Semaphore":         func(c *rsemaphore.Client) *rsemaphore.Semaphore { return c.Semaphore("s", 1) },
	"WeightedSemaphore": func(c *rsemaphore.Client) *rsemaphore.Semaphore { return c.WeightedSemaphore("w", 1) },
}

// leaseLeft is what is left on the server of the one that is out.
func leaseLeft(t *testing.T, s *rsemaphore.Semaphore) time.Duration {
	t.Helper()
	state := redistest.NoError(s.Inspect(within(t)))(t)
	require.Len(t, state.Permits, 1)
	return state.Permits[0].Lease
}

// A process that exits right after the call, as a cron job does, raises nothing: the leaseTime that its caller asked
// for has to be there. The server is away for 6 s, from half a second after the work began: longer than the short lease
// of a hand-over.
func TestHandOver_OfAPermit_LastsAsAnyOther(t *testing.T) {
	t.Parallel()
	for kind, of := range exclusives {
		for name, lease := range map[string]time.Duration{"renewed": 0, "with a leaseTime": time.Hour} {
			for how, holder := range map[string]int{"by another process": 0, "by its own": 1, "not waited": -1} {
				t.Run(kind+"/"+name+"/"+how, func(t *testing.T) {
					bubble(t, 2, rsemaphore.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
						if holder >= 0 {
							first := redistest.NoError(of(rigs[holder].c).TryAcquire(ctx, 1, 0, 0))(t)
							go func() {
								time.Sleep(time.Second)
								if err := first.Release(ctx); err != nil {
									t.Error(err)
								}
							}()
						}
						p := redistest.NoError(of(rigs[1].c).TryAcquire(ctx, 1, time.Minute, lease))(t)
						if lease > 0 {
							require.Greater(t, time.Until(p.Until()), 50*time.Minute, "the caller may rely on it")
							require.Greater(t, leaseLeft(t, of(rigs[0].c)), 50*time.Minute, "on the server")
						}
						time.Sleep(500 * time.Millisecond)
						s.Embedded.SetError("LOADING the server is away")
						time.Sleep(6 * time.Second)
						s.Embedded.SetError("")
						synctest.Wait()
						require.NoError(t, p.Err())
						require.Greater(t, leaseLeft(t, of(rigs[0].c)), 10*time.Second)
						require.NoError(t, p.Release(ctx))
					})
				})
			}
		}
	}
}

// What is handed over at about the same time is raised in one call.
func TestHandOver_OfManyPermits_RaisesThemInOneCall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	count := func(c rueidis.Client) rueidis.Client { return scriptCounter{c, &calls} }
	bubbleOn(t, 2, rsemaphore.Options{PollCap: 5 * time.Second}, count,
		func(t *testing.T, _ *redistest.Server, rigs []*rig) {
			ctx := context.Background()
			const n = 100
			all, sem := take(t, rigs[0].c.Semaphore("s", n), n), rigs[1].c.Semaphore("s", n)
			permits := make(chan *rsemaphore.Permit, n)
			for range n {
				go func() {
					p, err := sem.Acquire(ctx, 1)
					if err != nil {
						t.Error(err)
					}
					permits <- p
				}()
			}
			time.Sleep(time.Second) // all have their places
			calls.Store(0)
			require.NoError(t, all.Release(ctx))
			time.Sleep(time.Second)
			require.Len(t, permits, n)
			require.EqualValues(t, 2, calls.Load(), "the release, and one renewal")
			for range n {
				require.NoError(t, (<-permits).Release(ctx))
			}
		})
}

// "n starts a minute": permits that nobody releases. A program that ends does not wait for them.
func TestClose_PermitsLeftToTheirLease_DoesNotWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), patient)
	for range 2 {
		require.NoError(t, errOf(r.c.Semaphore("s", 2).TryAcquire(within(t), 1, 0, time.Minute)))
	}
	ctx := within(t)
	require.NoError(t, r.c.Close(ctx))
	require.NoError(t, ctx.Err(), "it did not wait")
	require.Equal(t, "0", r.text(t, "GET", "s"), "they last until their lease is over")
}

// Waiters of a Shared semaphore listen where Redisson publishes. That leaves Redisson none of what they wait for,
// unless it listens, too.
func TestShared_OursListen_AreLeftNoPermits(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	watcher := newRig(t, srv, patient)
	javaSet(t, watcher, 1)
	var published atomic.Int32
	listen := func(subscribe func(rueidis.Builder) rueidis.Completed) (stop func()) {
		conn, release := watcher.redis.Dedicate()
		conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) { published.Add(1) }})
		require.NoError(t, conn.Do(within(t), subscribe(conn.B())).Error())
		return func() { conn.Close(); release() }
	}
	type handed struct {
		p    *rsemaphore.Permit
		err  error
		next func()
	}
	got := make(chan handed, 3)
	for range 3 {
		sem := newRig(t, srv, patient).c.Semaphore("s", 1).Shared()
		var next func()
		next = func() {
			p, err := sem.Acquire(within(t), 1)
			got <- handed{p, err, next}
		}
		go next()
	}
	holder := <-got
	require.NoError(t, holder.err)
	rounds := func(n int) {
		for range n {
			redistest.Eventually(t, 20*time.Second, "two wait", func() bool { return len(watcher.queue(t)) == 2 })
			release(t, holder.p)
			go holder.next()
			holder = <-got
			require.NoError(t, holder.err)
		}
	}
	wire.SubscribedTo(t, watcher.redis, "redisson_sc:{s}")
	stop := listen(func(b rueidis.Builder) rueidis.Completed { return b.Psubscribe().Pattern("redisson_sc:*").Build() })
	rounds(60)
	require.Zero(t, published.Load(), "every release is handed over")
	stop()
	defer listen(func(b rueidis.Builder) rueidis.Completed { return b.Subscribe().Channel("redisson_sc:{s}").Build() })()
	for n := 0; published.Load() == 0; n++ {
		require.Less(t, n, 40, "one release in eight is left to Redisson")
		rounds(10)
	}
	release(t, holder.p)
	for range 2 {
		last := <-got
		require.NoError(t, last.err)
		release(t, last.p)
	}
}
