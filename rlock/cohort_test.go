package rlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// owners are those that the server knows of a lock.
func (r *rig) owners(t testing.TB, name string) (all []rlock.Owner) {
	t.Helper()
	for owner := range r.hash(t, name) {
		all = append(all, rlock.Owner(owner))
	}
	return all
}

// next has a caller of the same process wait for the lock, and returns its hold once it has it.
func next(t testing.TB, l *rlock.Lock, ctx context.Context) <-chan *rlock.Hold {
	t.Helper()
	had := make(chan *rlock.Hold, 1)
	go func() {
		h, err := l.Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		had <- h
	}()
	return had
}

// waits returns when so many calls of the process wait for the name.
func (r *rig) waits(t testing.TB, name string, n int) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "they wait", func() bool { return r.locks.Waiting(name) == n })
}

func TestTurns_CallersOfOneProcess_NeedNoCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	l := r.locks.Reentrant("l")
	lock(t, l, within(t)).Unlock(within(t))
	h := lock(t, l, within(t))
	const callers = 100
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if err := l.Do(within(t), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	r.waits(t, "l", callers)
	before := redistest.CommandCalls(t, r.redis)["evalsha"]
	require.NoError(t, h.Unlock(within(t)))
	wg.Wait()
	// One tenure is over after 20 ms; a machine that is busy gets fewer turns into it.
	require.Less(t, redistest.CommandCalls(t, r.redis)["evalsha"]-before, callers/2)
	require.Empty(t, r.hash(t, "l"))
	require.Greater(t, r.locks.Stats().HandOvers, int64(callers/2))
}

// What a goroutine kept of a turn that is over lets it in nowhere, though the process's owner has the lock.
func TestTurn_ContextOfAnEarlierTurn_ReentersNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		r := rigs[0]
		l := r.locks.Reentrant("l")
		ctx := context.Background()
		a := lock(t, l, ctx)
		kept := context.WithoutCancel(a.Context(ctx))
		had := next(t, l, ctx)
		synctest.Wait()
		owner := r.owners(t, "l")
		require.NoError(t, a.Unlock(ctx))
		b := <-had
		require.Equal(t, owner, r.owners(t, "l"), "one owner for both")
		_, err := l.Lock(kept)
		require.ErrorIs(t, err, errs.ErrLost)
		require.NoError(t, a.Unlock(ctx), "the first one's result")
		require.NoError(t, b.Err())
		again := lock(t, l, b.Context(ctx))
		require.NoError(t, again.Unlock(ctx))
		require.Equal(t, owner, r.owners(t, "l"))
		require.NotEqual(t, owner[0], a.Owner(), "it joins nothing")
		require.Equal(t, a.Owner(), a.Owner())
		_, err = l.Lock(l.WithOwner(ctx, a.Owner()))
		require.ErrorIs(t, err, errs.ErrLost)
		require.Equal(t, owner[0], b.Owner())
		require.NoError(t, b.Unlock(ctx))
		require.Empty(t, r.owners(t, "l"))
	})
}

// late is a context of which a caller is told only after a while that it goes on, once it is armed: its goroutine got
// no processor.
type late struct {
	context.Context
	by    time.Duration
	armed atomic.Bool
}

func (x *late) Err() error {
	if x.armed.CompareAndSwap(true, false) {
		time.Sleep(x.by)
	}
	return x.Context.Err()
}

