package rlock_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func init() { roles["killed holder"] = beKilled }

// briefly are options with a first lease of 4 s.
var briefly = rlock.Options{PollCap: time.Second, CallTimeout: 500 * time.Millisecond}

// beKilled waits for a lock with a lease of a minute, and is killed in the moment in which it has it.
func beKilled() error {
	_, locks, err := connectRole(rlock.Options{PollCap: 200 * time.Millisecond, CallTimeout: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	fmt.Println("waits")
	if _, err = locks.Reentrant("l").TryLock(context.Background(), time.Minute, time.Minute); err != nil {
		return err
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return self.Kill()
}

// A fixed lease that is handed over is short until its first renewal, some 10 ms later. If the process dies before
// that, the lock is free after the short lease.
func TestLease_HandedOverAndProcessKilled_EndsAfterTheFirstLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	redistest.Eventually(t, time.Minute, "it is killed in time", func() bool {
		h := lock(t, r.locks.Reentrant("l"), within(t))
		doomed := redistest.Spawn(t, "killed holder", s)
		require.Equal(t, "waits", doomed.Line(t))
		redistest.Eventually(t, 20*time.Second, "it queues", func() bool { return len(queued(t, r.redis, "l")) == 1 })
		owner := queued(t, r.redis, "l")[0]
		require.NoError(t, h.Unlock(within(t)))
		_, err := r.locks.Reentrant("l").TryLock(within(t), time.Second+200*time.Millisecond, 0)
		if err == nil {
			return true
		}
		// On a busy machine it may have raised the lease before it got as far.
		require.Greater(t, r.pttl(t, "l"), 30*time.Second, "it has a first lease of 1 s, or the minute that it asked for")
		require.Contains(t, r.hash(t, "l"), owner)
		_, err = r.locks.Reentrant("l").ForceUnlock(within(t))
		require.NoError(t, err)
		return false
	})
}

// Within 10 ms the lease is there in full, and the hold has it all from its turn on.
func TestLease_HandedOver_IsRaisedSoon(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"by another process": true, "by a turn": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, briefly, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
				ctx, r, from := context.Background(), rigs[0], rigs[0]
				if waits {
					from = rigs[1]
				}
				h := lock(t, from.locks.Reentrant("l"), ctx)
				had := next(t, r.locks.Reentrant("l").WithLease(time.Minute), ctx)
				time.Sleep(time.Second)
				require.NoError(t, h.Unlock(ctx))
				got := <-had
				began := time.Now()
				require.LessOrEqual(t, r.pttl(t, "l"), 30*time.Second)
				time.Sleep(11 * time.Millisecond)
				synctest.Wait()
				require.Greater(t, r.pttl(t, "l"), 59*time.Second)
				<-got.Done()
				require.InDelta(t, time.Minute, time.Since(began), float64(time.Second))
				require.ErrorIs(t, got.Err(), errs.ErrLost)
			})
		})
	}
}

// No turn begins on a lease that lasts for longer than its caller was promised: if the process dies then, others wait
// for that.
func TestLease_NextTurnsIsShorter_DoesNotOutlastIt(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		before, after time.Duration
		held          time.Duration
		one           bool // without a call
	}{
		"much shorter":           {before: time.Minute, after: 5 * time.Second},
		"much shorter, renewed":  {before: time.Minute, after: 5 * time.Second, held: 20 * time.Millisecond},
		"shorter than the first": {after: 2 * time.Second},
		"as long":                {before: 5 * time.Second, after: 5 * time.Second, one: true},
		"as long, half is over":  {before: 5 * time.Second, after: 5 * time.Second, held: 3 * time.Second},
		"longer":                 {before: 5 * time.Second, after: 20 * time.Second, one: true},
		"longer, renewed":        {before: 5 * time.Second, after: 20 * time.Second, held: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
				ctx, r := context.Background(), rigs[0]
				l := r.locks.Reentrant("l")
				h := lock(t, l.WithLease(x.before), ctx)
				had := next(t, l.WithLease(x.after), ctx)
				synctest.Wait()
				time.Sleep(x.held)
				owner := h.Name()
				owners := r.owners(t, "l")
				require.NoError(t, h.Unlock(ctx), owner)
				got := <-had
				require.LessOrEqual(t, r.pttl(t, "l"), x.after)
				if x.one {
					require.Equal(t, owners, r.owners(t, "l"))
				}
				time.Sleep(15 * time.Millisecond)
				synctest.Wait()
				require.Greater(t, r.pttl(t, "l"), x.after-20*time.Millisecond)
				require.NoError(t, got.Unlock(ctx))
				synctest.Wait()
				require.Empty(t, r.owners(t, "l"))
			})
		})
	}
}

