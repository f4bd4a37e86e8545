package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// otherProgram is a thread of another program that uses the lock "l" together with processes of this library.
type otherProgram struct {
	name  string
	take  func() bool // reports whether the lock is its own now
	leave func()      // nil: it does not release, its lease ends
	// channel is where it listens while it waits; "": it does not wait.
	channel string
	// lines: an attempt that fails puts it into the line, so each attempt is a wait.
	lines bool

	holds, waits bool
	got          chan struct{}
	cancel       context.CancelFunc
}

// wait has the program do as Redisson does: listen, try, and try again at each message.
func (p *otherProgram) wait(t *testing.T, c rueidis.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	p.waits, p.cancel, p.got = true, cancel, make(chan struct{})
	woken, confirmed := make(chan struct{}, 1), make(chan struct{}, 1)
	dc, release := c.Dedicate()
	dc.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage:      func(rueidis.PubSubMessage) { signalOf(woken) },
		OnSubscription: func(rueidis.PubSubSubscription) { signalOf(confirmed) },
	})
	require.NoError(t, dc.Do(ctx, dc.B().Psubscribe().Pattern(p.channel).Build()).Error())
	<-confirmed
	go func() {
		defer release()
		for !p.take() {
			select {
			case <-woken:
			case <-ctx.Done():
				return
			}
		}
		close(p.got)
	}()
}

func signalOf(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// walker is a process of ours in a walk.
type walker struct {
	rig    *rig
	hold   *rlock.Hold
	cancel context.CancelFunc // of its wait
	got    <-chan result
}

// together is how processes of this library and another program use one lock.
type together struct {
	lock     func(r *rig, rnd *rand.Rand) *rlock.Lock
	programs func(t *testing.T, r *rig) []*otherProgram
}

func javaThread(n int) string { return fmt.Sprint(strings.TrimSuffix(java, ":42"), ":", n) }

func hashPrograms(t *testing.T, r *rig) (list []*otherProgram) {
	for n := range 2 {
		j := &redissonWaiter{owner: javaThread(n), c: r.redis, name: "l"}
		list = append(list, &otherProgram{name: "RLock", channel: j.channel(),
			take:  func() bool { left, err := j.try(); require.NoError(t, err); return left == 0 },
			leave: func() { require.NoError(t, j.unlock()) }})
	}
	return list
}

var togethers = map[string]together{
	"Reentrant": {func(r *rig, _ *rand.Rand) *rlock.Lock { return r.locks.Reentrant("l") }, hashPrograms},
	"Fenced":    {func(r *rig, _ *rand.Rand) *rlock.Lock { return r.locks.Fenced("l") }, hashPrograms},
	"Fair": {func(r *rig, _ *rand.Rand) *rlock.Lock { return r.locks.Fair("l") },
		func(t *testing.T, r *rig) (list []*otherProgram) {
			for n := range 2 {
				j := &javaFair{r, javaThread(n), 300_000_000}
				list = append(list, &otherProgram{name: "RFairLock", lines: true,
					channel: j.keys("l")[3] + ":" + j.owner,
					take:    func() bool { return j.try(t, "l") }, leave: func() { j.release(t, "l") }})
			}
			return list
		}},
	"ReadWrite": {func(r *rig, rnd *rand.Rand) *rlock.Lock {
		if rnd.IntN(2) == 0 {
			return r.locks.ReadWrite("l").Write()
		}
		return r.locks.ReadWrite("l").Read()
	}, func(t *testing.T, r *rig) (list []*otherProgram) {
		for n := range 3 {
			j := &javaRW{r.redis, "l", javaThread(n)}
			take, leave := j.read, j.readUnlock
			if n == 2 {
				take, leave = j.write, j.writeUnlock
			}
			list = append(list, &otherProgram{name: []string{"read", "read", "write"}[n], channel: j.channel(),
				take: func() bool {
					ok, err := take(context.Background(), 1000*time.Hour)
					require.NoError(t, err)
					return ok
				}, leave: func() { require.NoError(t, leave(context.Background())) }})
		}
		return list
	}},
	// Programs that use a string publish nothing, so a waiter learns when their lease ends.
	"Plain": {func(r *rig, _ *rand.Rand) *rlock.Lock { return r.locks.Plain("l") },
		func(_ *testing.T, r *rig) (list []*otherProgram) {
			c := r.redis
			for n := range 2 {
				// It only polls. Here a poll comes just when one of ours is notified that the lock is free.
				list = append(list, &otherProgram{name: "SET NX", channel: "redlatch_grant:*", take: func() bool {
					err := c.Do(context.Background(), c.B().Set().Key("l").Value(fmt.Sprint("other", n)).Nx().
						PxMilliseconds(1500).Build()).Error()
					return err == nil
				}})
			}
			return list
		}},
}

// settled is how long a free lock may be left to others: see MAX_RESERVATION in queue.lua.
const settled = 250 * time.Millisecond

// TestFreeLock_BesideAnotherProgram_IsNotIdle: processes of ours wait for a lock, get it, release it and give up, while
// threads of another program take it, wait for it and release it, all at random. After each step the lock is not free
// while one of ours waits: however it was held last, the first in line has learned of that release, or of that lease's
// end. Polls are too rare to help.
func TestFreeLock_BesideAnotherProgram_IsNotIdle(t *testing.T) {
	t.Parallel()
	for kind, of := range togethers {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for seed := range redistest.Sized(20, 30, 600) {
				redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
					walk(t, servers[0], of, uint64(seed))
				})
			}
		})
	}
}

