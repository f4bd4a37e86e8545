package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// arrived is what one Await returned.
type arrived struct {
	rsemaphore.Arrival
	err error
}

// arriveAt has n parties wait at b.
func arriveAt(ctx context.Context, b *rsemaphore.CyclicBarrier, n int) <-chan arrived {
	done := make(chan arrived, n)
	for range n {
		go func() {
			a, err := b.Await(ctx)
			done <- arrived{a, err}
		}()
	}
	return done
}

// gathered is until n parties wait at b.
func gathered(t testing.TB, b *rsemaphore.CyclicBarrier, n int) rsemaphore.BarrierState {
	t.Helper()
	var st rsemaphore.BarrierState
	redistest.Eventually(t, 20*time.Second, fmt.Sprintf("%d parties wait", n), func() bool {
		var err error
		st, err = b.Inspect(within(t))
		require.NoError(t, err)
		return st.Waiting == n
	})
	return st
}

// requireClean fails unless all keys have an end, and the barrier's hash holds nothing of anybody.
func (r *rig) requireClean(t testing.TB, key string) {
	t.Helper()
	for _, k := range r.keys(t) {
		require.Positive(t, r.number(t, "PTTL", k), "%s has an end", k)
	}
	text := ""
	defer func() {
		if t.Failed() {
			t.Log(key, "has", text)
		}
	}()
	redistest.Eventually(t, 10*time.Second, "nobody is in the barrier's hash", func() bool {
		text = r.contents(t, key)
		return !strings.Contains(text, "m:") && !strings.Contains(text, "r:")
	})
}

func TestABarrierOpensWhenTheLastArrivesInEveryGeneration(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		const parties, generations = 6, 20
		rigs := []*rig{newRig(t, srv, patient), newRig(t, srv, patient)}
		var inside [generations + 1]atomic.Int32
		var last [generations + 1]atomic.Int32
		var wg sync.WaitGroup
		for i := range parties {
			wg.Go(func() {
				b := rigs[i%2].c.CyclicBarrier("b", parties)
				for g := range generations {
					inside[g].Add(1)
					a, err := b.Await(within(t))
					if err != nil || a.Generation != int64(g+1) {
						t.Errorf("generation %d: %v %v", g+1, a, err)
						return
					}
					if n := inside[g].Load(); n != parties {
						t.Errorf("went on with %d of %d", n, parties)
					}
					if n := inside[g+1].Load(); n == parties {
						t.Error("the next generation is through without this party")
					}
					if a.Last {
						last[g].Add(1)
					}
				}
			})
		}
		wg.Wait()
		for g := range generations {
			require.EqualValues(t, 1, last[g].Load(), "one is last")
		}
		st, err := rigs[0].c.CyclicBarrier("b", parties).Inspect(within(t))
		require.NoError(t, err)
		require.Equal(t, rsemaphore.BarrierState{Generation: generations + 1, Parties: parties}, st)
		require.Equal(t, []string{"{b}:barrier"}, rigs[0].keys(t))
		rigs[0].requireClean(t, "{b}:barrier")
		for _, r := range rigs {
			require.Zero(t, r.c.Shared())
			require.Zero(t, r.c.Lines())
		}
	})
}

func TestPartiesOfAProcessSendTwoCallsEachAndShareTheLast(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour, WatchdogTimeout: time.Hour})
	const parties = 100
	b := r.c.CyclicBarrier("b", parties)
	done := arriveAt(within(t), b, parties-1)
	gathered(t, b, parties-1)
	subscribedTo(t, r, "redlatch_barrier:{b}")
	redistest.Eventually(t, 20*time.Second, "they stand in one line", func() bool {
		return r.c.Lines() == 1 && r.c.Shared() == 1
	})
	calls := func() int { return redistest.CommandCalls(t, r.redis)["evalsha"] }
	redistest.Eventually(t, 20*time.Second, "all sleep", func() bool {
		n := calls()
		time.Sleep(100 * time.Millisecond)
		return calls() == n
	})
	before := calls()
	require.NoError(t, errOf(b.Await(within(t))))
	for range parties - 1 {
		require.NoError(t, (<-done).err)
	}
	require.LessOrEqual(t, calls()-before, parties/10, "arrive, trip, and one look for all")
}

func TestWhatABarrierRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), patient)
	ctx := within(t)
	for _, n := range []int{0, -1, 10_001} {
		_, err := r.c.CyclicBarrier("b", n).Await(ctx)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, "parties is "+strconv.Itoa(n))
	}
	for _, name := range []string{"", "{}x", "a{b", "a}b"} {
		require.ErrorIs(t, errOf(r.c.CyclicBarrier(name, 2).Await(ctx)), errs.ErrInvalidName)
		require.ErrorIs(t, errOf(r.c.CyclicBarrier(name, 2).Inspect(ctx)), errs.ErrInvalidName)
	}
	require.Empty(t, r.keys(t))
	st, err := r.c.CyclicBarrier("b", 2).Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, rsemaphore.BarrierState{Generation: 1}, st)
	require.Empty(t, r.keys(t), "looking makes nothing")
	r.must(t, "SET", "{b}:barrier", "x")
	require.ErrorIs(t, errOf(r.c.CyclicBarrier("b", 2).Await(ctx)), errs.ErrWrongType)
	r.must(t, "DEL", "{b}:barrier")
	require.NoError(t, r.c.Close(ctx))
	require.ErrorIs(t, errOf(r.c.CyclicBarrier("b", 2).Await(ctx)), errs.ErrClosed)
}

func TestABarrierOfOneDoesNotWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	for i := range 3 {
		a, err := r.c.CyclicBarrier("b", 1).Await(within(t))
		require.NoError(t, err)
		require.Equal(t, rsemaphore.Arrival{Generation: int64(i + 1), Last: true}, a)
	}
}

func TestAllOfAGenerationMustMeanTheSameNumber(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	done := arriveAt(within(t), r.c.CyclicBarrier("b", 3), 2)
	gathered(t, r.c.CyclicBarrier("b", 3), 2)
	_, err := r.c.CyclicBarrier("b", 2).Await(within(t))
	require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
	require.ErrorContains(t, err, `"b" has 3, not 2`)
	require.NoError(t, errOf(r.c.CyclicBarrier("b", 3).Await(within(t))))
	for range 2 {
		require.NoError(t, (<-done).err)
	}
	two := arriveAt(within(t), r.c.CyclicBarrier("b", 2), 2)
	for range 2 {
		a := <-two
		require.NoError(t, a.err)
		require.EqualValues(t, 2, a.Generation)
	}
}

func TestALeavingPartyBreaksItsGenerationAndTheNextIsNew(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r, other := newRig(t, srv, patient), newRig(t, srv, patient)
		b := r.c.CyclicBarrier("b", 4)
		done := arriveAt(within(t), b, 2)
		gathered(t, b, 2)
		why := errors.New("the user went home")
		ctx, cancel := context.WithCancelCause(context.Background())
		leaver := arriveAt(ctx, other.c.CyclicBarrier("b", 4), 1)
		gathered(t, b, 3)
		cancel(why)
		left := <-leaver
		for _, is := range []error{rsemaphore.ErrBrokenBarrier, context.Canceled, why} {
			require.ErrorIs(t, left.err, is)
		}
		for range 2 {
			a := <-done
			require.ErrorIs(t, a.err, rsemaphore.ErrBrokenBarrier)
			require.NotErrorIs(t, a.err, context.Canceled, "that is another's")
			require.ErrorIs(t, a.err, rsemaphore.ErrBrokenBarrier)
			require.ErrorContains(t, a.err, `"b" in generation 1`)
			require.Equal(t, rsemaphore.Arrival{Generation: 1}, a.Arrival)
		}
		again := arriveAt(within(t), b, 4)
		for range 4 {
			a := <-again
			require.NoError(t, a.err)
			require.EqualValues(t, 2, a.Generation)
		}
	})
}

func TestTheLastArriverRunsTheActionBeforeTheOthersGoOn(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		var acted atomic.Int32
		hold := make(chan struct{})
		b := r.c.CyclicBarrier("b", 3).WithAction(func(ctx context.Context) error {
			<-hold
			acted.Add(1)
			return ctx.Err()
		})
		done := arriveAt(within(t), b, 3)
		redistest.Eventually(t, 20*time.Second, "it acts", func() bool {
			st, err := b.Inspect(within(t))
			require.NoError(t, err)
			return st.Parties == 3 && st.Waiting == 3
		})
		// one too many has to wait for the next generation
		extra := arriveAt(within(t), b, 1)
		time.Sleep(30 * time.Millisecond)
		require.Empty(t, done)
		close(hold)
		last := 0
		for range 3 {
			a := <-done
			require.NoError(t, a.err)
			require.EqualValues(t, 1, a.Generation)
			require.EqualValues(t, 1, acted.Load())
			if a.Last {
				last++
			}
		}
		require.Equal(t, 1, last)
		next := arriveAt(within(t), b, 2)
		for _, c := range []<-chan arrived{extra, next, next} {
			a := <-c
			require.NoError(t, a.err)
			require.EqualValues(t, 2, a.Generation)
		}
		require.EqualValues(t, 2, acted.Load())
	})
}

