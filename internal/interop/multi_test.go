package interop_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/interop"
)

func members(t testing.TB) []string {
	return []string{unique(t, "a"), unique(t, "b"), unique(t, "c")}
}

func TestAJavaMultiLockHoldsItsMembersAgainstUs(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		names, java := members(t), w.lane(t)
		multi := strings.Join(names, ",")
		java.do(t, "lock", "multi", multi, -1)
		for _, name := range names {
			refused(t, r.locks.Reentrant(name))
		}
		waiter := waiting(t, r.locks.Reentrant(names[1]))
		w.listening(t, names[1])
		began := time.Now()
		java.do(t, "unlock", "multi", multi)
		g := <-waiter
		require.NoError(t, g.err)
		require.Less(t, time.Since(began), soon)
		release(t, g.hold)
		for _, name := range names {
			free(t, r.locks.Reentrant(name))
		}
	})
}

func TestAJavaMultiLockWaitsForOurMemberOrLeavesNothingBehind(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		for held := range 3 {
			names, java := members(t), w.lane(t)
			multi := strings.Join(names, ",")
			h := hold(t, r.locks.Reentrant(names[held]).WithLease(lease), within(t))
			require.Equal(t, "false", java.do(t, "try", "multi", multi, 200, -1))
			for i, name := range names {
				if i != held {
					require.False(t, r.exists(t, name), "nothing is left of the members it had")
					free(t, r.locks.Reentrant(name))
				}
			}
			sameLease(t, lease, r.pttl(t, names[held]))
			require.Equal(t, map[string]string{string(h.Owner()): "1"}, r.hash(t, names[held]))
			waiter := java.send("lock", "multi", multi, -1)
			w.listening(t, names[held])
			began := time.Now()
			release(t, h)
			got(t, waiter)
			require.Less(t, time.Since(began), soon, "well under the lease")
			for _, name := range names {
				refused(t, r.locks.Reentrant(name))
			}
			java.do(t, "unlock", "multi", multi)
			for _, name := range names {
				free(t, r.locks.Reentrant(name))
			}
		}
	})
}

// TestMultiLocksOfBothLanguagesAndSingleOnesExclude: on a member, everybody loops at the same time.
func TestMultiLocksOfBothLanguagesAndSingleOnesExclude(t *testing.T) {
	each(t, []place{newestAlone, newestCluster, olderAlone}, func(t *testing.T, w *world) {
		r := w.rig(t)
		names, guard := members(t)[:2], unique(t, "guard")
		const rounds = 60
		var all []looped
		var loops []<-chan interop.Reply
		for _, java := range w.lanes(t, 2) {
			loops = append(loops, java.send("loop", "multi", strings.Join(names, ","), rounds, 0, guard, 0))
		}
		for range 2 {
			loops = append(loops, startLooper(t, w).send("multi", strings.Join(names, ","), rounds, guard, 0))
			// one member is enough to be alone with all who want both
			loops = append(loops, startLooper(t, w).send("lock", names[0], rounds, guard, 0))
		}
		writes := 0
		for i, c := range loops {
			text, _ := got(t, c)
			x := parseLooped(t, fmt.Sprint("number ", i), text)
			require.Less(t, x.longest, starved)
			writes += x.writes
			all = append(all, x)
		}
		together(t, all, 1)
		n, err := r.number(within(t), guard)
		require.NoError(t, err)
		require.EqualValues(t, writes, n)
		require.Equal(t, 6*rounds, writes)
	})
}

func TestOurMultiLockAndJavaExcludeEachOther(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		names, java, another := members(t), w.lane(t), w.lane(t)
		all := strings.Join(names, ",")
		multi := r.lock("multi", all)
		h := hold(t, multi, within(t))
		for _, name := range names {
			require.Equal(t, "true", java.do(t, "locked", "lock", name))
			require.Equal(t, "false", java.do(t, "trynow", "lock", name))
		}
		require.Equal(t, "false", java.do(t, "try", "multi", all, 200, -1))
		require.NoError(t, h.Err(), "and left our members alone")
		waiter := java.send("lock", "multi", all, -1)
		single := another.send("lock", "lock", names[2], -1)
		w.listening(t, names[0])
		w.listening(t, names[2])
		began := time.Now()
		release(t, h)
		select { // both have been waiting for the third, and either may have it first
		case r := <-single:
			require.NoError(t, r.Err)
			another.do(t, "unlock", "lock", names[2])
			got(t, waiter)
			refused(t, multi)
			java.do(t, "unlock", "multi", all)
		case r := <-waiter:
			require.NoError(t, r.Err)
			refused(t, multi)
			java.do(t, "unlock", "multi", all)
			got(t, single)
			another.do(t, "unlock", "lock", names[2])
		case <-time.After(40 * time.Second):
			require.FailNow(t, "no answer from Java")
		}
		require.Less(t, time.Since(began), 2*soon)
		free(t, multi)

		// Java holds one: nothing is left of the others, and the last release wakes us
		for held, name := range names {
			java.do(t, "lock", "lock", name, -1)
			_, err := multi.TryLock(within(t), 100*time.Millisecond, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			for i, other := range names {
				require.Equal(t, i == held, r.exists(t, other))
			}
			mine := waiting(t, multi)
			w.listening(t, name)
			began := time.Now()
			java.do(t, "unlock", "lock", name)
			g := <-mine
			require.NoError(t, g.err)
			require.Less(t, g.at.Sub(began), soon)
			release(t, g.hold)
		}
	})
}
