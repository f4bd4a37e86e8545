package rsemaphore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// redissonLike acquires and releases as Redisson's RSemaphore does, until ctx ends: it takes by a script, listens, and
// races.
func redissonLike(ctx context.Context, t *testing.T, r *rig, name string, done *atomic.Int64) {
	channel := "redisson_sc:{" + name + "}"
	sub, err := r.hub.Subscribe(ctx, channel)
	if err != nil {
		return
	}
	defer sub.Close()
	const take = `local v = redis.call('get', KEYS[1]); if v ~= false and tonumber(v) >= 1 then redis.call('decrby', KEYS[1], 1); return 1 end; return 0`
	const give = `local v = redis.call('incrby', KEYS[1], 1); redis.call('publish', KEYS[2], v); return v`
	for ctx.Err() == nil {
		n, err := r.redis.Do(ctx, r.redis.B().Eval().Script(take).Numkeys(1).Key(name).Build()).AsInt64()
		if err != nil {
			continue
		}
		if n == 0 {
			sub.Next(ctx)
			continue
		}
		done.Add(1)
		require.NoError(t, r.redis.Do(context.Background(),
			r.redis.B().Eval().Script(give).Numkeys(2).Key(name, channel).Build()).Error())
	}
}

// Redisson's waiters and ours race for what is published, and both have some of it.
func TestRedissonsWaitersAndOursShareACountingSemaphore(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	java := newRig(t, srv, patient)
	java.must(t, "SET", "s", "2")
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	var wg sync.WaitGroup
	var ours, theirs atomic.Int64
	for range 2 {
		r := newRig(t, srv, patient)
		for range 4 {
			wg.Go(func() {
				sem := r.c.CountingSemaphore("s")
				for ctx.Err() == nil {
					if sem.Acquire(ctx, 1) == nil {
						ours.Add(1)
						if err := sem.Release(context.Background(), 1); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
	}
	wg.Go(func() { redissonLike(ctx, t, java, "s", &theirs) })
	redistest.Eventually(t, 50*time.Second, "both sides are served", func() bool {
		return ours.Load() >= 100 && theirs.Load() >= 10
	})
	stop()
	wg.Wait()
	redistest.Eventually(t, 30*time.Second, "all permits are back", func() bool { return java.text(t, "GET", "s") == "2" })
	require.Equal(t, []string{"s"}, java.keys(t), "nothing but Redisson's number")
	t.Logf("%d of ours, %d of theirs", ours.Load(), theirs.Load())
}

// A request that cannot be served keeps nobody from what is free, of its own process neither: nobody can tell it that
// it asks for too much, because nobody knows how many permits there are.
func TestAWaiterForMoreThanThereIsKeepsNobodyFromWhatIsFree(t *testing.T) {
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
func TestAMessageOfTooFewPermitsCostsNoRequest(t *testing.T) {
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
	require.LessOrEqual(t, scriptCalls(t, other)-before, int64(98+3), "the releases, and what it takes to begin")
	require.NoError(t, other.c.CountingSemaphore("s").Release(within(t), 1))
	require.NoError(t, <-got)
	require.Equal(t, "0", other.text(t, "GET", "s"))
}

// A request that takes is sent once, so a waiter that lost one could not go on. While nothing happens it only looks.
func TestAnOutageWhileNothingHappensEndsNoCountingWait(t *testing.T) {
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

// An orderly shutdown: the client is closed while a worker still has permits, which it gives back when it has finished.
func TestCountCloseLosesNoPermits(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *rig) error{
		"the client": func(r *rig) error { return r.c.Close(context.Background()) },
		"the hub":    func(r *rig) error { return r.hub.Close(context.Background()) },
		"the client and hub": func(r *rig) error {
			r.c.Close(context.Background())
			return r.hub.Close(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			r, direct := newRig(t, srv, patient), newRig(t, srv, patient)
			direct.must(t, "SET", "s", "3")
			s := r.c.CountingSemaphore("s")
			require.NoError(t, s.Acquire(within(t), 2))
			require.NoError(t, end(r))
			require.NoError(t, s.Release(within(t), 2))
			require.Equal(t, "3", direct.text(t, "GET", "s"))
			require.ErrorIs(t, s.Acquire(within(t), 1), errs.ErrClosed)
		})
	}
}

// A caller gave up on a request that is granted; the client is closed before the reply comes.
func TestCloseWaitsForTheReplyToARequestThatTakesPermits(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(s *rsemaphore.CountingSemaphore, ctx context.Context) error{
		"acquire": func(s *rsemaphore.CountingSemaphore, ctx context.Context) error { return s.Acquire(ctx, 2) },
	} {
		t.Run(name, func(t *testing.T) {
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
				go func() { gaveUp <- f(s, ctx) }()
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
		})
	}
}
