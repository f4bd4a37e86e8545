package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

const latchChannel = "redisson_countdownlatch__channel__{l}"

// await has n goroutines wait for the latch, and says how each ended.
func await(t testing.TB, l *rsemaphore.CountDownLatch, n int) <-chan error {
	done := make(chan error, n)
	ctx := within(t)
	for range n {
		go func() { done <- l.Await(ctx) }()
	}
	return done
}

func TestALatchIsRedissonsCount(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		l := r.c.CountDownLatch("l")
		n, ok := must1[int64](t), must1[bool](t)
		require.NoError(t, l.Await(within(t)), "one that was never set is open")
		require.Zero(t, n(l.Count(within(t))))
		require.Zero(t, n(l.CountDown(within(t))))
		require.Empty(t, r.keys(t))

		require.True(t, ok(l.TrySetCount(within(t), 2, 0)))
		require.False(t, ok(l.TrySetCount(within(t), 3, 0)))
		require.Equal(t, "2", r.text(t, "GET", "l"))
		require.EqualValues(t, -1, r.number(t, "PTTL", "l"), "Redisson gives it no end")
		require.EqualValues(t, 2, n(l.Count(within(t))))
		done := await(t, l, 3)
		waitingIn(t, r, "latch:l", 3)
		require.EqualValues(t, 1, n(l.CountDown(within(t))))
		require.Empty(t, done)
		require.EqualValues(t, 0, n(l.CountDown(within(t))))
		for range 3 {
			require.NoError(t, <-done)
		}
		require.EqualValues(t, 0, r.number(t, "EXISTS", "l"), "zero is a missing key")
		require.True(t, ok(l.TrySetCount(within(t), 1, 0)), "and can be set again")
		require.EqualValues(t, 0, n(l.CountDown(within(t))))
		require.Zero(t, r.c.Lines())
		for _, k := range r.keys(t) {
			require.Positive(t, r.pttl(t, k), "%s has an end", k)
		}
	})
}

func TestWhatALatchRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), patient)
	l := r.c.CountDownLatch("l")
	ctx := within(t)
	for what, err := range map[string]error{
		"count is 0":                errOf(l.TrySetCount(ctx, 0, 0)),
		"count is -1":               errOf(l.TrySetCount(ctx, -1, 0)),
		"count is 9007199254740993": errOf(l.TrySetCount(ctx, 1<<53+1, 0)),
		"ttl is 1µs":                errOf(l.TrySetCount(ctx, 1, time.Microsecond)),
		"ttl is -1s":                errOf(l.TrySetCount(ctx, 1, -time.Second)),
		`participant is ""`:         errOf(l.CountDownBy(ctx, "")),
		`participant is "\xff"`:     errOf(l.CountDownBy(ctx, "\xff")),
		`participant is "xxxxx`:     errOf(l.CountDownBy(ctx, strings.Repeat("x", 1025))),
	} {
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, what)
	}
	for _, name := range []string{"", "{}x", "a{b", "a}b"} {
		bad := r.c.CountDownLatch(name)
		for _, err := range []error{bad.Await(ctx), errOf(bad.Count(ctx)), errOf(bad.CountDown(ctx)),
			errOf(bad.CountDownBy(ctx, "a")), errOf(bad.TrySetCount(ctx, 0, 0)), errOf(bad.Delete(ctx))} {
			require.ErrorIs(t, err, errs.ErrInvalidName)
		}
	}
	require.Empty(t, r.keys(t))
	for _, put := range [][]string{{"SET", "l", "many"}, {"HSET", "l", "f", "1"}, {"SET", "{l}:latch", "x"}} {
		r.must(t, "DEL", "l", "{l}:latch")
		r.must(t, put...)
		require.ErrorIs(t, l.Await(ctx), errs.ErrWrongType)
		require.ErrorIs(t, errOf(l.Count(ctx)), errs.ErrWrongType)
		require.ErrorIs(t, errOf(l.CountDown(ctx)), errs.ErrWrongType)
		require.ErrorIs(t, errOf(l.CountDownBy(ctx, "a")), errs.ErrWrongType)
	}
	require.NoError(t, r.c.Close(ctx))
	require.ErrorIs(t, l.Await(ctx), errs.ErrClosed)
	require.ErrorIs(t, errOf(l.CountDown(ctx)), errs.ErrClosed)
}