// A renewal of the last turn that is on its way, or was not answered, may raise the lease to that of the last turn.
func TestLease_RenewalUnderWay_NextTurnIsAnotherOwners(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]redistest.Fate{
		"not there yet": redistest.HoldRequest, "not answered": redistest.LoseReply,
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				ctx, p := context.Background(), redistest.NewProxy(t, servers[0])
				other := newRig(t, servers[0], rlock.Options{})
				r := newRig(t, p.Server(), briefly).warmUp(t)
				l := r.locks.Reentrant("l").WithLease(5 * time.Second)
				first := lock(t, other.locks.Reentrant("l"), ctx)
				a := queueUp(t, other.redis, l, ctx, 1)
				b := acquiring(t, l.WithLease(4*time.Second))
				synctest.Wait()
				release := make(chan struct{})
				raise := p.Trap(&redistest.Trap{Fate: fate, Release: release, Match: func(words []string) bool {
					return len(words) == 6 && words[3] == "l" && words[2] == "1"
				}})
				require.NoError(t, first.Unlock(ctx))
				h := (<-a)
				require.NoError(t, h.err)
				owners := other.owners(t, "l")
				time.Sleep(12 * time.Millisecond)
				raise.Wait(t)
				time.Sleep(time.Millisecond)
				h.unlock(t)
				next := <-b
				require.NoError(t, next.err)
				require.NotEqual(t, owners, other.owners(t, "l"))
				close(release)
				time.Sleep(time.Second)
				require.LessOrEqual(t, other.pttl(t, "l"), 4*time.Second)
				next.unlock(t)
			})
		})
	}
}

// transferring is two callers with different labels in one process behind a proxy: the first has the lock, the other
// waits. A trap has closed on the request that hands the lock from one to the other.
func transferring(t *testing.T, fate redistest.Fate, with func(t *testing.T, x *transferCase)) {
	t.Helper()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		x := &transferCase{p: redistest.NewProxy(t, servers[0]), other: newRig(t, servers[0], rlock.Options{})}
		x.r = newRig(t, x.p.Server(), briefly).warmUp(t)
		l := x.r.locks.Reentrant("l")
		x.a = lock(t, l.WithLabel("a"), context.Background())
		x.owner = x.other.owners(t, "l")[0]
		var ctx context.Context
		ctx, x.leave = context.WithCancel(context.Background())
		x.b = acquiringUnder(ctx, l.WithLabel("b"))
		synctest.Wait()
		release := make(chan struct{})
		x.release = func() { close(release) }
		trap := x.p.Trap(&redistest.Trap{Fate: fate, Release: release, Match: func(words []string) bool {
			return words[len(words)-1] == string(x.owner) && len(words) > 7
		}})
		require.NoError(t, x.a.Unlock(context.Background()))
		trap.Wait(t)
		with(t, x)
		x.leave()
		synctest.Wait()
		time.Sleep(3 * time.Second)
		require.Empty(t, x.other.owners(t, "l"))
		require.Empty(t, queued(t, x.other.redis, "l"))
		redistest.Eventually(t, 10*time.Second, "each release is confirmed", func() bool { // some tries have no reply
			return x.r.locks.Stats().PendingReleases == 0
		})
		require.Zero(t, x.r.locks.Stats().Held)
	})
}

type transferCase struct {
	p        *redistest.Proxy
	r, other *rig
	a        *rlock.Hold
	owner    rlock.Owner // of a
	b        <-chan result
	leave    func() // of b
	release  func() // of the trap
}

