package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// granted is an acquisition under way.
type granted struct {
	hold *rlock.Hold
	err  error
}

func acquiring(t testing.TB, l *rlock.Lock) <-chan granted {
	done := make(chan granted, 1)
	go func() {
		h, err := l.Lock(within(t))
		done <- granted{h, err}
	}()
	return done
}

func TestReleasingAReadDoesNotGoThroughAllReaders(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{WatchdogTimeout: lease, PollCap: 100 * time.Millisecond})
	rw := r.locks.ReadWrite("l")
	c := s.Client(t)
	h := lock(t, rw.Read(), within(t))
	const readers = 500
	of, ends := c.B().Hset().Key("l").FieldValue(), c.B().Zadd().Key("redlatch_rw:{l}").ScoreMember()
	end := time.Now().Add(1200 * time.Millisecond).UnixMilli()
	for i := range readers { // who die soon
		own := fmt.Sprintf("0e5d0d5e-1111-8000-8000-%012d:1", i)
		of, ends = of.FieldValue(own, "1"), ends.ScoreMember(float64(end), own)
	}
	require.NoError(t, c.Do(within(t), of.Build()).Error())
	require.NoError(t, c.Do(within(t), ends.Build()).Error())
	before := redistest.CommandCalls(t, c)
	require.NoError(t, h.Unlock(within(t))) // whose end was the last
	after := redistest.CommandCalls(t, c)
	require.Equal(t, before["hgetall"], after["hgetall"])
	require.Less(t, after["zscore"]-before["zscore"], readers/10)
	require.Greater(t, r.pttl(t, "l"), lease/2, "the end that is late")
	w := lock(t, rw.Write(), within(t)) // which keeps nobody out
	require.NoError(t, w.Unlock(within(t)))
	require.Empty(t, keys(t, c))
}

func TestReadersShareAndAWriterExcludes(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
		ra, rb := a.locks.ReadWrite("l"), b.locks.ReadWrite("l")
		h1, h2 := lock(t, ra.Read(), within(t)), lock(t, rb.Read(), within(t))
		for _, l := range []*rlock.Lock{ra.Write(), rb.Write()} {
			_, err := l.TryLock(within(t), 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			var e *rlock.NotAcquiredError
			require.ErrorAs(t, err, &e)
			require.Greater(t, e.Lease, 20*time.Second)
		}
		require.NoError(t, h1.Unlock(within(t)))
		_, err := ra.Write().TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NoError(t, h2.Unlock(within(t)))
		w := lock(t, ra.Write(), within(t))
		for _, l := range []*rlock.Lock{rb.Write(), rb.Read(), ra.Read()} {
			_, err := l.TryLock(within(t), 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
		}
		require.NoError(t, w.Unlock(within(t)))
		require.Empty(t, keys(t, a.redis))
	})
}

func TestBothSidesAreReentered(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		rw := r.locks.ReadWrite("l")
		for _, l := range []*rlock.Lock{rw.Read(), rw.Write()} {
			h := lock(t, l, within(t))
			again := lock(t, l, h.Context(within(t)))
			require.Equal(t, h.Owner(), again.Owner())
			require.Equal(t, 1, timesHeld(t, l, h), "an owner is one on the server")
			require.NoError(t, h.Unlock(within(t)))
			locked, err := l.IsLocked(within(t))
			require.NoError(t, err)
			require.True(t, locked)
			require.NoError(t, again.Unlock(within(t)))
			require.Empty(t, keys(t, r.redis))
		}
	})
}

