package rlock_test

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// tracked waits until the server remembers so many keys.
func tracked(t *testing.T, c rueidis.Client, n int) {
	t.Helper()
	redistest.Eventually(t, 30*time.Second, "the keys of holds are tracked", func() bool {
		info, err := c.Do(within(t), c.B().Info().Section("stats").Build()).ToString()
		return err == nil && strings.Contains(info, "tracking_total_keys:"+strconv.Itoa(n)+"\r\n")
	})
}

// The first scheduled renewal of a 30 s lease comes after 10 s; whatever ends a hold well before that was noticed
// through the server's invalidations.
const beforeRenewal = 7 * time.Second

func TestLossIsNoticedAtOnceWhereKeysAreTracked(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, r *rig){
		"DEL": func(t *testing.T, r *rig) {
			require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key("l").Build()).Error())
		},
		"FLUSHALL": func(t *testing.T, r *rig) {
			require.NoError(t, r.redis.Do(within(t), r.redis.B().Flushall().Build()).Error())
		},
		"eviction": func(t *testing.T, r *rig) {
			for _, c := range [][]string{{"maxmemory-policy", "allkeys-random"}, {"maxmemory", "1"}} {
				require.NoError(t, r.redis.Do(within(t), r.redis.B().Arbitrary("CONFIG", "SET").Args(c...).Build()).Error())
			}
			r.redis.Do(within(t), r.redis.B().Set().Key("x").Value("y").Build())
		},
		"overwritten": func(t *testing.T, r *rig) {
			require.NoError(t, r.redis.Do(within(t), r.redis.B().Del().Key("l").Build()).Error())
			require.NoError(t, r.redis.Do(within(t),
				r.redis.B().Hset().Key("l").FieldValue().FieldValue("somebody", "1").Build()).Error())
		},
		"ForceUnlock": func(t *testing.T, r *rig) {
			ok, err := r.locks.Reentrant("l").ForceUnlock(within(t))
			require.NoError(t, err)
			require.True(t, ok)
		},
		"deleted while the tracking connection was down": func(t *testing.T, r *rig) {
			// all in one go, so that it cannot be back in between
			kill := r.redis.B().Arbitrary("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Build()
			for _, res := range r.redis.DoMulti(within(t), kill, r.redis.B().Del().Key("l").Build()) {
				require.NoError(t, res.Error())
			}
		},
	} {
		for kind, lease := range map[string]time.Duration{"renewed": 0, "fixed": time.Hour} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, redistest.Start(t), rlock.Options{})
				h, err := r.locks.Reentrant("l").TryLock(within(t), 0, lease)
				require.NoError(t, err)
				tracked(t, r.redis, 1)
				began := time.Now()
				lose(t, r)
				<-h.Done()
				require.Less(t, time.Since(began), beforeRenewal)
				require.ErrorIs(t, h.Err(), errs.ErrLost)
			})
		}
	}
}

func TestRenewalsKeepTheKeyTracked(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{WatchdogTimeout: 1500 * time.Millisecond})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	tracked(t, r.redis, 1)
	first := h.Until()
	redistest.Eventually(t, 20*time.Second, "several renewals", func() bool {
		return h.Until().Sub(first) > 200*time.Millisecond
	})
	tracked(t, r.redis, 1)
	before := redistest.CommandCalls(t, r.redis)["evalsha"]
	first = h.Until()
	redistest.Eventually(t, 60*time.Second, "three more", func() bool {
		return h.Until().Sub(first) >= 1400*time.Millisecond
	})
	calls := redistest.CommandCalls(t, r.redis)["evalsha"] - before
	require.LessOrEqual(t, calls, 5, "its own renewals must not make it look again, which would be six")
	require.NoError(t, h.Unlock(within(t)))
}

func TestAForgottenHoldIsNotRenewedAndWarnedOfOnce(t *testing.T) {
	t.Parallel()
	r, log := newLoggedRig(t, redistest.Start(t), rlock.Options{WatchdogTimeout: 1500 * time.Millisecond})
	l := r.locks.Reentrant("l").WithLabel("leaky")
	work := lock(t, l, within(t)).Context(context.Background())
	for range 3 {
		collect()
	}
	require.NoError(t, work.Err(), "one of its contexts is in use: it is not forgotten")
	require.Zero(t, log.Count("dropped without Unlock"))
	runtime.KeepAlive(work)
	work = nil
	dropped(t, "warned of", func() bool {
		return log.Count("dropped without Unlock") == 1 && log.Count("label=leaky") >= 1
	})
	redistest.Eventually(t, 20*time.Second, "its lease runs out", func() bool { return len(r.hash(t, "l")) == 0 })
	require.Equal(t, 1, log.Count("dropped without Unlock"))
	require.NoError(t, r.locks.Close(within(t)), "Close does not wait for an Unlock that cannot come")
}