func TestTurn_TakenLate_IsCheckedAgainstTheClock(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	for name, c := range map[string]struct {
		by   time.Duration
		same bool
	}{
		"in time":                          {by: time.Millisecond, same: true},
		"after the time of the tenure":     {by: 25 * time.Millisecond},
		"after the lease, which is others": {by: 2 * lease},
	} {
		t.Run(name, func(t *testing.T) {
			type callOf struct{}
			var waits atomic.Int32 // that the call of x was said to wait
			observer := func(ctx context.Context, e redlatch.Event) context.Context {
				if e.Kind == redlatch.EventWaiting && ctx.Value(callOf{}) != nil {
					waits.Add(1)
				}
				return ctx
			}
			bubble(t, 2, rlock.Options{WatchdogTimeout: lease, Observer: observer},
				func(t *testing.T, s *redistest.Server, rigs []*rig) {
					r, other := rigs[0], rigs[1]
					l := r.locks.Reentrant("l")
					ctx := context.Background()
					a := lock(t, l, ctx)
					owner := r.owners(t, "l")
					x := &late{Context: context.WithValue(ctx, callOf{}, true), by: c.by}
					had := next(t, l, x)
					synctest.Wait()
					var inside, most atomic.Int32
					work := func(h *rlock.Hold) {
						most.Store(max(most.Load(), inside.Add(1)))
						time.Sleep(10 * time.Millisecond)
						inside.Add(-1)
						require.NoError(t, h.Unlock(ctx))
					}
					x.armed.Store(true)
					if c.by > lease { // nothing renews it: the machine stands still for all but another process
						s.Embedded.Del("l")
						go func() { work(lock(t, other.locks.Reentrant("l"), ctx)) }()
					}
					require.NoError(t, a.Unlock(ctx))
					b := <-had
					if c.same {
						require.Equal(t, owner, r.owners(t, "l"))
					} else {
						require.NotEqual(t, owner, r.owners(t, "l"), "it has asked")
					}
					work(b)
					require.EqualValues(t, 1, most.Load())
					require.EqualValues(t, 1, waits.Load(), "one acquisition waits once, though it was in line twice")
				})
		})
	}
}

// A context that ended between the gift of a turn and its taking lets nobody in, and the turn is the next one's.
func TestTurn_CtxOfItsCallerEnded_GoesToTheNext(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		r := rigs[0]
		l := r.locks.Reentrant("l")
		ctx := context.Background()
		a := lock(t, l, ctx)
		leaving, cancel := context.WithCancel(ctx)
		x := &late{Context: leaving, by: time.Millisecond}
		failed := make(chan error, 1)
		go func() {
			_, err := l.Lock(x)
			failed <- err
		}()
		synctest.Wait()
		had := next(t, l, ctx)
		synctest.Wait()
		x.armed.Store(true)
		require.NoError(t, a.Unlock(ctx))
		synctest.Wait() // it has its turn, and is about to take it
		cancel()
		err := <-failed
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.ErrorIs(t, err, context.Canceled)
		began := time.Now()
		b := <-had
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.NoError(t, b.Unlock(ctx))
		synctest.Wait()
		require.Empty(t, r.owners(t, "l"))
	})
}