func TestAnArrivalThatFindsNoPlaceIsNotAcquired(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	hold := make(chan struct{})
	b := r.c.CyclicBarrier("b", 1).WithAction(func(context.Context) error { <-hold; return nil })
	done := arriveAt(within(t), b, 1)
	gathered(t, b, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := b.Await(ctx)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(hold)
	require.NoError(t, (<-done).err)
}

func TestAnActionThatFailsBreaksTheGeneration(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, patient)
	broke := errors.New("no paper")
	plain := r.c.CyclicBarrier("b", 3)
	done := arriveAt(within(t), plain, 2)
	gathered(t, plain, 2)
	_, err := plain.WithAction(func(context.Context) error { return broke }).Await(within(t))
	require.ErrorIs(t, err, broke)
	require.ErrorIs(t, err, rsemaphore.ErrBrokenBarrier)
	for range 2 {
		a := <-done
		require.ErrorIs(t, a.err, rsemaphore.ErrBrokenBarrier)
	}

	done = arriveAt(within(t), plain, 2)
	gathered(t, plain, 2)
	require.PanicsWithValue(t, "no ink", func() {
		plain.WithAction(func(context.Context) error { panic("no ink") }).Await(within(t))
	})
	for range 2 {
		require.ErrorIs(t, (<-done).err, rsemaphore.ErrBrokenBarrier)
	}
	require.EqualValues(t, 3, gathered(t, plain, 0).Generation)
}

func TestAnActionThatReturnsNilCountsThoughItsContextHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	ctx, cancel := context.WithCancel(context.Background())
	b := r.c.CyclicBarrier("b", 2)
	done := arriveAt(within(t), b, 1)
	gathered(t, b, 1)
	a, err := b.WithAction(func(actx context.Context) error {
		cancel()
		<-actx.Done()
		return nil
	}).Await(ctx)
	require.NoError(t, err)
	require.True(t, a.Last)
	require.NoError(t, (<-done).err)
}

func TestAPartyThatLeavesDuringTheActionBreaksIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	b := r.c.CyclicBarrier("b", 2)
	ctx, cancel := context.WithCancel(context.Background())
	done := arriveAt(ctx, b, 1)
	gathered(t, b, 1)
	_, err := b.WithAction(func(context.Context) error {
		cancel()
		require.ErrorIs(t, (<-done).err, rsemaphore.ErrBrokenBarrier)
		return nil
	}).Await(within(t))
	require.ErrorIs(t, err, rsemaphore.ErrBrokenBarrier)
}

func TestAnActionIsToldWhenItsGenerationBreaks(t *testing.T) {
	t.Parallel()
	for where, away := range map[string]bool{"another process": true, "its own process": false} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			// neither a poll nor a renewal comes in time
			o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour, WatchdogTimeout: time.Hour}
			r := newRig(t, srv, o)
			other := r
			if away {
				other = newRig(t, srv, o)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := arriveAt(ctx, other.c.CyclicBarrier("b", 2), 1)
			gathered(t, other.c.CyclicBarrier("b", 2), 1)
			var cause error
			_, err := r.c.CyclicBarrier("b", 2).WithAction(func(actx context.Context) error {
				cancel()
				select {
				case <-actx.Done():
				case <-within(t).Done():
				}
				cause = context.Cause(actx)
				return actx.Err()
			}).Await(within(t))
			require.ErrorIs(t, (<-done).err, rsemaphore.ErrBrokenBarrier)
			require.ErrorIs(t, err, rsemaphore.ErrBrokenBarrier)
			require.ErrorIs(t, cause, rsemaphore.ErrBrokenBarrier)
			require.ErrorContains(t, cause, "in generation 1")
		})
	}
}

func TestAnActionIsToldWhenTheBarrierIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t),
		rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 50 * time.Millisecond, WatchdogTimeout: time.Hour})
	for _, gone := range [][]string{{"FLUSHALL"}, {"SET", "{b}:barrier", "a string"}} {
		r.must(t, "DEL", "{b}:barrier")
		r.c.CyclicBarrier("b", 1).WithAction(func(actx context.Context) error {
			r.must(t, gone...)
			select {
			case <-actx.Done():
			case <-within(t).Done():
			}
			require.ErrorIs(t, context.Cause(actx), errs.ErrLost, gone)
			require.ErrorIs(t, context.Cause(actx), rsemaphore.ErrBrokenBarrier, gone)
			return context.Cause(actx)
		}).Await(within(t))
	}
}

func TestACloseBreaksTheGenerationsOfItsParties(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r, other := newRig(t, srv, patient), newRig(t, srv, patient)
	b := r.c.CyclicBarrier("b", 3)
	mine, theirs := arriveAt(within(t), b, 1), arriveAt(within(t), other.c.CyclicBarrier("b", 3), 1)
	gathered(t, b, 2)
	require.NoError(t, r.c.Close(within(t)))
	a := <-mine
	require.ErrorIs(t, a.err, errs.ErrClosed)
	require.ErrorIs(t, a.err, rsemaphore.ErrBrokenBarrier)
	require.ErrorIs(t, (<-theirs).err, rsemaphore.ErrBrokenBarrier)
}

