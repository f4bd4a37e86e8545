package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func TestUnavailableAndUnknownOutcomeAreToldApart(t *testing.T) {
	t.Parallel()
	full := func(t *testing.T, s *redistest.Server) { // refused before anything is written: surely not run
		admin(t, s.Client(t), "CONFIG", "SET", "maxmemory", "1")
	}
	for name, c := range map[string]struct {
		fate  redistest.Fate
		lose  bool // the first try
		full  bool
		wait  time.Duration
		want  error
		never error
	}{
		"a lost reply": {redistest.LoseReply, true, false, 0, errs.ErrUnknownOutcome,
			errs.ErrUnavailable},
		"a lost request": {redistest.LoseRequest, true, false, 0, errs.ErrUnknownOutcome,
			errs.ErrUnavailable},
		"a refusal": {0, false, true, 0, errs.ErrUnavailable, errs.ErrUnknownOutcome},
		"refusals for as long as it may wait": {0, false, true, 100 * time.Millisecond, errs.ErrUnavailable,
			errs.ErrUnknownOutcome},
		"a lost request, then refusals": {redistest.LoseRequest, true, true, 100 * time.Millisecond,
			errs.ErrUnknownOutcome, errs.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := redistest.NewProxy(t, s)
			r := newRig(t, p.Server(), rlock.Options{})
			warm := lock(t, r.locks.Reentrant("warm"), within(t))
			require.NoError(t, warm.Unlock(within(t)))
			if c.lose {
				p.Trap(&redistest.Trap{Match: redistest.With("l"), Fate: c.fate})
			}
			if c.full {
				full(t, s)
			}
			_, err := r.locks.Reentrant("l").TryLock(within(t), c.wait, 0)
			// The refusal of a try that was on its way when the wait ended is not known: the odd one may be in doubt.
			for tries := 1; !c.lose && c.wait > 0 && errors.Is(err, errs.ErrUnknownOutcome) && tries < 8; tries++ {
				_, err = r.locks.Reentrant("l").TryLock(within(t), c.wait, 0)
			}
			require.ErrorIs(t, err, c.want)
			require.NotErrorIs(t, err, c.never)
			require.NotErrorIs(t, err, errs.ErrNotAcquired, "nobody said that it is held")
			redistest.Eventually(t, 20*time.Second, "given back", func() bool { return len(keys(t, r.redis)) == 0 })
		})
	}
}

func TestAnUnlockTellsRefusedFromPerhapsDone(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]bool{"refused": false, "lost, then refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const holds = 4
			s := redistest.Start(t)
			p := redistest.NewProxy(t, s)
			r, direct := newRig(t, p.Server(), rlock.Options{}), s.Client(t)
			held := make([]*rlock.Hold, holds)
			for i := range held {
				held[i] = lock(t, r.locks.Reentrant(fmt.Sprint("l", i)), within(t))
			}
			admin(t, direct, "REPLICAOF", "127.0.0.1", "1") // READONLY from here on
			refused := 0
			tried := 0
			for i, h := range held {
				if i == 2 && (lose || refused > 0) && !redistest.Long() {
					break
				}
				tried++
				if lose {
					p.Trap(&redistest.Trap{Match: redistest.With(fmt.Sprint("l", i)), Fate: redistest.LoseRequest})
				}
				ctx, cancel := context.WithTimeout(context.Background(), 600*time.Millisecond)
				err := h.Unlock(ctx)
				cancel()
				require.NotEqual(t, errors.Is(err, errs.ErrUnavailable), errors.Is(err, errs.ErrUnknownOutcome), "%v", err)
				if errors.Is(err, errs.ErrUnavailable) {
					refused++
				}
				require.ErrorIs(t, h.Unlock(within(t)), err, "the first result")
			}
			if lose {
				require.Zero(t, refused, "nobody knows of the request that was lost")
			} else {
				// The refusal of a try that was on its way when ctx ended is not known, so the odd one may be of unknown outcome.
				// The pauses between tries are ten times as long by then, also on a busy machine.
				require.NotZero(t, refused)
			}
			admin(t, direct, "REPLICAOF", "NO", "ONE")
			for _, h := range held[tried:] {
				require.NoError(t, h.Unlock(within(t)))
			}
			redistest.Eventually(t, 20*time.Second, "released in the background, before the lease of 30 s", func() bool {
				return len(keys(t, direct)) == 0
			})
		})
	}
}