func TestTheLargestCountIsCountedExactly(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		l := r.c.CountDownLatch("l")
		const maxCount = 1 << 53
		require.True(t, must1[bool](t)(l.TrySetCount(within(t), maxCount, time.Hour)))
		require.EqualValues(t, maxCount-1, must1[int64](t)(l.CountDown(within(t))))
		require.EqualValues(t, maxCount-2, must1[int64](t)(l.CountDownBy(within(t), "a")))
		require.EqualValues(t, maxCount-2, must1[int64](t)(l.Count(within(t))))
	})
}

func TestAnExpiredLatchIsAnErrorToWaitersNotSuccess(t *testing.T) {
	t.Parallel()
	eachAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		l := r.c.CountDownLatch("l")
		require.True(t, must1[bool](t)(l.TrySetCount(within(t), 2, 300*time.Millisecond)))
		began := time.Now()
		done := await(t, l, 5)
		for range 5 {
			require.ErrorIs(t, <-done, rsemaphore.ErrLatchExpired)
		}
		require.Less(t, time.Since(began), 10*time.Second, "they wake for it")
		// those who come later, too
		require.ErrorIs(t, l.Await(within(t)), rsemaphore.ErrLatchExpired)
		require.ErrorIs(t, errOf(l.CountDown(within(t))), rsemaphore.ErrLatchExpired)
		require.ErrorIs(t, errOf(l.CountDownBy(within(t), "a")), rsemaphore.ErrLatchExpired)
		require.ErrorIs(t, errOf(l.Count(within(t))), rsemaphore.ErrLatchExpired)
		require.Greater(t, r.pttl(t, "{l}:latch"), 30*time.Second, "remembered for a minute")
		require.EqualValues(t, 0, r.number(t, "EXISTS", "l"))

		require.True(t, must1[bool](t)(l.TrySetCount(within(t), 1, time.Hour)), "the name can be used again")
		require.EqualValues(t, 0, must1[int64](t)(l.CountDown(within(t))))
		require.NoError(t, l.Await(within(t)))
	})
}

func TestALatchCountedDownBeforeItsTTLStaysOpenAfterIt(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]func(r *rig, l *rsemaphore.CountDownLatch) error{
		"by us": func(_ *rig, l *rsemaphore.CountDownLatch) error { return errOf(l.CountDown(ctx)) },
		"by Java, which does not know the record": func(r *rig, l *rsemaphore.CountDownLatch) error {
			// the end of Redisson's countDown
			if err := r.redis.Do(ctx, r.redis.B().Del().Key("l").Build()).Error(); err != nil {
				return err
			}
			return l.Await(ctx) // somebody looks before the TTL
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, rsemaphore.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
				l := rigs[0].c.CountDownLatch("l")
				require.True(t, must1[bool](t)(l.TrySetCount(ctx, 1, 15*time.Minute)))
				require.NoError(t, down(rigs[0], l))
				for range 4 {
					require.NoError(t, l.Await(ctx))
					time.Sleep(5 * time.Minute)
				}
			})
		})
	}
}

func TestAnExpiredLatchIsRememberedForAsLongAgainAndThenForgotten(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rsemaphore.Options{PollCap: time.Minute}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		l := rigs[0].c.CountDownLatch("l")
		require.True(t, must1[bool](t)(l.TrySetCount(ctx, 1, 10*time.Minute)))
		began := time.Now()
		require.ErrorIs(t, rigs[1].c.CountDownLatch("l").Await(ctx), rsemaphore.ErrLatchExpired)
		require.WithinDuration(t, began.Add(10*time.Minute), time.Now(), 2*time.Second, "its waiters know when")
		time.Sleep(9 * time.Minute)
		require.ErrorIs(t, l.Await(ctx), rsemaphore.ErrLatchExpired)
		time.Sleep(2 * time.Minute)
		require.NoError(t, l.Await(ctx))
	})
}