func TestAWriterReadsAndItsReleaseWakesWaitingReaders(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{PollCap: 25 * time.Second})
	rw := a.locks.ReadWrite("l")
	w := lock(t, rw.Write(), within(t))
	r := lock(t, rw.Read(), w.Context(within(t)))
	require.NotEqual(t, w.Owner(), r.Owner(), "an id is one acquisition's")
	rw2 := b.locks.ReadWrite("l")
	var readers []<-chan granted
	for range 20 {
		readers = append(readers, acquiring(t, rw2.Read()))
	}
	writer := acquiring(t, rw2.Write())
	redistest.Eventually(t, 10*time.Second, "everybody waits", func() bool {
		return a.inLine(t, "l") == 2 && b.locks.Waiting("l") == 21 // the readers have one place
	})
	began := time.Now()
	require.NoError(t, w.Unlock(within(t)))
	for _, c := range readers {
		g := <-c
		require.NoError(t, g.err)
		require.NoError(t, g.hold.Unlock(within(t)))
	}
	require.Less(t, time.Since(began), 10*time.Second, "all of them by the message, not by the poll")
	require.NoError(t, r.Err(), "the read hold outlives the write hold")
	select {
	case <-writer:
		t.Fatal("a writer beside a reader")
	default:
	}
	require.NoError(t, r.Unlock(within(t)))
	g := <-writer
	require.NoError(t, g.err)
	require.NoError(t, g.hold.Unlock(within(t)))
}

func TestAReaderThatAsksToWriteIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	rw := r.locks.ReadWrite("l")
	read := lock(t, rw.Read(), within(t))
	_, err := rw.Write().Lock(read.Context(within(t)))
	require.ErrorIs(t, err, rlock.ErrReentry)
	require.NotErrorIs(t, err, errs.ErrNotAcquired)
	require.NoError(t, read.Err(), "nothing changed")
	require.NoError(t, read.Unlock(within(t)))

	w := lock(t, rw.Write(), within(t))
	read = lock(t, rw.Read(), w.Context(within(t)))
	in := read.Context(within(t)) // of a parent that outlives the write hold
	again := lock(t, rw.Write(), in)
	require.Equal(t, w.Owner(), again.Owner(), "the writer it reads under")
	require.NoError(t, again.Unlock(within(t)))
	require.NoError(t, w.Unlock(within(t)))
	_, err = rw.Write().Lock(in)
	require.ErrorIs(t, err, rlock.ErrReentry, "it is a reader now")
	_, err = rw.Read().Lock(w.Context(within(t)))
	require.ErrorIs(t, err, errs.ErrLost, "the write hold is over")
	second := lock(t, rw.Read(), in)
	require.Equal(t, read.Owner(), second.Owner())
	require.NoError(t, second.Unlock(within(t)))
	require.NoError(t, read.Unlock(within(t)))
	require.Empty(t, keys(t, r.redis))
}

func TestAWriteHoldIsReleasedUnderAContextOfItsOwnRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	rw := r.locks.ReadWrite("l")
	w := lock(t, rw.Write(), within(t))
	read := lock(t, rw.Read(), w.Context(within(t)))
	require.NoError(t, w.Unlock(read.Context(w.Context(within(t)))))
	require.NoError(t, read.Unlock(read.Context(within(t))))
	require.Empty(t, keys(t, r.redis))
}

func TestAReadWriteLocksContextIsNotOneOfAnotherKind(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	rw := r.locks.ReadWrite("l")
	for _, l := range []*rlock.Lock{rw.Read(), rw.Write()} {
		h := lock(t, l, within(t))
		_, err := r.locks.Reentrant("l").TryLock(h.Context(within(t)), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		require.NoError(t, h.Err())
		require.NoError(t, h.Unlock(within(t)))
	}
	h := lock(t, r.locks.Reentrant("l"), within(t))
	for _, l := range []*rlock.Lock{rw.Read(), rw.Write()} {
		_, err := l.TryLock(h.Context(within(t)), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
	}
	require.NoError(t, h.Unlock(within(t)))
}

func TestOneLossDoesNotHideAnother(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], rlock.Options{WatchdogTimeout: 3 * time.Second})
		rw := r.locks.ReadWrite("l")
		w := lock(t, rw.Write().WithLease(300*time.Millisecond), within(t))
		read := lock(t, rw.Read(), w.Context(within(t)))
		<-w.Done()
		require.ErrorIs(t, w.Err(), errs.ErrLost)
		require.NoError(t, read.Err())
		require.NoError(t, read.Extend(within(t), 5*time.Second))
		other := lock(t, rw.Read(), within(t)) // the writer's own end has passed, though its read keeps the key
		require.ErrorIs(t, w.Unlock(within(t)), errs.ErrLost)
		require.NoError(t, other.Unlock(within(t)))

		short := lock(t, rw.Read().WithLease(300*time.Millisecond), read.Context(within(t)))
		alone := lock(t, rw.Read().WithLease(300*time.Millisecond), within(t))
		<-alone.Done()
		require.ErrorIs(t, alone.Unlock(within(t)), errs.ErrLost)
		require.NoError(t, short.Err(), "a re-entry never shortens")
		require.NoError(t, short.Unlock(within(t)))
		require.NoError(t, read.Unlock(within(t)))
		redistest.Eventually(t, 10*time.Second, "nothing is left", func() bool { return len(keys(t, r.redis)) == 0 })
	})
}