func TestALostMessageCostsAPartyAtMostPollCap(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv)
	r := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 100 * time.Millisecond})
	other := newRig(t, srv, patient)
	p.SwallowPushes()
	done := arriveAt(within(t), r.c.CyclicBarrier("b", 6), 5)
	subscribedTo(t, other, "redlatch_barrier:{b}")
	gathered(t, other.c.CyclicBarrier("b", 6), 5)
	require.NoError(t, errOf(other.c.CyclicBarrier("b", 6).Await(within(t))))
	for range 5 {
		require.NoError(t, (<-done).err)
	}
	redistest.Eventually(t, 10*time.Second, "the message was lost", func() bool { return p.Swallowed() > 0 })
}

func TestWaitingPartiesAreRenewedForAsLongAsItTakes(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rsemaphore.Options{PollCap: time.Hour}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		done := arriveAt(ctx, rigs[0].c.CyclicBarrier("b", 3), 2)
		time.Sleep(2 * time.Minute)
		require.Empty(t, done)
		require.NoError(t, errOf(rigs[1].c.CyclicBarrier("b", 3).WithAction(func(context.Context) error {
			time.Sleep(2 * time.Minute) // the one that acts is, too
			return nil
		}).Await(ctx)))
		for range 2 {
			require.NoError(t, (<-done).err)
		}
		require.EqualValues(t, 2, must1[rsemaphore.BarrierState](t)(rigs[0].c.CyclicBarrier("b", 3).Inspect(ctx)).Generation)
		time.Sleep(time.Hour + time.Minute)
		require.EqualValues(t, 1, must1[rsemaphore.BarrierState](t)(rigs[0].c.CyclicBarrier("b", 3).Inspect(ctx)).Generation,
			"an idle one is forgotten")
	})
}

func TestAPartyCutOffFromTheServerGivesUpByItsOwnClock(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rsemaphore.Options{}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		done := arriveAt(ctx, rigs[0].c.CyclicBarrier("b", 2), 1)
		synctest.Wait()
		began := time.Now()
		s.Embedded.SetError("LOADING forever")
		a := <-done
		require.ErrorIs(t, a.err, rsemaphore.ErrBrokenBarrier)
		require.ErrorIs(t, a.err, errs.ErrLost)
		require.Less(t, time.Since(began), 30*time.Second, "before the server takes it for dead")
		require.Greater(t, time.Since(began), 15*time.Second)
		s.Embedded.SetError("")
	})
}

func TestAFlushedBarrierIsBrokenForThoseWhoWaited(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 50 * time.Millisecond})
	b := r.c.CyclicBarrier("b", 3)
	done := arriveAt(within(t), b, 2)
	gathered(t, b, 2)
	r.must(t, "FLUSHALL")
	// a new life of the key, whose first generation has the same number, and trips
	for range 2 {
		next := arriveAt(within(t), r.c.CyclicBarrier("b", 1), 1)
		require.NoError(t, (<-next).err)
	}
	for range 2 {
		a := <-done
		require.ErrorIs(t, a.err, rsemaphore.ErrBrokenBarrier)
		require.ErrorIs(t, a.err, errs.ErrLost)
	}
}

// Every request of a barrier may get lost, before or after it ran: nobody is counted twice, nobody waits forever.
func TestBarrierCallsUnderLostRepliesCountOnce(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]redistest.Fate{
		"reply": redistest.LoseReply, "reply, silently": redistest.LoseReplySilently, "request": redistest.LoseRequest,
		"request, silently": redistest.LoseRequestSilently,
	} {
		for _, verb := range []string{"arrive", "look", "trip"} {
			t.Run(name+" of "+verb, func(t *testing.T) {
				redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
					srv := servers[0]
					p := redistest.NewProxy(t, srv)
					r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 150 * time.Millisecond}), newRig(t, srv,
						patient)
					direct.load(t, "barrier*")
					b := r.c.CyclicBarrier("b", 2)
					redistest.Eventually(t, 30*time.Second, "connected", func() bool { return errOf(b.Inspect(within(t))) == nil })
					for g := range int64(3) {
						trap := p.Trap(&redistest.Trap{Match: redistest.With("{b}:barrier", verb), Fate: fate})
						done := arriveAt(within(t), b, 2)
						trap.Wait(t)
						time.Sleep(160 * time.Millisecond) // one that goes unanswered is repeated on the same connection
						p.Heal()
						for range 2 {
							a := <-done
							require.NoError(t, a.err)
							require.Equal(t, g+1, a.Generation)
						}
					}
					direct.requireClean(t, "{b}:barrier")
				})
			})
		}
	}
}

