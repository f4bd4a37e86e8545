package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

func multi(t testing.TB, locks ...*rlock.Lock) *rlock.Lock {
	t.Helper()
	m, err := rlock.Multi(locks...)
	require.NoError(t, err)
	return m
}

// reentrants are the Reentrant locks of those names.
func reentrants(r *rig, names ...string) (locks []*rlock.Lock) {
	for _, name := range names {
		locks = append(locks, r.locks.Reentrant(name))
	}
	return locks
}

// holders says who holds what, of those names that are hashes.
func holders(t testing.TB, r *rig, names ...string) (n int) {
	t.Helper()
	for _, name := range names {
		n += len(r.hash(t, name))
	}
	return n
}

func TestMulti_BadMembers_AreRefusedByName(t *testing.T) {
	t.Parallel()
	r, other := newRig(t, redistest.Embedded(t), rlock.Options{}), newRig(t, redistest.Embedded(t), rlock.Options{})
	a := r.locks.Reentrant("a")
	rw := r.locks.ReadWrite("rw")
	for _, c := range []struct {
		name  string
		locks []*rlock.Lock
		is    error
		says  string
	}{
		{"nothing", nil, errs.ErrInvalidOption, "no locks"},
		{"nil", []*rlock.Lock{a, nil}, errs.ErrInvalidOption, "lock 2 is nil"},
		{"a bad name", []*rlock.Lock{a, r.locks.Reentrant("")}, errs.ErrInvalidName, "empty"},
		{"a bad lease", []*rlock.Lock{a.WithLease(-1)}, errs.ErrInvalidOption, "leaseTime"},
		{"a Multi", []*rlock.Lock{multi(t, a, r.locks.Reentrant("b"))}, errs.ErrInvalidOption, `"multi(a,b)"`},
		{"two kinds", []*rlock.Lock{a, r.locks.Fenced("a")}, errs.ErrInvalidOption, "as Reentrant and as Fenced"},
		{"two kinds that are the same on the server", []*rlock.Lock{r.locks.NonReentrant("a"), a}, errs.ErrInvalidOption,
			"as NonReentrant and as Reentrant"},
		{"both sides", []*rlock.Lock{rw.Read(), a, rw.Write()}, errs.ErrInvalidOption,
			`"rw" is there as ReadWrite.Read and as ReadWrite.Write`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := rlock.Multi(c.locks...)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
		})
	}
	m := multi(t, a, other.locks.Reentrant("a"), a)
	h := lock(t, m, within(t))
	require.Equal(t, 1, strings.Count(string(h.Owner()), ","), "one of each server, and the same one once")
	require.NoError(t, h.Unlock(within(t)))
	_, err := m.WithLease(time.Nanosecond).Lock(within(t))
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	bad := m.WithLabel(strings.Repeat("x", 1000))
	_, err = bad.IsLocked(within(t))
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = bad.Inspect(within(t))
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = bad.ForceUnlock(within(t))
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = m.TryLock(within(t), -1, 0)
	require.ErrorIs(t, err, errs.ErrInvalidOption, "a waitTime of -1 is not forever")
}

func TestMulti_OneSlot_AcquiresInOneCall(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newUntracked(t, s).warmUp(t)
	m := multi(t, reentrants(r, "a", "b", "c", "d", "e")...)
	require.NoError(t, lock(t, m, within(t)).Unlock(within(t)))
	calls := callsOf(t, r.redis, func() { require.NoError(t, lock(t, m, within(t)).Unlock(within(t))) })
	require.Equal(t, 1+5, calls["evalsha"])
	require.Zero(t, calls["subscribe"]+calls["eval"])
	require.Empty(t, keys(t, r.redis))
}