func TestADeadReaderNeitherEndsNorProlongsOthers(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		dead := newRig(t, p.Server(), rlock.Options{WatchdogTimeout: time.Second})
		alive := newRig(t, s, rlock.Options{WatchdogTimeout: 20 * time.Second, PollCap: 100 * time.Millisecond})
		rw := alive.locks.ReadWrite("l")
		gone := lock(t, dead.locks.ReadWrite("l").Read(), within(t))
		stays := lock(t, rw.Read(), within(t))
		p.BlackHole(redistest.Up)
		<-gone.Done()
		_, err := rw.Write().TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired, "the living reader's hold stands")
		require.NoError(t, stays.Err())
		require.Greater(t, alive.pttl(t, "l"), 10*time.Second)
		began := time.Now()
		writer := acquiring(t, rw.Write())
		require.NoError(t, stays.Unlock(within(t)))
		g := <-writer
		require.NoError(t, g.err)
		require.Less(t, time.Since(began), 10*time.Second, "the dead reader's own lease was a second, whatever the other's")
		p.Heal()
		require.NoError(t, g.hold.Unlock(within(t)))
	})
}

func TestAReaderThatDiesAloneKeepsAWriterOutForItsLease(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		p := redistest.NewProxy(t, s)
		dead := newRig(t, p.Server(), rlock.Options{WatchdogTimeout: time.Second})
		alive := newRig(t, s, rlock.Options{})
		began := time.Now()
		gone := lock(t, dead.locks.ReadWrite("l").Read(), within(t))
		p.BlackHole(redistest.Up)
		w := lock(t, alive.locks.ReadWrite("l").Write(), within(t))
		require.GreaterOrEqual(t, time.Since(began), time.Second-100*time.Millisecond)
		require.ErrorIs(t, gone.Err(), errs.ErrLost)
		require.NoError(t, w.Unlock(within(t)))
		p.Heal()
	})
}

func TestAHundredReadersAreRenewedEachOnItsOwn(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		r := newRig(t, s, rlock.Options{WatchdogTimeout: 3 * time.Second})
		rw := r.locks.ReadWrite("l")
		short := lock(t, rw.Read().WithLease(3*time.Second), within(t))
		holds := make([]*rlock.Hold, 100)
		for i := range holds {
			holds[i] = lock(t, rw.Read().WithLabel(fmt.Sprint(i)), within(t)) // a label is of one hold, which is not shared
		}
		first := holds[99].Until()
		calls := redistest.CommandCalls(t, r.redis)["evalsha"]
		redistest.Eventually(t, 60*time.Second, "every one is renewed several times", func() bool {
			for _, h := range holds {
				if h.Until().Sub(first) < 4*time.Second {
					return false
				}
			}
			return true
		})
		calls = redistest.CommandCalls(t, r.redis)["evalsha"] - calls
		require.Less(t, calls, 150, "many in one call")
		for _, h := range holds {
			require.NoError(t, h.Err())
		}
		require.ErrorIs(t, short.Err(), errs.ErrLost, "renewals of others are none of it")
		require.ErrorIs(t, short.Unlock(within(t)), errs.ErrLost)
		st, err := r.locks.Reentrant("l").Inspect(within(t))
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(st.Holders), 100)
		for _, h := range holds {
			require.NoError(t, h.Unlock(within(t)))
		}
		redistest.Eventually(t, 10*time.Second, "nothing is left", func() bool { return len(keys(t, r.redis)) == 0 })
	})
}

