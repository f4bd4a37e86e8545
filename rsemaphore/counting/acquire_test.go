package counting_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	sent "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// A request that cannot be served keeps nobody from what is free, of its own process neither: nobody can tell it that
// it asks for too much, because nobody knows how many permits there are.
func TestCounting_WaiterForTooMany_KeepsNobodyOut(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	greedy, other := newRig(t, srv, patient), newRig(t, srv, patient)
	greedy.must(t, "SET", "s", "2")
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- counting.New(greedy.c, "s").Acquire(ctx, 3) }()
	redistest.Eventually(t, 30*time.Second, "it was refused, and waits", greedy.isRefused)
	for range 50 {
		for _, r := range []*rig{greedy, other} {
			for n, wait := range map[int]time.Duration{1: 0, 2: 20 * time.Second} {
				require.NoError(t, counting.New(r.c, "s").TryAcquire(within(t), n, wait))
				require.NoError(t, counting.New(r.c, "s").Release(within(t), n))
			}
		}
	}
	require.NoError(t, counting.New(other.c, "s").Release(within(t), 1))
	require.NoError(t, <-gaveUp, "three are free")
	cancel()
}

// A message that says how many are free saves those who want more a request. What is not for them costs the server
// nothing.
func TestCounting_MessageOfTooFew_CostsNoRequest(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r, other := newRig(t, srv, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour}), newRig(t, srv,
		patient)
	got := make(chan error, 1)
	go func() { got <- counting.New(r.c, "s").Acquire(within(t), 100) }()
	redistest.Eventually(t, 30*time.Second, "it was refused, and waits", r.isRefused)
	sent.SubscribedTo(t, other.redis, "redisson_sc:{s}")
	// whoever asks because it has subscribed has asked by the next
	require.NoError(t, counting.New(other.c, "s").Release(within(t), 1))
	before := redistest.ScriptCalls(t, other.redis)
	for range 98 {
		require.NoError(t, counting.New(other.c, "s").Release(within(t), 1))
	}
	require.LessOrEqual(t, redistest.ScriptCalls(t, other.redis)-before, 98+3, "the releases, and what it takes to begin")
	require.NoError(t, counting.New(other.c, "s").Release(within(t), 1))
	require.NoError(t, <-got)
	require.Equal(t, "0", other.text(t, "GET", "s"))
}

// A request that takes is sent once, so a waiter that lost one could not go on. While nothing happens it only looks.
func TestCounting_OutageWhileIdle_EndsNoWait(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: time.Second, PollCap: 50 * time.Millisecond}),
			newRig(t, srv, patient)
		direct.load(t)
		got := make(chan error, 3)
		wait := func() { got <- counting.New(r.c, "s").Acquire(within(t), 1) }
		for range cap(got) {
			go wait()
		}
		looks := func() int { return redistest.CommandCalls(t, direct.redis)["get"] }
		redistest.Eventually(t, 30*time.Second, "they look", func() bool {
			select {
			case <-got: // a busy machine did not answer in time
				go wait()
			default:
			}
			return r.waiters().Members("counting:s") == cap(got) && looks() > 5
		})
		p.BlackHole(redistest.Up)
		time.Sleep(1500 * time.Millisecond) // the outage: a look is lost in it
		p.Heal()
		p.Cut()
		time.Sleep(time.Second) // what takes permits is sent once, so they have to be connected again
		require.NoError(t, counting.New(direct.c, "s").Release(within(t), 3))
		for range cap(got) {
			require.NoError(t, <-got)
		}
		require.Equal(t, "0", direct.text(t, "GET", "s"))
	})
}

// A caller gave up on a request that is granted; the client is closed before the reply comes.
func TestCounting_Close_WaitsForTheReplyThatTakes(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		r, direct := newRig(t, p.Server(), patient), newRig(t, srv, patient)
		direct.load(t)
		direct.must(t, "SET", "s", "3")
		s := counting.New(r.c, "s")
		require.NoError(t, s.Acquire(within(t), 1)) // connected
		reply := make(chan struct{})
		trap := p.Trap(&redistest.Trap{Match: redistest.With("s"), Fate: redistest.HoldReply, Release: reply})
		ctx, cancel := context.WithCancel(context.Background())
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- s.Acquire(ctx, 2) }()
		trap.Wait(t) // it has run
		cancel()
		require.ErrorIs(t, <-gaveUp, errs.ErrUnknownOutcome)
		require.NotEqual(t, "2", direct.text(t, "GET", "s"), "it has run")
		closed := make(chan error, 1)
		go func() { closed <- r.c.Close(within(t)) }()
		select {
		case <-closed:
			require.Fail(t, "it waits for the reply")
		case <-time.After(50 * time.Millisecond):
		}
		close(reply)
		require.NoError(t, <-closed)
		require.Equal(t, "2", direct.text(t, "GET", "s"), "what it took is back when Close returns")
	})
}

// The suite shows it of permits that have handles. ctx is over before the call, or in the instant before the permits
// are there, which are of no use then and go to the next.
func TestCountingSemaphore_OverBeforeTheGrant_HasNothing(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		why, errGranted := errors.New("the customer left"), errors.New("it was granted")
		there := newRig(t, servers[0], rsemaphore.Options{})
		c := counting.New(there.c, "c")
		require.True(t, must1[bool](t)(c.TrySetPermits(within(t), 2, 24*time.Hour)))
		refused := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			require.ErrorIs(t, err, why)
			require.NotErrorIs(t, err, errs.ErrUnavailable)
			require.NoError(t, c.TryAcquire(within(t), 2, 0), "all are free")
			require.NoError(t, c.Release(within(t), 2))
		}
		ctx, leave := context.WithCancelCause(context.Background())
		leave(why)
		refused(c.Acquire(ctx, 2))
		refused(c.TryAcquire(ctx, 2, 0))
		for n := range 8 { // ctx, or Close; released here, or elsewhere; alone, or before another
			closes, here, alone := n&1 == 1, n&2 == 2, n&4 == 4
			if closes && here {
				continue
			}
			r := newRig(t, servers[0], rsemaphore.Options{})
			by := c
			if here {
				by = counting.New(r.c, "c")
			}
			require.NoError(t, by.Acquire(within(t), 2), "%d: nothing is left of the last", n)
			ctx, leave := context.WithCancelCause(context.Background())
			ended, next, closed := make(chan error, 1), make(chan error, 1), make(chan error, 1)
			go func() {
				err := counting.New(r.c, "c").Acquire(ctx, 2)
				if err == nil {
					err = errors.Join(errGranted, c.Release(context.Background(), 2))
				}
				ended <- err
			}()
			time.Sleep(40 * time.Millisecond)
			if alone {
				next <- nil
			} else {
				go func() { next <- errors.Join(c.Acquire(within(t), 2), c.Release(within(t), 2)) }()
				time.Sleep(40 * time.Millisecond)
			}
			if closes {
				go func() { closed <- r.c.Close(context.Background()) }()
			} else {
				leave(why)
				closed <- nil
			}
			require.NoError(t, by.Release(context.Background(), 2))
			err := <-ended
			require.NoError(t, <-next)
			require.NoError(t, <-closed)
			if !closes {
				refused(err)
			} else if !errors.Is(err, errGranted) { // Close and the grant are at the same time
				require.ErrorIs(t, err, errs.ErrClosed)
			}
			leave(nil)
		}
	})
}
