package rlock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/rlock"
)

func TestReadRelease_ManyReaders_DoesNotReadThemAll(t *testing.T) {
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

func TestWriter_ReadsThenReleases_WakesWaitingReaders(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{PollCap: 25 * time.Second})
	rw := a.locks.ReadWrite("l")
	w := lock(t, rw.Write(), within(t))
	r := lock(t, rw.Read(), w.Context(within(t)))
	require.NotEqual(t, w.Owner(), r.Owner(), "an id is one acquisition's")
	rw2 := b.locks.ReadWrite("l")
	var readers []<-chan result
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
		(<-c).unlock(t)
	}
	require.Less(t, time.Since(began), 10*time.Second, "all of them by the message, not by the poll")
	require.NoError(t, r.Err(), "the read hold outlives the write hold")
	select {
	case <-writer:
		t.Fatal("a writer beside a reader")
	default:
	}
	require.NoError(t, r.Unlock(within(t)))
	(<-writer).unlock(t)
}

func TestReader_AsksToWrite_IsRefusedAtOnce(t *testing.T) {
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

// A client without tracking learns of the deleted key by the reply to the read.
func TestReadUnderWrite_KeyDeleted_EndsTheWriteHold(t *testing.T) {
	t.Parallel()
	r := newUntracked(t, redistest.Start(t))
	rw := r.locks.ReadWrite("l")
	w := lock(t, rw.Write(), within(t))
	require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key("l").Build()).Error())
	_, err := rw.Read().Lock(w.Context(within(t)))
	require.ErrorIs(t, err, errs.ErrLost)
	require.ErrorIs(t, w.Err(), errs.ErrLost)
	require.ErrorIs(t, w.Unlock(within(t)), errs.ErrLost)
	require.Empty(t, keys(t, r.redis))
}

func TestWriter_ContextOfItsOwnRead_CanRelease(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	rw := r.locks.ReadWrite("l")
	w := lock(t, rw.Write(), within(t))
	read := lock(t, rw.Read(), w.Context(within(t)))
	require.NoError(t, w.Unlock(read.Context(w.Context(within(t)))))
	require.NoError(t, read.Unlock(read.Context(within(t))))
	require.Empty(t, keys(t, r.redis))
}

func TestReadWrite_ItsContext_ReentersNoOtherKind(t *testing.T) {
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

func TestReadWrite_WriteHoldLost_ReadUnderItIsKept(t *testing.T) {
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

func TestReaders_OneDies_OthersKeepTheirLeases(t *testing.T) {
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

func TestReaders_HundredHolds_AreRenewedSeparately(t *testing.T) {
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

func TestReadWrite_LostWithTrackedKeys_EndsAtOnce(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, r *rig, rw *rlock.ReadWriteLock){
		"FLUSHALL": func(t *testing.T, r *rig, _ *rlock.ReadWriteLock) {
			wire.Must(t, r.redis, "FLUSHALL")
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

func TestReadWrite_Queries_CoverBothSides(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		rw := r.locks.ReadWrite("l")
		check := func(l *rlock.Lock, locked bool) {
			t.Helper()
			is, err := l.IsLocked(within(t))
			require.NoError(t, err)
			require.Equal(t, locked, is)
			wire.RequireEnds(t, r.redis)
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
		for i := range st.Holders {
			st.Holders[i].Process = "" // which is said from a second on
		}
		writer, reader := st.Holders[0], st.Holders[1]
		client, _, _ := strings.Cut(string(w.Owner()), ":")
		require.Equal(t, rlock.Holder{ID: string(w.Owner()), N: 1, Client: client[:18], Label: w.Owner().Label(),
			Lease: writer.Lease, Write: true}, writer)
		require.LessOrEqual(t, st.Holders[0].Lease, 100*time.Second)
		require.Equal(t, rlock.Holder{ID: string(read.Owner()), N: 1, Client: client[:18],
			Label: read.Owner().Label(), Lease: reader.Lease}, reader)
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

func TestReadWrite_OwnerInAnotherProcess_IsRefused(t *testing.T) {
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

// inLine is how many places there are in the queue of a read-write lock.
func (r *rig) inLine(t testing.TB, name string) int {
	t.Helper()
	n, err := r.redis.Do(within(t),
		r.redis.B().Zcount().Key("redlatch_rwq:{"+name+"}").Min("1").Max("+inf").Build()).AsInt64()
	require.NoError(t, err)
	return int(n)
}

// TestRead_TermsOfItsOwn_HasAPlaceInTheQueue: a reader that shares no tenure waits for itself, and in the server's
// queue all the same. Without a place it would poll, and new writers would go before it.
func TestRead_TermsOfItsOwn_HasAPlaceInTheQueue(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]rlock.Options{"label": {}, "lease": {}, "MaxHold": {MaxHold: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				there, here := newRig(t, servers[0], rlock.Options{}), newRig(t, servers[0], o)
				read := here.locks.ReadWrite("l").Read()
				switch name {
				case "label":
					read = read.WithLabel("job")
				case "lease":
					read = read.WithLease(time.Minute)
				}
				w := lock(t, there.locks.ReadWrite("l").Write(), within(t))
				waiting := pass(t, read)
				time.Sleep(time.Second)
				members, err := servers[0].Embedded.ZMembers("redlatch_rwq:{l}")
				require.NoError(t, err)
				require.True(t, slices.ContainsFunc(members, func(m string) bool {
					entry, ok := wait.ReadEntry(m)
					return ok && entry.Process == here.locks.ID()
				}), "%q", members)
				require.NoError(t, w.Unlock(within(t)))
				require.NoError(t, <-waiting)
			})
		})
	}
}