// What is known of an owner elsewhere is not the next caller's, nor is a label or a lease. The lock stays in the
// process all the same.
func TestTenure_OwnerKnownElsewhere_HasOneTurn(t *testing.T) {
	t.Parallel()
	plainly := func(l *rlock.Lock) *rlock.Lock { return l }
	labelled := func(l *rlock.Lock) *rlock.Lock { return l.WithLabel("job") }
	leased := func(l *rlock.Lock) *rlock.Lock { return l.WithLease(time.Minute) }
	for name, c := range map[string]struct {
		o     rlock.Options
		of    func(c *rlock.Client) *rlock.Lock
		a, b  func(l *rlock.Lock) *rlock.Lock // the first caller's, and the next one's
		do    func(t *testing.T, h *rlock.Hold)
		again bool // the next caller has the lock as the same owner
	}{
		"nothing is known": {again: true},
		"NonReentrant":     {of: func(c *rlock.Client) *rlock.Lock { return c.NonReentrant("l") }, again: true},
		"Owner":            {do: func(_ *testing.T, h *rlock.Hold) { h.Owner() }},
		"Extend": {do: func(t *testing.T, h *rlock.Hold) {
			require.NoError(t, h.Extend(context.Background(), time.Minute))
		}},
		"a label":              {a: func(l *rlock.Lock) *rlock.Lock { return l.WithLabel("job") }},
		"the next one's":       {b: func(l *rlock.Lock) *rlock.Lock { return l.WithLabel("job") }},
		"a longer lease":       {a: func(l *rlock.Lock) *rlock.Lock { return l.WithLease(time.Minute) }},
		"a short lease":        {b: func(l *rlock.Lock) *rlock.Lock { return l.WithLease(time.Second) }},
		"the same label":       {a: labelled, b: labelled, again: true},
		"one lease for both":   {a: leased, b: leased, again: true},
		"the next one's lease": {b: leased, again: true},
		"MaxHold":              {o: rlock.Options{MaxHold: time.Minute}, again: true},
		"Fenced":               {of: func(c *rlock.Client) *rlock.Lock { return c.Fenced("l") }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, c.o, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
				r, ctx := rigs[0], context.Background()
				of := c.of
				if of == nil {
					of = func(c *rlock.Client) *rlock.Lock { return c.Reentrant("l") }
				}
				a, b := c.a, c.b
				if a == nil {
					a = plainly
				}
				if b == nil {
					b = plainly
				}
				h := lock(t, a(of(r.locks)), ctx)
				had := next(t, b(of(r.locks)), ctx)
				synctest.Wait()
				if c.do != nil {
					c.do(t, h)
				}
				owner := r.owners(t, "l")
				require.NoError(t, h.Unlock(ctx))
				after := <-had
				if c.again {
					require.Equal(t, owner, r.owners(t, "l"))
				} else {
					require.NotEqual(t, owner, r.owners(t, "l"))
				}
				require.NoError(t, after.Unlock(ctx))
				synctest.Wait()
				require.Empty(t, r.owners(t, "l"))
			})
		})
	}
}

// A process whose callers come forever lets another one have the lock.
func TestTenure_CallersKeepComing_Ends(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, stop := context.WithCancel(context.Background())
		var turns atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					rigs[0].locks.Reentrant("l").Do(ctx, func(context.Context) error {
						turns.Add(1)
						time.Sleep(100 * time.Microsecond)
						return nil
					})
				}
			})
		}
		time.Sleep(time.Second)
		for range 10 {
			before, began := turns.Load(), time.Now()
			h := lock(t, rigs[1].locks.Reentrant("l"), context.Background())
			// the tenure that runs, which met nobody, and one of as many turns as there are callers
			require.LessOrEqual(t, time.Since(began), 50*time.Millisecond)
			require.LessOrEqual(t, turns.Load()-before, int64(400))
			require.NoError(t, h.Unlock(context.Background()))
		}
		stop()
		wg.Wait()
	})
}

// Whatever ends a tenure ends the turn that runs; those that wait have another.
func TestTenure_Lost_EndsOnlyTheRunningTurn(t *testing.T) {
	t.Parallel()
	const lease = 300 * time.Millisecond
	for name, end := range map[string]func(t *testing.T, r *rig, h *rlock.Hold){
		"DEL": func(_ *testing.T, r *rig, _ *rlock.Hold) { r.server.Embedded.Del("l") },
		"ForceUnlock": func(t *testing.T, r *rig, h *rlock.Hold) {
			ok, err := r.locks.Reentrant("l").ForceUnlock(context.Background())
			require.NoError(t, err)
			require.True(t, ok)
			require.ErrorIs(t, h.Err(), errs.ErrLost, "at once")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, rlock.Options{WatchdogTimeout: lease}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
				r, ctx := rigs[0], context.Background()
				l := r.locks.Reentrant("l")
				a := lock(t, l, ctx)
				first := next(t, l, ctx)
				synctest.Wait()
				second := next(t, l, ctx)
				synctest.Wait()
				owner := r.owners(t, "l")
				end(t, r, a)
				b := <-first
				if b == nil {
					t.FailNow()
				}
				require.ErrorIs(t, a.Err(), errs.ErrLost)
				require.ErrorIs(t, a.Unlock(ctx), errs.ErrLost)
				require.NoError(t, b.Err())
				require.NotEqual(t, owner, r.owners(t, "l"))
				require.NoError(t, b.Unlock(ctx))
				require.NoError(t, (<-second).Unlock(ctx))
				require.Empty(t, r.owners(t, "l"))
			})
		})
	}
}

