package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func TestDoOnce_SeveralProcesses_RunsOnceInAPeriod(t *testing.T) {
	t.Parallel()
	const period = 5 * time.Minute
	bubble(t, 4, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		var runs, refused atomic.Int32
		const periods = 2
		for range periods {
			for _, r := range rigs {
				go func() {
					ran, err := r.locks.Reentrant("job").DoOnce(context.Background(), period, func(ctx context.Context) error {
						runs.Add(1)
						time.Sleep(time.Second)
						return ctx.Err()
					})
					if err != nil {
						t.Error(err)
					}
					if !ran {
						refused.Add(1)
					}
				}()
			}
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			ran, err := rigs[0].locks.Reentrant("job").DoOnce(context.Background(), period, func(context.Context) error {
				return nil
			})
			require.NoError(t, err)
			require.False(t, ran, "in the middle of the period")
			time.Sleep(3 * time.Minute)
		}
		require.EqualValues(t, periods, runs.Load())
		require.EqualValues(t, 3*periods, refused.Load())
	})
}

func TestDoOnce_WorkFailsOrPanics_PeriodCounts(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		l, ctx, work := rigs[0].locks.Reentrant("job"), context.Background(), errors.New("no paper")
		never := func(context.Context) error { t.Error("ran"); return nil }
		ran, err := l.DoOnce(ctx, time.Minute, func(ctx context.Context) error {
			again, err := l.DoOnce(ctx, time.Minute, never)
			require.NoError(t, err)
			require.False(t, again, "nor under its own hold")
			return work
		})
		require.True(t, ran)
		require.Equal(t, work, err)
		time.Sleep(59 * time.Second)
		ran, err = l.DoOnce(ctx, time.Minute, never)
		require.NoError(t, err)
		require.False(t, ran)
		time.Sleep(time.Second)
		require.PanicsWithValue(t, "oops", func() {
			l.DoOnce(ctx, time.Minute, func(context.Context) error { panic("oops") })
		})
		require.ErrorIs(t, l.WithWait(30*time.Second).Do(ctx, never), errs.ErrNotAcquired,
			"also after a panic the period counts")
		time.Sleep(30 * time.Second)
		ran, err = l.DoOnce(ctx, time.Minute, func(_ context.Context) error {
			s.Embedded.Del("job")
			return nil
		})
		require.True(t, ran)
		require.ErrorIs(t, err, errs.ErrLost)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		for _, c := range []struct {
			ctx    context.Context
			period time.Duration
			is     error
		}{{ended, time.Minute, context.Canceled}, {ctx, 0, errs.ErrInvalidOption}, {ctx, -1, errs.ErrInvalidOption}} {
			ran, err = l.DoOnce(c.ctx, c.period, never)
			require.ErrorIs(t, err, c.is)
			require.False(t, ran)
		}
	})
}

func init() { roles["once"] = beRunning }