func TestAWaiterCutOffForLongDoesNotTakeAForgottenLatchForOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ttl  time.Duration
		gone bool // by something else than its TTL
		want error
	}{
		"its TTL is over":        {time.Minute, false, rsemaphore.ErrLatchExpired},
		"its TTL is not over":    {10 * time.Hour, true, nil},
		"it does not have a TTL": {0, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, rsemaphore.Options{}, func(t *testing.T, srv *redistest.Server, rigs []*rig) {
				require.True(t, must1[bool](t)(rigs[0].c.CountDownLatch("l").TrySetCount(ctx, 1, c.ttl)))
				done := make(chan error, 1)
				go func() { done <- rigs[1].c.CountDownLatch("l").Await(ctx) }()
				time.Sleep(5 * time.Second)
				srv.Embedded.SetError("LOADING nobody is served")
				time.Sleep(90 * time.Second)
				if c.gone {
					srv.Embedded.Del("l")
				}
				srv.Embedded.Del("{l}:latch")
				require.Empty(t, done)
				srv.Embedded.SetError("")
				require.ErrorIs(t, <-done, c.want)
			})
		})
	}
}

func TestWaitersWokenByRedissonsMessagesAlone(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour})
	l := r.c.CountDownLatch("l")
	r.must(t, "SET", "l", "1") // Redisson's trySetCount
	done := await(t, l, 10)
	subscribedTo(t, r, latchChannel)
	waitingIn(t, r, "latch:l", 10)
	sub, err := r.hub.Subscribe(within(t), latchChannel)
	require.NoError(t, err)
	defer sub.Close()
	r.must(t, "DEL", "l")
	r.must(t, "PUBLISH", latchChannel, "0")
	for range 10 {
		require.NoError(t, <-done)
	}
	// A waiter that happened to ask after DEL has not waited for the message. It comes over the hub's connection, PUBLISH
	// is answered over another, and who subscribed before it comes hears it, which would be one too many below.
	m, err := sub.Next(within(t))
	require.NoError(t, err)
	require.Equal(t, "0", m.Payload)
	r.must(t, "SET", "l", "1")
	require.Equal(t, []string{"0"}, r.heardWhile(t, latchChannel, func() { errOf(l.CountDown(within(t))) }))
	require.Equal(t, []string{"1"}, r.heardWhile(t, latchChannel, func() { errOf(l.TrySetCount(within(t), 1, 0)) }))
	require.Equal(t, []string{"1"}, r.heardWhile(t, latchChannel, func() { errOf(l.Delete(within(t))) }))
}

func TestALostMessageCostsALatchWaiterAtMostPollCap(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv)
	r := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 100 * time.Millisecond})
	other := newRig(t, srv, patient)
	require.True(t, must1[bool](t)(other.c.CountDownLatch("l").TrySetCount(within(t), 1, time.Hour)))
	p.SwallowPushes()
	done := await(t, r.c.CountDownLatch("l"), 20)
	subscribedTo(t, other, latchChannel)
	waitingIn(t, r, "latch:l", 20)
	require.Zero(t, must1[int64](t)(other.c.CountDownLatch("l").CountDown(within(t))))
	for range 20 {
		require.NoError(t, <-done)
	}
	redistest.Eventually(t, 10*time.Second, "the message was lost", func() bool { return p.Swallowed() > 0 })
}

func TestHoweverManyWaitInAProcessTheServerIsAskedOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour})
	l := r.c.CountDownLatch("l")
	require.True(t, must1[bool](t)(l.TrySetCount(within(t), 1, time.Hour)))
	done := await(t, l, 500)
	subscribedTo(t, r, latchChannel)
	waitingIn(t, r, "latch:l", 500)
	redistest.Eventually(t, 20*time.Second, "two looks", func() bool {
		return redistest.CommandCalls(t, r.redis)["hmget"] >= 2
	})
	before := redistest.CommandCalls(t, r.redis)["evalsha"]
	require.Zero(t, must1[int64](t)(l.CountDown(within(t))))
	for range 500 {
		require.NoError(t, <-done)
	}
	require.LessOrEqual(t, redistest.CommandCalls(t, r.redis)["evalsha"]-before, 4)
}