// An arrival whose reply is lost may be the one that fills its generation for another to trip: the repeated request
// must find the old generation, not join the new one.
func TestARepeatedArrivalIsNotCountedInTheNextGeneration(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		p := redistest.NewProxy(t, srv)
		// for that long the party stays known
		r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 3 * time.Second}), newRig(t, srv, patient)
		direct.load(t, "barrier*")
		b, db := r.c.CyclicBarrier("b", 2), direct.c.CyclicBarrier("b", 2)
		require.NoError(t, errOf(b.Inspect(within(t))))
		trap := p.Trap(&redistest.Trap{Match: redistest.With("{b}:barrier", "arrive"), Fate: redistest.HoldReply,
			Release: make(chan struct{})})
		done := arriveAt(within(t), b, 1)
		trap.Wait(t)
		a, err := db.Await(within(t))
		require.NoError(t, err)
		require.EqualValues(t, 1, a.Generation)
		next := arriveAt(within(t), db, 1)
		gathered(t, db, 1)
		p.Cut() // the reply is lost, the request repeated
		got := <-done
		require.NoError(t, got.err)
		require.EqualValues(t, 1, got.Generation)
		require.EqualValues(t, 1, gathered(t, db, 1).Waiting, "and it is not in the next")
		require.NoError(t, errOf(b.Await(within(t))))
		require.NoError(t, (<-next).err)
		direct.requireClean(t, "{b}:barrier")
	})
}

func TestAnArrivalThatWasGivenUpIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]redistest.Fate{"the reply is late": redistest.HoldReply,
		"the request is late": redistest.HoldRequest, "the reply is lost": redistest.LoseReply} {
		t.Run(name, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				srv := servers[0]
				p := redistest.NewProxy(t, srv)
				r, direct := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 150 * time.Millisecond}), newRig(t, srv, patient)
				direct.load(t, "barrier*")
				b, db := r.c.CyclicBarrier("b", 2), direct.c.CyclicBarrier("b", 2)
				redistest.Eventually(t, 30*time.Second, "connected", func() bool { return errOf(b.Inspect(within(t))) == nil })
				release := make(chan struct{})
				p.Trap(&redistest.Trap{Match: redistest.With("{b}:barrier", "arrive"), Fate: fate, Every: true, Release: release})
				ctx, cancel := context.WithTimeout(context.Background(), 600*time.Millisecond)
				defer cancel()
				_, err := b.Await(ctx)
				require.ErrorIs(t, err, errs.ErrUnknownOutcome)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				p.Heal()
				close(release)
				gathered(t, db, 0)
				time.Sleep(50 * time.Millisecond)
				gathered(t, db, 0)
				done := arriveAt(within(t), db, 2)
				for range 2 {
					require.NoError(t, (<-done).err)
				}
			})
		})
	}
}

// belated keeps the first request to arrive to itself, reports that its reply is lost, and sends it when it is told to.
type belated struct {
	*forgetful
	mu   sync.Mutex
	kept *rueidis.Completed
}

func (c *belated) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c.mu.Lock()
	first := c.kept == nil && slices.Contains(cmd.Commands(), "arrive")
	if first {
		cmd = cmd.Pin()
		c.kept = &cmd
	}
	c.mu.Unlock()
	if first {
		return c.dead.Do(ctx, c.dead.B().Ping().Build())
	}
	return c.forgetful.Do(ctx, cmd)
}

// Otherwise it would be one of the next generation's parties until it is taken back, and that generation could trip
// without one of them.
func TestAnArrivalAfterItsPartyIsGoneDoesNotCount(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	direct := newRig(t, srv, patient)
	direct.load(t, "barrier*")
	late := &belated{forgetful: newForgetful(t, srv, func() bool { return false })}
	r := newRigOn(t, srv, late, rsemaphore.Options{CallTimeout: 30 * time.Second})
	b, db := r.c.CyclicBarrier("b", 2), direct.c.CyclicBarrier("b", 2)
	done := arriveAt(within(t), b, 1)
	require.NoError(t, errOf(db.Await(within(t))))
	require.NoError(t, (<-done).err)
	require.NoError(t, late.Client.Do(within(t), *late.kept).Error())
	s, err := db.Inspect(within(t))
	require.NoError(t, err)
	require.Zero(t, s.Waiting)
	next := arriveAt(within(t), db, 2)
	for range 2 {
		require.NoError(t, (<-next).err)
	}
}

