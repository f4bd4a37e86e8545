package rsemaphore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// countingLine is how many have a place in the queue of a counting semaphore.
func countingLine(t testing.TB, r *rig, name string) int {
	t.Helper()
	return int(r.number(t, "ZCOUNT", "redlatch_queue:{"+name+"}:counting", "(0", "+inf"))
}

// isClaim reports whether a call asks for waiters of s who may be asked for again.
func isClaim(words []string) bool {
	return redistest.IsScript(words) && words[2] == "6" && len(words) == 18 && strings.HasPrefix(words[3], "s") && words[16] != "0"
}

// What an acquisition costs the server does not grow with the processes that wait: it queues, claims, and releases.
func TestTheCallsOfACountingAcquisitionDoNotGrowWithTheProcessesThatWait(t *testing.T) {
	t.Parallel()
	calls := map[int]float64{}
	for _, processes := range []int{2, 24} {
		s := redistest.Start(t)
		var wg sync.WaitGroup
		const each = 240
		rigs := make([]*rig, processes)
		for i := range rigs {
			rigs[i] = newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 10 * time.Second})
		}
		rigs[0].must(t, "SET", "s", "1")
		before := scriptCalls(t, rigs[0])
		for _, r := range rigs {
			wg.Go(func() {
				sem := r.c.CountingSemaphore("s")
				for range each / processes {
					if err := sem.Acquire(within(t), 1); err != nil {
						t.Error(err)
						return
					}
					if err := sem.Release(within(t), 1); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		calls[processes] = float64(scriptCalls(t, rigs[0])-before) / each
		require.Equal(t, "1", rigs[0].text(t, "GET", "s"))
	}
	t.Logf("script calls an acquisition and its release, by processes: %.2v", calls)
	require.Less(t, calls[24], 12.0, "an acquire, a claim, a release, and what it takes to begin; if all asked after a release it would be more than 24")
}

// When Acquire returns, what it was handed is claimed: nothing is left that could go back to the number while it is in use. The release may
// be of another process, which publishes, or of its own, whose reply says so.
func TestWhatAWaiterWasHandedIsClaimedWhenAcquireReturns(t *testing.T) {
	srv := redistest.Start(t)
	r, other := newRig(t, srv, patient), newRig(t, srv, patient)
	for name, by := range map[string]*rig{"s1": other, "s2": r} {
		r.must(t, "SET", name, "0")
		got := make(chan error, 1)
		go func() { got <- r.c.CountingSemaphore(name).Acquire(within(t), 2) }()
		redistest.Eventually(t, 30*time.Second, "it waits", func() bool { return countingLine(t, r, name) == 1 })
		require.NoError(t, by.c.CountingSemaphore(name).Release(within(t), 3))
		require.NoError(t, <-got)
		require.Equal(t, []int64{0, 1}, []int64{r.number(t, "EXISTS", "{"+name+"}:given"), r.number(t, "EXISTS", "{"+name+"}:claimed")}, name)
		require.Equal(t, "1", r.text(t, "GET", name))
	}
}

// settled waits until whoever waits has made its first requests: none arrives any more.
func settled(t *testing.T, direct *rig) {
	t.Helper()
	var before int64
	var since time.Time
	redistest.Eventually(t, 30*time.Second, "no more requests", func() bool {
		if n := scriptCalls(t, direct); n != before {
			before, since = n, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
}

// A claim whose reply is lost is made again, and takes nothing twice.
func TestAClaimWhoseReplyIsLostIsMadeAgain(t *testing.T) {
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv)
	r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Minute}), newRig(t, srv, patient)
	direct.load(t, "counting_*")
	direct.must(t, "SET", "s", "0")
	got := make(chan error, 1)
	go func() { got <- r.c.CountingSemaphore("s").Acquire(within(t), 2) }()
	redistest.Eventually(t, 30*time.Second, "it waits", func() bool { return countingLine(t, direct, "s") == 1 })
	subscribedTo(t, direct, "redisson_sc:{s}")
	settled(t, direct)
	trap := p.Trap(&redistest.Trap{Match: isClaim, Fate: redistest.LoseReply})
	require.NoError(t, direct.c.CountingSemaphore("s").Release(within(t), 3))
	trap.Wait(t)
	require.NoError(t, <-got)
	require.Equal(t, "1", direct.text(t, "GET", "s"))
	require.Zero(t, direct.number(t, "EXISTS", "{s}:given"))
}

// When the server may have forgotten what a claim did, its caller is told that its outcome is unknown, and does not take a second time.
func TestAClaimThatCannotBeMadeAgainInTimeIsOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv)
	r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 500 * time.Millisecond, PollCap: 500 * time.Millisecond}), newRig(t, srv, patient)
	direct.load(t, "counting_*")
	direct.must(t, "SET", "s", "0")
	got := make(chan error, 1)
	wait := func() { got <- r.c.CountingSemaphore("s").Acquire(within(t), 2) }
	go wait()
	redistest.Eventually(t, 30*time.Second, "it waits", func() bool {
		select {
		case <-got: // a busy machine did not answer in time
			go wait()
		default:
		}
		return countingLine(t, direct, "s") == 1
	})
	var claims atomic.Bool
	lost := p.Trap(&redistest.Trap{Every: true, Fate: redistest.LoseReply, Match: func(words []string) bool {
		return isClaim(words) && !claims.Load()
	}})
	none := p.Trap(&redistest.Trap{Every: true, Fate: redistest.LoseRequest, Match: func(words []string) bool {
		return isClaim(words) && claims.Load()
	}})
	require.NoError(t, direct.c.CountingSemaphore("s").Release(within(t), 2))
	lost.Wait(t)
	redistest.Eventually(t, 30*time.Second, "claimed", func() bool { return direct.number(t, "EXISTS", "{s}:claimed") == 1 })
	claims.Store(true)
	none.Wait(t)
	redistest.Eventually(t, 30*time.Second, "forgotten", func() bool { return direct.number(t, "EXISTS", "{s}:claimed") == 0 })
	p.Heal()
	err := <-got
	require.ErrorIs(t, err, rsemaphore.ErrUnknownOutcome)
	require.NotErrorIs(t, err, rsemaphore.ErrNotAcquired)
	require.Equal(t, "0", direct.text(t, "GET", "s"))
}

