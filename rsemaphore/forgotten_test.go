package rsemaphore_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestAForgottenPermitIsNoticedHoweverItsContextsWereMade(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for name, work := range map[string]func(p *rsemaphore.Permit){
		"one in the other":     func(p *rsemaphore.Permit) { p.Context(p.Context(p.Context(t.Context()))) },
		"a parent without end": func(p *rsemaphore.Permit) { p.Context(context.WithoutCancel(p.Context(t.Context()))) },
	} {
		t.Run(name, func(t *testing.T) {
			var book redistest.Logbook
			r := newRig(t, srv, rsemaphore.Options{Logger: book.Logger()})
			work(acquire(t, r.c.Semaphore(name, 1), 1))
			redistest.Eventually(t, 20*time.Second, "warned of", func() bool {
				collect()
				time.Sleep(20 * time.Millisecond)
				return book.Count("dropped without Release") == 1
			})
		})
	}
}

func TestAPermitThatIsOverIsDroppedWithoutAWord(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var book redistest.Logbook
	brief := newRig(t, srv, rsemaphore.Options{MaxHold: 20 * time.Millisecond, Logger: book.Logger()})
	r := newRig(t, srv, rsemaphore.Options{Logger: book.Logger()})
	func() {
		p := acquire(t, brief.c.Semaphore("over", 1), 1)
		<-p.Done()
		require.ErrorIs(t, p.Err(), errs.ErrMaxHold)
	}()
	for range 3 {
		collect()
	}
	func() { acquire(t, r.c.Semaphore("lasts", 1), 1) }()
	redistest.Eventually(t, 20*time.Second, "warned of the one that lasts", func() bool {
		collect()
		time.Sleep(20 * time.Millisecond)
		return book.Count("dropped without Release") > 0
	})
	for range 3 {
		collect()
	}
	require.Equal(t, 1, book.Count("dropped without Release"))
	require.Equal(t, 1, book.Count(`it is no longer renewed" name=lasts`))
	ctx := within(t)
	require.NoError(t, brief.c.Close(ctx))
	require.NoError(t, ctx.Err(), "it was dropped, and nobody waits for it")
}

func TestTheChannelOfAForgottenPermitIsClosedWithItsLease(t *testing.T) {
	t.Parallel()
	const brief = 600 * time.Millisecond // longer than a busy machine takes for a call
	for name, lease := range map[string]time.Duration{"renewed": 0, "fixed": brief} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Start(t), rsemaphore.Options{WatchdogTimeout: brief})
			p, err := r.c.Semaphore(name, 1).TryAcquire(within(t), 1, 0, lease)
			require.NoError(t, err)
			done := p.Done() // all that is kept of it
			end := time.After(20 * time.Second)
			for {
				runtime.GC()
				select {
				case <-done:
					return
				case <-end:
					t.Fatal("still open")
				case <-time.After(25 * time.Millisecond):
				}
			}
		})
	}
}

// The lease that was asked for last may be the longest, and whatever was done or lost since, the server may have it.
func TestAReleaseGoesOnForAsLongAsTheLongestLease(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		through, aside := newRig(t, p.Server(), rsemaphore.Options{WatchdogTimeout: time.Second}), newRig(t, s,
			rsemaphore.Options{})
		x, err := through.c.Semaphore("s", 1).Acquire(within(t), 1)
		require.NoError(t, err)
		require.NoError(t, x.Extend(within(t), time.Minute))
		p.Refuse()
		p.Cut()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		require.Error(t, x.Release(ctx))
		time.Sleep(1500 * time.Millisecond) // longer than the first lease
		p.Heal()
		redistest.Eventually(t, 20*time.Second, "given back", func() bool {
			free, err := aside.c.Semaphore("s", 1).Available(within(t))
			return err == nil && free == 1
		})
	})
}