// A hold that the program has dropped is renewed no more, and callers of its process do not wait for its end in vain.
func TestTenure_HoldDropped_CallersAreServedAfterItsLease(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{WatchdogTimeout: 300 * time.Millisecond})
	l := r.locks.Reentrant("l")
	func() { lock(t, l, within(t)) }()
	had := next(t, l, within(t))
	r.waits(t, "l", 1)
	dropped(t, "it is served", func() bool {
		select {
		case h := <-had:
			if err := h.Unlock(within(t)); err != nil {
				require.ErrorIs(t, err, errs.ErrLost) // a lease of 300 ms that a busy machine could not renew
			}
			return true
		default:
			return false
		}
	})
}

// The first caller of a process leaves while its first request is in flight: the request goes on for the next caller.
func TestTenure_FirstCallerLeavesDuringItsRequest_NextHasTheLock(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		r := rigs[0]
		l := r.locks.Reentrant("l")
		require.NoError(t, lock(t, l, within(t)).Unlock(within(t)))
		r.server.Embedded.Server().SetPreHook(func(_ *miniserver.Peer, command string, _ ...string) bool {
			if strings.HasPrefix(command, "EVAL") {
				time.Sleep(20 * time.Millisecond)
			}
			return false
		})
		began := time.Now()
		impatient, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		failed, acquired := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := l.Lock(impatient)
			failed <- err
		}()
		time.Sleep(5 * time.Millisecond)
		go func() { acquired <- l.Do(context.Background(), func(context.Context) error { return nil }) }()
		require.ErrorIs(t, <-failed, context.DeadlineExceeded)
		require.Equal(t, 10*time.Millisecond, time.Since(began), "it does not wait for the reply")
		require.NoError(t, <-acquired)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		time.Sleep(time.Second)
		require.Empty(t, keys(t, r.redis))
	})
}

// Callers that leave cost the server nothing while others of their process wait, and the last one takes the request
// back.
func TestTenure_CallersLeave_LastWithdrawsTheRequest(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		h := lock(t, rigs[1].locks.Reentrant("l"), ctx)
		r := rigs[0]
		l := r.locks.Reentrant("l")
		queued := func() int {
			state, err := l.Inspect(ctx)
			require.NoError(t, err)
			return len(state.Waiters)
		}
		patient, leave := context.WithCancel(ctx)
		failed := make(chan error, 102)
		wait := func(ctx context.Context) {
			_, err := l.Lock(ctx)
			failed <- err
		}
		first, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		go wait(first) // who asks, until it leaves
		time.Sleep(time.Millisecond)
		go wait(patient)
		time.Sleep(20 * time.Millisecond)
		require.Error(t, <-failed)
		require.Equal(t, 1, queued())
		var asked atomic.Int64
		r.server.Embedded.Server().SetPreHook(func(*miniserver.Peer, string, ...string) bool {
			asked.Add(1)
			return false
		})
		for i := range 100 {
			c, cancel := context.WithTimeout(ctx, time.Duration(i%5)*time.Millisecond)
			defer cancel()
			go wait(c)
		}
		time.Sleep(50 * time.Millisecond)
		require.Len(t, failed, 100)
		require.Less(t, asked.Load(), int64(50), "the server is not told of them")
		r.server.Embedded.Server().SetPreHook(nil)
		require.Equal(t, 1, queued())
		leave()
		synctest.Wait()
		time.Sleep(50 * time.Millisecond)
		require.Zero(t, queued())
		require.NoError(t, h.Unlock(ctx))
		require.Empty(t, r.owners(t, "l"))
	})
}