func TestAGrantThatArrivesAfterItsCallerLeftIsReleased(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	lanes(t, s, 16, 100, rlock.Options{CallTimeout: 2 * time.Second},
		func(t *testing.T, i int, p *redistest.Proxy, r *rig) {
			name := fmt.Sprintf("late-%d", i)
			arrive := make(chan struct{})
			fate := []redistest.Fate{redistest.HoldReply, redistest.HoldRequest}[i%2]
			trap := p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: fate, Release: arrive})
			ctx, cancel := context.WithCancelCause(context.Background())
			left := errors.New("left")
			got := make(chan error, 1)
			go func() {
				_, err := r.locks.Reentrant(name).Lock(ctx)
				got <- err
			}()
			trap.Wait(t)
			cancel(left)
			err := <-got
			// i%2: the request is still on its way, well before its not-after, and is granted to nobody's use
			close(arrive)
			// The library takes it back, so the caller has only waited.
			if !errors.Is(err, left) || !errors.Is(err, context.Canceled) || !errors.Is(err, errs.ErrNotAcquired) ||
				errors.Is(err, errs.ErrUnknownOutcome) {
				t.Errorf("round %d: %v", i, err)
			}
		})
	redistest.Eventually(t, 20*time.Second, "all released, before their leases of 30 s", func() bool {
		return len(keys(t, c)) == 0
	})
}

func TestWaitersWakeThoughTheReleaseKillsTheirSubscription(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := s.Client(t)
	const pollCap = 60 * time.Second // nobody wakes by it
	holder := newRig(t, s, rlock.Options{WatchdogTimeout: 5 * time.Minute})
	var waiters []*rig
	for range 4 {
		waiters = append(waiters, newRig(t, s, rlock.Options{PollCap: pollCap, WatchdogTimeout: 5 * time.Minute}))
	}
	for round := range 20 {
		h := lock(t, holder.locks.Reentrant("l"), within(t))
		var wg sync.WaitGroup
		for _, w := range waiters {
			for range 4 {
				wg.Go(func() {
					if err := w.locks.Reentrant("l").Do(within(t), func(context.Context) error { return nil }); err != nil {
						t.Error(err)
					}
				})
			}
		}
		redistest.Eventually(t, 20*time.Second, "all wait, one of each process in the queue", func() bool {
			n, err := direct.Do(within(t), direct.B().Zcount().Key("redlatch_queue:{l}").Min("0").Max("+inf").Build()).AsInt64()
			for _, w := range waiters {
				if w.locks.Waiting("l") != 4 {
					return false
				}
			}
			return err == nil && n == int64(len(waiters))
		})
		began := time.Now()
		kill := direct.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()
		switch round % 3 {
		case 0: // the message falls into the gap: nobody hears it
			admin(t, direct, "CLIENT", "KILL", "TYPE", "pubsub")
			require.NoError(t, h.Unlock(within(t)))
		case 1:
			require.NoError(t, h.Unlock(within(t)))
			admin(t, direct, "CLIENT", "KILL", "TYPE", "pubsub")
		default: // surely in the gap
			release := direct.B().Del().Key("l").Build()
			for _, res := range direct.DoMulti(within(t), kill, release) {
				require.NoError(t, res.Error())
			}
			require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
		}
		wg.Wait()
		require.Less(t, time.Since(began), 9*time.Second, "not by the poll, which the queue has every 10 s at least")
	}
}

