package rsemaphore_test

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rsemaphore"
)

func acquire(t testing.TB, s *rsemaphore.Semaphore, n int) *rsemaphore.Permit {
	t.Helper()
	p := redistest.NoError(s.Acquire(within(t), n))(t)
	return p
}

func release(t testing.TB, p *rsemaphore.Permit) {
	t.Helper()
	require.NoError(t, p.Release(within(t)))
}

// now is what the server says of s: available, acquired, capacity.
func counts(t testing.TB, s *rsemaphore.Semaphore) [3]int {
	t.Helper()
	available := redistest.NoError(s.Available(within(t)))(t)
	state := redistest.NoError(s.Inspect(within(t)))(t)
	return [3]int{available, len(state.Permits), state.Capacity}
}

func TestPermits_TakenAndGivenBack_AreCounted(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 5)
		require.Equal(t, [3]int{5, 0, 5}, counts(t, sem), "nobody has used it yet")
		require.Empty(t, r.keys(t), "and asking makes nothing")
		a, b := acquire(t, sem, 2), acquire(t, sem, 3)
		require.Len(t, a.IDs(), 2)
		require.Equal(t, "s", a.Name())
		require.Equal(t, [3]int{0, 5, 5}, counts(t, sem))
		require.NoError(t, a.Err())
		require.WithinDuration(t, time.Now().Add(30*time.Second), a.Until(), 10*time.Second)

		_, err := sem.TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		var na *rsemaphore.NotAcquiredError
		require.ErrorAs(t, err, &na)
		require.Equal(t, "s", na.Name)
		require.ErrorContains(t, na, `1 of "s"`)
		require.Positive(t, na.Lease)

		release(t, a)
		require.ErrorIs(t, a.Err(), errs.ErrReleased)
		require.Equal(t, [3]int{2, 3, 5}, counts(t, sem))
		c := redistest.NoError(sem.TryAcquire(within(t), 2, 0, time.Minute))(t)
		release(t, b)
		release(t, c)
		require.Equal(t, [3]int{5, 0, 5}, counts(t, sem))
		require.Equal(t, []string{"s"}, r.keys(t))
		require.Positive(t, r.pttl(t, "s"), "until its lease would have been over")
	})
}

func TestRelease_PartLost_GivesBackTheRest(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		r := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: 3 * time.Second})
		sem := r.c.Semaphore("s", 5)
		p := acquire(t, sem, 3)
		require.NoError(t, p.Extend(within(t), time.Hour))
		require.NoError(t, sem.ReleaseIDs(within(t), p.IDs()[1]))
		<-p.Done() // a renewal finds that it is not all there
		require.ErrorIs(t, p.Err(), errs.ErrLost)
		require.Equal(t, [3]int{3, 2, 5}, counts(t, sem))
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost)
		redistest.Eventually(t, 10*time.Second, "long before their lease is over", func() bool {
			return counts(t, sem) == [3]int{5, 0, 5}
		})
	})
}

// eachSized runs fn with permits and with weights, and with the key that says their capacity.
func eachSized(t *testing.T, fn func(t *testing.T, r *rig, of func(name string, n int) *rsemaphore.Semaphore,
	key string)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for _, weighted := range []bool{false, true} {
			r := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: 5 * time.Minute})
			of, key := r.c.Semaphore, "s"
			if weighted {
				of, key = r.c.WeightedSemaphore, weightedKeys[0]
			}
			fn(t, r, of, key)
		}
	})
}

func TestCapacity_Differs_IsRefused(t *testing.T) {
	t.Parallel()
	eachSized(t, func(t *testing.T, r *rig, of func(name string, n int) *rsemaphore.Semaphore, key string) {
		require.Equal(t, 5, must1[int](t)(of("s", 5).Available(within(t))), "not in use")
		p := acquire(t, of("s", 5), 2) // nobody had to set anything up, and nobody waits
		for _, n := range []int{4, 6} {
			_, err := of("s", n).Acquire(within(t), 1)
			require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
			require.ErrorContains(t, err, fmt.Sprintf(`"s" has 5, not %d`, n))
		}
		require.Equal(t, 3, must1[int](t)(of("s", 6).Available(within(t))), "the server's word")
		release(t, p)
		r.must(t, "DEL", key) // as when its lease is over
		release(t, acquire(t, of("s", 6), 6))
	})
}

func TestResize_Down_DrainsAndIsRemembered(t *testing.T) {
	t.Parallel()
	eachSized(t, func(t *testing.T, r *rig, of func(name string, n int) *rsemaphore.Semaphore, key string) {
		sem := of("s", 2)
		a := acquire(t, sem, 2)
		require.Equal(t, 2, must1[int](t)(sem.Resize(within(t), 3)))
		b := acquire(t, sem, 1)
		require.Equal(t, 3, must1[int](t)(sem.Resize(within(t), 1)))
		require.Equal(t, -2, must1[int](t)(sem.Available(within(t))), "nothing is taken from anybody")
		_, err := sem.TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NoError(t, a.Err())
		release(t, a)
		_, err = sem.TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired, "drained, and the one is taken")
		release(t, b)
		_, err = sem.Acquire(within(t), 2)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch, "this can never be")
		release(t, acquire(t, of("s", 9), 1)) // and the capacity of old configurations counts no more
		require.Equal(t, 1, must1[int](t)(sem.Available(within(t))))
		require.Greater(t, r.pttl(t, key), 6*24*time.Hour, "remembered")
	})
}

