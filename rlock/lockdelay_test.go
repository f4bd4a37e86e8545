package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const delay = 5 * time.Second

// delayed are options with a LockDelay. Its leases are so short that they are over before a lock-delay is.
func delayed() rlock.Options {
	return rlock.Options{LockDelay: delay, WatchdogTimeout: 3 * time.Second, CallTimeout: 100 * time.Millisecond}
}

// entersAfter waits until another can acquire, and checks that this is the LockDelay after the loss, and not much more.
func entersAfter(t *testing.T, lost time.Time, l *rlock.Lock) {
	t.Helper()
	h, err := l.Lock(within(t))
	require.NoError(t, err)
	entered := time.Now()
	require.NoError(t, h.Unlock(within(t)))
	// A holder stops earlier than its lease by the margin, and a waiter asks again within PollCap of its end.
	require.WithinRange(t, entered, lost.Add(delay), lost.Add(delay+1200*time.Millisecond))
}

// The holder is cut off when it has renewed for a while, when it has been handed the lock, when its lease is its own
// and when that was extended; in the end nothing of it reaches the server, or the connection is healed and it unlocks.
func TestNobodyEntersForTheLockDelayAfterALoss(t *testing.T) {
	redistest.SkipShort(t)
	ways := map[string]func(t *testing.T, l *rlock.Lock) *rlock.Hold{
		"renewed": func(t *testing.T, l *rlock.Lock) *rlock.Hold {
			h := lock(t, l, within(t))
			time.Sleep(10 * time.Second)
			return h
		},
		"of its own lease": func(t *testing.T, l *rlock.Lock) *rlock.Hold {
			began := time.Now()
			h := lock(t, l.WithLease(time.Second), within(t))
			require.WithinRange(t, h.Until(), began.Add(980*time.Millisecond), began.Add(time.Second))
			return h
		},
		"extended": func(t *testing.T, l *rlock.Lock) *rlock.Hold {
			h := lock(t, l.WithLease(time.Second), within(t))
			require.NoError(t, h.Extend(within(t), 4*time.Second))
			require.WithinRange(t, h.Until(), time.Now().Add(3900*time.Millisecond), time.Now().Add(4*time.Second))
			return h
		},
	}
	for kind, of := range kindOf {
		for way, hold := range ways {
			for _, unlocks := range []bool{false, true} {
				name := kind + ", " + way
				if unlocks {
					name += ", unlocks"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
						p := redistest.NewProxy(t, servers[0])
						r, other := newRig(t, p.Server(), delayed()), newRig(t, servers[0], delayed())
						h := hold(t, of(r.locks, "l"))
						p.BlackHole(redistest.Up)
						p.BlackHole(redistest.Down)
						<-h.Done()
						lost := time.Now()
						require.ErrorIs(t, h.Err(), errs.ErrLost)
						if unlocks {
							p.Heal()
							require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
						}
						rival := kind
						if kind == "Read" {
							rival = "Write"
						}
						entersAfter(t, lost, kindOf[rival](other.locks, "l"))
					})
				})
			}
		}
	}
}

// What a hand-over writes is short, and has the delay, too.
func TestAHandedOverLockHasTheLockDelay(t *testing.T) {
	for _, kind := range []string{"Reentrant", "Fair", "Write"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				p := redistest.NewProxy(t, servers[0])
				o := delayed()
				o.WatchdogTimeout = time.Minute
				first, r, other := newRig(t, servers[0], o), newRig(t, p.Server(), o), newRig(t, servers[0], o)
				h := lock(t, kindOf[kind](first.locks, "l"), within(t))
				got := make(chan *rlock.Hold, 1)
				go func() {
					h, err := kindOf[kind](r.locks, "l").Lock(within(t))
					if err != nil {
						t.Error(err)
					}
					got <- h
				}()
				time.Sleep(3 * time.Second)
				handed := time.Now()
				require.NoError(t, h.Unlock(within(t)))
				mine := <-got
				took, until := time.Since(handed), time.Until(mine.Until())
				p.BlackHole(redistest.Up)
				p.BlackHole(redistest.Down)
				<-mine.Done()
				entersAfter(t, time.Now(), kindOf[kind](other.locks, "l"))
				require.Less(t, took, 100*time.Millisecond, "an Unlock has no delay")
				require.Less(t, until, 10*time.Second, "of the first lease")
			})
		})
	}
}

// The waiter does not know the holder's LockDelay, and has none. It sees it in the connection id.
func TestATakeoverWaitsForTheLockDelay(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		o := living()
		o.CallTimeout = 100 * time.Millisecond
		other := newRig(t, servers[0], o)
		o.LockDelay = delay
		r := newRig(t, p.Server(), o)
		h := lock(t, r.locks.Reentrant("l"), within(t))
		time.Sleep(5 * beat)
		p.BlackHole(redistest.Up)
		p.BlackHole(redistest.Down)
		cut := time.Now()
		got := make(chan time.Time, 1)
		go func() {
			h := lock(t, other.locks.Reentrant("l"), within(t))
			entered := time.Now()
			if err := h.Unlock(within(t)); err != nil {
				t.Error(err)
			}
			got <- entered
		}()
		<-h.Done()
		lost := time.Now()
		require.ErrorIs(t, h.Err(), errs.ErrLost)
		require.Less(t, lost.Sub(cut), 3*beat, "the holder's own clock ends it as without a delay")
		require.WithinRange(t, <-got, lost.Add(delay), lost.Add(delay+3*beat))
	})
}