func TestReadersAndWritersAreToldOfLossAtOnceWhereKeysAreTracked(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, r *rig, rw *rlock.ReadWriteLock){
		"FLUSHALL": func(t *testing.T, r *rig, _ *rlock.ReadWriteLock) {
			require.NoError(t, r.redis.Do(within(t), r.redis.B().Flushall().Build()).Error())
		},
		"ForceUnlock": func(t *testing.T, _ *rig, rw *rlock.ReadWriteLock) {
			for _, l := range []*rlock.Lock{rw.Write(), rw.Read()} {
				ok, err := l.ForceUnlock(within(t))
				require.NoError(t, err)
				require.True(t, ok)
				ok, err = l.ForceUnlock(within(t))
				require.NoError(t, err)
				require.False(t, ok, "nobody is left on this side")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Start(t), rlock.Options{})
			rw := r.locks.ReadWrite("l")
			w := lock(t, rw.Write(), within(t))
			read := lock(t, rw.Read(), w.Context(within(t)))
			tracked(t, r.redis, 3) // the lock, its ends, the timeout key of the reader
			began := time.Now()
			lose(t, r, rw)
			for _, h := range []*rlock.Hold{w, read} {
				<-h.Done()
				require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
			}
			require.Less(t, time.Since(began), beforeRenewal)
		})
	}
}

func TestReadersLearnThatTheLockWasDeletedByALookOrRenewal(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{WatchdogTimeout: time.Second})
	read := lock(t, r.locks.ReadWrite("l").Read(), within(t))
	require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key("l").Build()).Error())
	<-read.Done()
	require.ErrorIs(t, read.Unlock(within(t)), errs.ErrLost)
	w := lock(t, r.locks.ReadWrite("l").Write(), within(t))
	require.NoError(t, w.Unlock(within(t)))
}