func TestInspect_Semaphore_SaysWhoHoldsWhatUntilWhen(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		a, b := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, KeyPrefix: "p:"}), newRig(t, s,
			rsemaphore.Options{CallTimeout: 10 * time.Second, KeyPrefix: "p:"})
		sem := a.c.Semaphore("s", 6)
		state := redistest.NoError(sem.Inspect(within(t)))(t)
		require.Equal(t, rsemaphore.SemaphoreState{Capacity: 6, Available: 6}, state)
		p := redistest.NoError(sem.WithLabel("the büro").TryAcquire(within(t), 1, 0, 10*time.Minute))(t)
		q := redistest.NoError(b.c.Semaphore("s", 6).TryAcquire(within(t), 2, 0, 30*time.Minute))(t)
		java := "\x01\x02\x03\x04\x05\x06\x47\x08abcdefgh" // as Redisson's acquire without a lease
		a.must(t, "ZADD", "{p:s}:timeout", "922337203685477", java)
		a.must(t, "DECRBY", "p:s", "1")
		state = redistest.NoError(sem.Inspect(within(t)))(t)
		require.Equal(t, 6, state.Capacity)
		require.Equal(t, 2, state.Available)
		require.Len(t, state.Permits, 4)
		first := state.Permits[0]
		require.Equal(t, p.IDs()[0], first.ID)
		require.Equal(t, "the büro", first.Label)
		require.True(t, len(first.Client) == 18 && strings.HasPrefix(a.c.ID(), first.Client), "%q of %q", first.Client,
			a.c.ID())
		require.Greater(t, first.Lease, 9*time.Minute)
		require.LessOrEqual(t, first.Lease, 10*time.Minute)
		for _, h := range state.Permits[1:3] {
			require.Contains(t, q.IDs(), h.ID)
			require.True(t, strings.HasPrefix(b.c.ID(), h.Client))
			require.Empty(t, h.Label)
			require.Greater(t, h.Lease, 29*time.Minute)
		}
		require.Equal(t, rsemaphore.Holder{ID: hex.EncodeToString([]byte(java)), N: 1, Lease: -1}, state.Permits[3])
		release(t, p)
		require.NotContains(t, a.keys(t), "{p:s}:notes", "labels go with their permits")
		require.NoError(t, sem.ReleaseIDs(within(t), hex.EncodeToString([]byte(java))))
		release(t, q)
	})
}

func TestSemaphore_NotShared_HasNoKeyWithoutEnd(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 3).WithLabel("x")
		p := acquire(t, sem, 1)
		redistest.NoError(sem.Resize(within(t), 4))(t)
		q := acquire(t, sem, 1)
		require.Len(t, r.keys(t), 3)
		for _, k := range r.keys(t) {
			require.Positive(t, r.pttl(t, k), k)
		}
		release(t, p)
		release(t, q)
		shared := r.c.Semaphore("j", 3).Shared()
		p = acquire(t, shared, 1)
		require.Equal(t, time.Duration(-1)*time.Millisecond, r.pttl(t, "j"))
		require.Equal(t, time.Duration(-1)*time.Millisecond, r.pttl(t, "{j}:timeout"))
		require.NoError(t, p.Extend(within(t), time.Hour))
		require.Equal(t, time.Duration(-1)*time.Millisecond, r.pttl(t, "{j}:timeout"))
		release(t, p)
		require.Equal(t, "3", r.text(t, "GET", "j"))
		require.Equal(t, time.Duration(-1)*time.Millisecond, r.pttl(t, "j"))
	})
}

// A semaphore without labels has a key that is not there, so from the first moment of a migration the server refuses
// its scripts, though nothing has been moved.
func TestPermits_SlotMigrated_AreKept(t *testing.T) {
	redistest.InFull(t, "TestWait_InACluster_IsServedByAMessage")
	t.Parallel()
	s := redistest.Cluster(t)
	const term = 4 * time.Second // a busy machine may be late by so much
	r := newRig(t, s, rsemaphore.Options{WatchdogTimeout: term})
	move := wire.NewMove(t, s, "s")
	p, q := acquire(t, r.c.Semaphore("{s}2", 5), 2), acquire(t, r.c.Semaphore("s", 5).WithLabel("x"), 1)
	move.Begin()
	kept := func(what string) {
		t.Helper()
		since := time.Now()
		redistest.Eventually(t, 30*time.Second, what, func() bool {
			require.NoError(t, p.Err())
			require.NoError(t, q.Err())
			return p.Until().Sub(since) > 3*term/2 && q.Until().Sub(since) > 3*term/2
		})
	}
	kept("renewed again and again before anything is moved")
	for _, keys := range [][]string{{"{s}2", "{s}:timeout"}, {"s", "{s}2:timeout", "{s}:notes"}} {
		for _, key := range keys {
			move.Key(key)
		}
		kept("and with more and more moved")
	}
	require.Zero(t, wire.Number(t, move.From, "CLUSTER", "COUNTKEYSINSLOT", move.Slot))
	move.End()
	release(t, p)
	release(t, q)
	require.Equal(t, [3]int{5, 0, 5}, counts(t, r.c.Semaphore("s", 5)))
}