// beRunning begins a job of an hour under each kind of lock, and says so.
func beRunning() error {
	o := living()
	o.CallTimeout = 20 * time.Second // a busy machine is not a reason not to run
	_, locks, err := connectRole(o)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for kind, of := range kindOf {
		all.Add(1)
		go func() {
			ran, err := of(locks, kind).DoOnce(context.Background(), time.Hour, func(context.Context) error {
				all.Done()
				select {}
			})
			fmt.Fprintln(os.Stderr, kind, ran, err) // it has not run: the test is not to wait for it
			os.Exit(1)
		}()
	}
	all.Wait()
	fmt.Println("run")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// A process that is killed while its job runs has begun it: it does not run again in its period, though the process
// sends no heartbeats and its lease ends.
func TestDoOnce_ProcessKilled_IsNotRunAgainInItsPeriod(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	child := redistest.Spawn(t, "once", s, "once")
	require.Equal(t, "run", child.Line(t))
	child.Signal(t, syscall.SIGKILL)
	o := living()
	var taken atomic.Int32
	o.Observer = heeding(redlatch.EventTakenOver, func(redlatch.Event) { taken.Add(1) })
	r := newRig(t, s, o)
	var wg sync.WaitGroup
	for kind, of := range kindOf {
		wg.Go(func() {
			l := of(r.locks, kind)
			if kind == "Read" {
				l = r.locks.ReadWrite(kind).Write()
			}
			if left := r.pttl(t, kind); left < time.Hour-10*time.Minute {
				t.Errorf("%s ends in %v", kind, left)
			}
			if _, err := l.TryLock(within(t), 5*beat, 0); !errors.Is(err, errs.ErrNotAcquired) {
				t.Errorf("%s was taken over: %v", kind, err)
			}
			if ran, err := l.DoOnce(within(t), time.Hour, func(context.Context) error { return nil }); ran || err != nil {
				t.Errorf("%s ran again: %v, %v", kind, ran, err)
			}
		})
	}
	wg.Wait()
	require.Zero(t, taken.Load())
}

// In each round two processes call; the ctx of one ends in any moment of its call. If the other says that the job was
// run, it was.
func TestDoOnce_CallGivesUp_OthersSayWhetherItRan(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	o := rlock.Options{CallTimeout: rlock.DefaultCallTimeout} // the rigs of other tests have a longer one
	one, other := newRig(t, s, o), newRig(t, s, o)
	gaveUp := 0
	for n := range redistest.Sized(60, 60, 2000) {
		name := fmt.Sprint("job", n)
		var runs atomic.Int32
		fn := func(context.Context) error { runs.Add(1); return nil }
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Duration(n%40)*10*time.Microsecond, cancel)
		var ran [2]bool
		var errors [2]error
		var wg sync.WaitGroup
		wg.Go(func() { ran[0], errors[0] = one.locks.Reentrant(name).DoOnce(ctx, time.Hour, fn) })
		wg.Go(func() { ran[1], errors[1] = other.locks.Reentrant(name).DoOnce(context.Background(), time.Hour, fn) })
		wg.Wait()
		cancel()
		if errors[0] != nil {
			gaveUp++
		}
		require.NoError(t, errors[1])
		require.EqualValues(t, 1, runs.Load(), "round %d: one process: %v, %v; the other: %v", n, ran[0], errors[0], ran[1])
	}
	require.Positive(t, gaveUp)
}

// What the server has granted goes back in the background: the caller does not wait for that.
func TestDoOnce_ServerHangsAfterGrant_EndsInTwoTimeouts(t *testing.T) {
	t.Parallel()
	const callTimeout = 500 * time.Millisecond
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	r := newRig(t, p.Server(), rlock.Options{CallTimeout: callTimeout})
	job := r.locks.Reentrant("job")
	// The server knows the scripts then. This client is patient, because the machine may be busy.
	_, err := newRig(t, s, rlock.Options{}).locks.Reentrant("other").DoOnce(within(t), time.Hour,
		func(context.Context) error { return nil })
	require.NoError(t, err)
	calls := 0
	silent := p.Trap(&redistest.Trap{Fate: redistest.LoseRequestSilently, Every: true, Match: func(words []string) bool {
		if redistest.IsScript(words) && words[3] == "job" {
			calls++
		}
		return calls > 1
	}})
	var took time.Duration
	slow := redistest.Stall(func() {
		began := time.Now()
		_, err = job.DoOnce(context.Background(), time.Hour, func(context.Context) error {
			t.Error("the period was not confirmed")
			return nil
		})
		took = time.Since(began)
	})
	silent.Wait(t)
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	require.Less(t, took, 2*callTimeout+callTimeout/2+5*slow)
	p.Heal()
	redistest.Eventually(t, 30*time.Second, "it is given back", func() bool {
		locked, err := newRig(t, s, rlock.Options{}).locks.Reentrant("job").IsLocked(within(t))
		return err == nil && !locked
	})
}
