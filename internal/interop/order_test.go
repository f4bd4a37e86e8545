package interop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/interop"
	"github.com/redlatch/redlatch/internal/redistest"
)

// inLine waits until so many stand in the queue of a fair lock.
func (r *rig) inLine(t testing.TB, name string, n int) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, fmt.Sprint(n, " queue for ", name), func() bool {
		is, err := r.redis.Do(within(t), r.redis.B().Llen().Key("redisson_lock_queue:{"+name+"}").Build()).AsInt64()
		require.NoError(t, err)
		return is == int64(n)
	})
}

func TestAFairLockServesBothLanguagesInTheOrderOfAsking(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		for _, javaFirst := range []bool{true, false} {
			t.Run(fmt.Sprint("java first ", javaFirst), func(t *testing.T) {
				r, s := w.rig(t), w.rig(t)
				name := unique(t, "fair")
				first := hold(t, r.locks.Fair(name), within(t))
				const n = 10
				var inJava [n]<-chan interop.Reply
				var lanes [n]*lane
				var inGo [n]<-chan taken
				for i := range n {
					if javaFirst == (i%2 == 0) {
						lanes[i] = w.lane(t)
						inJava[i] = lanes[i].send("lock", "fair", name, -1)
					} else {
						inGo[i] = waiting(t, []*rig{r, s}[i/2%2].locks.Fair(name))
					}
					r.inLine(t, name, i+1)
				}
				refused(t, r.locks.Fair(name))
				require.Equal(t, "false", w.lane(t).do(t, "trynow", "fair", name))
				r.inLine(t, name, n)
				began := time.Now()
				release(t, first)
				for i := range n { // who holds does not let go before we say so: the next one's is the only answer there can be
					if lanes[i] != nil {
						got(t, inJava[i])
					} else {
						g := <-inGo[i]
						require.NoError(t, g.err)
						inGo[i] = nil
						defer func() { require.Error(t, g.hold.Err()) }()
						for j := range inGo {
							require.Empty(t, inGo[j])
						}
						release(t, g.hold)
						continue
					}
					for j := i + 1; j < n; j++ {
						require.Empty(t, inJava[j])
						require.Empty(t, inGo[j])
					}
					lanes[i].do(t, "unlock", "fair", name)
				}
				require.Less(t, time.Since(began), n*soon/2)
				t.Log(n, "hand-overs in", time.Since(began))
				free(t, r.locks.Fair(name))
				r.inLine(t, name, 0)
			})
		}
	})
}

// TestAWaiterThatGivesUpLeavesTheFairQueue, and the next one, of the other language, comes up.
func TestAWaiterThatGivesUpLeavesTheFairQueue(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		for _, javaLeaves := range []bool{true, false} {
			name, java := unique(t, "fair"), w.lane(t)
			h := hold(t, r.locks.Fair(name), within(t))
			var last func()
			if javaLeaves {
				leaving := java.send("try", "fair", name, 300, -1)
				r.inLine(t, name, 1)
				waiter := waiting(t, r.locks.Fair(name))
				r.inLine(t, name, 2)
				v, _ := got(t, leaving)
				require.Equal(t, "false", v)
				last = func() {
					g := <-waiter
					require.NoError(t, g.err)
					release(t, g.hold)
				}
			} else {
				leaving := make(chan error, 1)
				go func() { _, err := r.locks.Fair(name).TryLock(within(t), 300*time.Millisecond, 0); leaving <- err }()
				r.inLine(t, name, 1)
				waiter := java.send("lock", "fair", name, -1)
				r.inLine(t, name, 2)
				require.Error(t, <-leaving)
				last = func() {
					got(t, waiter)
					java.do(t, "unlock", "fair", name)
				}
			}
			r.inLine(t, name, 1)
			began := time.Now()
			release(t, h)
			last()
			require.Less(t, time.Since(began), soon)
			free(t, r.locks.Fair(name))
		}
	})
}
