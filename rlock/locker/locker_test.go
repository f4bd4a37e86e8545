package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/locker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func locks(t testing.TB, s *redistest.Server, o rlock.Options) *rlock.Client {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	hub := redistest.NoError(pubsub.New(s.Client(t), pubsub.Options{Logger: o.Logger}))(t)
	t.Cleanup(func() { hub.Close(context.Background()) })
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	c := redistest.NoError(rlock.New(hub, o))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx)
	})
	return c
}

// use locks and unlocks.
func use(x *locker.Locker) {
	x.Lock()
	defer x.Unlock()
}

func never(t testing.TB) func(error) {
	return func(err error) { t.Error("lost:", err) }
}

func TestLocker_SeveralProcesses_Exclude(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		n := 0 // not atomic: the race detector and the sum tell
		var wg sync.WaitGroup
		for range 3 {
			var x sync.Locker = locker.New(context.Background(),
				locks(t, s, rlock.Options{PollCap: 50 * time.Millisecond}).Reentrant("l"), never(t))
			for range 4 {
				wg.Go(func() {
					for range 10 {
						x.Lock()
						n++
						x.Unlock()
					}
				})
			}
		}
		wg.Wait()
		require.Equal(t, 120, n)
	})
}

func TestLocker_TryLockAndUnlock_ActAsAMutex(t *testing.T) {
	s := redistest.Embedded(t)
	l := locks(t, s, rlock.Options{}).Reentrant("l")
	x, other := locker.New(context.Background(), l, never(t)), locker.New(context.Background(), l, never(t))
	require.PanicsWithValue(t, "locker: Unlock of a Locker that is not locked", x.Unlock)
	require.True(t, x.TryLock())
	require.False(t, x.TryLock(), "not re-entrant")
	require.False(t, other.TryLock())
	x.Unlock()
	require.True(t, other.TryLock())
	require.False(t, x.TryLock())
	other.Unlock()
	require.Panics(t, x.Unlock)
	require.Panics(t, func() { locker.New(context.Background(), l, nil) })
}

func TestLocker_LockWithALease_EndsWithIt(t *testing.T) {
	s := redistest.Embedded(t)
	l := locks(t, s, rlock.Options{}).Reentrant("l").WithLease(time.Minute)
	for name, take := range map[string]func(*locker.Locker){"Lock": (*locker.Locker).Lock,
		"TryLock": func(x *locker.Locker) { require.True(t, x.TryLock()) }} {
		x := locker.New(context.Background(), l, never(t))
		take(x)
		left := s.Embedded.TTL("l")
		require.Greater(t, left, 50*time.Second, name)
		require.LessOrEqual(t, left, time.Minute, name)
		x.Unlock()
	}
}

// A context of a hold does not make the Locker a part of that hold.
func TestLocker_ContextOfAHold_IsNoReentry(t *testing.T) {
	s := redistest.Embedded(t)
	l := locks(t, s, rlock.Options{}).Reentrant("l")
	h := redistest.NoError(l.Lock(context.Background()))(t)
	x := locker.New(h.Context(context.Background()), l, never(t))
	require.False(t, x.TryLock())
	require.NoError(t, h.Unlock(context.Background()))
}

