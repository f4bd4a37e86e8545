package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
		st = redistest.NoError(b.Inspect(within(t)))(t)
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

func TestBarrier_LastArrives_OpensInEveryGeneration(t *testing.T) {
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
		st := redistest.NoError(rigs[0].c.CyclicBarrier("b", parties).Inspect(within(t)))(t)
		require.Equal(t, rsemaphore.BarrierState{Generation: generations + 1, Parties: parties}, st)
		require.Equal(t, []string{"{b}:barrier"}, rigs[0].keys(t))
		rigs[0].requireClean(t, "{b}:barrier")
		for _, r := range rigs {
			require.Zero(t, r.c.Lines())
		}
	})
}

func TestBarrier_OtherParties_IsCapacityMismatch(t *testing.T) {
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

// Two parties wait; another breaks their generation.
func TestBarrier_OnePartyGone_BreaksItForAll(t *testing.T) {
	t.Parallel()
	why, broken := errors.New("the user went home"), rsemaphore.ErrBrokenBarrier
	acts := func(r *rig, action func(context.Context) error) error {
		return errOf(r.c.CyclicBarrier("b", 3).WithAction(action).Await(context.Background()))
	}
	leaving := func(r *rig, parties int) (left <-chan arrived, leave func()) {
		ctx, cancel := context.WithCancelCause(context.Background())
		return arriveAt(ctx, r.c.CyclicBarrier("b", parties), 1), func() { cancel(why) }
	}
	for name, x := range map[string]struct {
		parties int
		breaks  func(t *testing.T, r *rig)
	}{
		"it leaves": {4, func(t *testing.T, r *rig) {
			left, leave := leaving(r, 4)
			gathered(t, r.c.CyclicBarrier("b", 4), 3)
			leave()
			a := <-left
			for _, is := range []error{broken, context.Canceled, why} {
				require.ErrorIs(t, a.err, is)
			}
		}},
		"its client is closed": {4, func(t *testing.T, r *rig) {
			left, leave := leaving(r, 4)
			defer leave()
			gathered(t, r.c.CyclicBarrier("b", 4), 3)
			require.NoError(t, r.c.Close(within(t)))
			a := <-left
			require.ErrorIs(t, a.err, errs.ErrClosed)
			require.ErrorIs(t, a.err, broken)
		}},
		"its action fails": {3, func(t *testing.T, r *rig) {
			err := acts(r, func(context.Context) error { return why })
			require.ErrorIs(t, err, why)
			require.ErrorIs(t, err, broken)
		}},
		"its action panics": {3, func(t *testing.T, r *rig) {
			require.PanicsWithValue(t, "no ink", func() { acts(r, func(context.Context) error { panic("no ink") }) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, patient, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
				b := rigs[0].c.CyclicBarrier("b", x.parties)
				done := arriveAt(ctx, b, 2)
				gathered(t, b, 2)
				x.breaks(t, rigs[1])
				for range 2 {
					a := <-done
					require.ErrorIs(t, a.err, broken)
					for _, of := range []error{context.Canceled, errs.ErrClosed, why} {
						require.NotErrorIs(t, a.err, of, "that is another's")
					}
					require.ErrorContains(t, a.err, `"b" in generation 1`)
					require.Equal(t, rsemaphore.Arrival{Generation: 1}, a.Arrival)
				}
				again := arriveAt(ctx, b, x.parties)
				for range x.parties {
					a := <-again
					require.NoError(t, a.err)
					require.EqualValues(t, 2, a.Generation)
				}
			})
		})
	}
	t.Run("it leaves during the action", func(t *testing.T) {
		bubble(t, 1, patient, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
			left, leave := leaving(rigs[0], 3)
			other := arriveAt(ctx, rigs[0].c.CyclicBarrier("b", 3), 1)
			gathered(t, rigs[0].c.CyclicBarrier("b", 3), 2)
			require.ErrorIs(t, acts(rigs[0], func(context.Context) error {
				leave()
				require.ErrorIs(t, (<-left).err, broken)
				return nil
			}), broken)
			require.ErrorIs(t, (<-other).err, broken)
		})
	})
}

