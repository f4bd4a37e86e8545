package rsemaphore_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// beat is short, and its three are still long for a busy machine. No lease ends in these tests.
const (
	beat     = 400 * time.Millisecond
	longTerm = 5 * time.Minute
)

func living() rsemaphore.Options {
	return rsemaphore.Options{Liveness: true, Heartbeat: beat, WatchdogTimeout: longTerm}
}

// forgo has a permit of a test in a bubble released in the end: the garbage collector, which finds one that is dropped,
// is outside.
func forgo(t *testing.T, p *rsemaphore.Permit) *rsemaphore.Permit {
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.Release(ctx)
	})
	return p
}

// lateBeats has heartbeats be sent late.
type lateBeats struct {
	rueidis.Client
	late time.Duration
}

func (c lateBeats) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if slices.ContainsFunc(cmd.Commands(), func(w string) bool { return strings.HasPrefix(w, "redlatch_alive:") }) {
		time.Sleep(c.late)
	}
	return c.Client.Do(ctx, cmd)
}

// Whoever has a permit of a client's first call, and is killed at any instant, was heard of.
func TestLiveness_FirstPermit_IsHeldAfterAHeartbeat(t *testing.T) {
	t.Parallel()
	const late = beat / 4 // twice: the script has to be sent in full
	bubbleOn(t, 1, living(), func(c rueidis.Client) rueidis.Client {
		return lateBeats{c, late}
	}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		began := time.Now()
		p := take(t, rigs[0].c.Semaphore("s", 1), 1)
		require.GreaterOrEqual(t, time.Since(began), late)
		require.Less(t, time.Since(began), beat)
		require.True(t, slices.ContainsFunc(rigs[0].keys(t), func(key string) bool {
			return strings.HasPrefix(key, "redlatch_alive:")
		}))
		release(t, p)
		began = time.Now()
		release(t, take(t, rigs[0].c.Semaphore("s", 1), 1)) // and no other waits
		require.Less(t, time.Since(began), late)
	})
}

func TestLiveness_LeaseOfItsOwnOrRedisson_IsNotTakenOver(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		// It has heartbeats, and they have no say in a permit with a lease of its own.
		dead, err := newRig(t, p.Server(), living()).c.Semaphore("leased", 4).TryAcquire(within(t), 1, 0, longTerm)
		require.NoError(t, err)
		forgo(t, dead)
		p.BlackHole(redistest.Up)
		r := newRig(t, s, living())
		// Redisson's, which looks like ours, of a client that is trusted for a second.
		id := redistest.NoError(hex.DecodeString("0123456789ab8064" + "0000000001" + "000000"))(t)
		require.NotZero(t, lease.TrustInBytes(string(id)))
		java := r.c.Semaphore("s", 4).Shared()
		release(t, acquire(t, java, 1))
		javaAcquire(t, r, string(id), longTerm)
		var wg sync.WaitGroup
		for name, sem := range map[string]*rsemaphore.Semaphore{"leased": r.c.Semaphore("leased", 4), "java": java} {
			wg.Go(func() {
				if _, err := sem.TryAcquire(within(t), 4, 5*beat, 0); !isNotAcquired(err) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wg.Wait()
		p.Heal()
	})
}

func isNotAcquired(err error) bool {
	return err != nil && strings.Contains(err.Error(), errs.ErrNotAcquired.Error())
}

func TestLiveness_ImpatientCallers_FollowACrashedHolder(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		dies, r := newRig(t, p.Server(), living()), newRig(t, s, living())
		forgo(t, acquire(t, dies.c.Semaphore("s", 1), 1))
		p.BlackHole(redistest.Up)
		for began := time.Now(); ; time.Sleep(beat) {
			if x, err := r.c.Semaphore("s", 1).TryAcquire(within(t), 1, beat/2, 0); err == nil {
				release(t, x)
				break
			}
			require.Less(t, time.Since(began), 20*beat)
		}
		p.Heal()
	})
}

// A waiter that was handed permits while it was cut off, and lost them again to one that watched, comes back under
// other ids: whoever saw the old ones without heartbeats would take them at once.
func TestWait_CutOffForLong_HasOtherIDs(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		holder, other, cut := newRig(t, s, living()), newRig(t, s, living()), newRig(t, p.Server(), living())
		x := acquire(t, holder.c.Semaphore("s", 1), 1)
		ctx, cancel := context.WithCancel(within(t))
		var wg sync.WaitGroup
		wg.Go(func() {
			if y, err := cut.c.Semaphore("s", 1).WithLabel("cut").Acquire(ctx, 1); err == nil {
				y.Release(within(t))
			}
		})
		defer wg.Wait()
		defer cancel()
		waits := func() (base string) {
			redistest.Eventually(t, 20*time.Second, "in line", func() bool {
				line, err := holder.do(t, "ZRANGEBYSCORE", "redlatch_queue:{s}", "(0", "+inf").AsStrSlice()
				for _, entry := range line {
					if rest := entryRead(t, entry).Rest; strings.HasSuffix(rest, "cut") {
						base = rest[:13]
					}
				}
				return err == nil && base != ""
			})
			return base
		}
		before := waits()
		time.Sleep(beat)
		p.Hold(redistest.Down)
		release(t, x) // to who is cut off
		y := forgo(t, acquire(t, other.c.Semaphore("s", 1), 1))
		p.Heal()
		redistest.Eventually(t, 20*time.Second, "other ids", func() bool { return waits() != before })
		require.NoError(t, y.Err())
		release(t, y)
	})
}

