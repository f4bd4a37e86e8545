package rsemaphore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// counted has n processes on a server. calls counts the script calls of all. Messages alone wake anybody.
func counted(t *testing.T, n int, fn func(t *testing.T, rigs []*rig, calls *atomic.Int64)) {
	var calls atomic.Int64
	count := func(c rueidis.Client) rueidis.Client { return scriptCounter{c, &calls} }
	bubbleOn(t, n, rsemaphore.Options{PollCap: 24 * time.Hour, WatchdogTimeout: 24 * time.Hour}, count,
		func(t *testing.T, _ *redistest.Server, rigs []*rig) {
			fn(t, rigs, &calls)
		})
}

// waits is await for as long as it takes, which a bubble's clock may say is long.
func waits(l *rsemaphore.CountDownLatch, n int) <-chan error {
	done := make(chan error, n)
	for range n {
		go func() { done <- l.Await(ctx) }()
	}
	return done
}

// awaiting has n waiters of each process wait for the latch l, and returns when all are asleep.
func awaiting(_ *testing.T, rigs []*rig, n int) (done []<-chan error) {
	for _, r := range rigs {
		done = append(done, waits(r.c.CountDownLatch("l"), n))
	}
	time.Sleep(5 * time.Second)
	return done
}

func TestLatch_Opens_IsOneMessageAndNoCallOfWaiters(t *testing.T) {
	t.Parallel()
	const processes, waiters = 5, 12
	for name, ttl := range map[string]time.Duration{"with a TTL": time.Hour, "without": 0} {
		t.Run(name, func(t *testing.T) {
			counted(t, processes+1, func(t *testing.T, rigs []*rig, calls *atomic.Int64) {
				l := rigs[processes].c.CountDownLatch("l")
				for range 2 { // set again
					require.True(t, must1[bool](t)(l.TrySetCount(ctx, 2, ttl)))
					done := awaiting(t, rigs[:processes], waiters)
					time.Sleep(time.Minute) // nobody looks meanwhile
					require.EqualValues(t, 1, must1[int64](t)(l.CountDown(ctx)))
					calls.Store(0)
					heard := rigs[processes].heardWhile(t, latchChannel, func() {
						require.Zero(t, must1[int64](t)(l.CountDown(ctx)))
						for _, d := range done {
							for range waiters {
								require.NoError(t, <-d)
							}
						}
					})
					require.Len(t, heard, 1, "a message")
					require.EqualValues(t, 1, calls.Load(), "the count-down")
				}
			})
		})
	}
}

func TestLatchRecord_WaitedFor_IsKept(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	count := func(c rueidis.Client) rueidis.Client { return scriptCounter{c, &calls} }
	bubbleOn(t, 2, rsemaphore.Options{}, count, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		l := rigs[1].c.CountDownLatch("l")
		require.True(t, must1[bool](t)(l.TrySetCount(ctx, 1, 0)))
		done := waits(rigs[0].c.CountDownLatch("l"), 5)
		time.Sleep(5 * time.Minute) // the record would be over after one
		calls.Store(0)
		require.Zero(t, must1[int64](t)(l.CountDown(ctx)))
		for range 5 {
			require.NoError(t, <-done)
		}
		require.EqualValues(t, 1, calls.Load(), "the count-down")
	})
}

func TestLatch_RedissonsMessage_MakesEachProcessAsk(t *testing.T) {
	t.Parallel()
	const processes, waiters = 5, 10
	counted(t, processes, func(t *testing.T, rigs []*rig, calls *atomic.Int64) {
		require.True(t, must1[bool](t)(rigs[0].c.CountDownLatch("l").TrySetCount(ctx, 1, time.Hour)))
		done := awaiting(t, rigs, waiters)
		calls.Store(0)
		rigs[0].must(t, "PUBLISH", latchChannel, "0")
		time.Sleep(time.Second)
		require.EqualValues(t, processes, calls.Load(), "each finds it closed")
		rigs[0].must(t, "DEL", "l")
		rigs[0].must(t, "PUBLISH", latchChannel, "0")
		for _, d := range done {
			for range waiters {
				require.NoError(t, <-d)
			}
		}
		require.EqualValues(t, 2*processes, calls.Load())
	})
}

func TestLatch_MessageOfEarlierOpening_OpensNothing(t *testing.T) {
	t.Parallel()
	counted(t, 2, func(t *testing.T, rigs []*rig, _ *atomic.Int64) {
		l := rigs[1].c.CountDownLatch("l")
		require.True(t, must1[bool](t)(l.TrySetCount(ctx, 1, time.Hour)))
		first := rigs[1].heardWhile(t, latchChannel, func() { require.Zero(t, must1[int64](t)(l.CountDown(ctx))) })
		require.Len(t, first, 1)
		require.True(t, must1[bool](t)(l.TrySetCount(ctx, 1, time.Hour)))
		done := awaiting(t, rigs[:1], 5)[0]
		rigs[1].must(t, "PUBLISH", latchChannel, first[0])
		time.Sleep(time.Minute)
		require.Empty(t, done, "the first opening's message")
		require.Zero(t, must1[int64](t)(l.CountDown(ctx)))
		for range 5 {
			require.NoError(t, <-done)
		}
	})
}

