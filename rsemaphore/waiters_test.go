package rsemaphore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// wait is a thing that another process has, whole, until it lets go of it, and a call that waits for it.
type wait struct {
	take func(ctx context.Context, c *rsemaphore.Client) (letGo func() error, err error)
	call func(ctx context.Context, c *rsemaphore.Client) error
}

func nothing(context.Context) error { return nil }

// waitsFor are the things of each kind under a name.
func waitsFor(name string) map[string]wait {
	permits := func(of func(c *rsemaphore.Client) *rsemaphore.Semaphore) wait {
		return wait{func(ctx context.Context, c *rsemaphore.Client) (func() error, error) {
			p, err := of(c).WithLabel("l").Acquire(ctx, 2)
			return func() error { return of(c).ReleaseIDs(ctx, p.IDs()...) }, err
		}, func(ctx context.Context, c *rsemaphore.Client) error { return of(c).Do(ctx, 1, nothing) }}
	}
	return map[string]wait{
		"Semaphore": permits(func(c *rsemaphore.Client) *rsemaphore.Semaphore { return c.Semaphore(name+"-s", 2) }),
		"WeightedSemaphore": permits(func(c *rsemaphore.Client) *rsemaphore.Semaphore {
			return c.WeightedSemaphore(name+"-w", 2)
		}),
		"CountingSemaphore": {func(ctx context.Context, c *rsemaphore.Client) (func() error, error) {
			s := counting.New(c, name+"-c")
			return func() error { return s.Release(ctx, 1) }, errOf(s.TrySetPermits(ctx, 0, time.Minute))
		}, func(ctx context.Context, c *rsemaphore.Client) error {
			return counting.New(c, name+"-c").Acquire(ctx, 1)
		}},
		"CountDownLatch": {func(ctx context.Context, c *rsemaphore.Client) (func() error, error) {
			l := c.CountDownLatch(name + "-l")
			return func() error {
				return errors.Join(errOf(l.CountDownBy(ctx, "a")), errOf(l.CountDownBy(ctx, "b")))
			}, errOf(l.TrySetCount(ctx, 2, time.Hour))
		}, func(ctx context.Context, c *rsemaphore.Client) error { return c.CountDownLatch(name + "-l").Await(ctx) }},
		"CyclicBarrier": {func(ctx context.Context, c *rsemaphore.Client) (func() error, error) {
			return func() error { return errOf(c.CyclicBarrier(name+"-b", 2).Await(ctx)) }, nil
		}, func(ctx context.Context, c *rsemaphore.Client) error {
			return errOf(c.CyclicBarrier(name+"-b", 2).Await(ctx))
		}},
	}
}

// begin has a call of r's wait for what other has, until the server knows that r listens.
func (x wait) begin(t *testing.T, r, other *rig) (letGo func() error, served chan error) {
	t.Helper()
	letGo = redistest.NoError(x.take(within(t), other.c))(t)
	served = make(chan error, 1)
	ctx := within(t)
	go func() { served <- x.call(ctx, r.c) }()
	redistest.Eventually(t, 20*time.Second, "it waits, and listens", func() bool {
		channels := r.hub.Stats()
		return r.c.Lines() == 1 && channels.Channels > 0 && channels.Confirmed == channels.Channels
	})
	return letGo, served
}

// The keys of a name are in one slot, and its messages reach other nodes: no poll comes in time.
func TestWait_InACluster_IsServedByAMessage(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour, WatchdogTimeout: time.Hour}
	r, other := newRig(t, srv, o), newRig(t, srv, o)
	for _, name := range []string{"plain", "a{b}", "{b}a", "a{b}c{d}", "sem:{x}:1", "ü{ü}"} {
		for kind, x := range waitsFor(name) {
			letGo, served := x.begin(t, r, other)
			require.NoError(t, letGo(), "%s %s", kind, name)
			require.NoError(t, <-served, "%s %s", kind, name)
		}
	}
}