// A holder whose heartbeats were not confirmed lives on, with a lease of minutes. Its heartbeats go on, so no one takes
// it over: it has to give the lock back itself, and not before the delay.
func TestAHolderThatLivesOnGivesALostLockBackAfterTheLockDelay(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		o := living()
		o.CallTimeout, o.LockDelay = 100*time.Millisecond, delay
		r, other := newRig(t, p.Server(), o), newRig(t, servers[0], o)
		h := lock(t, r.locks.Reentrant("l"), within(t))
		time.Sleep(5 * beat)
		p.BlackHole(redistest.Up)
		<-h.Done()
		lost := time.Now()
		p.Heal()
		require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
		kept := lock(t, r.locks.Reentrant("another"), within(t)) // which has heartbeats
		defer kept.Unlock(within(t))
		entersAfter(t, lost, other.locks.Reentrant("l"))
	})
}

// A majority of lost votes has one in common with every other majority.
func TestAQuorumHasTheLockDelayOfItsMembers(t *testing.T) {
	redistest.Simulated(t, 3, func(t *testing.T, servers []*redistest.Server) {
		var mine, others []*rlock.Lock
		var proxies []*redistest.Proxy
		for _, s := range servers {
			p := redistest.NewProxy(t, s)
			proxies = append(proxies, p)
			mine = append(mine, newRig(t, p.Server(), delayed()).locks.Reentrant("q"))
			others = append(others, newRig(t, s, delayed()).locks.Reentrant("q"))
		}
		q, err := rlock.Quorum(mine...)
		require.NoError(t, err)
		other, err := rlock.Quorum(others...)
		require.NoError(t, err)
		h := lock(t, q, within(t))
		for _, p := range proxies[:2] {
			p.BlackHole(redistest.Up)
			p.BlackHole(redistest.Down)
		}
		<-h.Done()
		lost := time.Now()
		for _, p := range proxies {
			p.Heal()
		}
		require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
		entersAfter(t, lost, other)
	})
}

func TestJoinedHoldsEachHaveTheirLockDelay(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		r, joins, other := newRig(t, servers[0], delayed()), newRig(t, p.Server(), delayed()), newRig(t, servers[0],
			delayed())
		h := lock(t, r.locks.Reentrant("l"), within(t))
		l := joins.locks.Reentrant("l")
		joined := lock(t, l, l.WithOwner(within(t), h.Owner()))
		time.Sleep(5 * time.Second)
		p.BlackHole(redistest.Up)
		p.BlackHole(redistest.Down)
		<-joined.Done()
		lost := time.Now()
		require.NoError(t, h.Unlock(within(t)))
		entersAfter(t, lost, other.locks.Reentrant("l"))
	})
}

func TestALockDelayOutOfBoundsIsRefused(t *testing.T) {
	r := newRig(t, redistest.Start(t), rlock.Options{})
	for text, o := range map[string]rlock.Options{
		"LockDelay is 9ms, must be 0 (the default), or 10ms to 1m0s":  {LockDelay: 9 * time.Millisecond},
		"LockDelay is 1m1s, must be 0 (the default), or 10ms to 1m0s": {LockDelay: 61 * time.Second},
		"LockDelay is -1s, must be":                                   {LockDelay: -time.Second},
		"LockDelay is 38s, must be at most 37.95s with Liveness":      {LockDelay: 38 * time.Second, Liveness: true},
		"LockDelay is 11s, must be at most 10.95s with Liveness": {LockDelay: 11 * time.Second, Liveness: true,
			Heartbeat: 10 * time.Second},
	} {
		_, err := rlock.New(r.hub, o)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, text)
	}
	for _, o := range []rlock.Options{
		{LockDelay: 10 * time.Millisecond}, {LockDelay: time.Minute},
		{LockDelay: 37950 * time.Millisecond, Liveness: true},
	} {
		c, err := rlock.New(r.hub, o)
		require.NoError(t, err)
		require.NoError(t, c.Close(context.Background()))
	}
}

func TestReentrantIsFencedIfTheOptionsSaySo(t *testing.T) {
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{Fenced: true})
	l := r.locks.Reentrant("l")
	h := lock(t, l, within(t))
	before, ok := h.Token()
	require.True(t, ok)
	require.NoError(t, h.Unlock(within(t)))
	h = lock(t, r.locks.Fenced("l"), within(t))
	after, _ := h.Token()
	require.Greater(t, after, before)
	require.NoError(t, h.Unlock(within(t)))
	_, err := l.WithLinger(time.Millisecond).Lock(within(t))
	require.ErrorIs(t, err, errs.ErrInvalidOption)
}