func TestALatchSetAgainAtOnceKeepsNoWaiterThatSawItOpen(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour})
	l := r.c.CountDownLatch("l")
	require.True(t, must1[bool](t)(l.TrySetCount(within(t), 1, time.Hour)))
	const waiters = 5000
	done := await(t, l, waiters)
	subscribedTo(t, r, latchChannel)
	waitingIn(t, r, "latch:l", waiters)
	// The first in line has looked twice, and sleeps. A look that was sent before the last came tells that one nothing.
	redistest.Eventually(t, 20*time.Second, "two looks", func() bool {
		return redistest.CommandCalls(t, r.redis)["hmget"] >= 2
	})
	time.Sleep(200 * time.Millisecond)
	require.Zero(t, must1[int64](t)(l.CountDown(within(t))))
	require.NoError(t, <-done) // the first has seen it
	require.True(t, must1[bool](t)(l.TrySetCount(within(t), 1, time.Hour)))
	next := await(t, l, 1) // comes while the others are still leaving, and what they saw is not for this one
	for range waiters - 1 {
		require.NoError(t, <-done)
	}
	waitingIn(t, r, "latch:l", 1)
	require.Empty(t, next)
	require.Zero(t, must1[int64](t)(l.CountDown(within(t))))
	require.NoError(t, <-next)
}

// lookedAt waits until everybody who waits has been looked for.
func lookedAt(t testing.TB, r *rig) {
	t.Helper()
	for range 2 { // the first may have been on its way
		before := redistest.CommandCalls(t, r.redis)["hmget"]
		r.must(t, "PUBLISH", latchChannel, "look")
		redistest.Eventually(t, 20*time.Second, "a look", func() bool {
			return redistest.CommandCalls(t, r.redis)["hmget"] > before
		})
	}
}

func TestALatchThatIsSetAgainBeforeAWaiterLooksWasOpen(t *testing.T) {
	t.Parallel()
	for name, poll := range map[string]time.Duration{"told": time.Hour, "not told": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				srv := servers[0]
				p := redistest.NewProxy(t, srv)
				r := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: poll})
				other := newRig(t, redistest.NewProxy(t, srv).Server(), patient) // which takes a transaction in one piece
				other.load(t, "latch_*")
				l, ol := r.c.CountDownLatch("l"), other.c.CountDownLatch("l")
				for i := range 5 {
					require.True(t, must1[bool](t)(ol.TrySetCount(within(t), 1, time.Hour)))
					done := await(t, l, 3)
					waitingIn(t, r, "latch:l", 3)
					subscribedTo(t, other, latchChannel)
					lookedAt(t, other)
					if name == "not told" {
						p.SwallowPushes()
					}
					time.Sleep(time.Millisecond)             // the looks so far are older than the one that comes after it
					opened := other.redis.DoMulti(within(t), // nobody looks in between
						other.redis.B().Multi().Build(),
						latchCommand(t, other, "latch_down", "", "down", "86400000", "80000", latchChannel, "PUBLISH"),
						latchCommand(t, other, "latch_set", "1", "3600000", "next"+strconv.Itoa(i), "80000", latchChannel, "PUBLISH",
							"0"),
						other.redis.B().Exec().Build())
					for _, res := range opened {
						require.NoError(t, res.Error())
					}
					late := await(t, l, 1)
					for range 3 {
						require.NoError(t, <-done)
					}
					waitingIn(t, r, "latch:l", 1)
					require.Empty(t, late, "one that came after it was set again waits for that")
					require.Zero(t, must1[int64](t)(ol.CountDown(within(t))))
					require.NoError(t, <-late)
				}
			})
		})
	}
}

func TestALatchSetAgainAfterExpiryOrDeletionIsNoSuccess(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		r := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 10 * time.Second})
		other := newRig(t, srv, patient)
		for i, c := range []struct {
			ttl  time.Duration
			over func(l *rsemaphore.CountDownLatch)
			want error
		}{
			{500 * time.Millisecond, func(*rsemaphore.CountDownLatch) {}, rsemaphore.ErrLatchExpired},
			{time.Hour, func(l *rsemaphore.CountDownLatch) { must1[bool](t)(l.Delete(within(t))) }, rsemaphore.ErrLatchDeleted},
			{0, func(l *rsemaphore.CountDownLatch) { must1[bool](t)(l.Delete(within(t))) }, rsemaphore.ErrLatchDeleted},
		} {
			name := "l" + strconv.Itoa(i)
			ol := other.c.CountDownLatch(name)
			require.True(t, must1[bool](t)(ol.TrySetCount(within(t), 1, c.ttl)))
			before := redistest.CommandCalls(t, other.redis)["hmget"]
			done := await(t, r.c.CountDownLatch(name), 1)
			redistest.Eventually(t, 20*time.Second, "a look", func() bool {
				return redistest.CommandCalls(t, other.redis)["hmget"] > before
			})
			p.Hold(redistest.Up)
			c.over(ol)
			redistest.Eventually(t, 10*time.Second, "it is over and set again", func() bool {
				return must1[bool](t)(ol.TrySetCount(within(t), 1, time.Hour))
			})
			p.Heal()
			require.ErrorIs(t, <-done, c.want)
		}
	})
}