// A waiter that gives up between the grant and its claim gives back what it was given, at once.
func TestACountingWaiterThatGivesUpGivesBackWhatItWasGiven(t *testing.T) {
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv)
	r, direct := newRig(t, p.Server(), patient), newRig(t, srv, patient)
	direct.load(t, "counting_*")
	direct.must(t, "SET", "s", "0")
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan error, 1)
	go func() { got <- r.c.CountingSemaphore("s").Acquire(ctx, 2) }()
	redistest.Eventually(t, 30*time.Second, "it waits", func() bool { return countingLine(t, direct, "s") == 1 })
	subscribedTo(t, direct, "redisson_sc:{s}")
	settled(t, direct)
	release := make(chan struct{})
	trap := p.Trap(&redistest.Trap{Match: isClaim, Fate: redistest.HoldReply, Release: release})
	require.NoError(t, direct.c.CountingSemaphore("s").Release(within(t), 2))
	trap.Wait(t)
	cancel()
	require.ErrorIs(t, <-got, context.Canceled)
	close(release)
	redistest.Eventually(t, 30*time.Second, "back", func() bool { return direct.text(t, "GET", "s") == "2" })
	require.Zero(t, countingLine(t, direct, "s"))
}

func init() { roles["counting waiter"] = waitForTwo }

// waitForTwo waits, as options have it that make what it is given last a second.
func waitForTwo() error {
	_, c, err := connectRole(hastyClaims)
	if err != nil {
		return err
	}
	fmt.Println("waits")
	err = c.CountingSemaphore("s").Acquire(context.Background(), 2)
	fmt.Println("got", err)
	select {}
}