// holding keeps the replies of scripts back until the channel in until is closed, if there is one.
type holding struct {
	rueidis.Client
	until *atomic.Pointer[chan struct{}]
}

func (c holding) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	scripted := cmd.Commands()[0] == "EVALSHA"
	res := c.Client.Do(ctx, cmd)
	if until := c.until.Load(); scripted && until != nil {
		<-*until
	}
	return res
}

// The first waiter's look, the opening, a new count, the second waiter, the message of the opening: in this order.
func TestLatch_MessageFromBeforeAWaiter_IsNotForIt(t *testing.T) {
	t.Parallel()
	var until atomic.Pointer[chan struct{}]
	hold := func(c rueidis.Client) rueidis.Client { return holding{c, &until} }
	bubbleOn(t, 2, rsemaphore.Options{CallTimeout: time.Hour, PollCap: 24 * time.Hour}, hold,
		func(t *testing.T, _ *redistest.Server, rigs []*rig) {
			l, other := rigs[0].c.CountDownLatch("l"), rigs[1]
			for i := range 5 {
				require.True(t, must1[bool](t)(l.TrySetCount(ctx, 1, time.Hour)))
				first := waits(l, 1)
				time.Sleep(5 * time.Second)
				opens := other.text(t, "HGET", "{l}:latch", "opens")
				heal := make(chan struct{})
				until.Store(&heal)
				other.must(t, "PUBLISH", latchChannel, "look")
				synctest.Wait()                          // it looks: closed
				for _, cmd := range []rueidis.Completed{ // which publish nothing
					latchCommand(t, other, "latch_down", "", "down", "86400000", "80000", latchChannel, ""),
					latchCommand(t, other, "latch_set", "1", "3600000", fmt.Sprint("next", i), "80000", latchChannel, "",
						fmt.Sprint("0", i)),
				} {
					require.NoError(t, other.redis.Do(ctx, cmd).Error())
				}
				time.Sleep(time.Second)
				second := waits(l, 1)
				synctest.Wait()
				other.must(t, "PUBLISH", latchChannel, opens)
				synctest.Wait()
				until.Store(nil)
				close(heal)
				require.NoError(t, <-first)
				time.Sleep(5 * time.Second)
				require.Empty(t, second)
				require.Zero(t, must1[int64](t)(l.CountDown(ctx)))
				require.NoError(t, <-second)
			}
		})
}

func TestBarrier_GenerationEnds_IsOneMessageAndNoCalls(t *testing.T) {
	t.Parallel()
	const processes, parties, generations = 4, 6, 4
	counted(t, processes+1, func(t *testing.T, rigs []*rig, calls *atomic.Int64) {
		another := rigs[processes]
		require.NoError(t, errOf(another.c.CyclicBarrier("warm", 1).Await(ctx))) // it knows the server's time
		for gen := int64(1); gen <= generations; gen++ {
			trips := gen%2 == 1
			all := processes*parties + 1
			if !trips {
				all++ // it leaves before the last has come
			}
			var done []<-chan arrived
			for _, r := range rigs[:processes] {
				done = append(done, arriveAt(ctx, r.c.CyclicBarrier("b", all), parties))
			}
			one, leave := context.WithCancel(ctx)
			defer leave()
			if !trips {
				arriveAt(one, another.c.CyclicBarrier("b", all), 1)
			}
			time.Sleep(5 * time.Second)
			calls.Store(0)
			heard := another.heardWhile(t, "redlatch_barrier:{b}", func() {
				if trips {
					require.NoError(t, errOf(another.c.CyclicBarrier("b", all).Await(ctx)))
				} else {
					leave()
				}
				for _, d := range done {
					for range parties {
						a := <-d
						require.Equal(t, gen, a.Generation)
						if trips {
							require.NoError(t, a.err)
						} else {
							require.ErrorIs(t, a.err, rsemaphore.ErrBrokenBarrier)
						}
					}
				}
				time.Sleep(5 * time.Second)
			})
			require.Len(t, heard, 1, "a message")
			want := 1 // the one that leaves says so
			if trips {
				want = 2 // the last one arrives, and trips it
			}
			require.EqualValues(t, want, calls.Load())
		}
	})
}

func TestBarrier_MessageOfAnotherGeneration_EndsNothing(t *testing.T) {
	t.Parallel()
	counted(t, 2, func(t *testing.T, rigs []*rig, _ *atomic.Int64) {
		for gen := range 3 {
			done := arriveAt(ctx, rigs[0].c.CyclicBarrier("b", 2), 1)
			time.Sleep(5 * time.Second)
			id, n := rigs[1].text(t, "HGET", "{b}:barrier", "id"), rigs[1].text(t, "HGET", "{b}:barrier", "gen")
			for _, payload := range []string{"", "1", id, id + " " + n, id + " 0 tripped", id + " " + n + "1 tripped",
				"another " + n + " tripped", "another " + n + " broken", id + " " + n + " "} {
				rigs[1].must(t, "PUBLISH", "redlatch_barrier:{b}", payload)
			}
			time.Sleep(5 * time.Second)
			require.Empty(t, done)
			require.NoError(t, errOf(rigs[1].c.CyclicBarrier("b", 2).Await(ctx)))
			a := <-done
			require.NoError(t, a.err)
			require.EqualValues(t, gen+1, a.Generation)
		}
	})
}
