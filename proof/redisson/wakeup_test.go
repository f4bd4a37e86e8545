package interop_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/proof/redisson"
)

// soon is well under the lease, 30 s, and under pollCap: only a message is that quick.
const soon = 5 * time.Second

// A release of ours wakes a thread of Java, and one of Java a waiter of ours.
func TestWaiter_ReleaseOfTheOtherLanguage_WakesIt(t *testing.T) {
	type kinds struct{ holder, waiter string }
	// Java's own spin locks publish nothing: see below.
	ofOurs := []kinds{{"spin", "lock"}, {"once", "lock"}}
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		for _, javaWaits := range []bool{true, false} {
			for _, k := range []kinds{{"lock", "lock"}, {"lock", "fenced"}, {"fenced", "fenced"}, {"fenced", "lock"},
				{"fair", "fair"}, {"write", "write"}, {"write", "read"}, {"read", "write"}, ofOurs[0], ofOurs[1]} {
				if !javaWaits && slices.Contains(ofOurs, k) {
					continue
				}
				t.Run(fmt.Sprintf("%s %s in Java %v", k.holder, k.waiter, javaWaits), func(t *testing.T) {
					name, holder, waiter := unique(t, "wake"), w.player(t, !javaWaits, r), w.player(t, javaWaits, r)
					holder.lock(t, k.holder, name)
					answer := waiter.asks(t, k.waiter, name, 0)
					w.listening(t, name)
					require.Empty(t, answer)
					w.quiet(t)
					began := time.Now()
					holder.unlock(t, k.holder, name)
					has(t, answer)
					require.Less(t, time.Since(began), soon)
					refused(t, r.lock(k.holder, name))
					waiter.unlock(t, k.waiter, name)
					free(t, r.lock(k.holder, name))
					require.Equal(t, "false", w.lane(t).do(t, "locked", k.waiter, name))
				})
			}
		}
	})
}

// Java's spin lock publishes nothing on a release, so our waiters find it within PollCap.
func TestWait_JavaSpinLockReleased_IsFoundByAPoll(t *testing.T) {
	each(t, []place{newestAlone, newestCluster, olderAlone}, func(t *testing.T, w *world) {
		r := w.rigOf(t, time.Second, 0)
		for _, kind := range []string{"lock", "spin", "fenced"} {
			name, java := unique(t, "spin"), w.lane(t)
			java.do(t, "lock", "spin", name, -1)
			waiter := waiting(t, r.lock(kind, name))
			refused(t, r.lock(kind, name))
			java.do(t, "unlock", "spin", name)
			began := time.Now()
			g := <-waiter
			require.NoError(t, g.err)
			require.Less(t, g.at.Sub(began), time.Second+soon)
			release(t, g.hold)
		}
	})
}

// A name that Java uses must have no Plain lock, nor a lock of redsync's.
func TestRedisson_LockIsAString_FailsInsteadOfWaiting(t *testing.T) {
	driver(t)
	w := newWorld(t, interop.Newest, "standalone")
	r, name := w.rig(t), unique(t, "plain")
	h := hold(t, r.locks.Plain(name), within(t))
	require.Equal(t, "RedisException", w.lane(t).refused(t, "trynow", "lock", name))
	require.NoError(t, h.Err())
	release(t, h)
}
