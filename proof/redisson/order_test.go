package interop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
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

func TestFair_BothLanguagesWait_AreServedInOrder(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		for _, javaFirst := range []bool{true, false} {
			t.Run(fmt.Sprint("java first ", javaFirst), func(t *testing.T) {
				r, s := w.rig(t), w.rig(t)
				name := unique(t, "fair")
				first := hold(t, r.locks.Fair(name), within(t))
				const n = 10
				var players [n]*player
				var answers [n]<-chan answer
				for i := range n {
					players[i] = w.player(t, javaFirst == (i%2 == 0), []*rig{r, s}[i/2%2])
					answers[i] = players[i].asks(t, "fair", name, 0)
					r.inLine(t, name, i+1)
				}
				refused(t, r.locks.Fair(name))
				require.Equal(t, "false", w.lane(t).do(t, "trynow", "fair", name))
				r.inLine(t, name, n)
				began := time.Now()
				release(t, first)
				for i := range n { // who holds does not let go before we say so: the next one's is the only answer there can be
					has(t, answers[i])
					for j := i + 1; j < n; j++ {
						require.Empty(t, answers[j])
					}
					players[i].unlock(t, "fair", name)
				}
				require.Less(t, time.Since(began), n*soon/2)
				t.Log(n, "hand-overs in", time.Since(began))
				free(t, r.locks.Fair(name))
				r.inLine(t, name, 0)
			})
		}
	})
}

// A waiter that gives up leaves the queue, and the next waiter, of the other language, comes up.
func TestFair_WaiterGivesUp_NextOfTheOtherLanguageIsServed(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		for _, javaLeaves := range []bool{true, false} {
			name := unique(t, "fair")
			h := hold(t, r.locks.Fair(name), within(t))
			leaving := w.player(t, javaLeaves, r).asks(t, "fair", name, 300*time.Millisecond)
			r.inLine(t, name, 1)
			waiter := w.player(t, !javaLeaves, r)
			answer := waiter.asks(t, "fair", name, 0)
			r.inLine(t, name, 2)
			require.ErrorIs(t, (<-leaving).err, errs.ErrNotAcquired)
			r.inLine(t, name, 1)
			began := time.Now()
			release(t, h)
			has(t, answer)
			waiter.unlock(t, "fair", name)
			require.Less(t, time.Since(began), soon)
			free(t, r.locks.Fair(name))
		}
	})
}