// latchCommand is one of the scripts about the latch l, to be sent past the library.
func latchCommand(t testing.TB, r *rig, file string, args ...string) rueidis.Completed {
	t.Helper()
	return r.redis.B().Eval().Script(source(t, file)).Numkeys(3).Key("l", "{l}:latch", "{l}:timeout").Arg(args...).Build()
}

func TestADeletedLatchIsAnErrorToThoseWhoWaitAndOpenToOthers(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		for _, ttl := range []time.Duration{0, time.Hour} {
			r := newRig(t, srv, patient)
			l := r.c.CountDownLatch("l")
			require.False(t, must1[bool](t)(l.Delete(within(t))))
			require.True(t, must1[bool](t)(l.TrySetCount(within(t), 2, ttl)))
			done := await(t, l, 5)
			waitingIn(t, r, "latch:l", 5)
			subscribedTo(t, r, latchChannel)
			redistest.Eventually(t, 10*time.Second, "a second look", func() bool { return r.text(t, "GET", "l") == "2" })
			time.Sleep(20 * time.Millisecond)
			require.True(t, must1[bool](t)(l.Delete(within(t))))
			for range 5 {
				require.ErrorIs(t, <-done, rsemaphore.ErrLatchDeleted)
			}
			require.NoError(t, l.Await(within(t)))
			require.False(t, must1[bool](t)(l.Delete(within(t))))
		}
	})
}

func TestAParticipantCountsOnceUnderLostReplies(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 500 * time.Millisecond}), newRig(t, srv, patient)
		direct.load(t, "latch_*")
		l := r.c.CountDownLatch("l")
		require.Zero(t, must1[int64](t)(l.Count(within(t)))) // connected

		trap := p.Trap(&redistest.Trap{Match: redistest.With("l"), Fate: redistest.LoseReply})
		require.True(t, must1[bool](t)(l.TrySetCount(within(t), 10, time.Hour)), "its own work is not somebody else's")
		trap.Wait(t)
		for i, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseReplySilently, redistest.LoseRequest,
			redistest.LoseRequestSilently} {
			trap := p.Trap(&redistest.Trap{Match: redistest.With("l"), Fate: fate})
			done := make(chan int64, 1)
			go func() {
				for { // as its documentation says, after any error
					if left, err := l.CountDownBy(within(t), "job-"+strconv.Itoa(i)); err == nil {
						done <- left
						return
					}
				}
			}()
			trap.Wait(t)
			if fate == redistest.LoseReplySilently || fate == redistest.LoseRequestSilently {
				time.Sleep(600 * time.Millisecond) // one that goes unanswered is repeated
			}
			p.Heal()
			require.EqualValues(t, 9-i, <-done, "fate %d", fate)
			require.Equal(t, strconv.Itoa(9-i), direct.text(t, "GET", "l"))
		}
		for i := range 4 {
			require.EqualValues(t, 6, must1[int64](t)(l.CountDownBy(within(t), "job-"+strconv.Itoa(i))), "nor by another call")
		}
		trap = p.Trap(&redistest.Trap{Match: redistest.With("l"), Fate: redistest.LoseReply})
		require.ErrorIs(t, errOf(l.CountDown(within(t))), errs.ErrUnknownOutcome, "the plain one is sent once")
		trap.Wait(t)
		require.Equal(t, "5", direct.text(t, "GET", "l"))

		trap = p.Trap(&redistest.Trap{Match: redistest.With("l"), Fate: redistest.LoseReply})
		require.True(t, must1[bool](t)(l.Delete(within(t))), "so may a deletion")
		trap.Wait(t)
	})
}

