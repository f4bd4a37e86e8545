package interop_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/interop"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestAServiceMovesFromRedissonAndBack: four threads of Java that work on one name are replaced by four Go processes,
// one after the other, and these by threads of Java again. At every moment some of both are at work.
func TestAServiceMovesFromRedissonAndBack(t *testing.T) {
	driver(t)
	w := newWorld(t, interop.Newest, "standalone")
	r, lanes := w.rig(t), w.lanes(t, 4)
	var loopers []*looper
	for range lanes {
		loopers = append(loopers, startLooper(t, w))
	}
	n := redistest.Sized(10, 10, 100)
	all := []string{"lock", "permit", "fenced", "fair", "rw", "sem"}
	for _, kind := range redistest.Sized(all[:2], all[:2], all) {
		t.Run(kind, func(t *testing.T) {
			name, guard := unique(t, kind), unique(t, "guard")
			capacity := 1
			switch kind {
			case "rw":
				capacity = 1000
			case "sem", "permit":
				capacity = places
				lanes[0].do(t, kind+".set", name, capacity)
			}
			var mu sync.Mutex
			said := map[string]interop.Reply{}
			var wg sync.WaitGroup
			began := time.Now()
			for i := range lanes {
				wg.Go(func() {
					rounds := n * (i + 2) // each process is replaced at another time
					for step, send := range []func() <-chan interop.Reply{
						func() <-chan interop.Reply { return lanes[i].send("loop", kind, name, rounds, 0, guard, 200) },
						func() <-chan interop.Reply { return loopers[i].send(kind, name, rounds, guard, 200) },
						func() <-chan interop.Reply { return lanes[i].send("loop", kind, name, rounds, 0, guard, 200) },
					} {
						reply := <-send()
						mu.Lock()
						said[fmt.Sprintf("%s of process %d", []string{"Java", "Go", "Java again"}[step], i)] = reply
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			var all []looped
			writes := 0
			for who, reply := range said {
				require.NoError(t, reply.Err, who)
				x := parseLooped(t, who, reply.Value)
				require.NotEmpty(t, x.inside)
				require.Less(t, x.longest, starved, "%s starved", who)
				all, writes = append(all, x), writes+x.writes
			}
			most := together(t, all, capacity)
			count, err := r.number(within(t), guard)
			require.NoError(t, err)
			require.EqualValues(t, writes, count, "counts were lost: two were inside at the same time")
			t.Logf("%d loops in %v, at most %d inside", len(all), time.Since(began).Round(time.Millisecond), most)
		})
	}
}

// TestRedissonDoesNotWaitForALockThatIsAString: so a name that Java uses must have no Plain lock, nor one of redsync's.
func TestRedissonDoesNotWaitForALockThatIsAString(t *testing.T) {
	driver(t)
	w := newWorld(t, interop.Newest, "standalone")
	r, name := w.rig(t), unique(t, "plain")
	h := hold(t, r.locks.Plain(name), within(t))
	require.Equal(t, "RedisException", w.lane(t).refused(t, "trynow", "lock", name))
	require.NoError(t, h.Err())
	release(t, h)
}