var hastyClaims = rsemaphore.Options{CallTimeout: 500 * time.Millisecond, PollCap: 500 * time.Millisecond}

// A process that stops is given permits, because it is still subscribed, and is killed before it claims them. The next one has them when
// the time to claim is over, and nobody else has to call.
func TestWhatAKilledWaiterNeverClaimedGoesToTheNext(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, patient)
	sem := r.c.CountingSemaphore("s")
	require.True(t, must1[bool](t)(sem.TrySetPermits(within(t), 0, 0)))
	child := redistest.Spawn(t, "counting waiter", srv)
	require.Equal(t, "waits", child.Line(t))
	redistest.Eventually(t, 30*time.Second, "it waits", func() bool { return countingLine(t, r, "s") == 1 })
	child.Signal(t, syscall.SIGSTOP)
	require.NoError(t, r.c.CountingSemaphore("s").Release(within(t), 2))
	t.Logf("%d given to it", r.number(t, "ZCARD", "{s}:given")) // none if it was silent for too long
	child.Signal(t, syscall.SIGKILL)
	require.NoError(t, sem.Acquire(within(t), 2))
	require.Equal(t, "0", r.text(t, "GET", "s"))
	require.Zero(t, r.number(t, "EXISTS", "{s}:given"))
}

// The first in line is told when what was given to another ends, and asks then. Nothing else tells it: it polls every ten seconds.
func TestTheFirstInLineAsksWhenWhatNobodyClaimsEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour})
	r.must(t, "SET", "s", "0")
	r.must(t, "ZADD", "{s}:given", strconv.FormatInt(r.now(t)+1000, 10), claimA+" 2")
	require.NoError(t, r.c.CountingSemaphore("s").TryAcquire(within(t), 2, 25*time.Second))
	require.Equal(t, "0", r.text(t, "GET", "s"))
}

// redissonLike acquires and releases as Redisson's RSemaphore does, until ctx ends: it takes by a script, listens, and races.
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
		require.NoError(t, r.redis.Do(context.Background(), r.redis.B().Eval().Script(give).Numkeys(2).Key(name, channel).Build()).Error())
	}
}

// Redisson's waiters race for what is published. One release in eight is, although Go processes queue; and what Redisson's release
// goes to those that queue.
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
	redistest.Eventually(t, 50*time.Second, "both sides are served", func() bool { return ours.Load() >= 100 && theirs.Load() >= 10 })
	stop()
	wg.Wait()
	redistest.Eventually(t, 30*time.Second, "all permits are back", func() bool { return java.text(t, "GET", "s") == "2" })
	require.False(t, slices.Contains(java.keys(t), "{s}:given"))
	t.Logf("%d of ours, %d of theirs", ours.Load(), theirs.Load())
}

// A waiter that wants more than there will ever be has its turn, and does not keep the others from theirs: nobody can tell it that it
// asks for too much, because nobody knows how many there are.
func TestAWaiterThatWantsMoreThanThereIsKeepsNobodyWaitingForEver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 200 * time.Millisecond}
	greedy, others := newRig(t, s, o), newRig(t, s, o)
	others.must(t, "SET", "s", "2")
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- greedy.c.CountingSemaphore("s").Acquire(ctx, 10) }()
	redistest.Eventually(t, 30*time.Second, "it queues", func() bool { return countingLine(t, others, "s") == 1 })
	var wg sync.WaitGroup
	for range 4 { // so that somebody waits behind it at any time
		wg.Go(func() {
			for range 50 { // together far more than may pass it
				if err := others.c.CountingSemaphore("s").Acquire(within(t), 1); err != nil {
					t.Error(err)
					return
				}
				if err := others.c.CountingSemaphore("s").Release(within(t), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// Permits for it come, and it is served.
	_, err := others.c.CountingSemaphore("s").AddPermits(within(t), 8)
	require.NoError(t, err)
	select {
	case err := <-gaveUp:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Error("it was not served")
	}
	cancel()
}