func TestTransfer_ReplyLost_LeavesNothing(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]redistest.Fate{
		"reply": redistest.LoseReply, "reply, silently": redistest.LoseReplySilently,
		"request": redistest.LoseRequest, "request, silently": redistest.LoseRequestSilently,
		"nothing, and it runs twice": redistest.RunTwice,
	} {
		t.Run(name, func(t *testing.T) {
			transferring(t, fate, func(t *testing.T, x *transferCase) {
				began := time.Now()
				got := <-x.b
				require.NoError(t, got.err)
				require.Less(t, time.Since(began), rlock.DefaultWatchdogTimeout/2, "it waits for the lease of the old owner")
				owners := x.other.owners(t, "l")
				require.Len(t, owners, 1)
				require.Equal(t, "b", owners[0].Label())
				got.unlock(t)
			})
		})
	}
}

func TestTransfer_CallerLeavesMeanwhile_ReleasesIt(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]redistest.Fate{"request": redistest.HoldRequest, "reply": redistest.HoldReply} {
		t.Run(name, func(t *testing.T) {
			transferring(t, fate, func(t *testing.T, x *transferCase) {
				x.leave()
				require.ErrorIs(t, (<-x.b).err, errs.ErrNotAcquired, "it does not wait for the reply")
				x.release()
			})
		})
	}
}

// A caller that comes while the request of those that have left is under way goes on with it.
func TestTransfer_AnotherCallerComes_HasTheLock(t *testing.T) {
	t.Parallel()
	transferring(t, redistest.HoldReply, func(t *testing.T, x *transferCase) {
		x.leave()
		<-x.b
		c := acquiring(t, x.r.locks.Reentrant("l").WithLabel("b"))
		synctest.Wait()
		require.Equal(t, 1, x.r.locks.Waiting("l"))
		before := x.other.owners(t, "l")
		x.release()
		got := <-c
		require.NoError(t, got.err)
		require.Equal(t, before, x.other.owners(t, "l"))
		got.unlock(t)
	})
}

// The owner of which another process knows has no turn after it, nor does the lock go to another owner while that
// process has joined it.
func TestTransfer_OwnerIsJoined_WaitsForTheJoiner(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		l, there := rigs[0].locks.Reentrant("l"), rigs[1].locks.Reentrant("l")
		a := lock(t, l, ctx)
		joined := lock(t, there, there.WithOwner(ctx, a.Owner()))
		b := acquiringUnder(ctx, l)
		synctest.Wait()
		require.NoError(t, a.Unlock(ctx))
		time.Sleep(3 * time.Second)
		require.Len(t, b, 0)
		require.NoError(t, joined.Unlock(ctx))
		got := <-b
		require.NoError(t, got.err)
		_, err := there.Lock(there.WithOwner(ctx, a.Owner()))
		require.ErrorIs(t, err, errs.ErrLost, "it is over")
		got.unlock(t)
	})
}

// The process of a lost lock has no turn: what another process has is not taken over.
func TestTransfer_LockLost_WaitsForItsHolder(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		l := rigs[0].locks.Reentrant("l")
		a := lock(t, l, ctx)
		b := acquiringUnder(ctx, l.WithLabel("b"))
		synctest.Wait()
		s.Embedded.Del("l")
		other := lock(t, rigs[1].locks.Reentrant("l"), ctx)
		_ = a.Unlock(ctx)
		time.Sleep(time.Second)
		require.Len(t, b, 0)
		require.NoError(t, other.Err())
		require.NoError(t, other.Unlock(ctx))
		(<-b).unlock(t)
	})
}

// Turns by transfer count as turns: the process lets others have the lock after 20 ms.
func TestTransfer_LabelsDiffer_TenureEnds(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		for i := range 4 {
			go func() {
				defer func() { done <- struct{}{} }()
				for ctx.Err() == nil {
					_ = rigs[0].locks.Reentrant("l").WithLabel(fmt.Sprint(i)).Do(ctx, func(context.Context) error {
						time.Sleep(time.Millisecond)
						return nil
					})
				}
			}()
		}
		time.Sleep(100 * time.Millisecond)
		for range 5 {
			began := time.Now()
			h := lock(t, rigs[1].locks.Reentrant("l"), context.Background())
			require.LessOrEqual(t, time.Since(began), 50*time.Millisecond)
			require.NoError(t, h.Unlock(context.Background()))
		}
		stop()
		for range 4 {
			<-done
		}
	})
}

