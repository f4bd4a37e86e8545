package interop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// TestForceUnlock_AcrossLanguages_WakesTheWaiterAndEndsTheHold: the holder, the waiter and who forces are of either
// language, in every way in which not all are of one.
//
// One of them takes a look: who waits behind a hold of ours queues for its release, and does not listen to what Java
// publishes when it takes that hold away. PollCap is the answer there. And one asks: Redisson's forceUnlock of readers
// leaves their timeout keys, which is what the server tells our readers about, so ours learns at its next renewal.
func TestForceUnlock_AcrossLanguages_WakesTheWaiterAndEndsTheHold(t *testing.T) {
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
						name, waits := unique(t, "force"), kind
						if kind == "read" {
							waits = "write"
						}
						owner, another := holding, patient
						if kind == "read" && javaForces {
							owner = renewing
						}
						queue := map[string]string{"lock": "redlatch_queue:", "fair": "redlatch_fair:", "read": "redlatch_rwq:",
							"write": "redlatch_rwq:"}[kind]
						queues := !javaHolds && !javaWaits
						if queues {
							another = looking
						}
						holder, waiter := w.player(t, javaHolds, owner), w.player(t, javaWaits, another)
						holder.lock(t, kind, name)
						answer := waiter.asks(t, waits, name, 0)
						if queues {
							redistest.Eventually(t, 20*time.Second, "it queues", func() bool {
								return another.exists(t, queue+"{"+name+"}")
							})
						} else {
							w.listening(t, name)
						}
						began := time.Now()
						if javaForces {
							require.Equal(t, "true", w.lane(t).do(t, "force", kind, name))
						} else {
							ok := redistest.NoError(forcing.lock(kind, name).ForceUnlock(within(t)))(t)
							require.True(t, ok)
						}
						has(t, answer)
						require.Less(t, time.Since(began), soon, "the waiter was woken")
						holder.loses(t, kind, name)
						waiter.unlock(t, waits, name) // which the late unlock did not touch
					})
			}
		}
	})
}