func TestLocker_LockFails_PanicsAndCanBeTriedAgain(t *testing.T) {
	s := redistest.Embedded(t)
	c := locks(t, s, rlock.Options{})
	h := redistest.NoError(c.Reentrant("l").Lock(context.Background()))(t)
	reason := func(x *locker.Locker) (err error) {
		defer func() { err, _ = recover().(error) }()
		x.Lock()
		return errors.New("locked")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	x := locker.New(ctx, c.Reentrant("l"), never(t))
	require.ErrorIs(t, reason(x), context.DeadlineExceeded)
	require.ErrorIs(t, reason(x), redlatch.ErrNotAcquired, "not a deadlock")
	brief := locker.New(context.Background(), c.Reentrant("l").WithWait(0), never(t))
	require.ErrorIs(t, reason(brief), redlatch.ErrNotAcquired)
	require.NoError(t, h.Unlock(context.Background()))
	long := locker.New(context.Background(), c.Reentrant("l"), never(t))
	use(long) // it may take a moment until what was handed to those who left is given back
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	x = locker.New(ctx, c.Reentrant("l"), never(t))
	x.Lock()
	require.ErrorIs(t, reason(x), redlatch.ErrNotAcquired, "held by this very Locker, until ctx ends")
	x.Unlock()
	require.ErrorIs(t, reason(locker.New(context.Background(), c.Reentrant(""), never(t))), redlatch.ErrInvalidName)
}

func TestLocker_HoldLost_IsReportedOnceBeforeUnlock(t *testing.T) {
	s := redistest.Start(t)
	c := locks(t, s, rlock.Options{WatchdogTimeout: 3 * time.Second})
	told := make(chan error, 10)
	x := locker.New(context.Background(), c.Reentrant("l"), func(err error) { told <- err })
	x.Lock()
	taken := redistest.NoError(c.Reentrant("l").ForceUnlock(context.Background()))(t)
	require.True(t, taken)
	require.ErrorIs(t, <-told, redlatch.ErrLost)
	x.Unlock()
	require.Empty(t, told)
	use(x)
	require.Empty(t, told, "a hold that was not lost")
}

func TestLocker_ServerAway_KeepsTrying(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	c := locks(t, p.Server(), rlock.Options{CallTimeout: 50 * time.Millisecond})
	x := locker.New(context.Background(), c.Reentrant("l").WithWait(100*time.Millisecond), never(t))
	use(x) // it knows the server
	p.Refuse()
	p.Cut()
	time.AfterFunc(500*time.Millisecond, p.Heal)
	use(x)
}

// A Locker is locked like a sync.Mutex, and excludes other processes, too.
func ExampleLocker_TryLock() {
	server := miniredis.NewMiniRedis() // yours is a Redis server
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	hub, err := pubsub.Dial(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
			DisableCache: true}, pubsub.Options{})
	if err != nil {
		panic(err)
	}
	defer hub.Close(context.Background())
	locks, err := rlock.New(hub, rlock.Options{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	x := locker.New(context.Background(), locks.Reentrant("cache"), func(err error) { panic(err) })
	x.Lock()
	fmt.Println("again:", x.TryLock())
	x.Unlock()
	fmt.Println("free:", x.TryLock())
	x.Unlock()
	// Output:
	// again: false
	// free: true
}

func Example() {
	server := miniredis.NewMiniRedis() // yours is a Redis server
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	hub, err := pubsub.Dial(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true,
			DisableCache: true}, pubsub.Options{})
	if err != nil {
		panic(err)
	}
	defer hub.Close(context.Background())
	locks, err := rlock.New(hub, rlock.Options{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	// A condition variable wants a sync.Locker.
	x := locker.New(context.Background(), locks.Reentrant("mailbox"), func(err error) { panic(err) })
	cond := sync.NewCond(x)
	ready := false
	go func() {
		cond.L.Lock()
		defer cond.L.Unlock()
		ready = true
		cond.Broadcast()
	}()
	cond.L.Lock()
	for !ready {
		cond.Wait()
	}
	cond.L.Unlock()
	fmt.Println("ready")
	// Output: ready
}

// A lock that does not wait comes back at once, and a Locker goes on.
func TestLocker_ServerAway_DoesNotSpin(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	var tries atomic.Int64
	o := rlock.Options{}
	o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
		if e.Kind == redlatch.EventNotAcquired {
			tries.Add(1)
		}
		return ctx
	}
	x := locker.New(context.Background(), locks(t, p.Server(), o).Reentrant("l").WithWait(0), never(t))
	use(x)
	p.Refuse()
	p.Cut()
	time.AfterFunc(500*time.Millisecond, p.Heal)
	use(x)
	t.Logf("%d tries in half a second", tries.Load())
	require.Less(t, tries.Load(), int64(50))
	require.NotZero(t, tries.Load())
}

func TestLocker_DroppedWhileLocked_IsRenewedNoMore(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	c := locks(t, s, rlock.Options{WatchdogTimeout: 300 * time.Millisecond})
	lost := make(chan error, 1)
	func() { locker.New(context.Background(), c.Reentrant("l"), func(err error) { lost <- err }).Lock() }()
	var why error
	redistest.Eventually(t, 20*time.Second, "it is over, and said so", func() bool {
		runtime.GC()
		select {
		case why = <-lost:
			return true
		default:
			return false
		}
	})
	require.ErrorIs(t, why, redlatch.ErrLost)
	locked := redistest.NoError(c.Reentrant("l").IsLocked(context.Background()))(t)
	require.False(t, locked && s.Embedded.TTL("l") > 300*time.Millisecond)
}