// flood has n goroutines read l without a gap until stop; it returns how often they have.
func flood(t *testing.T, l *rlock.Lock, n int, stop <-chan struct{}) (reads *atomic.Int64, done *sync.WaitGroup) {
	reads, done = &atomic.Int64{}, &sync.WaitGroup{}
	var turns atomic.Int64
	for range n {
		done.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				h, err := l.Lock(within(t))
				if err != nil {
					t.Error(err)
					return
				}
				reads.Add(1)
				// never all at once: somebody reads at any time
				time.Sleep(time.Duration(20+turns.Add(1)%5*4) * time.Millisecond)
				if err := h.Unlock(within(t)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return reads, done
}

func TestWritersGetThroughAFloodOfReaders(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
	l := a.locks.ReadWrite("l").Write()
	stop := make(chan struct{})
	reads, done := flood(t, b.locks.ReadWrite("l").Read(), 30, stop)
	redistest.Eventually(t, 10*time.Second, "the flood", func() bool { return reads.Load() > 100 })
	for range 6 {
		before := reads.Load()
		w := lock(t, l, within(t))
		require.Less(t, reads.Load()-before, int64(120), "not after the flood, but through it")
		require.NoError(t, w.Unlock(within(t)))
		redistest.Eventually(t, 20*time.Second, "readers go on when it is through", func() bool {
			return reads.Load() > before+60
		})
	}
	close(stop)
	done.Wait()
	redistest.Eventually(t, 10*time.Second, "nothing is left", func() bool { return len(keys(t, a.redis)) == 0 })
}

func TestAWriterThatGivesUpLetsReadersIn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := newRig(t, s, rlock.Options{PollCap: 10 * time.Second}), newRig(t, s, rlock.Options{PollCap: 10 * time.Second})
	rw := a.locks.ReadWrite("l")
	r := lock(t, rw.Read(), within(t))
	ctx, cancel := context.WithCancel(within(t))
	gaveUp := make(chan error, 1)
	go func() {
		_, err := rw.Write().Lock(ctx)
		gaveUp <- err
	}()
	next := b.locks.ReadWrite("l").Read()
	redistest.Eventually(t, 10*time.Second, "the writer waits", func() bool {
		h, err := next.TryLock(within(t), 0, 0)
		if err == nil {
			require.NoError(t, h.Unlock(within(t)))
		}
		return err != nil
	})
	again := lock(t, rw.Read(), r.Context(within(t))) // a re-entry behind the writer would be a deadlock
	require.NoError(t, again.Unlock(within(t)))
	reader := acquiring(t, next)
	began := time.Now()
	cancel()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	g := <-reader
	require.NoError(t, g.err)
	require.Less(t, time.Since(began), 8*time.Second)
	require.NoError(t, g.hold.Unlock(within(t)))
	_, err := rw.Write().TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	h, err := next.TryLock(within(t), 0, 0)
	require.NoError(t, err, "one that does not wait keeps nobody out")
	require.NoError(t, h.Unlock(within(t)))
	require.NoError(t, r.Unlock(within(t)))
	redistest.Eventually(t, 10*time.Second, "nothing is left", func() bool { return len(keys(t, a.redis)) == 0 })
}

func TestQueriesOfBothSides(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		rw := r.locks.ReadWrite("l")
		check := func(l *rlock.Lock, locked bool) {
			t.Helper()
			is, err := l.IsLocked(within(t))
			require.NoError(t, err)
			require.Equal(t, locked, is)
		}
		st, err := r.locks.Reentrant("l").Inspect(within(t))
		require.NoError(t, err)
		require.Equal(t, rlock.State{Name: "l"}, st)
		check(rw.Read(), false)
		check(rw.Write(), false)
		w := lock(t, rw.Write().WithLease(100*time.Second).WithLabel("job:write"), within(t))
		in := w.Context(within(t))
		check(rw.Write(), true)
		check(rw.Write(), true)
		check(rw.Read(), false)
		read := lock(t, rw.Read().WithLease(1000*time.Second).WithLabel("write"), in)
		check(rw.Write(), true)
		check(rw.Read(), true)
		st, err = r.locks.Reentrant("l").Inspect(within(t))
		require.NoError(t, err)
		require.True(t, st.Locked)
		require.Equal(t, "write", st.Mode)
		require.Len(t, st.Holders, 2)
		require.Equal(t, rlock.Holder{Owner: w.Owner(), Count: 1, Lease: st.Holders[0].Lease, Write: true}, st.Holders[0])
		require.LessOrEqual(t, st.Holders[0].Lease, 100*time.Second)
		require.Equal(t, rlock.Holder{Owner: read.Owner(), Count: 1, Lease: st.Holders[1].Lease}, st.Holders[1])
		require.Greater(t, st.Holders[1].Lease, 900*time.Second)
		require.NoError(t, w.Unlock(within(t)))
		check(rw.Write(), false)
		check(rw.Read(), true)
		other := lock(t, rw.Read(), within(t))
		st, err = r.locks.Reentrant("l").Inspect(within(t))
		require.NoError(t, err)
		require.Equal(t, "read", st.Mode)
		require.Len(t, st.Holders, 2)
		require.NoError(t, read.Unlock(within(t)))
		check(rw.Read(), true)
		require.NoError(t, other.Unlock(within(t)))
	})
}

func TestAReaderIsReenteredOnlyInItsOwnProcess(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
	for _, side := range []func(*rlock.ReadWriteLock) *rlock.Lock{(*rlock.ReadWriteLock).Read,
		(*rlock.ReadWriteLock).Write} {
		l, m := side(a.locks.ReadWrite("l")), side(b.locks.ReadWrite("l"))
		h := lock(t, l, within(t))
		_, err := m.Lock(m.WithOwner(within(t), h.Owner()))
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		again := lock(t, l, l.WithOwner(within(t), h.Owner()))
		require.Equal(t, h.Owner(), again.Owner())
		require.NoError(t, again.Unlock(within(t)))
		require.NoError(t, h.Unlock(within(t)))
	}
}