func TestMulti_MembersFreeOrHeld_TakesAllOrNone(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r, other := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
		for name, m := range map[string]*rlock.Lock{
			"one script": multi(t, reentrants(r, "c", "a", "b")...),
			"one by one": multi(t, r.locks.Fenced("c"), r.locks.Reentrant("a"), r.locks.Fair("b")),
		} {
			t.Run(name, func(t *testing.T) {
				h, err := m.TryLock(within(t), 0, 0)
				require.NoError(t, err, "free, and a waitTime of 0")
				require.Equal(t, 3, holders(t, r, "a", "b", "c"))
				require.Equal(t, "multi(a,b,c)", h.Name())
				require.True(t, h.Until().After(time.Now()))
				require.NoError(t, h.Unlock(within(t)))
				require.ErrorIs(t, h.Err(), errs.ErrReleased)
				require.Zero(t, holders(t, r, "a", "b", "c"))

				for _, held := range []string{"a", "b", "c"} {
					of := lock(t, other.locks.Reentrant(held).WithLease(time.Minute), within(t))
					for _, waitTime := range []time.Duration{0, 100 * time.Millisecond} {
						_, err = m.TryLock(within(t), waitTime, 0)
						require.ErrorIs(t, err, errs.ErrNotAcquired)
						require.ErrorContains(t, err, strconv.Quote(held))
						redistest.Eventually(t, 20*time.Second, "only what another holds is left", func() bool {
							return holders(t, r, "a", "b", "c") == 1
						})
					}
					require.NoError(t, of.Unlock(within(t)))
					redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool {
						return holders(t, r, "a", "b", "c") == 0 && r.locks.Owed() == 0
					})
				}
			})
		}
	})
}

// Redisson took the wait and the lease of each member from those of the whole, so that with a lease shorter than the
// wait the first members were free again when the last was granted.
func TestMulti_LeaseShorterThanTheWait_MakesNoSecondHolder(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		// A call without a reply would have it give back what it has, and begin anew.
		r, other := newRig(t, s, rlock.Options{CallTimeout: 10 * time.Second}), newRig(t, s,
			rlock.Options{CallTimeout: 10 * time.Second})
		const lease = 4 * time.Second
		last := lock(t, other.locks.Reentrant("z"), within(t))
		got := acquiring(t, multi(t, reentrants(r, "z", "b", "a")...).WithWait(40*time.Second).WithLease(lease))
		redistest.Eventually(t, 20*time.Second, "it holds the first two", func() bool {
			return holders(t, other, "a", "b") == 2
		})
		owners := fmt.Sprint(other.hash(t, "a"), other.hash(t, "b"))
		for end := time.Now().Add(2 * lease); time.Now().Before(end); {
			_, err := other.locks.Reentrant("a").TryLock(within(t), 50*time.Millisecond, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
		}
		require.Equal(t, owners, fmt.Sprint(other.hash(t, "a"), other.hash(t, "b")), "for two leases")
		require.NoError(t, last.Unlock(within(t)))
		res := <-got
		require.NoError(t, res.err)
		require.Greater(t, res.hold.Until().Sub(res.at), lease/2, "all of them for the whole lease")
		<-res.hold.Done()
		require.ErrorIs(t, res.hold.Err(), errs.ErrLost, "a fixed lease is not renewed")
		require.ErrorIs(t, res.hold.Unlock(within(t)), errs.ErrLost)
		redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool { return len(keys(t, other.redis)) == 0 })
	})
}

func TestMulti_MemberLost_IsOverAndKeepsTheOthersUntilUnlock(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, r *rig){
		"DEL": func(t *testing.T, r *rig) {
			wire.Must(t, r.redis, "DEL", "b")
		},
		"ForceUnlock": func(t *testing.T, r *rig) {
			taken, err := r.locks.Reentrant("b").ForceUnlock(within(t))
			require.NoError(t, err)
			require.True(t, taken)
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, 1, func(t *testing.T, servers quorumServers) {
				const lease = 3 * time.Second
				r := newRig(t, servers[0], rlock.Options{WatchdogTimeout: lease})
				h := lock(t, multi(t, reentrants(r, "a", "b", "c")...), within(t))
				work := h.Context(context.Background())
				lose(t, r)
				<-work.Done()
				require.ErrorIs(t, context.Cause(work), errs.ErrLost)
				require.ErrorIs(t, h.Err(), errs.ErrLost)
				time.Sleep(lease + lease/6)
				require.Equal(t, 2, holders(t, r, "a", "c"), "nothing releases a lock under running work")
				require.ErrorIs(t, h.Extend(within(t), time.Second), errs.ErrLost)
				require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
				require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost, "the first result")
				require.Zero(t, holders(t, r, "a", "b", "c"))
			})
		})
	}
}

