package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// Readers with holds of their own have one place in the queue, and are let in together, each for its own lease.
func TestReaders_OnTheirOwnTerms_AreLetInTogether(t *testing.T) {
	t.Parallel()
	bubble(t, 2, briefly, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		ctx, r := context.Background(), rigs[0]
		writer := lock(t, rigs[1].locks.ReadWrite("l").Write(), ctx)
		l := r.locks.ReadWrite("l").Read()
		first := acquiringUnder(ctx, l.WithLabel("first"))
		synctest.Wait()
		var all []<-chan result
		for i := range 5 {
			all = append(all, acquiringUnder(ctx, l.WithLease(time.Minute).WithLabel(fmt.Sprint(i))))
		}
		bare := acquiringUnder(ctx, l)
		time.Sleep(3 * time.Second)
		state, err := l.Inspect(ctx)
		require.NoError(t, err)
		require.Len(t, state.Waiters, 1)
		var scripts atomic.Int64
		s.Embedded.Server().SetPreHook(func(_ *miniserver.Peer, command string, _ ...string) bool {
			if command == "EVALSHA" {
				scripts.Add(1)
			}
			return false
		})
		require.NoError(t, writer.Unlock(ctx))
		owners := map[rlock.Owner]bool{}
		for i, c := range append(all, first, bare) {
			got := <-c
			require.NoError(t, got.err, i)
			owners[got.hold.Owner()] = true
			if i < 5 {
				require.Equal(t, fmt.Sprint(i), got.hold.Owner().Label())
				require.InDelta(t, time.Minute, time.Until(got.hold.Until()), float64(time.Second))
			}
			defer got.unlock(t)
		}
		require.Len(t, owners, 7)
		require.LessOrEqual(t, scripts.Load(), int64(4), "the release, and a call for all")
	})
}

// A reader that leaves while the call for it is under way has nothing, and the others read.
func TestReader_LeavesWhileItIsLetIn_LeavesNothing(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]redistest.Fate{
		"request": redistest.HoldRequest, "reply": redistest.HoldReply, "lost": redistest.LoseReply,
		"never there": redistest.LoseRequest, "twice": redistest.RunTwice,
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				ctx, p := context.Background(), redistest.NewProxy(t, servers[0])
				other := newRig(t, servers[0], rlock.Options{})
				r := newRig(t, p.Server(), briefly).warmUp(t)
				l := r.locks.ReadWrite("l").Read().WithLease(time.Minute)
				writer := lock(t, other.locks.ReadWrite("l").Write(), ctx)
				first := acquiringUnder(ctx, r.locks.ReadWrite("l").Read())
				synctest.Wait()
				leaving, leave := context.WithCancel(ctx)
				a, b := acquiringUnder(leaving, l), acquiringUnder(ctx, l)
				time.Sleep(3 * time.Second)
				release := make(chan struct{})
				trap := p.Trap(&redistest.Trap{Fate: fate, Release: release, Match: func(words []string) bool {
					return len(words) > 16 && words[len(words)-1] == "60000"
				}})
				require.NoError(t, writer.Unlock(ctx))
				trap.Wait(t)
				leave()
				left := <-a
				close(release)
				got := <-b
				require.NoError(t, got.err)
				(<-first).unlock(t)
				got.unlock(t)
				if left.err == nil {
					left.unlock(t)
				} else {
					require.ErrorIs(t, left.err, errs.ErrNotAcquired)
				}
				time.Sleep(3 * time.Second)
				require.Empty(t, other.hash(t, "l"))
				require.Zero(t, r.locks.Stats().PendingReleases)
				require.Zero(t, r.locks.Stats().Held)
			})
		})
	}
}

// Impatient readers leave a read-write lock as idle as bare ones do, whatever their terms (finding 2 of the field
// report on locks).
func TestReaders_ImpatientOnAnyTerms_LeaveItNotIdle(t *testing.T) {
	t.Parallel()
	type terms struct {
		o  rlock.Options
		of func(l *rlock.Lock, i int) *rlock.Lock
	}
	entries := func(t *testing.T, x terms) (n int64, idle time.Duration) {
		t.Helper()
		bubble(t, 3, x.o, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
			var inside, taken atomic.Int64
			var wg sync.WaitGroup
			until := time.Now().Add(redistest.Sized(200*time.Millisecond, 300*time.Millisecond, 2*time.Second))
			use := func(h *rlock.Hold) {
				inside.Add(1)
				taken.Add(1)
				time.Sleep(200 * time.Microsecond)
				inside.Add(-1)
				if err := h.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
			for _, r := range rigs {
				wg.Go(func() {
					for time.Now().Before(until) {
						use(lock(t, r.locks.ReadWrite("l").Write(), context.Background()))
					}
				})
				for i := range 4 {
					wg.Go(func() {
						for time.Now().Before(until) {
							ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond+rand.N(5*time.Millisecond))
							if h, err := x.of(r.locks.ReadWrite("l").Read(), i).Lock(ctx); err == nil {
								use(h)
							}
							cancel()
						}
					})
				}
			}
			for time.Now().Before(until) {
				time.Sleep(100 * time.Microsecond)
				if inside.Load() == 0 {
					idle += 100 * time.Microsecond
				}
			}
			wg.Wait()
			n = taken.Load()
			time.Sleep(time.Second)
			for _, r := range rigs {
				require.Zero(t, r.locks.Stats().PendingReleases)
			}
			require.Empty(t, rigs[0].hash(t, "l"))
		})
		return n, idle
	}
	bare, idleBare := entries(t, terms{of: func(l *rlock.Lock, _ int) *rlock.Lock { return l }})
	t.Logf("bare: %d entries, idle for %v", bare, idleBare)
	for name, x := range map[string]terms{
		"a lease": {of: func(l *rlock.Lock, _ int) *rlock.Lock { return l.WithLease(time.Minute) }},
		"labels":  {of: func(l *rlock.Lock, i int) *rlock.Lock { return l.WithLabel(fmt.Sprint(i)) }},
		"MaxHold": {rlock.Options{MaxHold: time.Minute}, func(l *rlock.Lock, _ int) *rlock.Lock { return l }},
	} {
		n, idle := entries(t, x)
		t.Logf("%s: %d entries, idle for %v", name, n, idle)
		require.Greater(t, n, bare/2, name)
		require.Less(t, idle, idleBare+idleBare/4+5*time.Millisecond, name)
	}
}
