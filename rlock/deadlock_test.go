package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const deadlockPoll = time.Second

// sides are a lock as one caller holds it and as another waits for it.
type sides struct {
	hold, wait func(c *rlock.Client, name string) *rlock.Lock
}

func alike(lock func(c *rlock.Client, name string) *rlock.Lock) sides { return sides{lock, lock} }

// deadlockKinds are all kinds of locks whose circles are found.
var deadlockKinds = map[string]sides{
	"Reentrant":    alike((*rlock.Client).Reentrant),
	"NonReentrant": alike((*rlock.Client).NonReentrant),
	"Fenced":       alike((*rlock.Client).Fenced),
	"Fair":         alike((*rlock.Client).Fair),
	"Plain":        alike((*rlock.Client).Plain),
	"Spin":         alike(func(c *rlock.Client, name string) *rlock.Lock { return c.Spin(name, 0, time.Second) }),
	"Write":        alike(func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() }),
	"Write after Read": {func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Read() },
		func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() }},
	"Multi": alike(func(c *rlock.Client, name string) *rlock.Lock {
		multi, err := rlock.Multi(c.Reentrant(name), c.Fair(name+" and more"))
		if err != nil {
			panic(err)
		}
		return multi
	}),
}

// kindNames are the keys of deadlockKinds.
var kindNames = []string{"Reentrant", "NonReentrant", "Fenced", "Fair", "Plain", "Spin", "Write", "Write after Read",
	"Multi"}

// planted is a circle of callers: the i-th holds lock i, and waits for lock i+1 from begins[i] on.
type planted struct {
	name   string
	kinds  []sides
	rigs   []*rig
	begins []time.Duration
	bound  time.Duration // of the waits; 0: none
	leaver int           // the caller that leaves after leaves
	leaves time.Duration // 0: none leaves
}

// run runs the circle until all callers are done, and returns the errors of the callers.
func (p *planted) run(t *testing.T) (failures []error, took time.Duration) {
	n := len(p.kinds)
	failures = make([]error, n)
	began, last := time.Now(), slices.Max(p.begins)
	var callers sync.WaitGroup
	var held sync.WaitGroup
	held.Add(n)
	for i := range n {
		callers.Go(func() {
			ctx := context.Background()
			hold, err := p.kinds[i].hold(p.rigs[i].locks, fmt.Sprint(p.name, i)).Lock(ctx)
			held.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = hold.Unlock(ctx) }()
			held.Wait()
			time.Sleep(p.begins[i] - time.Since(began))
			next := p.kinds[(i+1)%n].wait(p.rigs[i].locks, fmt.Sprint(p.name, (i+1)%n))
			if bound := p.boundOf(i); bound > 0 {
				next = next.WithWait(bound)
			}
			inner, err := next.Lock(hold.Context(ctx))
			if err != nil {
				failures[i], took = err, time.Since(began)-last
				return
			}
			_ = inner.Unlock(ctx)
		})
	}
	callers.Wait()
	return failures, took
}

func (p *planted) boundOf(caller int) time.Duration {
	if caller == p.leaver && p.leaves > 0 {
		return p.leaves
	}
	return p.bound
}

// circle draws a circle of 2 to 5 callers of the rigs.
func circle(draw *rand.Rand, name string, rigs []*rig) *planted {
	p := &planted{name: name}
	for range 2 + draw.IntN(4) {
		p.kinds = append(p.kinds, deadlockKinds[kindNames[draw.IntN(len(kindNames))]])
		p.rigs = append(p.rigs, rigs[draw.IntN(len(rigs))])
		p.begins = append(p.begins, time.Second+time.Duration(draw.Int64N(int64(3*deadlockPoll))))
	}
	if draw.IntN(2) == 0 {
		p.bound = time.Hour
	}
	return p
}

// check requires one DeadlockError within two PollCaps, of the caller that began last. The estimates of the server's
// time may differ by some milliseconds.
func (p *planted) check(t *testing.T, failures []error, took time.Duration) {
	t.Helper()
	failed := -1
	for i, err := range failures {
		if err == nil {
			continue
		}
		require.Negative(t, failed, "%s: callers %d and %d got errors", p.name, failed, i)
		failed = i
		var deadlock *rlock.DeadlockError
		require.ErrorAs(t, err, &deadlock, "%s: caller %d of %d", p.name, i, len(failures))
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.Len(t, deadlock.Cycle, len(failures))
	}
	require.GreaterOrEqual(t, failed, 0, p.name)
	require.GreaterOrEqual(t, p.begins[failed], slices.Max(p.begins)-10*time.Millisecond, "%s: not the youngest", p.name)
	require.LessOrEqual(t, took, 2*deadlockPoll, p.name)
}

