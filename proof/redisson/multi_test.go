package interop_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
)

func members(t testing.TB) []string {
	return []string{unique(t, "a"), unique(t, "b"), unique(t, "c")}
}

func TestJavaMultiLock_MemberHeldInGo_WaitsOrLeavesNothing(t *testing.T) {
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
			single := waiting(t, r.locks.Reentrant(names[held]))
			w.listening(t, names[held])
			began = time.Now()
			java.do(t, "unlock", "multi", multi)
			g := <-single
			require.NoError(t, g.err)
			require.Less(t, time.Since(began), soon)
			release(t, g.hold)
			for _, name := range names {
				free(t, r.locks.Reentrant(name))
			}
		}
	})
}

func TestMulti_BesideJava_ExcludeEachOther(t *testing.T) {
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
