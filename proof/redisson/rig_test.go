package interop_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
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

func connect(o rueidis.ClientOption, poll, watchdog time.Duration) (r *rig, end func(), err error) {
	err = redistest.Try(func() {
		hub := redistest.Got(pubsub.Dial(context.Background(), o, pubsub.Options{}))
		quiet := slog.New(slog.DiscardHandler)
		r = &rig{redis: hub.Client()}
		r.locks = redistest.Got(rlock.New(hub,
			rlock.Options{PollCap: poll, WatchdogTimeout: watchdog, CallTimeout: 5 * time.Second, Logger: quiet}))
		r.sems = redistest.Got(rsemaphore.New(hub,
			rsemaphore.Options{PollCap: poll, WatchdogTimeout: watchdog, CallTimeout: 5 * time.Second, Logger: quiet}))
		r.counters = redistest.Got(rcounter.New(hub, rcounter.Options{CallTimeout: 5 * time.Second}))
		end = func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			r.locks.Close(ctx)
			r.sems.Close(ctx)
			r.counters.Close(ctx)
			hub.Close(context.Background())
		}
	})
	return r, end, err
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
	h := redistest.NoError(l.Lock(ctx))(t)
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
	h := redistest.NoError(l.TryLock(within(t), 0, 0))(t)
	release(t, h)
}

// agreed returns what checks that both sides read one number, which ours is, and verb is Java's.
func agreed[N int | int64](t testing.TB, java *lane, verb, name string,
	ours func(context.Context) (N, error)) func(want N) {
	return func(want N) {
		t.Helper()
		n := redistest.NoError(ours(within(t)))(t)
		require.Equal(t, want, n)
		require.Equal(t, fmt.Sprint(want), java.do(t, verb, name))
	}
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
	ms := redistest.NoError(r.redis.Do(within(t), r.redis.B().Pttl().Key(key).Build()).AsInt64())(t)
	return time.Duration(ms) * time.Millisecond
}

func (r *rig) hash(t testing.TB, key string) map[string]string {
	t.Helper()
	m := redistest.NoError(r.redis.Do(within(t), r.redis.B().Hgetall().Key(key).Build()).AsStrMap())(t)
	return m
}

func (r *rig) exists(t testing.TB, key string) bool {
	t.Helper()
	n := redistest.NoError(r.redis.Do(within(t), r.redis.B().Exists().Key(key).Build()).AsInt64())(t)
	return n == 1
}

// player is a caller of a lock: a thread of Java, or one of ours.
type player struct {
	java *lane // nil: ours
	rig  *rig
	held *rlock.Hold // of ours
}

// answer is what a player gets.
type answer struct {
	err error
	at  time.Time
}

func (w *world) player(t testing.TB, java bool, r *rig) *player {
	if java {
		return &player{java: w.lane(t)}
	}
	return &player{rig: r}
}

func (p *player) lock(t testing.TB, kind, name string) {
	t.Helper()
	has(t, p.asks(t, kind, name, 0))
}

// asks has the player wait for a lock, 0: for ever, and returns where the answer comes.
func (p *player) asks(t testing.TB, kind, name string, patience time.Duration) <-chan answer {
	c := make(chan answer, 1)
	if p.java != nil {
		verb, args := "lock", []any{kind, name, -1}
		if patience > 0 {
			verb, args = "try", []any{kind, name, patience.Milliseconds(), -1}
		}
		sent := p.java.send(verb, args...)
		go func() {
			r := <-sent
			if r.Value == "false" {
				r.Err = errs.ErrNotAcquired
			}
			c <- answer{r.Err, time.Now()}
		}()
		return c
	}
	l, ctx := p.rig.lock(kind, name), within(t)
	if patience > 0 {
		l = l.WithWait(patience)
	}
	go func() {
		h, err := l.Lock(ctx)
		p.held = h
		c <- answer{err, time.Now()}
	}()
	return c
}

// has waits until a player has what it asked for, and returns since when.
func has(t testing.TB, c <-chan answer) time.Time {
	t.Helper()
	select {
	case a := <-c:
		require.NoError(t, a.err)
		return a.at
	case <-time.After(40 * time.Second):
		require.FailNow(t, "no answer")
		return time.Time{}
	}
}

func (p *player) unlock(t testing.TB, kind, name string) {
	t.Helper()
	if p.java != nil {
		p.java.do(t, "unlock", kind, name)
	} else {
		release(t, p.held)
	}
}

// loses checks that the player learns soon that it holds nothing any more.
func (p *player) loses(t testing.TB, kind, name string) {
	t.Helper()
	if p.java != nil {
		require.Equal(t, "IllegalMonitorStateException", p.java.refused(t, "unlock", kind, name))
		return
	}
	select {
	case <-p.held.Done():
		require.ErrorIs(t, p.held.Err(), errs.ErrLost)
	case <-time.After(soon):
		require.Fail(t, "the holder is not told")
	}
	require.ErrorIs(t, p.held.Unlock(within(t)), errs.ErrLost)
}
