package redlatch_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// actors are processes: one holds, one waits, and one does all the rest.
type actors struct{ holder, waiter, other *rlock.Client }

func (s *hostileRig) actors(t *testing.T) actors {
	make := func() *rlock.Client {
		c, err := rlock.New(s.hub, rlock.Options{CallTimeout: calls, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			c.Close(ctx)
		})
		return c
	}
	return actors{make(), make(), make()}
}

// lockScenes are those of one kind of lock. held is what the holder has, wanted what the others want.
func (s *hostileRig) lockScenes(a actors, kind string, held, wanted func(c *rlock.Client, name string) *rlock.Lock,
	joins bool) []hostileCase {
	acts := func(name string, hold *rlock.Hold) (all []act) {
		l := wanted(a.other, name)
		take := func(ctx context.Context, wait time.Duration) error {
			h, err := l.TryLock(ctx, wait, 0)
			if err == nil {
				err = h.Unlock(ctx)
			}
			return err
		}
		all = append(all,
			does("IsLocked", func(ctx context.Context) error { return second(l.IsLocked(ctx)) }),
			does("Inspect", func(ctx context.Context) error { return second(l.Inspect(ctx)) }),
			does("TryLock", func(ctx context.Context) error { return take(ctx, 0) }),
			waitsFor("Lock", func(ctx context.Context) error { return take(ctx, time.Second) }),
		)
		if hold != nil {
			all = append(all,
				does("Extend", func(ctx context.Context) error { return hold.Extend(ctx, time.Minute) }),
				does("join", func(ctx context.Context) error {
					m := held(a.other, name)
					h, err := m.TryLock(m.WithOwner(ctx, hold.Owner()), 0, 0)
					if err == nil {
						err = h.Unlock(ctx)
					}
					return err
				}),
				does("UnlockAfter", func(ctx context.Context) error { return hold.UnlockAfter(ctx, 5*time.Second) }),
				does("Unlock", func(ctx context.Context) error { return hold.Unlock(ctx) }),
			)
		}
		return append(all,
			does("ForceUnlock", func(ctx context.Context) error { return second(l.ForceUnlock(ctx)) }),
			does("TryLock again", func(ctx context.Context) error { return take(ctx, 0) }),
		)
	}
	works := func(ctx context.Context, name string) error {
		var h *rlock.Hold
		for h == nil { // it is handed to those in line first, who are gone
			for _, l := range []*rlock.Lock{held(a.other, name), wanted(a.other, name)} {
				if _, err := l.ForceUnlock(ctx); err != nil {
					return err
				}
			}
			var err error
			if h, err = wanted(a.other, name).TryLock(ctx, 0, 0); err != nil && !errors.Is(err, redlatch.ErrNotAcquired) {
				return err
			}
		}
		if _, err := wanted(a.other, name).Inspect(ctx); err != nil {
			return err
		}
		return h.Unlock(ctx)
	}
	hold := func(t testing.TB, name string) *rlock.Hold {
		h, err := held(a.holder, name).WithLabel("label").Lock(context.Background())
		require.NoError(t, err)
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
				x, err := wanted(a.waiter, name).Lock(ctx)
				if err == nil {
					x.Unlock(context.Background())
				}
				return err
			}, func() bool {
				state, err := wanted(a.other, name).Inspect(context.Background())
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
			m := held(a.waiter, name)
			j, err := m.Lock(m.WithOwner(context.Background(), h.Owner()))
			require.NoError(t, err)
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

func TestHostileValuesOfLocksAreErrWrongType(t *testing.T) {
	t.Parallel()
	of := func(make func(c *rlock.Client, name string) *rlock.Lock) [2]func(c *rlock.Client, name string) *rlock.Lock {
		return [2]func(c *rlock.Client, name string) *rlock.Lock{make, make}
	}
	write := func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() }
	read := func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Read() }
	kinds := map[string][2]func(c *rlock.Client, name string) *rlock.Lock{
		"Reentrant": of((*rlock.Client).Reentrant),
		"Fenced":    of((*rlock.Client).Fenced),
		"Fair":      of((*rlock.Client).Fair),
		"Plain":     of((*rlock.Client).Plain),
		"Write":     of(write),
		"ReadWrite": {read, write},
		"WriteRead": {write, read},
		"Multi": of(func(c *rlock.Client, name string) *rlock.Lock {
			m, err := rlock.Multi(c.Reentrant("{"+name+"}1"), c.Fenced("{"+name+"}2"))
			if err != nil {
				panic(err)
			}
			return m
		}),
	}
	redistest.SideBySide(t, kinds, func(t *testing.T, kind string, k [2]func(c *rlock.Client, name string) *rlock.Lock) {
		s := newStage(t)
		defer s.report(t)
		a := s.actors(t)
		joins := kind == "Reentrant"
		scenes := s.lockScenes(a, kind, k[0], k[1], joins)
		s.suffer(t, strings.ToLower(kind), scenes, redistest.Sized(40, 30, 1))
	})
}
