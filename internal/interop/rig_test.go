package interop_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// rig is a Go process as the library sees it: one hub and all clients on it.
type rig struct {
	redis    rueidis.Client
	locks    *rlock.Client
	sems     *rsemaphore.Client
	counters *rcounter.Client
}

// pollCap is so long that who is waiting is woken by messages or too late for the tests.
const pollCap = 10 * time.Second

func (w *world) rig(t testing.TB) *rig { return w.rigOf(t, pollCap, 0) }

// rigOf is a rig with its own times, 0: the default.
func (w *world) rigOf(t testing.TB, poll, watchdog time.Duration) *rig {
	t.Helper()
	r, end, err := connect(w.server.Option(), poll, watchdog)
	require.NoError(t, err)
	t.Cleanup(end)
	return r
}

func connect(o rueidis.ClientOption, poll, watchdog time.Duration) (*rig, func(), error) {
	hub, err := pubsub.Dial(o, pubsub.Options{})
	if err != nil {
		return nil, nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	r := &rig{redis: hub.Client()}
	r.locks, err = rlock.New(hub,
		rlock.Options{PollCap: poll, WatchdogTimeout: watchdog, CallTimeout: 5 * time.Second, Logger: quiet})
	if err == nil {
		r.sems, err = rsemaphore.New(hub,
			rsemaphore.Options{PollCap: poll, WatchdogTimeout: watchdog, CallTimeout: 5 * time.Second, Logger: quiet})
	}
	if err == nil {
		r.counters, err = rcounter.New(hub, rcounter.Options{CallTimeout: 5 * time.Second})
	}
	if err != nil {
		hub.Close(context.Background())
		return nil, nil, err
	}
	return r, func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.locks.Close(ctx)
		r.sems.Close(ctx)
		r.counters.Close(ctx)
		hub.Close(context.Background())
	}, nil
}

// lock is our lock of one of the driver's kinds.
func (r *rig) lock(kind, name string) *rlock.Lock {
	switch kind {
	case "lock":
		return r.locks.Reentrant(name)
	case "once":
		return r.locks.NonReentrant(name)
	case "fair":
		return r.locks.Fair(name)
	case "fenced":
		return r.locks.Fenced(name)
	case "spin":
		return r.locks.Spin(name, 0, 0)
	case "read":
		return r.locks.ReadWrite(name).Read()
	case "write":
		return r.locks.ReadWrite(name).Write()
	case "multi":
		var members []*rlock.Lock
		for _, one := range strings.Split(name, ",") {
			members = append(members, r.locks.Reentrant(one))
		}
		l, err := rlock.Multi(members...)
		if err != nil {
			panic(err)
		}
		return l
	}
	panic("no kind " + kind)
}

func hold(t testing.TB, l *rlock.Lock, ctx context.Context) *rlock.Hold {
	t.Helper()
	h, err := l.Lock(ctx)
	require.NoError(t, err)
	return h
}

func release(t testing.TB, h *rlock.Hold) {
	t.Helper()
	require.NoError(t, h.Unlock(within(t)))
}

// refused is a lock that somebody else holds.
func refused(t testing.TB, l *rlock.Lock) {
	t.Helper()
	_, err := l.TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
}

// free is a lock that nobody holds.
func free(t testing.TB, l *rlock.Lock) {
	t.Helper()
	h, err := l.TryLock(within(t), 0, 0)
	require.NoError(t, err)
	release(t, h)
}

// taken is what a Go waiter gets.
type taken struct {
	hold *rlock.Hold
	err  error
	at   time.Time
}

// waiting has a goroutine wait for a lock.
func waiting(t testing.TB, l *rlock.Lock) <-chan taken {
	c := make(chan taken, 1)
	ctx := within(t)
	go func() {
		h, err := l.Lock(ctx)
		c <- taken{h, err, time.Now()}
	}()
	return c
}

func (r *rig) pttl(t testing.TB, key string) time.Duration {
	t.Helper()
	ms, err := r.redis.Do(within(t), r.redis.B().Pttl().Key(key).Build()).AsInt64()
	require.NoError(t, err)
	return time.Duration(ms) * time.Millisecond
}

func (r *rig) hash(t testing.TB, key string) map[string]string {
	t.Helper()
	m, err := r.redis.Do(within(t), r.redis.B().Hgetall().Key(key).Build()).AsStrMap()
	require.NoError(t, err)
	return m
}

func (r *rig) exists(t testing.TB, key string) bool {
	t.Helper()
	n, err := r.redis.Do(within(t), r.redis.B().Exists().Key(key).Build()).AsInt64()
	require.NoError(t, err)
	return n == 1
}