func TestReadAndWriteCyclesCostTwoCallsEach(t *testing.T) {
	t.Parallel()
	r := newUntracked(t, redistest.Start(t))
	rw := r.locks.ReadWrite("{l}")
	for _, l := range []*rlock.Lock{rw.Read(), rw.Write()} {
		cycle := func() { require.NoError(t, l.Do(within(t), func(context.Context) error { return nil })) }
		cycle()
		for range 100 {
			calls := callsOf(t, r.redis, cycle)
			require.Equal(t, 2, calls["evalsha"])
			require.Zero(t, calls["subscribe"]+calls["eval"])
		}
	}
}

func TestEveryKeyOfAReadWriteLockHasATTL(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	rw := r.locks.ReadWrite("l")
	check := func(step string) {
		t.Helper()
		for _, k := range keys(t, r.redis) {
			require.Greater(t, r.pttl(t, k), time.Duration(0), "%s after %s", k, step)
		}
	}
	w := lock(t, rw.Write(), within(t))
	check("write")
	read := lock(t, rw.Read(), w.Context(within(t)))
	check("read under write")
	again := lock(t, rw.Read(), read.Context(within(t)))
	check("re-entry")
	require.NoError(t, again.Extend(within(t), time.Minute))
	check("extend")
	require.NoError(t, w.Unlock(within(t)))
	check("downgrade")
	_, err := rw.Write().TryLock(within(t), 50*time.Millisecond, 0)
	require.Error(t, err)
	check("a writer that gave up")
	require.NoError(t, again.Unlock(within(t)))
	check("partial unlock")
	require.NoError(t, read.Unlock(within(t)))
	redistest.Eventually(t, 10*time.Second, "nothing is left", func() bool { return len(keys(t, r.redis)) == 0 })
}

func TestAReadWriteLockWorksInAClusterAndWithBracesInItsName(t *testing.T) {
	redistest.InFull(t, "TestAClusterWorksOnEveryNode")
	t.Parallel()
	s := redistest.Cluster(t)
	a, b := newRig(t, s, rlock.Options{WatchdogTimeout: 4 * time.Second}), newRig(t, s, rlock.Options{})
	for _, name := range []string{"l", "x{tag}y", "m", "n"} {
		rw := a.locks.ReadWrite(name)
		w := lock(t, rw.Write(), within(t))
		read := lock(t, rw.Read(), w.Context(within(t)))
		reader, writer := acquiring(t, b.locks.ReadWrite(name).Read()), acquiring(t, b.locks.ReadWrite(name).Write())
		until := [2]time.Time{w.Until(), read.Until()}
		redistest.Eventually(t, 30*time.Second, "both are renewed", func() bool {
			return w.Until().After(until[0]) && read.Until().After(until[1])
		})
		require.NoError(t, w.Unlock(within(t)))
		g := <-reader
		require.NoError(t, g.err)
		require.NoError(t, read.Unlock(within(t)))
		require.NoError(t, g.hold.Unlock(within(t)))
		g = <-writer
		require.NoError(t, g.err)
		require.NoError(t, g.hold.Unlock(within(t)))
	}
}

func TestLostRepliesOfReadersAndWritersCountOnceAndLeaveNothing(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		watch := s.Client(t)
		for _, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
			p := redistest.NewProxy(t, s)
			r := newRig(t, p.Server(), rlock.Options{PollCap: 50 * time.Millisecond})
			rw := r.locks.ReadWrite(fmt.Sprint("l", fate))
			for i := range redistest.Sized(20, 20, 40) {
				l := [2]*rlock.Lock{rw.Read(), rw.Write()}[i%2]
				p.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: fate})
				h, err := l.Lock(within(t))
				require.NoError(t, err)
				again := lock(t, l, h.Context(within(t)))
				require.Equal(t, 1, timesHeld(t, l, h), "an owner is one on the server")
				require.NoError(t, again.Unlock(within(t)))
				p.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: fate})
				require.NoError(t, h.Unlock(within(t)))
			}
			redistest.Eventually(t, 20*time.Second, "nothing is left", func() bool {
				return r.locks.Owed() == 0 && len(keys(t, watch)) == 0
			})
		}
	})
}