func TestMulti_MemberLostBeforeAllAreHeld_StartsOver(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		r, other := newRig(t, s, rlock.Options{WatchdogTimeout: 6 * time.Second}), newRig(t, s, rlock.Options{})
		last := lock(t, other.locks.Reentrant("z"), within(t))
		for _, patient := range []bool{true, false} {
			waitTime := 20 * time.Second
			if !patient {
				waitTime = 1500 * time.Millisecond
			}
			got := acquiring(t, multi(t, reentrants(r, "z", "a")...).WithWait(waitTime))
			// and knows: until it does, it still waits for the first, as it will again
			redistest.Eventually(t, 20*time.Second, "it holds the first and waits for the second", func() bool {
				return holders(t, other, "a") == 1 && r.locks.Waiting("z") == 1
			})
			taken, err := other.locks.Reentrant("a").ForceUnlock(within(t))
			require.NoError(t, err)
			require.True(t, taken)
			mine, err := other.locks.Reentrant("a").TryLock(within(t), 20*time.Second, 0)
			require.NoError(t, err)
			if patient {
				redistest.Eventually(t, 20*time.Second, "it waits for the first again", func() bool {
					return r.locks.Waiting("a") == 1
				})
				require.NoError(t, last.Unlock(within(t)))
				require.NoError(t, mine.Unlock(within(t)))
				(<-got).unlock(t)
				last = lock(t, other.locks.Reentrant("z"), within(t))
				continue
			}
			require.ErrorIs(t, (<-got).err, errs.ErrNotAcquired)
			require.NoError(t, mine.Unlock(within(t)))
			require.NoError(t, last.Unlock(within(t)))
		}
		redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool { return len(keys(t, other.redis)) == 0 })
	})
}

func TestMulti_ContextOfItOrAMember_IsReentered(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		a, m := r.locks.Reentrant("a"), multi(t, reentrants(r, "a", "b")...)
		outer := lock(t, m, within(t))
		under := outer.Context(within(t))
		inner, err := m.TryLock(under, 0, 0)
		require.NoError(t, err)
		require.Equal(t, outer.Owner(), inner.Owner())
		for _, name := range []string{"a", "b"} {
			for _, count := range r.hash(t, name) {
				require.Equal(t, "1", count)
			}
		}
		member, err := a.TryLock(under, 0, 0)
		require.NoError(t, err, "a member alone")
		require.Equal(t, "1", r.hash(t, "a")[string(member.Owner())])
		_, err = m.TryLock(rlock.Detach(under), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		for _, h := range []*rlock.Hold{member, outer, inner} {
			require.Equal(t, 2, holders(t, r, "a", "b"))
			require.NoError(t, h.Unlock(within(t)))
		}
		require.Zero(t, holders(t, r, "a", "b"))

		first := lock(t, a, within(t))
		both, err := m.TryLock(first.Context(within(t)), 0, 0)
		require.NoError(t, err, "one of the two is re-entered")
		require.NoError(t, first.Unlock(within(t)))
		require.Equal(t, 2, holders(t, r, "a", "b"))
		_, err = m.TryLock(both.Context(within(t)), 0, time.Second)
		require.NoError(t, err)
		require.Greater(t, time.Until(both.Until()), 10*time.Second, "a re-entry shortens no lease")

		once := multi(t, r.locks.NonReentrant("x"), r.locks.Reentrant("y"))
		h := lock(t, once, within(t))
		_, err = once.Lock(h.Context(within(t)))
		require.ErrorIs(t, err, rlock.ErrReentry)
		require.Equal(t, 2, holders(t, r, "x", "y"))
		require.NoError(t, h.Unlock(within(t)))
	})
}

