package interop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/interop"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// TestForceUnlockWakesAWaiterAndTheHolderIsTold: the holder, the waiter and who forces are of either language, in every
// way in which not all are of one.
//
// One of them takes a look: who waits behind a hold of ours queues for its release, and does not listen to what Java
// publishes when it takes that hold away. PollCap is the answer there. And one asks: Redisson's forceUnlock of readers
// leaves their timeout keys, which is what the server tells our readers about, so ours learns at its next renewal.
func TestForceUnlockWakesAWaiterAndTheHolderIsTold(t *testing.T) {
	language := func(java bool) string {
		if java {
			return "java"
		}
		return "go"
	}
	each(t, everywhere, func(t *testing.T, w *world) {
		holding, forcing, patient := w.rig(t), w.rig(t), w.rig(t)
		looking, renewing := w.rigOf(t, time.Second, 0), w.rigOf(t, pollCap, 3*time.Second)
		for _, kind := range []string{"lock", "fair", "write", "read"} {
			for n := 1; n < 7; n++ {
				javaHolds, javaForces, javaWaits := n&1 > 0, n&2 > 0, n&4 > 0
				t.Run(fmt.Sprintf("%s held in %s forced in %s", kind, language(javaHolds), language(javaForces)),
					func(t *testing.T) {
						name := unique(t, "force")
						another := patient
						queue := map[string]string{"lock": "redlatch_queue:", "fair": "redlatch_fair:", "read": "redlatch_rwq:",
							"write": "redlatch_rwq:"}[kind]
						queues := queue != "" && !javaHolds && !javaWaits
						if queues {
							another = looking
						}
						waits := kind
						if kind == "read" {
							waits = "write"
						}
						holder, waiter, forcer := w.lane(t), w.lane(t), w.lane(t)
						var held *rlock.Hold
						if javaHolds {
							holder.do(t, "lock", kind, name, -1)
						} else {
							if kind == "read" && javaForces {
								held = hold(t, renewing.lock(kind, name), within(t))
							} else {
								held = hold(t, holding.lock(kind, name), within(t))
							}
						}
						var inJava <-chan interop.Reply
						var inGo <-chan taken
						if javaWaits {
							inJava = waiter.send("lock", waits, name, -1)
						} else {
							inGo = waiting(t, another.lock(waits, name))
						}
						if queues {
							redistest.Eventually(t, 20*time.Second, "it queues", func() bool {
								return another.exists(t, queue+"{"+name+"}")
							})
						} else {
							w.listening(t, name)
						}
						began := time.Now()
						if javaForces {
							require.Equal(t, "true", forcer.do(t, "force", kind, name))
						} else {
							ok, err := forcing.lock(kind, name).ForceUnlock(within(t))
							require.NoError(t, err)
							require.True(t, ok)
						}
						if javaWaits {
							got(t, inJava)
						} else {
							g := <-inGo
							require.NoError(t, g.err)
							defer release(t, g.hold)
						}
						require.Less(t, time.Since(began), soon, "the waiter was woken")
						if javaHolds {
							require.Equal(t, "IllegalMonitorStateException", holder.refused(t, "unlock", kind, name))
						} else {
							select {
							case <-held.Done():
								require.ErrorIs(t, held.Err(), errs.ErrLost)
							case <-time.After(soon):
								require.Fail(t, "the holder is not told")
							}
							require.ErrorIs(t, held.Unlock(within(t)), errs.ErrLost)
						}
						if javaWaits { // and the late unlock touched nobody's lock
							require.Equal(t, "true", waiter.do(t, "held", waits, name))
							waiter.do(t, "unlock", waits, name)
						}
					})
			}
		}
	})
}