func TestWait_MessageLost_IsServedWithinPollCap(t *testing.T) {
	t.Parallel()
	for kind := range waitsFor("x") {
		for what, killed := range map[string]bool{"lost": false, "lost, and its subscription killed": true} {
			t.Run(kind+"/"+what, func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t)
				p := redistest.NewProxy(t, srv)
				other := newRig(t, srv, patient)
				r := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 100 * time.Millisecond})
				p.SwallowPushes()
				letGo, served := waitsFor("x")[kind].begin(t, r, other)
				if killed {
					other.must(t, "CLIENT", "KILL", "TYPE", "pubsub")
				}
				began := time.Now()
				require.NoError(t, letGo())
				require.NoError(t, <-served)
				require.Less(t, time.Since(began), 10*time.Second, "a third of the lease: not by its end")
				if !killed && strings.HasPrefix(kind, "C") { // a permit may be granted by the look that follows the subscription
					redistest.Eventually(t, 10*time.Second, "the message was lost", func() bool { return p.Swallowed() > 0 })
				}
			})
		}
	}
}

// Whatever makes more of a semaphore serves the waiters of another process, before they poll.
func TestWait_SemaphoreGrows_IsServed(t *testing.T) {
	t.Parallel()
	type semaphore = *rsemaphore.Semaphore
	for name, x := range map[string]struct {
		of     func(c *rsemaphore.Client) semaphore
		has, n int
		grow   func(t *testing.T, r *rig, s semaphore, p *rsemaphore.Permit)
	}{
		"AddPermits": {func(c *rsemaphore.Client) semaphore { return c.Semaphore("s", 2) }, 2, 1,
			func(t *testing.T, _ *rig, s semaphore, _ *rsemaphore.Permit) {
				require.Equal(t, 3, must1[int](t)(s.AddPermits(within(t), 1)))
			}},
		"Resize": {func(c *rsemaphore.Client) semaphore { return c.Semaphore("s", 2) }, 2, 2,
			func(t *testing.T, _ *rig, s semaphore, _ *rsemaphore.Permit) {
				require.Equal(t, 2, must1[int](t)(s.Resize(within(t), 4)))
			}},
		"a newer revision": {func(c *rsemaphore.Client) semaphore { return c.Semaphore("s", 2).WithRevision(1) }, 2, 2,
			func(t *testing.T, r *rig, _ semaphore, _ *rsemaphore.Permit) {
				require.NoError(t, r.c.Semaphore("s", 5).WithRevision(2).Do(within(t), 1, nothing))
			}},
		"Java adds permits": {func(c *rsemaphore.Client) semaphore { return c.Semaphore("s", 1).Shared() }, 1, 1,
			func(t *testing.T, r *rig, _ semaphore, _ *rsemaphore.Permit) { javaAddPermits(t, r, 1) }},
		"Resize of weights": {func(c *rsemaphore.Client) semaphore { return c.WeightedSemaphore("s", 10) }, 10, 5,
			func(t *testing.T, _ *rig, s semaphore, _ *rsemaphore.Permit) {
				require.Equal(t, 10, must1[int](t)(s.Resize(within(t), 15)))
			}},
		"ReleasePart": {func(c *rsemaphore.Client) semaphore { return c.WeightedSemaphore("s", 100) }, 100, 60,
			func(t *testing.T, _ *rig, s semaphore, p *rsemaphore.Permit) {
				require.NoError(t, p.ReleasePart(within(t), 59))
				require.Equal(t, 59, must1[int](t)(s.Available(within(t))), "too few")
				require.NoError(t, p.ReleasePart(within(t), 1))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
				o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour, WatchdogTimeout: 5 * time.Hour}
				r, other := newRig(t, srv, o), newRig(t, srv, o)
				if name == "Java adds permits" {
					javaSet(t, r, 1)
				}
				var p *rsemaphore.Permit
				_, served := wait{func(ctx context.Context, c *rsemaphore.Client) (_ func() error, err error) {
					p, err = x.of(c).Acquire(ctx, x.has)
					return nil, err
				}, func(ctx context.Context, c *rsemaphore.Client) error {
					return x.of(c).Do(ctx, x.n, nothing)
				}}.begin(t, other, r)
				x.grow(t, r, x.of(r.c), p)
				require.NoError(t, <-served)
				release(t, p)
			})
		})
	}
}