// Each turn of a Fenced lock has a token of its own, above the last one's.
func TestTransfer_FencedTurns_HaveTokensThatGrow(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, l := context.Background(), rigs[0].locks.Fenced("l")
		h := lock(t, l, ctx)
		last, ok := h.Token()
		require.True(t, ok)
		for range 3 {
			had := next(t, l, ctx)
			synctest.Wait()
			require.NoError(t, h.Unlock(ctx))
			h = <-had
			token, _ := h.Token()
			require.Greater(t, token, last)
			last = token
		}
		require.EqualValues(t, 3, rigs[0].locks.Stats().HandOvers) // transfers
		require.NoError(t, h.Unlock(ctx))
	})
}

// needingTransfers are locks whose turns need a transfer each.
var needingTransfers = map[string]func(r *rig, label any) *rlock.Lock{
	"labels differ": func(r *rig, label any) *rlock.Lock { return r.locks.Reentrant("l").WithLabel(fmt.Sprint(label)) },
	"fenced":        func(r *rig, _ any) *rlock.Lock { return r.locks.Fenced("l") },
}

// newFarRig is a rig at 1 ms each way.
func newFarRig(t testing.TB, s *redistest.Server) *rig {
	p := redistest.NewProxy(t, s)
	p.Delay(time.Millisecond, time.Millisecond)
	return newRig(t, p.Server(), rlock.Options{}).warmUp(t)
}

// A transfer takes a round trip. A caller that leaves before the reply at its deadline costs no second round trip. For
// a Fenced lock a caller that is cancelled costs none, either.
func TestTransfer_FirstCallerLeaves_NextHasTheLockInOneTrip(t *testing.T) {
	t.Parallel()
	for name, lockOf := range needingTransfers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				r, other := newFarRig(t, servers[0]), newRig(t, servers[0], rlock.Options{})
				othersHold := lock(t, lockOf(other, ""), context.Background())
				held := queueUp(t, other.redis, lockOf(r, "a"), within(t), 1)
				unlockAt := time.Now().Add(10 * time.Millisecond)
				leavesAt, leave := context.WithDeadline(context.Background(), unlockAt.Add(time.Millisecond))
				defer leave()
				if name == "fenced" {
					leavesAt, leave = context.WithCancel(context.Background())
					time.AfterFunc(11*time.Millisecond, leave)
				}
				first := acquiringUnder(leavesAt, lockOf(r, "b"))
				synctest.Wait()
				next := acquiring(t, lockOf(r, "c"))
				synctest.Wait()
				require.NoError(t, othersHold.Unlock(context.Background()))
				a := <-held
				require.NoError(t, a.err)
				token, isFenced := a.hold.Token()
				<-time.After(time.Until(unlockAt))
				a.unlock(t)
				got := <-next
				require.NoError(t, got.err)
				require.Less(t, time.Since(unlockAt), 3*time.Millisecond)
				require.Error(t, (<-first).err)
				if nextToken, _ := got.hold.Token(); isFenced {
					require.Greater(t, nextToken, token)
				}
				got.unlock(t)
			})
		})
	}
}

// Callers with little patience leave before the transfers for them have replies. The lock must not go from owner to
// owner without a turn.
func TestTransfer_ImpatientCallers_LockIsNotIdle(t *testing.T) {
	t.Parallel()
	for name, lockOf := range needingTransfers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				var takes []redistest.Take
				for range 3 {
					r, calls := newFarRig(t, servers[0]), new(atomic.Int64)
					takes = append(takes, func(ctx context.Context, wait time.Duration) (func(), error) {
						l := lockOf(r, calls.Add(1)%6).WithWait(min(cmp.Or(wait, time.Minute), 5*time.Millisecond))
						hold, err := l.Lock(ctx)
						return func() { _ = hold.Unlock(context.Background()) }, err
					})
				}
				redistest.NotIdle(t, 35*time.Millisecond, "", takes...)
			})
		})
	}
}