func TestARepeatedCountDownDoesNotReachIntoTheNextCount(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv)
	r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 10 * time.Second}), newRig(t, srv, patient)
	direct.load(t, "latch_*")
	l, dl := r.c.CountDownLatch("l"), direct.c.CountDownLatch("l")
	require.True(t, must1[bool](t)(l.TrySetCount(within(t), 1, time.Hour)))
	// the reply of the one that opens it is kept back, and lost when the next count is set
	release := make(chan struct{})
	trap := p.Trap(&redistest.Trap{Match: redistest.With("l", "a"), Fate: redistest.HoldReply, Release: release})
	done := make(chan error, 1)
	go func() { done <- errOf(l.CountDownBy(within(t), "a")) }()
	trap.Wait(t)
	require.True(t, must1[bool](t)(dl.TrySetCount(within(t), 3, time.Hour)))
	p.Cut()
	require.NoError(t, <-done)
	close(release)
	require.Equal(t, "3", direct.text(t, "GET", "l"))
	require.EqualValues(t, 2, must1[int64](t)(l.CountDownBy(within(t), "a")), "the participant's own count-down does")
}

func TestALatchThatIsSetAgainAndAgainDoesNotGrow(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	start := func() *redistest.Server { return redistest.Start(t) }
	if testing.Short() {
		start = func() *redistest.Server { return redistest.Embedded(t) }
	}
	r := newRig(t, start(), patient)
	l := r.c.CountDownLatch("l")
	const callers = 20
	jobs := redistest.Sized(130, 520, 520) // more than one part
	for round := range 4 {
		require.True(t, must1[bool](t)(l.TrySetCount(within(t), int64(jobs), time.Hour)))
		var left atomic.Int64 // the sum of what each was answered
		many(callers, func(caller int) {
			for i := caller; i < jobs; i += callers {
				n, err := l.CountDownBy(within(t), fmt.Sprintf("job %d of round %d", i, round))
				if err != nil {
					t.Error(err)
				}
				left.Add(n)
			}
		})
		require.EqualValues(t, jobs*(jobs-1)/2, left.Load())
	}
	require.Less(t, r.number(t, "HLEN", "{l}:latch"), int64(3*jobs+20))
}

func TestLatchNamesWithHashTagsWorkInACluster(t *testing.T) {
	redistest.InFull(t, "TestNamesWithBracesKeepTheirSlotInACluster")
	t.Parallel()
	srv := redistest.Cluster(t)
	o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour} // messages alone have to do it
	r, other := newRig(t, srv, o), newRig(t, srv, o)
	for _, name := range []string{"plain", "a{b}", "{b}a", "a{b}c{d}", "ü{ü}"} {
		for _, ttl := range []time.Duration{0, time.Hour} {
			l, ol := r.c.CountDownLatch(name), other.c.CountDownLatch(name)
			require.True(t, must1[bool](t)(l.TrySetCount(within(t), 2, ttl)), name)
			done := await(t, ol, 3)
			waitingIn(t, other, "latch:"+name, 3)
			require.EqualValues(t, 1, must1[int64](t)(l.CountDownBy(within(t), "a")), name)
			select {
			case err := <-done:
				t.Fatalf("%s: one of two: %v", name, err)
			case <-time.After(50 * time.Millisecond):
			}
			require.EqualValues(t, 0, must1[int64](t)(l.CountDownBy(within(t), "b")), name)
			for range 3 {
				require.NoError(t, <-done, name)
			}
		}
	}
}

func TestAContextThatEndsLeavesALatchAsItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	l := r.c.CountDownLatch("l")
	require.True(t, must1[bool](t)(l.TrySetCount(within(t), 2, time.Hour)))
	why := errors.New("the user went home")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, why)
	defer cancel()
	err := l.Await(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, why)
	require.NotErrorIs(t, err, errs.ErrUnavailable)
	require.EqualValues(t, 2, must1[int64](t)(l.Count(within(t))))

	done := make(chan error, 1)
	go func() { done <- l.Await(context.Background()) }()
	waitingIn(t, r, "latch:l", 1)
	require.NoError(t, r.c.Close(within(t)))
	require.ErrorIs(t, <-done, errs.ErrClosed)
}

func TestCancelledLatchWaitersLeaveNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, patient)
	l := r.c.CountDownLatch("l")
	require.True(t, must1[bool](t)(l.TrySetCount(within(t), 1, time.Hour)))
	before := r.contents(t, "{l}:latch")
	var wg sync.WaitGroup
	for i := range 8 {
		rnd := rand.New(rand.NewPCG(7, uint64(i)))
		wg.Go(func() {
			for range 60 {
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(time.Duration(rnd.IntN(1500))*time.Microsecond, cancel)
				if err := l.Await(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.Zero(t, r.c.Lines())
	require.Zero(t, r.c.Shared())
	require.Equal(t, before, r.contents(t, "{l}:latch"))
	require.Equal(t, "1", r.text(t, "GET", "l"))
	require.ElementsMatch(t, []string{"l", "{l}:latch"}, r.keys(t))
}

func init() {
	roles["awaiter"] = beAwaiter
	roles["counter"] = beCounter
}

// beAwaiter waits for the latch with many goroutines, and says how many it let go.
func beAwaiter() error {
	n, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	_, c, err := connectRole(patient)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, n)
	for range n {
		go func() { done <- c.CountDownLatch("l").Await(ctx) }()
	}
	for c.Waiting("latch:l") < n {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("waiting")
	for range n {
		if err := <-done; err != nil {
			return err
		}
	}
	fmt.Println("all", n)
	return nil
}

// beCounter is to count down when it is told to.
func beCounter() error {
	_, c, err := connectRole(patient)
	if err != nil {
		return err
	}
	set, err := c.CountDownLatch("l").TrySetCount(context.Background(), 1, time.Second)
	fmt.Println("set", set, err)
	select {}
}

func TestAllWaitersOfFiveProcessesReturn(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, patient)
	l := r.c.CountDownLatch("l")
	require.True(t, must1[bool](t)(l.TrySetCount(within(t), 5, time.Hour)))
	var procs []*redistest.Child
	for range 5 {
		procs = append(procs, redistest.Spawn(t, "awaiter", srv, "100"))
	}
	for _, p := range procs {
		require.Equal(t, "waiting", p.Line(t))
	}
	for i := range 5 {
		require.EqualValues(t, 4-i, must1[int64](t)(l.CountDownBy(within(t), strconv.Itoa(i))))
	}
	for _, p := range procs {
		require.Equal(t, "all 100", p.Line(t))
		require.NoError(t, p.Cmd.Wait())
	}
}

func TestAKilledCounterIsAnErrorAtTheTTL(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, patient)
	p := redistest.Spawn(t, "counter", srv)
	require.Equal(t, "set true <nil>", p.Line(t))
	p.Signal(t, syscall.SIGKILL)
	began := time.Now() // before the look: a machine that stalls after it makes the wait shorter than what was left
	left := r.pttl(t, "l")
	require.ErrorIs(t, r.c.CountDownLatch("l").Await(within(t)), rsemaphore.ErrLatchExpired)
	require.Greater(t, time.Since(began), left-50*time.Millisecond, "not before")
}

func TestInspectTellsOfALatchWhatIsLeftOfItsCountAndTTL(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		l := r.c.CountDownLatch("l")
		inspect := func() rsemaphore.LatchState { return must1[rsemaphore.LatchState](t)(l.Inspect(within(t))) }
		require.Equal(t, rsemaphore.LatchState{TTL: -1}, inspect(), "open")
		require.True(t, must1[bool](t)(l.TrySetCount(within(t), 2, 0)))
		require.Equal(t, rsemaphore.LatchState{Count: 2, TTL: -1}, inspect())
		require.True(t, must1[bool](t)(l.Delete(within(t))))
		require.True(t, must1[bool](t)(l.TrySetCount(within(t), 2, time.Hour)))
		state := inspect()
		require.EqualValues(t, 2, state.Count)
		require.InDelta(t, time.Hour, state.TTL, float64(time.Minute))
		brief := r.c.CountDownLatch("brief")
		require.True(t, must1[bool](t)(brief.TrySetCount(within(t), 2, time.Millisecond)))
		redistest.Eventually(t, 10*time.Second, "expired", func() bool {
			return errors.Is(errOf(brief.Inspect(within(t))), rsemaphore.ErrLatchExpired)
		})
	})
}