func TestBarrier_Action_RunsBeforeTheOthersGoOn(t *testing.T) {
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
			st := redistest.NoError(b.Inspect(within(t)))(t)
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

func TestBarrier_NoPlaceForAnArrival_IsNotAcquired(t *testing.T) {
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

func TestBarrier_ActionEndsWithoutError_TripsThoughCtxEnded(t *testing.T) {
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

func TestBarrier_BrokenDuringTheAction_EndsItsContext(t *testing.T) {
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

func TestBarrier_GoneDuringTheAction_EndsItsContext(t *testing.T) {
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

func TestBarrier_LongWait_RenewsItsParties(t *testing.T) {
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

func TestBarrier_PartyCutOff_GivesUpByItsOwnClock(t *testing.T) {
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

func TestBarrier_Flushed_IsBrokenForItsWaiters(t *testing.T) {
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

// An arrival whose reply is lost may be the one that fills its generation for another to trip: the repeated request
// must find the old generation, not join the new one.
func TestArrival_Repeated_IsNotOfTheNextGeneration(t *testing.T) {
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
		a := redistest.NoError(db.Await(within(t)))(t)
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

func TestArrival_GivenUp_IsTakenBack(t *testing.T) {
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
func TestArrival_PartyGone_DoesNotCount(t *testing.T) {
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
	s := redistest.NoError(db.Inspect(within(t)))(t)
	require.Zero(t, s.Waiting)
	next := arriveAt(within(t), db, 2)
	for range 2 {
		require.NoError(t, (<-next).err)
	}
}

// Of a client's very first request, too: nobody waits for its party any more, and whoever gathers then would have it
// among them.
func TestArrival_FirstOfAClientAndLate_IsRefused(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	direct := newRig(t, srv, patient)
	direct.load(t, "barrier*")
	late := &belated{forgetful: newForgetful(t, srv, func() bool { return false })}
	r := newRigOn(t, srv, late, rsemaphore.Options{CallTimeout: 500 * time.Millisecond})
	require.NoError(t, errOf(r.c.CyclicBarrier("b", 1).Await(within(t))))
	redistest.Eventually(t, 20*time.Second, "what may have arrived is taken back", func() bool { return r.c.Owed() == 0 })
	require.NoError(t, late.Client.Do(within(t), *late.kept).Error())
	s := redistest.NoError(direct.c.CyclicBarrier("b", 1).Inspect(within(t)))(t)
	require.Zero(t, s.Waiting)
	direct.requireClean(t, "{b}:barrier")
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

func TestBarrier_PartyKilled_BreaksAfterItsLease(t *testing.T) {
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

func TestBarrier_LastKilledInItsAction_Breaks(t *testing.T) {
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

func TestBarrier_LeavingUnconfirmed_IsUnknownOutcome(t *testing.T) {
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

func TestBarrier_PartyStopped_LearnsThatItBroke(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newRig(t, srv, patient)
	b := r.c.CyclicBarrier("b", 3)
	stopped := redistest.Spawn(t, "party", srv, "3", "1")
	gathered(t, b, 1)
	redistest.Eventually(t, 20*time.Second, "it knows that it has arrived", func() bool {
		return !strings.Contains(r.contents(t, "{b}:barrier"), "?")
	})
	stopped.Signal(t, redistest.SigStop)
	done := arriveAt(within(t), b, 1)
	require.ErrorIs(t, (<-done).err, rsemaphore.ErrBrokenBarrier)
	stopped.Signal(t, redistest.SigCont)
	require.Contains(t, stopped.Line(t), "barrier broken")
}

func TestBarrier_Overwritten_IsLostAndOfTheWrongType(t *testing.T) {
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