// deadlockRounds is how many circles are drawn, and how many runs without one.
func deadlockRounds() int {
	return redistest.Sized(50, 200, 10_000)
}

const roundsInBubble = 50

func eachBubble(t *testing.T, run func(t *testing.T, draw *rand.Rand, name string, rigs []*rig)) {
	t.Helper()
	for seed := range uint64(deadlockRounds() / roundsInBubble) {
		bubble(t, 3, rlock.Options{PollCap: deadlockPoll}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
			draw := rand.New(rand.NewPCG(seed, 53))
			for round := range roundsInBubble {
				run(t, draw, fmt.Sprintf("%d/%d/", seed, round), rigs)
			}
		})
	}
}

func TestDeadlock_PlantedCircle_IsFoundByTheYoungest(t *testing.T) {
	t.Parallel()
	eachBubble(t, func(t *testing.T, draw *rand.Rand, name string, rigs []*rig) {
		p := circle(draw, name, rigs)
		failures, took := p.run(t)
		p.check(t, failures, took)
	})
}

// One caller leaves before the youngest comes, or the youngest leaves before it looks for a circle.
func TestDeadlock_CallerLeavesTheCircle_IsNotReported(t *testing.T) {
	t.Parallel()
	eachBubble(t, func(t *testing.T, draw *rand.Rand, name string, rigs []*rig) {
		p := circle(draw, name, rigs)
		p.leaver, p.leaves = draw.IntN(len(p.kinds)), deadlockPoll/4
		if rest := slices.Max(p.begins) - p.begins[p.leaver]; rest > 1 {
			p.leaves = 1 + time.Duration(draw.Int64N(int64(rest-1)))
		}
		failures, _ := p.run(t)
		for i, err := range failures {
			if i != p.leaver {
				require.NoError(t, err, "%s: caller %d", p.name, i)
				continue
			}
			var deadlock *rlock.DeadlockError
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			require.False(t, errors.As(err, &deadlock), "%s: %v", p.name, err)
		}
	})
}

func TestDeadlock_EveryPairOfKinds_IsFound(t *testing.T) {
	t.Parallel()
	for _, one := range kindNames {
		bubble(t, 2, rlock.Options{PollCap: deadlockPoll}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
			for _, other := range kindNames {
				p := &planted{name: one + "," + other, kinds: []sides{deadlockKinds[one], deadlockKinds[other]}, rigs: rigs,
					begins: []time.Duration{time.Second, time.Second + time.Millisecond}}
				failures, took := p.run(t)
				p.check(t, failures, took)
			}
			time.Sleep(time.Second)
			require.Empty(t, blockedKeys(t, rigs[0]))
		})
	}
}