func TestAForgottenHoldIsNoticedThoughItsContextsAreDerived(t *testing.T) {
	t.Parallel()
	r, log := newLoggedRig(t, redistest.Start(t), rlock.Options{WatchdogTimeout: 3 * time.Second})
	func() {
		h := lock(t, r.locks.Reentrant("l"), within(t))
		h.Context(h.Context(h.Context(t.Context())))
	}()
	dropped(t, "warned of", func() bool {
		return log.Count("dropped without Unlock") == 1
	})
}

func TestInvalidationsShowALossInAClusterAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	hub, err := pubsub.Dial(t.Context(), s.Option(), pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	c, err := rlock.New(hub, rlock.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	var holds []*rlock.Hold
	for i := range 9 { // on every node
		holds = append(holds, lock(t, c.Reentrant(strconv.Itoa(i)), within(t)))
	}
	other := s.Client(t)
	redistest.Eventually(t, 10*time.Second, "every key is tracked", func() bool {
		n := 0
		for _, node := range other.Nodes() {
			info, err := node.Do(within(t), node.B().Info().Section("stats").Build()).ToString()
			require.NoError(t, err)
			_, rest, _ := strings.Cut(info, "tracking_total_keys:")
			keys, _, _ := strings.Cut(rest, "\r")
			k, _ := strconv.Atoi(keys)
			n += k
		}
		return n == len(holds)
	})
	began := time.Now()
	for _, h := range holds {
		require.NoError(t, other.Do(within(t), other.B().Del().Key(h.Name()).Build()).Error())
	}
	for _, h := range holds {
		<-h.Done()
		require.ErrorIs(t, h.Err(), errs.ErrLost)
	}
	require.Less(t, time.Since(began), beforeRenewal)
	require.NoError(t, c.Close(within(t)))
}

func TestTheChannelOfAForgottenHoldIsClosedWithItsLease(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{WatchdogTimeout: time.Second})
	redistest.SideBySide(t, map[string]time.Duration{"renewed": 0, "fixed": time.Second},
		func(t *testing.T, name string, lease time.Duration) {
			h, err := r.locks.Reentrant(name).TryLock(within(t), 0, lease)
			require.NoError(t, err)
			done := h.Done() // all that is kept of it
			dropped(t, "it is closed", func() bool { return closed(done) })
		})
}

// One loss is one error: which look finds it first is a race, and callers act on ErrLost.
func TestAnOverwrittenLockIsLostAndOfTheWrongType(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{CallTimeout: 5 * time.Second})
	l := r.locks
	plain := func(name string) *rlock.Lock { return l.Plain(name) }
	locks := map[string]func(name string) *rlock.Lock{
		"reentrant": l.Reentrant, "fair": l.Fair, "fenced": l.Fenced, "plain": plain,
		"read":   func(name string) *rlock.Lock { return l.ReadWrite(name).Read().WithLabel("its own") },
		"shared": func(name string) *rlock.Lock { return l.ReadWrite(name).Read() },
		"write":  func(name string) *rlock.Lock { return l.ReadWrite(name).Write() },
		"multi": func(name string) *rlock.Lock {
			m, err := rlock.Multi(l.Reentrant(name), l.Reentrant(name+" too"))
			require.NoError(t, err)
			return m
		},
	}
	looks := map[string]func(h *rlock.Hold, lock *rlock.Lock) error{
		"Unlock":      func(h *rlock.Hold, _ *rlock.Lock) error { return h.Unlock(within(t)) },
		"UnlockAfter": func(h *rlock.Hold, _ *rlock.Lock) error { return h.UnlockAfter(within(t), time.Hour) },
		"Extend":      func(h *rlock.Hold, _ *rlock.Lock) error { return h.Extend(within(t), time.Minute) },
		"re-entry with a lease": func(h *rlock.Hold, lock *rlock.Lock) error { // another one asks nobody
			_, err := lock.TryLock(h.Context(within(t)), 0, time.Minute)
			return err
		},
		"re-entry after the watchdog": func(h *rlock.Hold, lock *rlock.Lock) error {
			<-h.Done()
			_, err := lock.TryLock(context.WithoutCancel(h.Context(within(t))), 0, 0)
			return err
		},
		"the watchdog": func(h *rlock.Hold, _ *rlock.Lock) error { <-h.Done(); return h.Err() },
		"a context": func(h *rlock.Hold, _ *rlock.Lock) error {
			ctx := h.Context(within(t))
			<-ctx.Done()
			return context.Cause(ctx)
		},
		"Unlock after the watchdog": func(h *rlock.Hold, _ *rlock.Lock) error { <-h.Done(); return h.Unlock(within(t)) },
	}
	for kind, make := range locks {
		for look, find := range looks {
			if kind == "plain" && strings.HasPrefix(look, "re-entry") {
				continue // it is not re-entered
			}
			t.Run(kind+" "+look, func(t *testing.T) {
				t.Parallel()
				name := kind + " " + look
				h, err := make(name).TryLock(within(t), 0, 0)
				require.NoError(t, err)
				const overwrite = "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'v')"
				require.NoError(t, ignoreNil(r.redis.Do(within(t),
					r.redis.B().Eval().Script(overwrite).Numkeys(1).Key(name).Build()).Error()))
				err = find(h, make(name))
				require.ErrorIs(t, err, errs.ErrLost)
				require.ErrorIs(t, err, errs.ErrWrongType)
				require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
				require.ErrorIs(t, h.Unlock(within(t)), errs.ErrWrongType)
			})
		}
	}
}

