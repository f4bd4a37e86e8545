package contract_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// lockScenes are those of one kind of lock. held is what the holder has, wanted what the others want.
func (s *hostileRig) lockScenes(a actors, kind string, held, wanted func(c *rlock.Client, name string) *rlock.Lock,
	joins bool) []hostileCase {
	acts := func(name string, hold *rlock.Hold) (all []act) {
		l := wanted(a.other.Locks(), name)
		all = lockActs(l)
		if hold != nil {
			all = append(all,
				does("Extend", func(ctx context.Context) error { return hold.Extend(ctx, time.Minute) }),
				does("join", func(ctx context.Context) error {
					m := held(a.other.Locks(), name)
					h, err := m.TryLock(m.WithOwner(ctx, hold.Owner()), 0, 0)
					if err == nil {
						err = h.Unlock(ctx)
					}
					return err
				}),
				does("UnlockAfter", func(ctx context.Context) error { return hold.UnlockAfter(ctx, 5*time.Second) }),
				does("Unlock", hold.Unlock),
			)
		}
		return append(all, returns("ForceUnlock", l.ForceUnlock), lockActs(l)[2])
	}
	works := func(ctx context.Context, name string) error {
		var h *rlock.Hold
		for h == nil { // it is handed to those in line first, who are gone
			for _, l := range []*rlock.Lock{held(a.other.Locks(), name), wanted(a.other.Locks(), name)} {
				if _, err := l.ForceUnlock(ctx); err != nil {
					return err
				}
			}
			var err error
			h, err = wanted(a.other.Locks(), name).TryLock(ctx, 0, 0)
			if err != nil && !errors.Is(err, redlatch.ErrNotAcquired) {
				return err
			}
		}
		if _, err := wanted(a.other.Locks(), name).Inspect(ctx); err != nil {
			return err
		}
		return h.Unlock(ctx)
	}
	hold := func(t testing.TB, name string) *rlock.Hold {
		h := redistest.NoError(held(a.holder.Locks(), name).WithLabel("label").Lock(context.Background()))(t)
		return h
	}
	scenes := []hostileCase{
		{"free", func(t testing.TB, name string) ([]act, func()) {
			h := hold(t, name)
			require.NoError(t, h.Unlock(context.Background()))
			return acts(name, nil), func() {}
		}, works},
		{"held", func(t testing.TB, name string) ([]act, func()) {
			h := hold(t, name)
			return acts(name, h), func() { h.Unlock(context.Background()) }
		}, works},
		{"queued", func(t testing.TB, name string) ([]act, func()) {
			h := hold(t, name)
			end := s.waiting(t, kind, func(ctx context.Context) error {
				x, err := wanted(a.waiter.Locks(), name).Lock(ctx)
				if err == nil {
					x.Unlock(context.Background())
				}
				return err
			}, func() bool {
				state, err := wanted(a.other.Locks(), name).Inspect(context.Background())
				return err == nil && len(state.Waiters) > 0
			})
			return acts(name, h), func() {
				end()
				h.Unlock(context.Background())
			}
		}, works},
	}
	if joins {
		scenes = append(scenes, hostileCase{"joined", func(t testing.TB, name string) ([]act, func()) {
			h := hold(t, name)
			m := held(a.waiter.Locks(), name)
			j := redistest.NoError(m.Lock(m.WithOwner(context.Background(), h.Owner())))(t)
			return append(acts(name, h), does("Unlock of the join", func(ctx context.Context) error {
					return j.Unlock(ctx)
				})), func() {
					h.Unlock(context.Background())
					j.Unlock(context.Background())
				}
		}, works})
	}
	if kind == "Multi" { // whose waiters wait for its members
		scenes = scenes[:2]
	} else {
		scenes = append(scenes, hostileCase{"kept", func(t testing.TB, name string) ([]act, func()) {
			h := hold(t, name)
			require.NoError(t, h.UnlockAfter(context.Background(), time.Minute))
			return acts(name, nil), func() {}
		}, works})
	}
	return scenes
}

// lockPairs are the kinds of locks: of what is held, and of what others want.
func lockPairs() map[string]scenes {
	of := func(kind string, held, wanted func(c *rlock.Client, name string) *rlock.Lock) scenes {
		return func(s *hostileRig, a actors) []hostileCase {
			return s.lockScenes(a, kind, held, wanted, kind == "Reentrant")
		}
	}
	kinds := map[string]scenes{"ReadWrite": of("ReadWrite", lockKinds["Read"], lockKinds["Write"]),
		"WriteRead": of("WriteRead", lockKinds["Write"], lockKinds["Read"])}
	for _, kind := range []string{"Reentrant", "Fenced", "Fair", "Plain", "Write"} {
		kinds[kind] = of(kind, lockKinds[kind], lockKinds[kind])
	}
	multi := func(c *rlock.Client, name string) *rlock.Lock {
		m, err := rlock.Multi(c.Reentrant("{"+name+"}1"), c.Fenced("{"+name+"}2"))
		if err != nil {
			panic(err)
		}
		return m
	}
	kinds["Multi"] = of("Multi", multi, multi)
	kinds["Once"] = (*hostileRig).onceScenes
	return kinds
}

// onceScenes are those of a key of a Once: its function runs, others wait for that, or there is an answer.
func (s *hostileRig) onceScenes(a actors) []hostileCase {
	bg := context.Background()
	of := func(red *redlatch.Client, name string) *rlock.Once {
		return red.Locks().Once(name, rlock.OnceOptions{Keep: time.Minute, Stale: time.Minute})
	}
	running := func(t testing.TB, name string) (acts []act, end func()) {
		run := redistest.NoError(beginRun(bg, of(a.holder, name), "k"))(t).(*onceRun)
		return onceActs(of(a.other, name), "k"), func() { _ = run.end(bg) }
	}
	works := func(ctx context.Context, name string) error {
		err := onceActs(of(a.other, name), "k")[2].do(ctx)
		if errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrMismatch) {
			err = nil // a lock of a process that is gone, and the answer of another
		}
		return err
	}
	return []hostileCase{
		{"running", running, works},
		{"queued", func(t testing.TB, name string) ([]act, func()) {
			acts, finish := running(t, name)
			end := s.waiting(t, "Once", func(ctx context.Context) error {
				return onceActs(of(a.waiter, name).WithWait(time.Minute), "k")[2].do(ctx)
			}, func() bool {
				state, err := of(a.other, name).Inspect(bg, "k")
				return err == nil && len(state.Run.Waiters) > 0
			})
			return acts, func() {
				end()
				finish()
			}
		}, works},
		{"answered", func(t testing.TB, name string) ([]act, func()) {
			acts := onceActs(of(a.other, name), "k")
			require.NoError(t, acts[1].do(bg))
			return acts, func() {}
		}, works},
	}
}
