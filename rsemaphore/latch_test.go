package rsemaphore_test

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
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

func TestLatch_OnTheServer_IsRedissonsCount(t *testing.T) {
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

func TestLatch_Expired_IsAnErrorToWaiters(t *testing.T) {
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

func TestLatch_Expired_IsRememberedForAsLongAgain(t *testing.T) {
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

func TestLatch_ForgottenWhileCutOff_IsNotTakenForOpen(t *testing.T) {
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

func TestLatch_RedissonsMessageAlone_WakesWaiters(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour})
	l := r.c.CountDownLatch("l")
	r.must(t, "SET", "l", "1") // Redisson's trySetCount
	done := await(t, l, 10)
	wire.SubscribedTo(t, r.redis, latchChannel)
	waitingIn(t, r, "latch:l", 10)
	sub := redistest.NoError(r.hub.Subscribe(within(t), latchChannel))(t)
	defer sub.Close()
	r.must(t, "DEL", "l")
	r.must(t, "PUBLISH", latchChannel, "0")
	for range 10 {
		require.NoError(t, <-done)
	}
	// A waiter that happened to ask after DEL has not waited for the message. It comes over the hub's connection, PUBLISH
	// is answered over another, and who subscribed before it comes hears it, which would be one too many below.
	m := redistest.NoError(sub.Next(within(t)))(t)
	require.Equal(t, "0", m.Payload)
	r.must(t, "SET", "l", "1")
	require.Equal(t, []string{"0"}, r.heardWhile(t, latchChannel, func() { errOf(l.CountDown(within(t))) }))
	require.Equal(t, []string{"1"}, r.heardWhile(t, latchChannel, func() { errOf(l.TrySetCount(within(t), 1, 0)) }))
	require.Equal(t, []string{"1"}, r.heardWhile(t, latchChannel, func() { errOf(l.Delete(within(t))) }))
}

func TestLatch_SetAgainAtOnce_KeepsNoneThatSawItOpen(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour})
	l := r.c.CountDownLatch("l")
	require.True(t, must1[bool](t)(l.TrySetCount(within(t), 1, time.Hour)))
	const waiters = 5000
	done := await(t, l, waiters)
	wire.SubscribedTo(t, r.redis, latchChannel)
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

func TestLatch_SetAgainBeforeALook_WasOpen(t *testing.T) {
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
					wire.SubscribedTo(t, other.redis, latchChannel)
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

func TestLatch_SetAgainAfterItsEnd_IsNoSuccess(t *testing.T) {
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

// The virtual time lets every waiter look before the latch is deleted: a waiter that has not looked finds no latch.
func TestLatch_Deleted_FailsWaitersOnly(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{0, time.Hour} {
		redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
			l := newRig(t, servers[0], patient).c.CountDownLatch("l")
			require.False(t, must1[bool](t)(l.Delete(within(t))))
			require.True(t, must1[bool](t)(l.TrySetCount(within(t), 2, ttl)))
			done := await(t, l, 5)
			synctest.Wait()
			require.True(t, must1[bool](t)(l.Delete(within(t))))
			for range 5 {
				require.ErrorIs(t, <-done, rsemaphore.ErrLatchDeleted)
			}
			require.NoError(t, l.Await(within(t)), "a call after the deletion finds no latch")
			require.False(t, must1[bool](t)(l.Delete(within(t))))
		})
	}
}

func TestCountDownBy_Repeated_LeavesTheNextCount(t *testing.T) {
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

func TestLatch_Inspect_TellsCountAndTTL(t *testing.T) {
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