func ignoreNil(err error) error {
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}

// A right may come back, as in a deployment that sets the rights of a new version after it was started.
func TestAReleaseThatTheServerRefusesGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	root := newRig(t, s, rlock.Options{})
	admin(t, root.redis, "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all")
	r := newRigWith(t, s, rlock.Options{}, func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "x" })
	locksOf := func(l *rlock.Client) map[string]*rlock.Lock {
		return map[string]*rlock.Lock{
			"reentrant": l.Reentrant("reentrant"), "fair": l.Fair("fair"), "plain": l.Plain("plain"),
			"read": l.ReadWrite("read").Read(), "write": l.ReadWrite("write").Write(), "kept": l.Reentrant("kept"),
		}
	}
	locks, others := locksOf(r.locks), locksOf(root.locks)
	holds := map[string]*rlock.Hold{}
	for name, lock := range locks {
		h, err := lock.TryLock(within(t), 0, time.Hour)
		require.NoError(t, err)
		holds[name] = h
	}
	admin(t, root.redis, "ACL", "SETUSER", "app", "-eval", "-evalsha")
	for name, h := range holds {
		unlock := h.Unlock
		if name == "kept" {
			unlock = func(ctx context.Context) error { return h.UnlockAfter(ctx, time.Second) }
		}
		err := unlock(within(t))
		require.ErrorContains(t, err, "NOPERM", name)
		require.NotErrorIs(t, err, errs.ErrUnknownOutcome, name)
		require.ErrorContains(t, err, "goes on in the background", name)
	}
	admin(t, root.redis, "ACL", "SETUSER", "app", "+@all")
	for name := range holds {
		redistest.Eventually(t, 10*time.Second, name+" is free", func() bool {
			locked, err := others[name].IsLocked(within(t))
			return err == nil && !locked
		})
	}
}

func TestAShortenedLeaseIsRaisedAtOnceOrTrustedNoLonger(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	l := r.locks
	locks := map[string]*rlock.Lock{
		"reentrant": l.Reentrant("reentrant"), "fair": l.Fair("fair"), "plain": l.Plain("plain"),
		"write": l.ReadWrite("write").Write(),
	}
	var holds []*rlock.Hold
	for _, lock := range locks {
		holds = append(holds, mustTry(t, lock, 0))
	}
	fixed := mustTry(t, l.Reentrant("fixed"), time.Hour)
	tracked(t, r.redis, len(locks)+2) // a write lock has two keys
	const left = 8 * time.Second      // less than what is left until the first renewal
	for name := range locks {
		admin(t, r.redis, "PEXPIRE", name, strconv.FormatInt(left.Milliseconds(), 10))
	}
	admin(t, r.redis, "PEXPIRE", "fixed", "60000")
	began := time.Now()
	for _, h := range holds {
		redistest.Eventually(t, left, h.Name()+" is raised", func() bool { return r.pttl(t, h.Name()) > 2*left })
		require.Less(t, time.Since(began), left)
		require.NoError(t, h.Unlock(within(t)))
	}
	redistest.Eventually(t, left, "the fixed lease is shorter", func() bool {
		return time.Until(fixed.Until()) < time.Minute
	})
	require.NoError(t, fixed.Err())
	require.NoError(t, fixed.Unlock(within(t)))
}

func mustTry(t testing.TB, l *rlock.Lock, lease time.Duration) *rlock.Hold {
	t.Helper()
	h, err := l.TryLock(within(t), 0, lease)
	require.NoError(t, err)
	return h
}