func TestMulti_OwnerInAnotherProcess_IsJoined(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r, other := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
		h := lock(t, multi(t, reentrants(r, "a", "b")...).WithLabel("a,job"), within(t))
		theirs := multi(t, reentrants(other, "b", "a")...)
		joined, err := theirs.TryLock(theirs.WithOwner(within(t), h.Owner()), 0, 0)
		require.NoError(t, err)
		require.NoError(t, h.Unlock(within(t)))
		_, err = theirs.TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NoError(t, joined.Unlock(within(t)))
		require.Zero(t, holders(t, r, "a", "b"))
		_, err = theirs.Lock(theirs.WithOwner(within(t), h.Owner()))
		require.ErrorIs(t, err, errs.ErrLost)
		_, err = theirs.Lock(theirs.WithOwner(within(t), "just one"))
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, "not 2 owners: just one")
	})
}

func TestMulti_Label_GoesToMembersWithoutOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rlock.Options{})
	h := lock(t, multi(t, r.locks.Reentrant("a").WithLabel("own"), r.locks.Fair("b")).WithLabel("of all"), within(t))
	for name, label := range map[string]string{"a": "own", "b": "of all"} {
		s, err := r.locks.Reentrant(name).Inspect(within(t))
		require.NoError(t, err)
		require.Equal(t, label, s.Holders[0].Label)
	}
	require.NoError(t, h.Unlock(within(t)))
}

func TestMulti_Queries_DescribeItsMembers(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		m := multi(t, r.locks.Reentrant("a"), r.locks.Fenced("b"))
		require.Equal(t, "multi(a,b)", m.Name())
		locked, err := m.IsLocked(within(t))
		require.NoError(t, err)
		require.False(t, locked)
		lock(t, r.locks.Reentrant("a").WithLease(time.Hour), within(t))
		locked, err = m.IsLocked(within(t))
		require.NoError(t, err)
		require.True(t, locked, "one is enough")
		require.InDelta(t, time.Hour, leaseOf(t, m), float64(time.Minute))
		taken, err := m.ForceUnlock(within(t))
		require.NoError(t, err)
		require.True(t, taken)
		taken, err = m.ForceUnlock(within(t))
		require.NoError(t, err)
		require.False(t, taken)
		h := lock(t, m, within(t))
		token, ok := h.Token()
		require.True(t, ok)
		require.Positive(t, token)
		require.NoError(t, h.Extend(within(t), time.Hour))
		require.Greater(t, time.Until(h.Until()), 50*time.Minute)
		require.ErrorIs(t, h.Extend(within(t), time.Nanosecond), errs.ErrInvalidOption)
		require.NoError(t, h.Unlock(within(t)))
		require.ErrorIs(t, h.Extend(within(t), time.Hour), errs.ErrReleased)
		_, ok = lock(t, multi(t, reentrants(r, "a", "c")...), within(t)).Token()
		require.False(t, ok)
		require.NoError(t, multi(t, reentrants(r, "d", "e")...).Do(within(t), func(_ context.Context) error {
			require.Equal(t, 2, holders(t, r, "d", "e"))
			return nil
		}))
	})
}

// A Multi that takes what is free must not overtake those who wait for one of its locks.
func TestMulti_OthersQueueForAMember_OvertakesNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, waiter, holder := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
	h := lock(t, holder.locks.Reentrant("b"), within(t))
	queue := queueUp(t, r.redis, waiter.locks.Reentrant("b"), within(t), 1)
	// as if the holder had died: nobody hands over
	wire.Must(t, r.redis, "DEL", "b")
	_, err := multi(t, reentrants(r, "a", "b")...).TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	require.ErrorContains(t, err, `"b"`)
	require.Zero(t, holders(t, r, "a"))
	(<-queue).unlock(t)
	require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
	lock(t, multi(t, reentrants(r, "a", "b")...), within(t))
}

