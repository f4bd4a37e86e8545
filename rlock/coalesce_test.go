package rlock_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// sharedCall tells a call of several locks: it has more keys than that of one.
func sharedCall(words []string) bool {
	if len(words) < 3 || words[0] != "EVALSHA" {
		return false
	}
	n, err := strconv.Atoi(words[2])
	return err == nil && n > 3
}

func TestSharedCalls_ManyFreeLocks_SaveRequests(t *testing.T) {
	t.Parallel()
	near, far, _ := redistest.Away(t)
	r := newRig(t, far, rlock.Options{CallTimeout: 30 * time.Second})
	direct := near.Client(t)
	const goroutines, cycles = 64, 30
	run := func(kind func(string) *rlock.Lock) float64 {
		before := redistest.CommandCalls(t, direct)
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				l := kind("free" + strconv.Itoa(i))
				for range cycles {
					cycle(t, l)
				}
			})
		}
		wg.Wait()
		after := redistest.CommandCalls(t, direct)
		return float64(after["evalsha"]-before["evalsha"]) / (goroutines * cycles)
	}
	for what, kind := range map[string]func(string) *rlock.Lock{"Reentrant": r.locks.Reentrant,
		"NonReentrant": r.locks.NonReentrant, "Plain": r.locks.Plain} {
		got := run(kind)
		t.Logf("%s: %.2f calls a cycle", what, got)
		require.Less(t, got, 1.0, what) // two if none was shared
	}
	got := run(r.locks.Fenced)
	require.GreaterOrEqual(t, got, 2.0, "Fenced") // mints its tokens alone
	size, err := direct.Do(within(t), direct.B().Keys().Pattern("free*").Build()).AsStrSlice()
	require.NoError(t, err)
	require.Empty(t, size, "all is released")
}

// Locks that many want, among locks that nobody else wants: no two hold one at a time, all are served, and nothing is
// left.
func TestSharedCalls_AmongContendedLocks_KeepExclusion(t *testing.T) {
	t.Parallel()
	near, far, _ := redistest.Away(t)
	rigs := []*rig{newRig(t, far, rlock.Options{CallTimeout: 30 * time.Second}),
		newRig(t, far, rlock.Options{CallTimeout: 30 * time.Second})}
	const goroutines, cycles, hot = 40, 25, 8
	var inside [hot]atomic.Int32
	var wg sync.WaitGroup
	for p, r := range rigs {
		for g := range goroutines {
			wg.Go(func() {
				for i := range cycles {
					if i%3 > 0 {
						cycle(t, r.locks.Reentrant("own"+strconv.Itoa(p)+"-"+strconv.Itoa(g)))
						continue
					}
					n := rand.N(hot)
					l := r.locks.Reentrant("hot" + strconv.Itoa(n))
					if n%2 == 1 {
						l = r.locks.Plain("hotplain" + strconv.Itoa(n))
					}
					h, err := l.Lock(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					if inside[n].Add(1) != 1 {
						t.Errorf("%d holders of %s", inside[n].Load(), l.Name())
					}
					inside[n].Add(-1)
					if err := h.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	c := near.Client(t)
	left, err := c.Do(within(t), c.B().Keys().Pattern("*").Build()).AsStrSlice()
	require.NoError(t, err)
	for _, key := range redistest.Objects(left) { // queues may outlive what they were for
		require.Contains(t, key, "redlatch_queue:", "%v", left)
	}
}

// Replies of shared calls are lost, and requests too. Every caller gets its lock in the end, no Unlock reports a loss,
// and nothing is left behind.
func TestSharedCall_Lost_CountsOnce(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]redistest.Fate{"reply": redistest.LoseReply, "request": redistest.LoseRequest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far, p := redistest.Away(t)
			r := newRig(t, far, rlock.Options{CallTimeout: 30 * time.Second})
			var seen, lost atomic.Int32
			p.Trap(&redistest.Trap{Every: true, Fate: fate, Match: func(words []string) bool {
				if !sharedCall(words) || seen.Add(1)%8 != 0 || lost.Load() >= 10 {
					return false
				}
				lost.Add(1)
				return true
			}})
			var wg sync.WaitGroup
			for g := range 64 {
				wg.Go(func() {
					for range 20 {
						h, err := r.locks.Reentrant("l" + strconv.Itoa(g)).Lock(within(t))
						if err != nil {
							t.Error("lock:", err)
							return
						}
						if err := h.Unlock(within(t)); err != nil {
							t.Error("unlock:", err)
						}
					}
				})
			}
			wg.Wait()
			require.Positive(t, lost.Load(), "shared calls were lost")
			c := near.Client(t)
			redistest.Eventually(t, 40*time.Second, "all is released", func() bool {
				left, err := c.Do(within(t), c.B().Keys().Pattern("l*").Build()).AsStrSlice()
				return err == nil && len(left) == 0
			})
		})
	}
}

// Callers leave while their shared calls are under way. What is granted to them afterwards is given back.
func TestSharedCall_CallerLeft_GivesBackItsGrant(t *testing.T) {
	t.Parallel()
	near, far, p := redistest.Away(t)
	r := newRig(t, far, rlock.Options{CallTimeout: 30 * time.Second})
	for g := range 64 { // the scripts' texts, the clock
		cycle(t, r.locks.Reentrant("warm"+strconv.Itoa(g%4)))
	}
	p.Delay(50*time.Millisecond, 50*time.Millisecond)
	var wg sync.WaitGroup
	var gaveUp atomic.Int32
	for g := range 96 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if g%2 == 0 {
				time.AfterFunc(time.Duration(g)*2*time.Millisecond, cancel)
			}
			h, err := r.locks.Reentrant("l" + strconv.Itoa(g)).Lock(ctx)
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				gaveUp.Add(1)
				return
			}
			if err := h.Unlock(context.Background()); err != nil {
				t.Error("unlock:", err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d gave up", gaveUp.Load())
	p.Heal()
	c := near.Client(t)
	redistest.Eventually(t, 60*time.Second, "all is released", func() bool {
		left, err := c.Do(within(t), c.B().Keys().Pattern("l*").Build()).AsStrSlice()
		return err == nil && len(left) == 0
	})
}
