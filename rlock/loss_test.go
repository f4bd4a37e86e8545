package rlock_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
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

func TestLoss_KeysTracked_IsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, r *rig){
		"DEL": func(t *testing.T, r *rig) {
			wire.Must(t, r.redis, "DEL", "l")
		},
		"FLUSHALL": func(t *testing.T, r *rig) {
			wire.Must(t, r.redis, "FLUSHALL")
		},
		"eviction": func(t *testing.T, r *rig) {
			for _, c := range [][]string{{"maxmemory-policy", "allkeys-random"}, {"maxmemory", "1"}} {
				require.NoError(t, r.redis.Do(within(t), r.redis.B().Arbitrary("CONFIG", "SET").Args(c...).Build()).Error())
			}
			r.redis.Do(within(t), r.redis.B().Set().Key("x").Value("y").Build())
		},
		"overwritten": func(t *testing.T, r *rig) {
			wire.Must(t, r.redis, "DEL", "l")
			wire.Must(t, r.redis, "HSET", "l", "somebody", "1")
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

func TestRenewals_TrackedKey_KeepItTracked(t *testing.T) {
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

func TestLoss_InACluster_IsNoticedAtOnce(t *testing.T) {
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
		wire.Must(t, other, "DEL", h.Name())
	}
	for _, h := range holds {
		<-h.Done()
		require.ErrorIs(t, h.Err(), errs.ErrLost)
	}
	require.Less(t, time.Since(began), beforeRenewal)
	require.NoError(t, c.Close(within(t)))
}

// One loss is one error: which look finds it first is a race, and callers act on ErrLost. The suite has the looks that
// all primitives have.
func TestLoss_KeyOverwritten_IsFoundByLooksOfLocksAlone(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], rlock.Options{CallTimeout: 5 * time.Second})
		for kind, of := range kindOf {
			for look, find := range map[string]func(h *rlock.Hold, lock *rlock.Lock) error{
				"UnlockAfter": func(h *rlock.Hold, _ *rlock.Lock) error { return h.UnlockAfter(within(t), time.Hour) },
				"re-entry with a lease": func(h *rlock.Hold, lock *rlock.Lock) error { // another one asks no server
					_, err := lock.TryLock(h.Context(within(t)), 0, time.Minute)
					return err
				},
				"re-entry after the watchdog": func(h *rlock.Hold, lock *rlock.Lock) error {
					<-h.Done()
					_, err := lock.TryLock(context.WithoutCancel(h.Context(within(t))), 0, 0)
					return err
				},
			} {
				if (kind == "Plain" || kind == "NonReentrant") && strings.HasPrefix(look, "re-entry") {
					continue // it is not re-entered
				}
				name := kind + " " + look
				h := mustTry(t, of(r.locks, name), 0)
				const overwrite = "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'v')"
				require.NoError(t, ignoreNil(r.redis.Do(within(t),
					r.redis.B().Eval().Script(overwrite).Numkeys(1).Key(name).Build()).Error()))
				for _, err := range []error{find(h, of(r.locks, name)), h.Unlock(within(t))} {
					require.ErrorIs(t, err, errs.ErrLost, name)
					require.ErrorIs(t, err, errs.ErrWrongType, name)
				}
			}
		}
	})
}

func ignoreNil(err error) error {
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}

func TestLease_ShortenedByAnother_IsRaisedOrTrustedLess(t *testing.T) {
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
		wire.Must(t, r.redis, "PEXPIRE", name, strconv.FormatInt(left.Milliseconds(), 10))
	}
	wire.Must(t, r.redis, "PEXPIRE", "fixed", "60000")
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