func walk(t *testing.T, s *redistest.Server, of together, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 9))
	o := rlock.Options{PollCap: 10 * time.Second, CallTimeout: 5 * time.Second}
	outside := newRig(t, s, o)
	// Few of either: any process that listens has a free lock served, and hides that the first in line does not.
	programs := of.programs(t, outside)
	rnd.Shuffle(len(programs), func(i, k int) { programs[i], programs[k] = programs[k], programs[i] })
	programs = programs[:1+rnd.IntN(len(programs))]
	ours := make([]*walker, 2+rnd.IntN(3))
	for i := range ours {
		ours[i] = &walker{rig: newRig(t, s, o)}
	}
	var steps []string
	note := func(format string, a ...any) { steps = append(steps, fmt.Sprintf(format, a...)) }
	for range 60 {
		if n := rnd.IntN(len(ours) + len(programs)); n < len(ours) {
			note("process %d %s", n, ours[n].step(t, of, rnd))
		} else {
			p := programs[n-len(ours)]
			note("%s %d %s", p.name, n-len(ours), p.step(t, outside.redis, rnd))
		}
		// Releases in each eighth microsecond are left to Redisson's waiters: half of those here are.
		next := time.Now().Add(settled)
		time.Sleep(settled + time.Duration(8-next.UnixMicro()%8+rnd.Int64N(2))*time.Microsecond)
		synctest.Wait()
		if waiter := idleFor(t, outside, ours); waiter >= 0 {
			t.Fatalf("seed %d: the lock is free and process %d waits:\n%s", seed, waiter, strings.Join(steps, "\n"))
		}
	}
	for _, p := range programs {
		if p.cancel != nil {
			p.cancel()
		}
	}
	for _, w := range ours {
		w.end(t)
	}
	synctest.Wait()
}

// idleFor returns a process that waits for a lock that is free, and stays free; -1: there is none.
func idleFor(t *testing.T, outside *rig, ours []*walker) int {
	for range 2 {
		if outside.exists(t, "l") {
			return -1
		}
		time.Sleep(settled / 2) // its lease has ended just now, perhaps
	}
	return slices.IndexFunc(ours, func(w *walker) bool { return w.got != nil && !w.taken(t) })
}

func (r *rig) exists(t *testing.T, key string) bool {
	n, err := r.redis.Do(within(t), r.redis.B().Exists().Key(key).Build()).AsInt64()
	require.NoError(t, err)
	return n == 1
}

// taken reports whether the wait is over, and takes in what it brought.
func (w *walker) taken(t *testing.T) bool {
	select {
	case g := <-w.got:
		require.NoError(t, g.err)
		w.hold, w.got = g.hold, nil
		return true
	default:
		return false
	}
}

func (w *walker) step(t *testing.T, of together, rnd *rand.Rand) string {
	switch {
	case w.got != nil && w.taken(t), w.hold != nil:
		require.NoError(t, w.hold.Unlock(within(t)))
		w.hold = nil
		return "releases"
	case w.got != nil && rnd.IntN(4) > 0:
		return "waits on"
	case w.got != nil:
		w.end(t)
		return "gives up"
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.got, w.cancel = acquiringUnder(ctx, of.lock(w.rig, rnd)), cancel
	return "asks"
}

// end ends a wait, and releases what there is.
func (w *walker) end(t *testing.T) {
	if w.got != nil {
		w.cancel()
		w.hold, w.got = (<-w.got).hold, nil
	}
	if w.hold != nil {
		require.NoError(t, w.hold.Unlock(within(t)))
		w.hold = nil
	}
}

func (p *otherProgram) step(t *testing.T, c rueidis.Client, rnd *rand.Rand) string {
	got := false
	if p.waits {
		select {
		case <-p.got:
			got = true
			p.waits, p.holds = false, p.leave != nil
			p.cancel()
		default:
			return "waits on"
		}
	}
	switch {
	case p.holds:
		p.leave()
		p.holds = false
		return "releases"
	case got:
		return "has had it"
	case p.channel != "" && (p.lines || rnd.IntN(2) == 0):
		p.wait(t, c)
		return "waits"
	}
	took := p.take()
	p.holds = took && p.leave != nil
	return fmt.Sprint("tries: ", took)
}