// Each of its questions says since when its permits surely were not out.
func TestWait_ForLong_KeepsItsIDs(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		holder, r := newRig(t, s, living()), newRig(t, s, living())
		x := acquire(t, holder.c.Semaphore("s", 1), 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		got := make(chan *rsemaphore.Permit)
		go func() {
			y, err := r.c.Semaphore("s", 1).Acquire(ctx, 1)
			if err != nil {
				t.Error(err)
			}
			got <- y
		}()
		line := func() string {
			v, err := holder.redis.Do(ctx,
				holder.redis.B().Arbitrary("ZRANGEBYSCORE", "redlatch_queue:{s}", "(0", "+inf").Build()).AsStrSlice()
			if err != nil || len(v) != 1 {
				return ""
			}
			return entryRead(t, v[0]).Rest[:13]
		}
		redistest.Eventually(t, 20*time.Second, "in line", func() bool { return line() != "" })
		before := line()
		time.Sleep(time.Minute)
		require.Equal(t, before, line())
		release(t, x)
		y := <-got
		release(t, y)
	})
}

// Its lease is three heartbeats then, and that of the others is as long as it was.
func TestBarrier_PartyDies_LeavesAfterThreeHeartbeats(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		dies, r := newRig(t, p.Server(), living()), newRig(t, s, living())
		gone := make(chan error, 1)
		go func() { gone <- errOf(dies.c.CyclicBarrier("b", 3).Await(within(t))) }()
		b := r.c.CyclicBarrier("b", 3)
		gathered(t, b, 1)
		done := make(chan error, 1)
		go func() { done <- errOf(b.Await(within(t))) }()
		gathered(t, b, 2)
		time.Sleep(10 * beat) // it is renewed while it lives
		select {
		case err := <-done:
			require.NoError(t, err)
		default:
		}
		p.BlackHole(redistest.Up)
		began := time.Now()
		err := <-done
		require.ErrorIs(t, err, rsemaphore.ErrBrokenBarrier)
		require.NotErrorIs(t, err, errs.ErrLost)
		require.Less(t, time.Since(began), 4*beat)
		require.ErrorIs(t, <-gone, errs.ErrLost)
		p.Heal()
	})
}

// Of each acquisition it tells base and number, of those only that a client with heartbeats renews, and all of them
// however many there are.
func TestHolders_Many_AreReadInParts(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rsemaphore.Options{})
		holders := func() map[string]int64 {
			got, from, skip := map[string]int64{}, "", "0"
			for parts := 0; ; parts++ {
				require.Less(t, parts, 20)
				v := redistest.NoError(r.redis.Do(within(t),
					r.redis.B().Eval().Script(source(t, "holders")).Numkeys(1).Key("k").Arg(from, skip).Build()).ToArray())(t)
				for i := 2; i < len(v); i += 2 {
					base, _ := v[i].ToString()
					n, _ := v[i+1].AsInt64()
					got[base] = max(got[base], n)
				}
				if from, _ = v[0].ToString(); from == "" {
					return got
				}
				n, _ := v[1].AsInt64()
				skip = fmt.Sprint(n)
			}
		}
		base := func(n int) string { return fmt.Sprintf("abcdef\x81\x02\x00%04d", n) }
		want := map[string]int64{}
		put := func(end int64, ids ...string) {
			args := []string{"ZADD", "k"}
			for _, id := range ids {
				args = append(args, fmt.Sprint(end), id)
			}
			r.must(t, args...)
		}
		require.Empty(t, holders())
		now := r.now(t)
		put(now+100*unit, base(1)+"\x00\x00\x00", base(1)+"\x00\x00\x04", base(1)+"\x00\x00\x02")
		put(now+100*unit, base(2))
		put(now-1, base(3)+"\x00\x00\x00")                                               // it is over
		put(now+100*unit, "abcdef\x40\x02\x000004\x00\x00\x00")                          // Redisson's
		put(now+100*unit, base(5)+"\xff\x00\x00", "abcdef\x81\x02\x000005", "short", "") // likewise, or nobody's
		put(now+100*unit, "abcdef\x80\x00\x000006\x00\x00\x00")                          // without heartbeats
		put(now+100*unit, "abcdef\x81\x02\x800007\x00\x00\x00")                          // with a lease of its own
		want[base(1)], want[base(2)] = 5, 1
		want["abcdef\x81\x02\x000005"] = 1
		require.Equal(t, want, holders())
		var same []string
		for n := range 2500 { // more than one part of the same end
			same = append(same, base(1000+n)+"\x00\x00\x00")
			want[base(1000+n)] = 1
		}
		put(now+200*unit, same...)
		for n := range 1500 {
			put(now+200*unit+int64(n), base(5000+n)+"\x00\x03\xe7")
			want[base(5000+n)] = 1000
		}
		require.Equal(t, want, holders())
	})
}