func TestCancellingReadersAndWritersAtAnyInstantLeavesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	watch := s.Client(t)
	r := newRig(t, s, rlock.Options{PollCap: 50 * time.Millisecond})
	require.NoError(t, r.locks.Reentrant("warm").Do(within(t), func(context.Context) error { return nil }))
	const rounds, width = 3000, 40
	var won, gaveUp, both atomic.Int32
	var wg sync.WaitGroup
	for w := range width {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 11))
			// on a busy machine hardly anybody gets through in time: then they go on for a while
			some := func() bool { return won.Load() > 200 && gaveUp.Load() > 100 && both.Load() > 3 }
			for i := 0; i < rounds/width || i < 20*rounds/width && !some(); i++ {
				rw := r.locks.ReadWrite(fmt.Sprint("l", rnd.IntN(3)))
				l, under := rw.Read(), false
				if rnd.IntN(3) == 0 {
					l, under = rw.Write(), rnd.IntN(2) == 0
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(30_000))*time.Microsecond)
				h, err := l.Lock(ctx)
				if err != nil {
					gaveUp.Add(1)
					cancel()
					continue
				}
				won.Add(1)
				held := []*rlock.Hold{h}
				if under {
					if inner, err := rw.Read().Lock(h.Context(context.Background())); err == nil {
						both.Add(1)
						held = append(held, inner)
					}
				}
				for _, h := range held {
					if err := h.Unlock(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	t.Logf("%d won, %d gave up, %d read under write", won.Load(), gaveUp.Load(), both.Load())
	require.Greater(t, won.Load(), int32(200))
	require.Greater(t, gaveUp.Load(), int32(100))
	require.Greater(t, both.Load(), int32(3))
	redistest.Eventually(t, 20*time.Second, "no key", func() bool {
		return r.locks.Owed() == 0 && len(keys(t, watch)) == 0
	})
	require.Zero(t, r.locks.Lines())
	require.NoError(t, r.locks.Close(within(t)))
	require.NoError(t, r.hub.Close(context.Background()))
	redistest.Eventually(t, 20*time.Second, "no channel", func() bool {
		ch, err := watch.Do(within(t), watch.B().PubsubChannels().Build()).AsStrSlice()
		return err == nil && len(ch) == 0
	})
}

func TestAWriterThatDiesWhileItWaitsKeepsReadersOutForAWhileOnly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	const poll = 400 * time.Millisecond
	dying := newRig(t, p.Server(), rlock.Options{PollCap: poll})
	// another process each: readers of one that reads already join it
	alive, next := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{PollCap: 50 * time.Millisecond})
	rw := alive.locks.ReadWrite("l")
	r := lock(t, rw.Read(), within(t))
	ctx, cancel := context.WithCancel(within(t))
	gaveUp := make(chan error, 1)
	go func() {
		_, err := dying.locks.ReadWrite("l").Write().Lock(ctx)
		gaveUp <- err
	}()
	redistest.Eventually(t, 10*time.Second, "the writer waits", func() bool { return alive.inLine(t, "l") == 1 })
	p.BlackHole(redistest.Up)
	began := time.Now()
	_, err := next.locks.ReadWrite("l").Read().TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired, "at first")
	other := lock(t, next.locks.ReadWrite("l").Read(), within(t)) // by its own end, which the server counts
	require.Less(t, time.Since(began), 10*poll)
	require.NoError(t, other.Unlock(within(t)))
	require.NoError(t, r.Unlock(within(t)))
	cancel()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	p.Heal()
}