// rueidis sends what was awaiting its reply again, unasked, when a connection's lifetime ends.
func TestAScriptThatRueidisRunsTwiceCountsOrReleasesOnce(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		r := newRigWith(t, p.Server(), rlock.Options{CallTimeout: 10 * time.Second}, func(o *rueidis.ClientOption) {
			o.ConnLifetime, o.AlwaysPipelining, o.PipelineMultiplex = 200*time.Millisecond, true, -1
		})
		direct := newRig(t, s, rlock.Options{})
		warm := lock(t, r.locks.Reentrant("warm"), within(t))
		require.NoError(t, warm.Unlock(within(t)))
		twice := 0
		for i := range redistest.Sized(2, 2, 4) {
			name := fmt.Sprint("twice", i)
			seen := 0
			p.Trap(&redistest.Trap{Match: func(words []string) bool { // counts, and catches nothing
				if redistest.IsScript(words) && words[3] == name {
					seen++
				}
				return false
			}})
			p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.LoseReplySilently})
			h, err := r.locks.Reentrant(name).Lock(within(t))
			require.NoError(t, err)
			require.Equal(t, map[string]string{string(h.Owner()): "1"}, direct.hash(t, name))
			p.Trap(&redistest.Trap{Match: redistest.With(name), Fate: redistest.LoseReplySilently})
			err = h.Unlock(within(t))
			require.True(t, err == nil || errors.Is(err, errs.ErrLost), "%v", err) // the second run finds nothing
			require.Empty(t, direct.hash(t, name))
			p.Heal()
			next := lock(t, direct.locks.Reentrant(name), within(t))
			require.NoError(t, next.Unlock(within(t)))
			if seen >= 4 {
				twice++
			}
		}
		require.Positive(t, twice, "it has happened")
		require.Empty(t, keys(t, direct.redis))
	})
}

func init() { roles["canceller"] = beCanceller }

// beCanceller cancels acquisitions at any instant, in a process of its own so that its goroutines can be counted.
func beCanceller() error {
	c, locks, err := connectRole(rlock.Options{PollCap: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	cycle := func(name string) error {
		return locks.Reentrant(name).Do(context.Background(), func(context.Context) error { return nil })
	}
	// what stays for the life of the client comes first: connections, the watchdog, a kept subscription
	var first sync.WaitGroup
	for range 50 {
		first.Go(func() {
			for range 20 {
				cycle("held")
			}
		})
	}
	first.Wait()
	blocker, err := locks.Reentrant("held").Lock(context.Background())
	if err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond) // its key is tracked by now
	if _, err := locks.Reentrant("held").TryLock(context.Background(), 50*time.Millisecond, 0); !errors.Is(err,
		errs.ErrNotAcquired) {
		return fmt.Errorf("taken twice: %s", fmt.Sprint(err))
	}
	base := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for w := range 50 {
		rnd := rand.New(rand.NewPCG(uint64(w), 1))
		wg.Go(func() {
			for range 200 {
				name := []string{"held", "a", "b"}[rnd.IntN(3)]
				ctx, cancel := context.WithCancel(context.Background())
				timer := time.AfterFunc(time.Duration(rnd.IntN(2000))*time.Microsecond, cancel)
				h, err := locks.Reentrant(name).Lock(ctx)
				if err == nil {
					h.Unlock(context.Background())
				}
				timer.Stop()
				cancel()
			}
		})
	}
	wg.Wait()
	for end := time.Now().Add(15 * time.Second); runtime.NumGoroutine() > base; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			return fmt.Errorf("%d goroutines before, %d after:\n%s", base, runtime.NumGoroutine(), stacks)
		}
	}
	if n := locks.Lines(); n != 0 {
		return fmt.Errorf("%d names are waited for", n)
	}
	if err := blocker.Unlock(context.Background()); err != nil {
		return err
	}
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left, err := c.Do(context.Background(), c.B().Keys().Pattern("*").Build()).AsStrSlice()
		if left = redistest.Objects(left); err == nil && len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("keys left: %q (%s)", left, fmt.Sprint(err))
		}
	}
	fmt.Println("clean")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

func TestTenThousandCancellationsLeaveNoGoroutine(t *testing.T) {
	redistest.InFull(t, "TestCancellationAtAnyInstantLeavesNothing")
	t.Parallel()
	c := redistest.Spawn(t, "canceller", redistest.Start(t))
	require.Equal(t, "clean", c.Line(t))
}