// Of a client's very first request, too: nobody waits for its party any more, and whoever gathers then would have it
// among them.
func TestAClientsFirstArrivalIsRefusedWhenItComesTooLate(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	direct := newRig(t, srv, patient)
	direct.load(t, "barrier*")
	late := &belated{forgetful: newForgetful(t, srv, func() bool { return false })}
	r := newRigOn(t, srv, late, rsemaphore.Options{CallTimeout: 500 * time.Millisecond})
	require.NoError(t, errOf(r.c.CyclicBarrier("b", 1).Await(within(t))))
	redistest.Eventually(t, 20*time.Second, "what may have arrived is taken back", func() bool { return r.c.Owed() == 0 })
	require.NoError(t, late.Client.Do(within(t), *late.kept).Error())
	s, err := direct.c.CyclicBarrier("b", 1).Inspect(within(t))
	require.NoError(t, err)
	require.Zero(t, s.Waiting)
	direct.requireClean(t, "{b}:barrier")
}

func TestBarrierNamesWithHashTagsWorkInACluster(t *testing.T) {
	redistest.InFull(t, "TestNamesWithBracesKeepTheirSlotInACluster")
	t.Parallel()
	srv := redistest.Cluster(t)
	o := rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Hour} // messages alone have to do it
	r, other := newRig(t, srv, o), newRig(t, srv, o)
	for _, name := range []string{"plain", "a{b}", "{b}a", "a{b}c{d}", "ü{ü}"} {
		b, ob := r.c.CyclicBarrier(name, 3), other.c.CyclicBarrier(name, 3)
		for g := range 3 {
			done := arriveAt(within(t), b, 2)
			gathered(t, b, 2)
			a, err := ob.Await(within(t))
			require.NoError(t, err, name)
			require.EqualValues(t, g+1, a.Generation)
			for range 2 {
				require.NoError(t, (<-done).err, name)
			}
		}
	}
}

func TestCancelledPartiesLeaveNothing(t *testing.T) {
	srv := redistest.Start(t)
	// a request of unknown outcome is swept up after it
	r := newRig(t, srv, rsemaphore.Options{CallTimeout: 2 * time.Second})
	const parties = 3
	warm := arriveAt(within(t), r.c.CyclicBarrier("warm", 2), 1) // until all connections are there, that of the hub too
	subscribedTo(t, r, "redlatch_barrier:{warm}")
	require.NoError(t, errOf(r.c.CyclicBarrier("warm", 2).Await(within(t))))
	require.NoError(t, (<-warm).err)
	r.must(t, "DEL", "{warm}:barrier")
	before := runtime.NumGoroutine()
	var trips, breaks, unknowns atomic.Int64
	var wg sync.WaitGroup
	for i := range 6 {
		rnd := rand.New(rand.NewPCG(3, uint64(i)))
		wg.Go(func() {
			for range 50 {
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(time.Duration(rnd.IntN(4000))*time.Microsecond, cancel)
				_, err := r.c.CyclicBarrier("b", parties).Await(ctx)
				cancel()
				switch {
				case err == nil:
					trips.Add(1)
				case errors.Is(err, rsemaphore.ErrBrokenBarrier):
					breaks.Add(1)
				case !errors.Is(err, context.Canceled):
					t.Error(err)
				case errors.Is(err, errs.ErrUnknownOutcome): // only where the machine stalled
					unknowns.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d tripped, %d broken, %d unknown of 300", trips.Load(), breaks.Load(), unknowns.Load())
	require.Positive(t, trips.Load())
	require.Positive(t, breaks.Load())
	require.LessOrEqual(t, (parties-trips.Load()%parties)%parties, unknowns.Load(),
		"a generation trips for all or for none")
	gathered(t, r.c.CyclicBarrier("b", parties), 0)
	redistest.Eventually(t, 20*time.Second, "nothing is owed", func() bool { return r.c.Owed() == 0 })
	r.requireClean(t, "{b}:barrier")
	require.Zero(t, r.c.Lines())
	require.Zero(t, r.c.Shared())
	redistest.Eventually(t, 20*time.Second, "no goroutine is left", func() bool {
		return runtime.NumGoroutine() <= before+8
	})
}

func init() { roles["party"] = beParty }

// beParty arrives at the barrier again and again, as often as told, and says what became of it. Its lease is
// short, unless it is told to be patient; told to act, it acts, says so, and does not come to an end.
func beParty() error {
	parties, _ := strconv.Atoi(os.Args[2])
	times, _ := strconv.Atoi(os.Args[3])
	o := rsemaphore.Options{WatchdogTimeout: 1500 * time.Millisecond}
	if slices.Contains(os.Args[4:], "patient") {
		o = patient
	}
	_, c, err := connectRole(o)
	if err != nil {
		return err
	}
	b := c.CyclicBarrier("b", parties)
	if slices.Contains(os.Args[4:], "act") {
		b = b.WithAction(func(ctx context.Context) error {
			fmt.Println("acting")
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}
	for range times {
		a, err := b.Await(context.Background())
		fmt.Println(a.Generation, err)
	}
	io.Copy(io.Discard, os.Stdin)
	return nil
}

func TestABarrierIsBrokenByTheDeathOfAPartyWhenItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, patient)
	b := r.c.CyclicBarrier("b", 4)
	victim := redistest.Spawn(t, "party", srv, "4", "1")
	gathered(t, b, 1)
	done := arriveAt(within(t), b, 2)
	gathered(t, b, 3)
	victim.Signal(t, syscall.SIGKILL)
	for range 2 {
		a := <-done
		require.ErrorIs(t, a.err, rsemaphore.ErrBrokenBarrier)
		require.NotErrorIs(t, a.err, errs.ErrLost)
	}
	// with one that comes back they are complete again, in the next generation
	back := redistest.Spawn(t, "party", srv, "4", "1")
	again := arriveAt(within(t), b, 3)
	for range 3 {
		a := <-again
		require.NoError(t, a.err)
		require.EqualValues(t, 2, a.Generation)
	}
	require.Equal(t, "2 <nil>", back.Line(t))
}

func TestABarrierIsBrokenByTheDeathOfTheLastArriverInItsAction(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, patient)
	b := r.c.CyclicBarrier("b", 3)
	done := arriveAt(within(t), b, 2)
	gathered(t, b, 2)
	actor := redistest.Spawn(t, "party", srv, "3", "1", "act")
	require.Equal(t, "acting", actor.Line(t))
	actor.Signal(t, syscall.SIGKILL)
	for range 2 {
		a := <-done
		require.ErrorIs(t, a.err, rsemaphore.ErrBrokenBarrier)
	}
}

func TestAPartyWhoseLeavingIsNotConfirmedHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		srv := servers[0]
		other := newRig(t, srv, patient)
		ob := other.c.CyclicBarrier("b", 2)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		p := redistest.NewProxy(t, srv)
		r := newRig(t, p.Server(), rsemaphore.Options{PollCap: 20 * time.Millisecond})
		done := arriveAt(ctx, r.c.CyclicBarrier("b", 2), 1)
		gathered(t, ob, 1)
		p.Refuse()
		p.Cut()
		time.Sleep(200 * time.Millisecond) // it has asked again, and found its connection gone
		cancel()
		gone := <-done
		require.ErrorIs(t, gone.err, context.Canceled)
		require.ErrorIs(t, gone.err, errs.ErrUnknownOutcome)
		require.NotErrorIs(t, gone.err, errs.ErrUnavailable)
		_, err := ob.Await(within(t))
		require.NoError(t, err, "the others go on with it")
	})
}

func TestAStoppedPartyLearnsThatItsGenerationBroke(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, patient)
	b := r.c.CyclicBarrier("b", 3)
	stopped := redistest.Spawn(t, "party", srv, "3", "1")
	gathered(t, b, 1)
	redistest.Eventually(t, 20*time.Second, "it knows that it has arrived", func() bool {
		return !strings.Contains(r.contents(t, "{b}:barrier"), "?")
	})
	stopped.Signal(t, syscall.SIGSTOP)
	done := arriveAt(within(t), b, 1)
	require.ErrorIs(t, (<-done).err, rsemaphore.ErrBrokenBarrier)
	stopped.Signal(t, syscall.SIGCONT)
	require.Contains(t, stopped.Line(t), "barrier broken")
}

