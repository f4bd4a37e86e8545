package rlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// kindsOf returns a lock of each kind, all of one name. A Multi has a second member.
func kindsOf(t testing.TB, c *rlock.Client) map[string]*rlock.Lock {
	t.Helper()
	multi, err := rlock.Multi(c.Reentrant("l"), c.Reentrant("m"))
	require.NoError(t, err)
	slow, err := rlock.Multi(c.Fenced("l"), c.Fenced("m"))
	require.NoError(t, err)
	return map[string]*rlock.Lock{
		"Reentrant": c.Reentrant("l"), "NonReentrant": c.NonReentrant("l"), "Fenced": c.Fenced("l"), "Fair": c.Fair("l"),
		"Spin": c.Spin("l", 0, 0), "Plain": c.Plain("l"), "Read": c.ReadWrite("l").Read(), "Write": c.ReadWrite("l").Write(),
		"Multi": multi, "Multi, one by one": slow,
	}
}

// acquireVerb acquires the lock and releases it. ran reports whether the verb had the lock, or ran fn under it.
type acquireVerb func(ctx context.Context, l *rlock.Lock) (ran bool, err error)

var errFn = errors.New("fn ran under a context that had ended")

func calling(l func(context.Context, *rlock.Lock) (*rlock.Hold, error)) acquireVerb {
	return func(ctx context.Context, of *rlock.Lock) (bool, error) {
		h, err := l(ctx, of)
		if err == nil {
			letGo(h)
		}
		return err == nil, err
	}
}

// acquiringVerbs acquires in all ways that Lock has.
var acquiringVerbs = map[string]acquireVerb{
	"Lock": calling(func(ctx context.Context, l *rlock.Lock) (*rlock.Hold, error) { return l.Lock(ctx) }),
	"WithWait": calling(func(ctx context.Context, l *rlock.Lock) (*rlock.Hold, error) {
		return l.WithWait(time.Minute).Lock(ctx)
	}),
	"WithLease": calling(func(ctx context.Context, l *rlock.Lock) (*rlock.Hold, error) {
		return l.WithLease(time.Minute).Lock(ctx)
	}),
	"WithLabel": calling(func(ctx context.Context, l *rlock.Lock) (*rlock.Hold, error) {
		return l.WithLabel("job").Lock(ctx)
	}),
	"TryLock": calling(func(ctx context.Context, l *rlock.Lock) (*rlock.Hold, error) { return l.TryLock(ctx, 0, 0) }),
	"TryLock with a lease": calling(func(ctx context.Context, l *rlock.Lock) (*rlock.Hold, error) {
		return l.TryLock(ctx, 0, time.Minute)
	}),
	"Do": func(ctx context.Context, l *rlock.Lock) (ran bool, err error) {
		err = l.Do(ctx, func(ctx context.Context) error {
			if ran = true; ctx.Err() != nil {
				return errFn
			}
			return nil
		})
		return ran, err
	},
	"DoOnce": func(ctx context.Context, l *rlock.Lock) (bool, error) {
		return l.DoOnce(ctx, time.Millisecond, func(ctx context.Context) error {
			if ctx.Err() != nil {
				return errFn
			}
			return nil
		})
	},
}

// TestAcquire_OverBeforeTheCall_HoldsNothing changes each precondition before the call, for every kind and verb: a
// fresh call and a re-entry are refused alike.
func TestAcquire_OverBeforeTheCall_HoldsNothing(t *testing.T) {
	t.Parallel()
	why := errors.New("the customer left")
	cases := 0
	for kind := range kindsOf(t, newRig(t, redistest.Embedded(t), rlock.Options{}).locks) {
		for name, call := range acquiringVerbs {
			t.Run(kind+", "+name, func(t *testing.T) {
				r := newRig(t, redistest.Embedded(t), rlock.Options{})
				l := kindsOf(t, r.locks)[kind]
				refused := func(ctx context.Context, what string, want ...error) {
					t.Helper()
					cases++
					ran, err := call(ctx, l)
					require.False(t, ran, "%s: %v", what, err)
					for _, want := range want {
						require.ErrorIs(t, err, want, what)
					}
					require.NotErrorIs(t, err, errs.ErrUnavailable, what)
				}
				ended := func(ctx context.Context) context.Context {
					ctx, cancel := context.WithCancelCause(ctx)
					cancel(why)
					return ctx
				}
				refused(ended(within(t)), "a fresh call", errs.ErrNotAcquired, context.Canceled, why)

				h := lock(t, l, within(t))
				if name != "DoOnce" { // it re-enters nothing
					refused(ended(h.Context(within(t))), "a re-entry", errs.ErrNotAcquired, context.Canceled, why)
				}
				if kind == "Reentrant" {
					named := l.WithOwner(within(t), h.Owner())
					refused(ended(named), "a re-entry by name", context.Canceled)
				}
				// another handle of the same owner outlives h
				other := h
				switch kind {
				case "NonReentrant", "Plain":
				case "Read":
					other = lock(t, l, within(t))
				default:
					other = lock(t, l, h.Context(within(t)))
				}
				past := h.Context(within(t))
				require.NoError(t, h.Unlock(within(t)))
				if name != "DoOnce" {
					refused(past, "under a hold that is over", errs.ErrLost)
					refused(context.WithoutCancel(past), "under the values of a hold that is over", errs.ErrLost)
				}
				require.NoError(t, other.Unlock(within(t)))
				require.NoError(t, r.locks.Close(within(t)))
				refused(within(t), "a closed client", errs.ErrClosed)
				refused(context.WithoutCancel(past), "a closed client, and a hold that is over", errs.ErrClosed)
			})
		}
	}
	t.Logf("%d calls", cases)
}