// All callers acquire in one order, so there is never a circle, however they hold, wait, give up and crowd.
func TestDeadlock_CallersInOneOrder_IsNeverReported(t *testing.T) {
	t.Parallel()
	eachBubble(t, func(t *testing.T, draw *rand.Rand, name string, rigs []*rig) {
		const locks, callers = 4, 5
		var kinds [locks]sides
		for i := range kinds {
			kinds[i] = deadlockKinds[kindNames[draw.IntN(len(kindNames)-1)]] // a Multi of one name has two keys
		}
		var all sync.WaitGroup
		for range callers {
			own := rand.New(rand.NewPCG(draw.Uint64(), 0))
			all.Go(func() {
				for range 2 {
					if err := nest(own, name, kinds[:], rigs[own.IntN(len(rigs))].locks); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}

// nest acquires some of the locks in their order, each under the context of those before it, and returns a
// DeadlockError.
func nest(draw *rand.Rand, name string, kinds []sides, locks *rlock.Client) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var holds []*rlock.Hold
	defer func() {
		for _, hold := range holds {
			_ = hold.Unlock(context.Background())
		}
	}()
	inner := ctx
	for i, kind := range kinds {
		if draw.IntN(3) == 0 {
			continue
		}
		lock := kind.wait(locks, fmt.Sprint(name, i))
		if draw.IntN(2) == 0 {
			lock = kind.hold(locks, fmt.Sprint(name, i))
		}
		if draw.IntN(3) == 0 {
			lock = lock.WithWait(time.Duration(draw.Int64N(int64(4 * deadlockPoll))))
		}
		hold, err := lock.Lock(inner)
		var deadlock *rlock.DeadlockError
		if errors.As(err, &deadlock) {
			return err
		}
		if err != nil {
			return nil
		}
		holds, inner = append(holds, hold), hold.Context(inner)
		time.Sleep(time.Duration(draw.Int64N(int64(2 * deadlockPoll))))
	}
	return nil
}

func TestDeadlock_Error_NamesTheCircle(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{PollCap: deadlockPoll, KeyPrefix: "shop:", Process: "web"}, func(t *testing.T,
		_ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		a, b := lock(t, rigs[0].locks.Reentrant("a"), ctx), lock(t, rigs[1].locks.Fair("b"), ctx)
		time.Sleep(2 * time.Second)
		waiting := make(chan error)
		go func() {
			hold, err := rigs[0].locks.Fair("b").Lock(a.Context(ctx))
			if err == nil {
				err = hold.Unlock(ctx)
			}
			waiting <- err
		}()
		time.Sleep(deadlockPoll)
		_, err := rigs[1].locks.Reentrant("a").Lock(b.Context(ctx))
		var deadlock *rlock.DeadlockError
		require.ErrorAs(t, err, &deadlock)
		require.Equal(t, []rlock.DeadlockStep{{Name: "a", Owner: a.Owner(), Process: "web"},
			{Name: "b", Owner: b.Owner(), Process: "web"}}, deadlock.Cycle)
		require.EqualError(t, deadlock, fmt.Sprintf("deadlock: waits for \"a\" of web (owner %s), who waits for \"b\" of "+
			"web (owner %s), which is this caller's", a.Owner(), b.Owner()))
		require.Equal(t, "not_acquired", redlatch.Reason(err))
		var refused *rlock.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, deadlock, refused.Cause)
		require.NoError(t, b.Unlock(ctx))
		require.NoError(t, <-waiting, "the other caller goes on")
		require.NoError(t, a.Unlock(ctx))
	})
}

// Two members of one Multi are a circle with a caller that has the second and wants the first.
func TestDeadlock_MultiWaitsForItsSecondMember_IsFound(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{PollCap: deadlockPoll}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		b := lock(t, rigs[0].locks.Reentrant("b"), ctx)
		multi := redistest.NoError(rlock.Multi(rigs[1].locks.Reentrant("a"), rigs[1].locks.Reentrant("b")))(t)
		done := make(chan error)
		go func() { done <- multi.Do(ctx, func(context.Context) error { return nil }) }()
		time.Sleep(deadlockPoll / 10)
		_, err := rigs[0].locks.Reentrant("a").Lock(b.Context(ctx))
		var deadlock *rlock.DeadlockError
		require.ErrorAs(t, err, &deadlock)
		require.NoError(t, b.Unlock(ctx))
		require.NoError(t, <-done)
	})
}

// A hold of another client of the same server waits for itself.
func TestDeadlock_CallerWaitsForItself_IsFound(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{PollCap: deadlockPoll}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		other := redistest.NoError(rlock.New(rigs[0].hub, rlock.Options{PollCap: deadlockPoll}))(t)
		hold := lock(t, rigs[0].locks.Reentrant("a"), context.Background())
		_, err := other.Reentrant("a").Lock(hold.Context(context.Background()))
		var deadlock *rlock.DeadlockError
		require.ErrorAs(t, err, &deadlock)
		require.Len(t, deadlock.Cycle, 1)
		require.NoError(t, hold.Unlock(context.Background()))
		require.NoError(t, other.Close(context.Background()))
	})
}

// What a caller does not carry is in no circle: its own time limit ends the wait.
func TestDeadlock_HoldNotCarried_IsNotFound(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(hold *rlock.Hold) context.Context{
		"no context of the hold": func(*rlock.Hold) context.Context { return context.Background() },
		"detached": func(hold *rlock.Hold) context.Context {
			return rlock.Detach(hold.Context(context.Background()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, rlock.Options{PollCap: deadlockPoll}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
				ctx := context.Background()
				a, b := lock(t, rigs[0].locks.Reentrant("a"), ctx), lock(t, rigs[1].locks.Reentrant("b"), ctx)
				var all sync.WaitGroup
				for i, wait := range []context.Context{change(a), change(b)} {
					all.Go(func() {
						_, err := rigs[i].locks.Reentrant([]string{"b", "a"}[i]).TryLock(wait, 5*deadlockPoll, 0)
						var deadlock *rlock.DeadlockError
						if !errors.Is(err, redlatch.ErrNotAcquired) || errors.As(err, &deadlock) {
							t.Error(err)
						}
					})
				}
				time.Sleep(2 * deadlockPoll)
				require.Empty(t, blockedKeys(t, rigs[0]), "and nothing is written")
				all.Wait()
				letGo(a)
				letGo(b)
			})
		})
	}
}

// blockedKeys are the keys with records of calls that wait and hold locks.
func blockedKeys(t *testing.T, r *rig) (found []string) {
	t.Helper()
	for _, key := range keys(t, r.redis) {
		if strings.HasPrefix(key, "redlatch_blocked:") {
			found = append(found, key)
		}
	}
	return found
}