func TestProcessesGoThroughManyGenerationsTogether(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	const processes, generations = 4, 50
	var procs []*redistest.Child
	for range processes {
		procs = append(procs, redistest.Spawn(t, "party", srv, strconv.Itoa(processes), strconv.Itoa(generations), "patient"))
	}
	for g := range generations {
		for _, p := range procs {
			require.Equal(t, strconv.Itoa(g+1)+" <nil>", p.Line(t))
		}
	}
}

// outcomes is what the parties of each generation were told.
type outcomes struct {
	mu      sync.Mutex
	tripped map[int64]int
	broken  map[int64]int // told by the server
	lost    map[int64]int // gave up by their own clock, or do not know
	others  int
}

// Random histories with failing networks, parties that leave and processes that are killed: of each generation either
// all parties were told that it tripped, or none; and they go on by themselves.
// full is how many generations n of the parties say tripped.
func (o *outcomes) full(n int) (count int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, tripped := range o.tripped {
		if tripped%100 == n {
			count++
		}
	}
	return count
}

func TestBarrierHistoriesUnderFaultsAndKillsAreAllOrNone(t *testing.T) {
	t.Parallel()
	redistest.InFull(t, "TestABarrierIsBrokenByTheDeathOfAPartyWhenItsLeaseIsOver")
	srv := redistest.Start(t)
	direct := newRig(t, srv, patient)
	const parties = 4
	book := &outcomes{tripped: map[int64]int{}, broken: map[int64]int{}, lost: map[int64]int{}}
	stop, done := context.WithTimeout(context.Background(), time.Minute) // on a busy machine
	defer done()
	time.AfterFunc(redistest.Sized(5*time.Second, 5*time.Second, 15*time.Second), func() {
		for stop.Err() == nil && book.full(parties-1) <= 10 {
			time.Sleep(100 * time.Millisecond)
		}
		done()
	})
	var wg sync.WaitGroup
	var proxies []*redistest.Proxy
	for i := range parties - 1 {
		p := redistest.NewProxy(t, srv)
		proxies = append(proxies, p)
		r := newRig(t, p.Server(),
			rsemaphore.Options{CallTimeout: 100 * time.Millisecond, PollCap: 60 * time.Millisecond,
				WatchdogTimeout: time.Second})
		rnd := rand.New(rand.NewPCG(11, uint64(i)))
		wg.Go(func() {
			b := r.c.CyclicBarrier("b", parties)
			for stop.Err() == nil {
				actx, cancel := context.WithTimeout(stop, 2*time.Second)
				if rnd.IntN(20) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(3000))*time.Microsecond, cancel)
				}
				at := b
				if rnd.IntN(3) == 0 {
					at = b.WithAction(func(context.Context) error {
						if rnd.IntN(20) == 0 {
							return errors.New("action failed")
						}
						return nil
					})
				}
				a, err := at.Await(actx)
				cancel()
				book.mu.Lock()
				switch {
				case err == nil:
					book.tripped[a.Generation]++
				case errors.Is(err, rsemaphore.ErrBrokenBarrier) && errors.Is(err, errs.ErrLost):
					book.lost[a.Generation]++
				case errors.Is(err, rsemaphore.ErrBrokenBarrier):
					book.broken[a.Generation]++
				default:
					book.others++
				}
				book.mu.Unlock()
			}
		})
	}
	var inflicted, kills int
	wg.Go(func() { // the fourth party is a process that is killed now and then
		rnd := rand.New(rand.NewPCG(12, 12))
		for stop.Err() == nil {
			c := redistest.Spawn(t, "party", srv, strconv.Itoa(parties), "1000000")
			lines := make(chan string)
			go func() {
				for c.Out.Scan() {
					lines <- c.Out.Text()
				}
				close(lines)
			}()
			end := time.After(time.Duration(300+rnd.IntN(900)) * time.Millisecond)
			for open := true; open; {
				select {
				case text, ok := <-lines:
					if open = ok; !ok {
						break
					}
					g, err := strconv.ParseInt(strings.TrimSuffix(text, " <nil>"), 10, 64)
					if err == nil {
						book.mu.Lock()
						book.tripped[g] += 100 // tells it from the others: one that is killed may not get to say so
						book.mu.Unlock()
					}
				case <-end:
					c.Signal(t, syscall.SIGKILL)
					kills++
					end = nil
				}
			}
		}
	})
	wg.Go(func() {
		rnd := rand.New(rand.NewPCG(13, 13))
		for stop.Err() == nil {
			breakNetwork(proxies[rnd.IntN(len(proxies))], rnd, "{b}:barrier")
			inflicted++
		}
	})
	wg.Wait()
	full, short, missing := 0, 0, 0
	for g, n := range book.tripped {
		require.Zero(t, book.broken[g], "generation %d tripped for %d and broke for %d", g, n, book.broken[g])
		require.LessOrEqual(t, n%100, parties-1, "generation %d", g)
		require.LessOrEqual(t, n/100, 1, "generation %d", g)
		if n%100 == parties-1 {
			full++
		} else {
			short++
			missing += parties - 1 - n%100 - book.lost[g]
		}
	}
	// a process that was killed while it waited is a party until its lease is over, beside the one that follows it
	require.LessOrEqual(t, missing, book.others+kills, "who does not know that its generation tripped says so")
	t.Logf("%d generations tripped for all, %d with a party that had given up; %d broke; %d calls ended otherwise; %d "+
		"faults, %d kills",
		full, short, len(book.broken), book.others, inflicted, kills)
	require.Greater(t, full, 10, "a test that does no work finds nothing")
	require.Positive(t, len(book.broken))
	require.Greater(t, inflicted, 5)
	require.Positive(t, kills)
	gathered(t, direct.c.CyclicBarrier("b", parties), 0)
}

func TestAnOverwrittenBarrierIsLostAndOfTheWrongType(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rsemaphore.Options{WatchdogTimeout: 600 * time.Millisecond})
	b := r.c.CyclicBarrier("b", 3)
	done := arriveAt(within(t), b, 2)
	gathered(t, b, 2)
	r.must(t, "SET", "{b}:barrier", "x")
	for range 2 {
		a := <-done
		require.ErrorIs(t, a.err, errs.ErrLost)
		require.ErrorIs(t, a.err, errs.ErrWrongType)
	}
}