func TestUnlockAfter_SeveralMembers_CountsFromWhenAllWereHeld(t *testing.T) {
	t.Parallel()
	servers := embedded(t, 3)
	p := servers.process(t, rlock.Options{})
	r := p.rigs[0]
	for name, l := range map[string]*rlock.Lock{"a": multi(t, reentrants(r, "a", "b")...),
		"f": multi(t, r.locks.Fenced("f"), r.locks.Reentrant("g")), "q": p.lock(t, "q")} {
		h := lock(t, l, within(t))
		require.ErrorIs(t, h.UnlockAfter(within(t), -1), errs.ErrInvalidOption)
		require.NoError(t, h.UnlockAfter(within(t), time.Hour))
		require.ErrorIs(t, h.Err(), errs.ErrReleased)
		_, err := l.TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired, name)
		require.InDelta(t, time.Hour, leaseOf(t, l), float64(time.Minute), name)
		_, err = l.ForceUnlock(within(t))
		require.NoError(t, err)
		h = lock(t, l, within(t))
		require.NoError(t, h.UnlockAfter(within(t), time.Nanosecond), "over already")
		h = lock(t, l, within(t))
		require.NoError(t, h.Unlock(within(t)))
	}
}

func TestMulti_MaxHoldOfAMember_EndsIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, short := newRig(t, s, rlock.Options{}), newRig(t, redistest.Start(t), rlock.Options{MaxHold: 50 * time.Millisecond})
	h := lock(t, multi(t, r.locks.Reentrant("a"), short.locks.Reentrant("b")), within(t))
	<-h.Done()
	require.ErrorIs(t, h.Err(), errs.ErrMaxHold)
	require.NoError(t, h.Unlock(within(t)))
	require.Zero(t, holders(t, r, "a")+holders(t, short, "b"))
}

func TestMulti_NotReplicated_IsTakenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t),
		rlock.Options{MinReplicas: 1, ReplicaTimeout: 20 * time.Millisecond, CallTimeout: 2 * time.Second})
	for _, m := range []*rlock.Lock{multi(t, reentrants(r, "a", "b")...),
		multi(t, r.locks.Reentrant("a"), r.locks.Fair("b"))} {
		_, err := m.Lock(within(t))
		require.ErrorIs(t, err, errs.ErrNotReplicated)
		require.Zero(t, holders(t, r, "a", "b"))
	}
}

func TestMulti_ServerSilent_IsNotTakenForContention(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, second := newRig(t, s, rlock.Options{}), newRig(t, redistest.Start(t),
		rlock.Options{CallTimeout: 100 * time.Millisecond})
	one := multi(t, reentrants(second, "a", "b")...)
	two := multi(t, r.locks.Reentrant("a"), second.locks.Reentrant("b"))
	require.NoError(t, lock(t, two, within(t)).Unlock(within(t)))
	second.server.Stop(t)
	for _, m := range []*rlock.Lock{one, two} {
		for _, waitTime := range []time.Duration{0, 300 * time.Millisecond} {
			_, err := m.TryLock(within(t), waitTime, 0)
			require.ErrorIs(t, err, errs.ErrUnknownOutcome)
			require.NotErrorIs(t, err, errs.ErrNotAcquired)
		}
		redistest.Eventually(t, 20*time.Second, "given back", func() bool { return holders(t, r, "a") == 0 })
	}
	second.server.Resume(t)
	redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool { return len(keys(t, second.redis)) == 0 })
	require.NoError(t, lock(t, one, within(t)).Unlock(within(t)))
	require.NoError(t, lock(t, two, within(t)).Unlock(within(t)))
}

