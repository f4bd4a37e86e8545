package rsemaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
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
	go func() { gaveUp <- greedy.c.CountingSemaphore("s").Acquire(ctx, 3) }()
	redistest.Eventually(t, 30*time.Second, "it was refused, and waits", func() bool { return greedy.c.Refused() == 1 })
	for range 50 {
		for _, r := range []*rig{greedy, other} {
			for n, wait := range map[int]time.Duration{1: 0, 2: 20 * time.Second} {
				require.NoError(t, r.c.CountingSemaphore("s").TryAcquire(within(t), n, wait))
				require.NoError(t, r.c.CountingSemaphore("s").Release(within(t), n))
			}
		}
	}
	require.NoError(t, other.c.CountingSemaphore("s").Release(within(t), 1))
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
	go func() { got <- r.c.CountingSemaphore("s").Acquire(within(t), 100) }()
	redistest.Eventually(t, 30*time.Second, "it was refused, and waits", func() bool { return r.c.Refused() == 1 })
	subscribedTo(t, other, "redisson_sc:{s}")
	// whoever asks because it has subscribed has asked by the next
	require.NoError(t, other.c.CountingSemaphore("s").Release(within(t), 1))
	before := scriptCalls(t, other)
	for range 98 {
		require.NoError(t, other.c.CountingSemaphore("s").Release(within(t), 1))
	}
	require.LessOrEqual(t, scriptCalls(t, other)-before, 98+3, "the releases, and what it takes to begin")
	require.NoError(t, other.c.CountingSemaphore("s").Release(within(t), 1))
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
		direct.load(t, "counting_*")
		got := make(chan error, 3)
		wait := func() { got <- r.c.CountingSemaphore("s").Acquire(within(t), 1) }
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
			return r.c.Waiting("counting:s") == cap(got) && looks() > 5
		})
		p.BlackHole(redistest.Up)
		time.Sleep(1500 * time.Millisecond) // the outage: a look is lost in it
		p.Heal()
		p.Cut()
		time.Sleep(time.Second) // what takes permits is sent once, so they have to be connected again
		require.NoError(t, direct.c.CountingSemaphore("s").Release(within(t), 3))
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
		direct.load(t, "counting_*")
		direct.must(t, "SET", "s", "3")
		s := r.c.CountingSemaphore("s")
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