// The place of the process is not a caller's: it stays when the caller with whose label and lease it began leaves.
func TestTenure_CallersOnOtherTermsLeave_KeepsItsPlace(t *testing.T) {
	t.Parallel()
	bubble(t, 2, briefly, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, r := context.Background(), rigs[0]
		h := lock(t, rigs[1].locks.Reentrant("l"), ctx)
		var leave []context.CancelFunc
		var all []<-chan result
		for i, d := range []time.Duration{0, 0, time.Minute, 2 * time.Second} {
			each, cancel := context.WithCancel(ctx)
			defer cancel()
			l := r.locks.Reentrant("l").WithLease(d)
			if i > 0 {
				l = l.WithLabel(fmt.Sprint(i))
			}
			leave, all = append(leave, cancel), append(all, acquiringUnder(each, l))
			synctest.Wait()
		}
		place := queued(t, r.redis, "l")
		require.Len(t, place, 1)
		for i := range 3 {
			leave[i]()
			require.ErrorIs(t, (<-all[i]).err, errs.ErrNotAcquired)
			time.Sleep(3 * time.Second)
			require.Equal(t, place, queued(t, r.redis, "l"))
		}
		require.NoError(t, h.Unlock(ctx))
		got := <-all[3]
		require.NoError(t, got.err)
		require.Equal(t, "3", got.hold.Owner().Label())
		require.LessOrEqual(t, r.pttl(t, "l"), 2*time.Second)
		got.unlock(t)
		synctest.Wait()
		require.Empty(t, r.owners(t, "l"))
	})
}

// Where others are queued the last of the callers that waited ends the tenure, also if others have come since.
func TestTenure_LastTurnOfAQueue_IsTheLast(t *testing.T) {
	t.Parallel()
	for name, label := range map[string]string{"without a call": "", "by transfer": "b"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
				ctx := context.Background()
				l, there := rigs[0].locks.Reentrant("l"), rigs[1].locks.Reentrant("l")
				h := lock(t, there, ctx)
				a := acquiringUnder(ctx, l)
				time.Sleep(10 * time.Millisecond)
				other := acquiringUnder(ctx, there.WithLabel("there"))
				time.Sleep(10 * time.Millisecond)
				require.NoError(t, h.Unlock(ctx))
				first := <-a
				require.NoError(t, first.err)
				b := acquiringUnder(ctx, l.WithLabel(label))
				synctest.Wait()
				first.unlock(t)
				next := <-other
				require.NoError(t, next.err)
				require.Len(t, b, 0)
				next.unlock(t)
				(<-b).unlock(t)
			})
		})
	}
}

// Writers of a process take turns, too, but not while somebody reads under the write hold of an earlier one.
func TestTurn_ReadUnderTheLastWriteLasts_NextWriterWaits(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		r, ctx := rigs[0], context.Background()
		l := r.locks.ReadWrite("l")
		a := lock(t, l.Write(), ctx)
		kept := context.WithoutCancel(a.Context(ctx))
		had := next(t, l.Write(), ctx)
		synctest.Wait()
		owner := r.hash(t, "l")
		require.NoError(t, a.Unlock(ctx))
		b := <-had
		require.Equal(t, owner, r.hash(t, "l"), "one owner for both")
		_, err := l.Read().Lock(kept)
		require.ErrorIs(t, err, errs.ErrLost, "it is another one's turn")

		had = next(t, l.Write(), ctx)
		synctest.Wait()
		read := lock(t, l.Read(), b.Context(ctx))
		again := lock(t, l.Write(), read.Context(ctx))
		require.NoError(t, again.Unlock(ctx))
		require.NoError(t, b.Unlock(ctx))
		time.Sleep(time.Second)
		require.Empty(t, had)
		require.NoError(t, read.Unlock(ctx))
		require.NoError(t, (<-had).Unlock(ctx))
		require.Empty(t, r.hash(t, "l"))
	})
}