// What it has got by then is given back, which a server that has fallen silent does not confirm.
func TestMulti_ServerFallsSilent_EndsInTime(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(*rlock.Lock) (*rlock.Hold, error){
		"waitTime": func(l *rlock.Lock) (*rlock.Hold, error) { return l.TryLock(context.Background(), time.Second, 0) },
		"ctx": func(l *rlock.Lock) (*rlock.Hold, error) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return l.Lock(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, 1, func(t *testing.T, servers quorumServers) {
				holder := newRig(t, servers[0], rlock.Options{WatchdogTimeout: lease})
				h := lock(t, holder.locks.Reentrant("b"), within(t))
				p := redistest.NewProxy(t, servers[0])
				r := newRig(t, p.Server(), rlock.Options{CallTimeout: 8 * time.Second, WatchdogTimeout: lease})
				began := time.Now()
				done := make(chan error, 1)
				go func() {
					_, err := acquire(multi(t, reentrants(r, "a", "b")...))
					done <- err
				}()
				redistest.Eventually(t, time.Second, "it has one and waits for the other", func() bool {
					return holders(t, holder, "a") == 1 && len(queued(t, holder.redis, "b")) == 1
				})
				p.Hold(redistest.Up)
				p.Hold(redistest.Down)
				require.Error(t, <-done)
				require.Less(t, time.Since(began), 2*time.Second, "not a CallTimeout more")
				p.Heal()
				require.NoError(t, r.locks.Close(within(t)), "which waits for what is given back")
				require.Zero(t, holders(t, holder, "a"))
				require.NoError(t, h.Unlock(within(t)))
			})
		})
	}
}

func TestMulti_SeveralSlots_WorksInACluster(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	r, other := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
	same, several := multi(t, reentrants(r, "{x}a", "{x}b", "{x}c")...), multi(t, reentrants(r, "a", "b", "c", "d")...)
	for _, m := range []*rlock.Lock{same, several} {
		h := lock(t, m, within(t))
		_, err := m.TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NoError(t, h.Unlock(within(t)))
	}
	calls := func() (n int) {
		for _, node := range r.redis.Nodes() {
			c := redistest.CommandCalls(t, node)
			n += c["evalsha"] + c["eval"]
		}
		return n
	}
	before := calls()
	h := lock(t, same, within(t))
	require.Equal(t, 1, calls()-before)
	held := pass(t, multi(t, reentrants(other, "{x}c", "{x}z")...))
	require.NoError(t, h.Unlock(within(t)))
	require.NoError(t, <-held)
}

// TestMulti_SlotMigrates_IsAcquiredOneByOne: a script with several keys is refused then.
func TestMulti_SlotMigrates_IsAcquiredOneByOne(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	r := newRig(t, s, rlock.Options{PollCap: 100 * time.Millisecond})
	m := multi(t, reentrants(r, "{x}a", "{x}b", "{x}c")...)
	require.NoError(t, lock(t, m, within(t)).Unlock(within(t)))
	before := lock(t, m, within(t))
	slot := wire.NewMove(t, s, "{x}a")
	slot.Begin()
	slot.Key("{x}b")
	require.NoError(t, before.Unlock(within(t)))
	for _, waitTime := range []time.Duration{0, 10 * time.Second} {
		h, err := m.TryLock(within(t), waitTime, 0)
		require.NoError(t, err)
		require.NoError(t, h.Unlock(within(t)))
	}
	slot.End()
	require.NoError(t, lock(t, m, within(t)).Unlock(within(t)))
}

