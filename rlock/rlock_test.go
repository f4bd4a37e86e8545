package rlock_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// rig is one process as the library sees it: a client, a hub and a lock client on one server.
type rig struct {
	server *redistest.Server
	redis  rueidis.Client // of the locks
	hub    *pubsub.Hub
	locks  *rlock.Client
}

func newRig(t testing.TB, s *redistest.Server, o rlock.Options) *rig {
	t.Helper()
	return newRigWith(t, s, o, func(*rueidis.ClientOption) {})
}

// newUntracked is newRig for counting calls: no key is tracked, so that a hold which a busy machine keeps for 50 ms
// costs no call of its own.
func newUntracked(t testing.TB, s *redistest.Server) *rig {
	t.Helper()
	return newRigWith(t, s, rlock.Options{}, func(o *rueidis.ClientOption) { o.DisableCache = true })
}

func newRigWith(t testing.TB, s *redistest.Server, o rlock.Options, change func(*rueidis.ClientOption)) *rig {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CallTimeout == 0 && o.WatchdogTimeout == 0 {
		o.CallTimeout = 5 * time.Second // where it is not what is tested, no machine is so busy that a call is given up
	}
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	r := &rig{server: s}
	r.redis, r.hub = wire.Process(t, s, o.Logger, change)
	var err error
	r.locks, err = rlock.New(r.hub, o)
	require.NoError(t, err)
	wire.CloseUnwaited(t, r.locks)
	return r
}

// callsOf runs cycle, and returns how often the server ran each command for it. A hold that is 50 ms old is looked at
// once: a cycle that a busy machine draws out for that long is run again.
func callsOf(t testing.TB, c rueidis.Client, cycle func()) map[string]int {
	t.Helper()
	for range 1000 {
		calls, began := redistest.CommandCalls(t, c), time.Now()
		cycle()
		after := redistest.CommandCalls(t, c)
		if time.Since(began) < 50*time.Millisecond {
			for name, n := range calls {
				after[name] -= n
			}
			return after
		}
		time.Sleep(20 * time.Millisecond) // for a look that is under way
	}
	t.Fatal("each cycle took 50 ms")
	return nil
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (r *rig) hash(t testing.TB, key string) map[string]string {
	t.Helper()
	return wire.Hash(t, r.redis, key)
}

func (r *rig) pttl(t testing.TB, key string) time.Duration {
	t.Helper()
	return time.Duration(wire.Number(t, r.redis, "PTTL", key)) * time.Millisecond
}

func lock(t testing.TB, l *rlock.Lock, ctx context.Context) *rlock.Hold {
	t.Helper()
	h, err := l.Lock(ctx)
	require.NoError(t, err)
	if redistest.InABubble() {
		t.Cleanup(func() { letGo(h) })
	}
	return h
}

// letGo releases what a test in a bubble has not: the garbage collector, which finds a hold that is dropped, is
// outside.
func letGo(h *rlock.Hold) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	h.Unlock(ctx)
}

// leaseOf is how long the lock stays taken if nobody renews it, by the server's word.
func leaseOf(t testing.TB, l *rlock.Lock) time.Duration {
	t.Helper()
	state, err := l.Inspect(within(t))
	require.NoError(t, err)
	return state.Lease
}

// timesHeld is how often the hold's owner holds the lock, by the server's word.
func timesHeld(t testing.TB, l *rlock.Lock, h *rlock.Hold) int {
	t.Helper()
	state, err := l.Inspect(within(t))
	require.NoError(t, err)
	for _, x := range state.Holders {
		if x.ID == string(h.Owner()) {
			return x.N
		}
	}
	return 0
}

func newLoggedRig(t testing.TB, s *redistest.Server, o rlock.Options) (*rig, *redistest.Logbook) {
	t.Helper()
	log := &redistest.Logbook{}
	o.Logger = log.Logger()
	return newRig(t, s, o), log
}

func collect() {
	runtime.GC()
	runtime.Gosched()
}

// dropped waits for what follows once the garbage collector has found something that the test keeps no more. It is
// asked ten times a second, because it goes through what all tests have that run.
func dropped(t testing.TB, what string, ok func() bool) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, what, func() bool {
		collect()
		time.Sleep(100 * time.Millisecond)
		return ok()
	})
}

// closed reports whether a channel is.
func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// pass has somebody wait for the lock and let go of it again, and says how that went.
func pass(t testing.TB, l *rlock.Lock) <-chan error {
	done := make(chan error, 1)
	go func() {
		h, err := l.Lock(within(t))
		if err == nil {
			err = h.Unlock(within(t))
		}
		done <- err
	}()
	return done
}

func cycle(t testing.TB, l *rlock.Lock) {
	h, err := l.Lock(context.Background())
	if err == nil {
		err = h.Unlock(context.Background())
	}
	if err != nil {
		t.Error(err)
	}
}

// heeding is an Observer of one kind of event.
func heeding(kind redlatch.EventKind, f func(e redlatch.Event)) rlock.Observer {
	return func(ctx context.Context, e redlatch.Event) context.Context {
		if e.Kind == kind {
			f(e)
		}
		return ctx
	}
}

// keys are what is left on the server.
func keys(t *testing.T, c rueidis.Client) []string {
	t.Helper()
	return redistest.Objects(wire.Keys(t, c))
}