// inLine is how many places there are in the queue of a read-write lock.
func (r *rig) inLine(t testing.TB, name string) int {
	t.Helper()
	n, err := r.redis.Do(within(t),
		r.redis.B().Zcount().Key("redlatch_rwq:{"+name+"}").Min("1").Max("+inf").Build()).AsInt64()
	require.NoError(t, err)
	return int(n)
}

func TestBadInputOfAReadWriteLockIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	before := redistest.CommandCalls(t, r.redis)
	for _, rw := range []*rlock.ReadWriteLock{r.locks.ReadWrite(""), r.locks.ReadWrite("a}b"), r.locks.ReadWrite("a{b")} {
		for _, l := range []*rlock.Lock{rw.Read(), rw.Write()} {
			_, err := l.Lock(within(t))
			require.ErrorIs(t, err, errs.ErrInvalidName)
			_, err = l.IsLocked(within(t))
			require.ErrorIs(t, err, errs.ErrInvalidName)
			_, err = l.ForceUnlock(within(t))
			require.ErrorIs(t, err, errs.ErrInvalidName)
		}
	}
	rw := r.locks.ReadWrite("l")
	for _, l := range []*rlock.Lock{rw.Read(), rw.Write()} {
		require.Equal(t, "l", l.Name())
		_, err := l.WithLease(time.Millisecond).Lock(within(t))
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		_, err = l.TryLock(within(t), -1, 0)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
	}
	require.Equal(t, before["evalsha"]+before["eval"],
		redistest.CommandCalls(t, r.redis)["evalsha"]+redistest.CommandCalls(t, r.redis)["eval"])
}

func TestAKeyOfAnotherTypeIsATypedErrorOnBothSides(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		require.NoError(t, r.redis.Do(within(t), r.redis.B().Set().Key("l").Value("x").Build()).Error())
		rw := r.locks.ReadWrite("l")
		for _, l := range []*rlock.Lock{rw.Read(), rw.Write()} {
			_, err := l.Lock(within(t))
			require.ErrorIs(t, err, errs.ErrWrongType)
			_, err = l.IsLocked(within(t))
			require.ErrorIs(t, err, errs.ErrWrongType)
		}
		require.Equal(t, []string{"l"}, keys(t, r.redis))
	})
}

func TestWaitingOnAReadWriteLockEndsInTimeAndWhenTheClientCloses(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
		w := lock(t, a.locks.ReadWrite("l").Write(), within(t))
		rw := b.locks.ReadWrite("l")
		for _, l := range []*rlock.Lock{rw.Read(), rw.Write()} {
			began := time.Now()
			_, err := l.TryLock(within(t), 300*time.Millisecond, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
			require.Less(t, time.Since(began), 10*time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			_, err = l.Lock(ctx)
			cancel()
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		waiting := []<-chan granted{acquiring(t, rw.Read()), acquiring(t, rw.Read()), acquiring(t, rw.Write())}
		redistest.Eventually(t, 10*time.Second, "all wait", func() bool { return b.locks.Waiting("l") == 3 })
		require.NoError(t, b.locks.Close(within(t)))
		for _, c := range waiting {
			require.ErrorIs(t, (<-c).err, errs.ErrClosed)
		}
		require.NoError(t, w.Unlock(within(t)))
		redistest.Eventually(t, 10*time.Second, "nothing is left", func() bool { return len(keys(t, a.redis)) == 0 })
	})
}

func TestReadersWaitWithoutAnyMessageForNoLongerThanPollCap(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	a, b := newRig(t, s, rlock.Options{}), newRig(t, p.Server(), rlock.Options{PollCap: 100 * time.Millisecond})
	p.SwallowPushes()
	rw := a.locks.ReadWrite("l")
	for _, l := range []*rlock.Lock{b.locks.ReadWrite("l").Read(), b.locks.ReadWrite("l").Write()} {
		w := lock(t, rw.Write(), within(t))
		got := pass(t, l)
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		require.NoError(t, w.Unlock(within(t)))
		require.NoError(t, <-got)
		require.Less(t, time.Since(began), 5*time.Second, "the lease is 30 s")
	}
}