func TestMulti_RandomSetsAndOrders_NeverDeadlock(t *testing.T) {
	t.Parallel()
	lasts := redistest.Sized(100*time.Millisecond, 100*time.Millisecond, time.Minute)
	const goroutines, names = 50, 12
	kinds := func(r *rig, i int) *rlock.Lock {
		name := fmt.Sprint("l", i)
		switch i % 6 {
		case 1:
			return r.locks.NonReentrant(name)
		case 2:
			return r.locks.Fenced(name)
		case 3:
			return r.locks.Fair(name)
		case 4:
			return r.locks.ReadWrite(name).Write()
		case 5:
			return r.locks.Spin(name, 0, 0)
		}
		return r.locks.Reentrant(name)
	}
	plain := func(r *rig, i int) *rlock.Lock { return r.locks.Reentrant(fmt.Sprint("l", i)) }
	mixed := func(rigs []*rig) func(int, int) *rlock.Lock {
		return func(g, i int) *rlock.Lock { return kinds(rigs[g%len(rigs)], i) }
	}
	o := rlock.Options{CallTimeout: 10 * time.Second} // not to be answered says nothing about deadlocks
	for name, start := range map[string]func(t *testing.T) func(g, i int) *rlock.Lock{
		"one server, one kind": func(t *testing.T) func(int, int) *rlock.Lock {
			s := redistest.Start(t)
			a, b := newRig(t, s, o), newRig(t, s, o)
			return func(g, i int) *rlock.Lock { return plain([]*rig{a, b}[g%2], i) }
		},
		"one server, all kinds": func(t *testing.T) func(int, int) *rlock.Lock {
			s := redistest.Start(t)
			return mixed([]*rig{newRig(t, s, o), newRig(t, s, o), newRig(t, s, o)})
		},
		"a Cluster": func(t *testing.T) func(int, int) *rlock.Lock {
			s := redistest.Cluster(t)
			return mixed([]*rig{newRig(t, s, o), newRig(t, s, o)})
		},
		"two servers": func(t *testing.T) func(int, int) *rlock.Lock {
			s, z := redistest.Start(t), redistest.Start(t)
			rigs := [][]*rig{{newRig(t, s, o), newRig(t, z, o)}, {newRig(t, s, o), newRig(t, z, o)}}
			return func(g, i int) *rlock.Lock { return kinds(rigs[g%2][i%2], i) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := start(t)
			var inside [names]int // written by holders only, without any synchronisation of ours
			var acquired, contended, away atomic.Int64
			end := time.Now().Add(lasts)
			last := end.Add(time.Minute) // on a busy machine
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() {
					for (time.Now().Before(end) || acquired.Load() <= goroutines && time.Now().Before(last)) && !t.Failed() {
						set := rand.Perm(names)[:1+rand.IntN(4)]
						locks := make([]*rlock.Lock, len(set))
						for j, i := range set {
							locks[j] = of(g, i)
						}
						m, err := rlock.Multi(locks...)
						if err != nil {
							t.Error(err)
							return
						}
						var h *rlock.Hold
						switch rand.IntN(4) {
						case 0:
							h, err = m.TryLock(context.Background(), 0, 0)
						case 1:
							h, err = m.TryLock(context.Background(), rand.N(20*time.Millisecond), 10*time.Second)
						default: // within a minute, or it hangs
							h, err = m.TryLock(context.Background(), time.Minute, 0)
							if errors.Is(err, errs.ErrNotAcquired) {
								t.Errorf("%v: %v", set, err)
							}
						}
						if errors.Is(err, errs.ErrNotAcquired) {
							contended.Add(1)
							continue
						}
						if errors.Is(err, errs.ErrUnavailable) || errors.Is(err, errs.ErrUnknownOutcome) {
							away.Add(1) // a machine so busy that a request took longer than the call timeout
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						for _, i := range set {
							if inside[i] != 0 {
								t.Errorf("%d is held twice", i)
							}
							inside[i] = g + 1
						}
						runtime.Gosched()
						for _, i := range set {
							if inside[i] != g+1 {
								t.Errorf("%d was taken over", i)
							}
							inside[i] = 0
						}
						if err := h.Unlock(context.Background()); err != nil {
							t.Error(err)
						}
						acquired.Add(1)
					}
				})
			}
			wg.Wait()
			t.Logf("%d acquired, %d contended, %d not answered", acquired.Load(), contended.Load(), away.Load())
			require.Greater(t, acquired.Load(), int64(goroutines), "everybody had a turn, about")
		})
	}
}