// A call that waits under the context of a hold costs nothing more for a third of a PollCap. Then its record is there
// until its wait ends.
func TestDeadlock_CallCarriesAHold_HasARecordWhileItWaits(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{PollCap: deadlockPoll}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		a, b := lock(t, rigs[0].locks.Reentrant("a"), ctx), lock(t, rigs[1].locks.Reentrant("b"), ctx)
		free := lock(t, rigs[0].locks.Reentrant("free"), a.Context(ctx))
		for _, grant := range []bool{true, false} {
			done := make(chan error)
			go func() {
				hold, err := rigs[0].locks.Reentrant("b").TryLock(a.Context(ctx), 3*deadlockPoll, 0)
				if err == nil {
					err = hold.Unlock(ctx)
				}
				done <- err
			}()
			time.Sleep(deadlockPoll / 4)
			require.Empty(t, blockedKeys(t, rigs[0]))
			time.Sleep(deadlockPoll)
			require.Equal(t, []string{"redlatch_blocked:{b}"}, blockedKeys(t, rigs[0]))
			if grant {
				require.NoError(t, b.Unlock(ctx))
				require.NoError(t, <-done)
				b = lock(t, rigs[1].locks.Reentrant("b"), ctx)
			} else {
				require.ErrorIs(t, <-done, redlatch.ErrNotAcquired)
			}
			time.Sleep(time.Millisecond)
			require.Empty(t, blockedKeys(t, rigs[0]), "the wait is over")
		}
		letGo(free)
		letGo(a)
		letGo(b)
	})
}

func TestDeadlock_HolderDies_IsNotReported(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		ctx := context.Background()
		proxy := redistest.NewProxy(t, servers[0])
		dying := newRig(t, proxy.Server(), rlock.Options{PollCap: deadlockPoll})
		live := newRig(t, servers[0], rlock.Options{PollCap: deadlockPoll})
		a, b := lock(t, dying.locks.Reentrant("a"), ctx), lock(t, live.locks.Reentrant("b"), ctx)
		go func() { _, _ = dying.locks.Reentrant("b").Lock(a.Context(ctx)) }()
		time.Sleep(deadlockPoll/3 + 100*time.Millisecond)
		synctest.Wait()
		killed(proxy) // it has written its record, and writes it no more
		_, err := live.locks.Reentrant("a").TryLock(b.Context(ctx), 10*deadlockPoll, 0)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		var deadlock *rlock.DeadlockError
		require.False(t, errors.As(err, &deadlock), "%v", err)
		letGo(b)
	})
}

// The owner of a is another when the second search looks, and the first has not noticed: nothing is tracked here.
func TestDeadlock_LockIsLostMeanwhile_IsNotReported(t *testing.T) {
	t.Parallel()
	bubble(t, 3, rlock.Options{PollCap: deadlockPoll, Liveness: false}, func(t *testing.T, _ *redistest.Server,
		rigs []*rig) {
		ctx := context.Background()
		a, b := lock(t, rigs[0].locks.Reentrant("a"), ctx), lock(t, rigs[1].locks.Reentrant("b"), ctx)
		go func() { _, _ = rigs[0].locks.Reentrant("b").TryLock(a.Context(ctx), time.Minute, 0) }()
		time.Sleep(deadlockPoll)
		failed := make(chan error)
		go func() {
			_, err := rigs[1].locks.Spin("a", 0, time.Second).TryLock(b.Context(ctx), 5*deadlockPoll, 0)
			failed <- err
		}()
		time.Sleep(deadlockPoll/3 + deadlockPoll/10) // after the first search
		require.Len(t, blockedKeys(t, rigs[2]), 2)
		require.NoError(t, rigs[2].redis.Do(ctx, rigs[2].redis.B().Del().Key("a").Build()).Error())
		other := lock(t, rigs[2].locks.Reentrant("a"), ctx)
		err := <-failed
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		var deadlock *rlock.DeadlockError
		require.False(t, errors.As(err, &deadlock), "%v", err)
		letGo(other)
		letGo(a)
		letGo(b)
	})
}

// The call goes on waiting after its hold was unlocked, and keeps nobody waiting.
func TestDeadlock_CarriedHoldEnded_HasNoRecord(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{PollCap: deadlockPoll}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		a, b := lock(t, rigs[0].locks.Reentrant("a"), ctx), lock(t, rigs[1].locks.Reentrant("b"), ctx)
		done := make(chan error)
		go func() {
			_, err := rigs[0].locks.Reentrant("b").TryLock(context.WithoutCancel(a.Context(ctx)), 5*deadlockPoll, 0)
			done <- err
		}()
		time.Sleep(deadlockPoll)
		require.Len(t, blockedKeys(t, rigs[0]), 1)
		require.NoError(t, a.Unlock(ctx))
		time.Sleep(deadlockPoll)
		require.Empty(t, blockedKeys(t, rigs[0]))
		require.ErrorIs(t, <-done, redlatch.ErrNotAcquired)
		letGo(b)
	})
}