// Redisson's side of the layout, by reference: what a Java process sends.

func javaSet(t *testing.T, r *rig, n int) {
	t.Helper()
	r.must(t, "SET", "s", strconv.Itoa(n))
	r.must(t, "PUBLISH", "redisson_sc:{s}", strconv.Itoa(n))
}

func javaAcquire(t *testing.T, r *rig, id string, lease time.Duration) {
	t.Helper()
	require.NotEqual(t, "0", r.text(t, "GET", "s"))
	r.must(t, "DECRBY", "s", "1")
	r.must(t, "ZADD", "{s}:timeout", strconv.FormatInt(r.now(t)+lease.Milliseconds(), 10), id)
}

// javaSetPermits and javaAddPermits are Redisson's: the total becomes n, or what is available more by n.
func javaSetPermits(t *testing.T, r *rig, n int64) {
	t.Helper()
	available := r.number(t, "GET", "s")
	r.must(t, "INCRBY", "s", strconv.FormatInt(n-available-r.number(t, "ZCOUNT", "{s}:timeout", "0", "+inf"), 10))
	r.must(t, "PUBLISH", "redisson_sc:{s}", strconv.FormatInt(n, 10))
}

func javaAddPermits(t *testing.T, r *rig, n int64) {
	t.Helper()
	total := r.number(t, "GET", "s") + n
	r.must(t, "SET", "s", strconv.FormatInt(total, 10))
	if total > 0 {
		r.must(t, "PUBLISH", "redisson_sc:{s}", strconv.FormatInt(total, 10))
	}
}

func TestSharedSemaphore_AnyWriter_ServersCapacityCounts(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		javaSet(t, r, 3)
		sem := r.c.Semaphore("s", 2).Shared()
		p := acquire(t, sem, 3) // more than it was given, and as many as there are
		javaAddPermits(t, r, 2)
		require.Equal(t, [3]int{2, 3, 5}, counts(t, sem))
		q := acquire(t, sem, 2)
		javaSetPermits(t, r, 4)
		require.Equal(t, [3]int{-1, 5, 4}, counts(t, sem))
		_, err := sem.TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NotErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
		release(t, p)
		javaSetPermits(t, r, 6)
		release(t, q)
		_, err = sem.Acquire(within(t), 7)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
		require.ErrorContains(t, err, `"s" has 6, not 7`)
		before := redistest.NoError(sem.Resize(within(t), 7))(t)
		require.Equal(t, 6, before)
		release(t, acquire(t, sem, 7))
		javaAddPermits(t, r, -2) // also after a Resize it is Java's to change
		require.Equal(t, [3]int{5, 0, 5}, counts(t, sem))
		release(t, acquire(t, sem, 5))
		require.Equal(t, [3]int{5, 0, 5}, counts(t, sem))
		_, err = r.c.Semaphore("s", 4).Acquire(within(t), 6)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
	})
}

func TestResize_SharedSemaphore_OutlivesAQuietWeek(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 3).Shared()
		release(t, acquire(t, sem, 1))
		redistest.NoError(sem.Resize(within(t), 5))(t)
		require.EqualValues(t, -1, r.number(t, "PTTL", "s"))
		r.must(t, "DEL", "{s}:notes") // their end has come
		release(t, acquire(t, sem, 5))
		require.Equal(t, [3]int{5, 0, 5}, counts(t, sem))
	})
}

func TestResize_PermitsDeleted_AllAreFree(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, patient)
		sem := r.c.Semaphore("s", 3)
		redistest.NoError(sem.Resize(within(t), 8))(t)
		p := acquire(t, sem, 6)
		r.must(t, "DEL", "{s}:timeout")
		require.Equal(t, [3]int{8, 0, 8}, counts(t, sem))
		state := redistest.NoError(sem.Inspect(within(t)))(t)
		require.Equal(t, [2]int{8, 8}, [2]int{state.Capacity, state.Available})
		q := acquire(t, sem, 8)
		require.Equal(t, "0", r.text(t, "GET", "s"))
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost)
		require.Equal(t, [3]int{0, 8, 8}, counts(t, sem), "and its late release adds none")
		release(t, q)

		p = acquire(t, sem, 6)
		r.must(t, "DEL", "{s}:timeout")
		require.ErrorIs(t, p.Release(within(t)), errs.ErrLost, "the release comes first")
		before := redistest.NoError(sem.Resize(within(t), 4))(t)
		require.Equal(t, 8, before)
		require.Equal(t, [3]int{4, 0, 4}, counts(t, sem))
		release(t, acquire(t, sem, 4))
	})
}