// TestReentry_CtxEndsWhileItAsks_IsNotAcquired: only a re-entry with a lease asks the server.
func TestReentry_CtxEndsWhileItAsks_IsNotAcquired(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		p := redistest.NewProxy(t, servers[0])
		r := newRig(t, p.Server(), rlock.Options{})
		for kind, l := range kindsOf(t, r.locks) {
			if kind == "NonReentrant" || kind == "Plain" {
				continue
			}
			h := lock(t, l, within(t))
			p.Delay(50*time.Millisecond, 50*time.Millisecond)
			ctx, cancel := context.WithTimeout(h.Context(context.Background()), 60*time.Millisecond)
			_, err := l.TryLock(ctx, 0, time.Hour)
			cancel()
			require.ErrorIs(t, err, errs.ErrNotAcquired, kind)
			require.ErrorIs(t, err, context.DeadlineExceeded, kind)
			require.NotErrorIs(t, err, errs.ErrUnavailable, kind)
			require.NotErrorIs(t, err, errs.ErrUnknownOutcome, kind)
			p.Delay(0, 0)
			require.NoError(t, h.Err(), kind)
			require.NoError(t, h.Unlock(context.Background()), kind)
		}
	})
}

// A context of a read hold that is over passes no writer, though other readers of its process share the owner.
func TestReentry_ReleasedRead_PassesNoWriter(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r, other := newRig(t, servers[0], rlock.Options{}), newRig(t, servers[0], rlock.Options{})
		rw := r.locks.ReadWrite("x")
		a, b := lock(t, rw.Read(), within(t)), lock(t, rw.Read(), within(t))
		require.Equal(t, a.Owner(), b.Owner())
		past := context.WithoutCancel(a.Context(within(t)))
		require.NoError(t, a.Unlock(within(t)))
		writer := pass(t, other.locks.ReadWrite("x").Write())
		time.Sleep(time.Second)
		_, err := rw.Read().Lock(past)
		require.ErrorIs(t, err, errs.ErrLost)
		require.NoError(t, b.Unlock(within(t)))
		require.NoError(t, <-writer)
	})
}

// TestDo_CtxEndsAsItIsGranted_DoesNotRun: the grant is there, and its caller has left by then.
func TestDo_CtxEndsAsItIsGranted_DoesNotRun(t *testing.T) {
	t.Parallel()
	var leave context.CancelFunc
	watch := func(ctx context.Context, e redlatch.Event) context.Context {
		if e.Kind == redlatch.EventAcquired && leave != nil {
			leave()
		}
		return ctx
	}
	r := newRig(t, redistest.Embedded(t), rlock.Options{Observer: watch})
	for kind, l := range kindsOf(t, r.locks) {
		for _, name := range []string{"Do", "DoOnce"} {
			var ctx context.Context
			ctx, leave = context.WithCancel(within(t))
			ran, err := acquiringVerbs[name](ctx, l)
			leave = nil
			require.False(t, ran, "%s, %s: %v", kind, name, err)
			require.ErrorIs(t, err, errs.ErrNotAcquired, "%s, %s", kind, name)
			require.ErrorIs(t, err, context.Canceled, "%s, %s", kind, name)
			require.NoError(t, l.Do(within(t), func(context.Context) error { return nil }), "it is released")
		}
	}
}
