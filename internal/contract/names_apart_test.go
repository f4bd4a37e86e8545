package contract_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// lockKinds are all kinds of locks.
var lockKinds = map[string]func(c *rlock.Client, name string) *rlock.Lock{
	"Reentrant":    (*rlock.Client).Reentrant,
	"NonReentrant": (*rlock.Client).NonReentrant,
	"Plain":        (*rlock.Client).Plain,
	"Fenced":       (*rlock.Client).Fenced,
	"Fair":         (*rlock.Client).Fair,
	"Spin":         func(c *rlock.Client, name string) *rlock.Lock { return c.Spin(name, 0, 0) },
	"Read":         func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Read() },
	"Write":        func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() },
	"Multi": func(c *rlock.Client, name string) *rlock.Lock {
		if l, err := rlock.Multi(c.Reentrant(name)); err == nil {
			return l
		}
		return c.Reentrant(name) // has the same error
	},
}

// lockRefused are the kinds that refuse a name which is one pair of braces.
var lockRefused = []string{"Fenced", "Fair", "Read", "Write"}

// processes opens n clients of a server. Each is a process to the others.
func processes(t *testing.T, s *redistest.Server, n int) []*redlatch.Client {
	t.Helper()
	all := make([]*redlatch.Client, n)
	for i := range all {
		red, err := redlatch.Open(t.Context(), s.Option(),
			redlatch.Options{CallTimeout: 10 * time.Second, Sales: withBooks,
				Locks: func(o *rlock.Options) { o.Liveness = true }})
		require.NoError(t, err)
		closesWithin(t, red, 10*time.Second)
		all[i] = red
	}
	return all
}

// The waiter of {x} came first. It is in no queue of x: a release of x is for a waiter of x.
func TestBraces_UnlockOfX_IsHandedToAWaiterOfX(t *testing.T) {
	t.Parallel()
	for kind, of := range lockKinds {
		if slices.Contains(lockRefused, kind) {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			red := processes(t, redistest.Start(t), 4)
			hold := func(i int, name string) *rlock.Hold {
				h := redistest.NoError(of(red[i].Locks(), name).Lock(ctx))(t)
				return h
			}
			wait := func(i int, name string) chan *rlock.Hold {
				got := make(chan *rlock.Hold, 1)
				go func() {
					h, err := of(red[i].Locks(), name).Lock(ctx)
					if err != nil {
						t.Error(name, err)
					}
					got <- h
				}()
				redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return red[i].Locks().Stats().Waiting == 1 })
				return got
			}
			x, braced := hold(0, "x"), hold(1, "{x}")
			ofBraced, ofX := wait(2, "{x}"), wait(3, "x")
			require.NoError(t, x.Unlock(ctx))
			select {
			case h := <-ofX:
				require.NoError(t, h.Unlock(ctx))
			case <-ofBraced:
				t.Fatal("two hold {x}")
			case <-time.After(10 * time.Second):
				t.Fatal("x is free, and its waiter waits")
			}
			require.Empty(t, ofBraced, "two hold {x}")
			require.NoError(t, braced.Unlock(ctx))
			h := <-ofBraced
			require.NotNil(t, h)
			require.NoError(t, h.Unlock(ctx))
		})
	}
}

// The keys that Redisson has for {x} besides the lock's own are those that it has for x.
func TestBraces_KindsWhoseKeysAreRedissons_RefuseThem(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	red := processes(t, redistest.Start(t), 1)[0]
	got := map[string]error{}
	for _, kind := range lockRefused {
		h, err := lockKinds[kind](red.Locks(), "{x}").TryLock(ctx, 0, 0)
		if got[kind] = err; err == nil {
			require.NoError(t, h.Unlock(ctx))
		}
	}
	_, got["Election"] = red.Elections().Election("{x}").Campaign(ctx, "")
	_, got["Election.Leader"] = red.Elections().Election("{x}").Leader(ctx)
	_, got["Semaphore"] = red.Semaphores().Semaphore("{x}", 1).TryAcquire(ctx, 1, 0, 0)
	_, got["Semaphore.Inspect"] = red.Semaphores().Semaphore("{x}", 1).Inspect(ctx)
	for what, err := range got {
		require.ErrorIs(t, err, errs.ErrInvalidName, what)
		require.ErrorContains(t, err, `"{x}" is one pair of braces`, what)
	}
}
