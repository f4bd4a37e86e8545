package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// follower is an Observer that gives each acquisition and each release a number of its own, and notes what is told
// under which.
type follower struct{ redistest.Steps }

func (f *follower) observer() rlock.Observer {
	return func(ctx context.Context, e rlock.Event) context.Context {
		switch e.Kind {
		case rlock.EventAcquiring:
			return f.Begin(ctx, "acquires %s", e.Name)
		case rlock.EventWaiting:
			f.Note("%d waits for %s", f.Step(ctx), e.Name)
		case rlock.EventAcquired:
			f.Note("%d acquired %s", f.Step(ctx), e.Name)
		case rlock.EventNotAcquired:
			f.Note("%d did not acquire %s", f.Step(ctx), e.Name)
		case rlock.EventReleasing:
			return f.Begin(ctx, "releases %s of %d", e.Name, f.Step(e.Acquisition))
		case rlock.EventReleased:
			f.Note("%d released %s: %v", f.Step(ctx), e.Name, e.Err == nil)
		case rlock.EventEnded:
			f.Note("%d lost %s", f.Step(ctx), e.Name)
		}
		return ctx
	}
}

// heeding is an Observer of one kind of event.
func heeding(kind rlock.EventKind, f func(e rlock.Event)) rlock.Observer {
	return func(ctx context.Context, e rlock.Event) context.Context {
		if e.Kind == kind {
			f(e)
		}
		return ctx
	}
}

// stepped is a client that notes under which step each script was sent. The watchdog looks at a lock that it begins to
// track: that is no step's, and may come at any time.
type stepped struct {
	rueidis.Client
	f *follower
}

func (c *stepped) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if n := c.f.Step(ctx); n > 0 && cmd.Commands()[0] == "EVALSHA" {
		c.f.Note("%d sent", n)
	}
	return c.Client.Do(ctx, cmd)
}

func TestAnObserverFollowsACallByTheContextThatItReturned(t *testing.T) {
	t.Parallel()
	f := &follower{}
	ctx := within(t)
	co := redistest.Embedded(t).Option()
	client, err := rueidis.NewClient(co)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	hub, err := pubsub.New(&stepped{client, f}, pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	locks, err := rlock.New(hub,
		rlock.Options{CallTimeout: 20 * time.Second, WatchdogTimeout: 5 * time.Minute, Observer: f.observer()})
	require.NoError(t, err)
	t.Cleanup(func() { locks.Close(context.Background()) })
	l := locks.Reentrant("l")
	lock(t, l, ctx).Unlock(ctx)
	f.Take() // the scripts were sent

	hold := lock(t, l, ctx)
	again := lock(t, l, hold.Context(ctx))
	_, err = l.TryLock(ctx, 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	require.NoError(t, hold.Unlock(ctx))
	require.NoError(t, hold.Unlock(ctx)) // has that result, and is not told
	require.NoError(t, again.Unlock(again.Context(ctx)))
	require.Equal(t, []string{
		"3 acquires l", "3 sent", "3 acquired l",
		"4 acquires l", "4 acquired l",
		"5 acquires l", "5 sent", "5 did not acquire l",
		"6 releases l of 3", "6 released l: true",
		"7 releases l of 4", "7 sent", "7 released l: true",
	}, f.Take(), "a re-entry is an acquisition of its own")

	read := locks.ReadWrite("rw").Read()
	one, two := lock(t, read, ctx), lock(t, read, ctx)
	require.NoError(t, one.Unlock(ctx))
	require.NoError(t, two.Unlock(ctx))
	notes := slices.DeleteFunc(f.Take(), func(s string) bool { return s[len(s)-4:] == "sent" })
	require.Equal(t, []string{
		"8 acquires rw", "8 acquired rw", "9 acquires rw", "9 acquired rw",
		"10 releases rw of 8", "10 released rw: true", "11 releases rw of 9", "11 released rw: true",
	}, notes, "readers that share a hold have acquisitions of their own")

	both, err := rlock.Multi(locks.Reentrant("m1"), locks.Reentrant("m2"))
	require.NoError(t, err)
	all := lock(t, both, ctx)
	_, err = both.TryLock(ctx, 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	require.NoError(t, all.Unlock(ctx))
	notes = f.Take()
	for _, want := range []string{"12 acquired m1", "13 acquired m2", "14 did not acquire m1", "15 did not acquire m2"} {
		require.Contains(t, notes, want)
	}
	followed(t, notes)

	hold = lock(t, l, ctx)
	_, err = l.ForceUnlock(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, hold.Extend(ctx, 10*time.Minute), errs.ErrLost)
	require.ErrorIs(t, hold.Unlock(ctx), errs.ErrLost)
	notes = f.Take()
	require.Contains(t, notes, "18 lost l")
	require.Contains(t, notes, "19 releases l of 18")
	require.Contains(t, notes, "19 released l: false")
}

// followed checks that each acquisition and each release that was begun has ended once, under its own number.
func followed(t *testing.T, notes []string) {
	t.Helper()
	begun, ended := map[string]int{}, map[string]int{}
	for _, note := range notes {
		var n, of int
		var name string
		switch {
		case scan(note, "%d acquires %s", &n, &name), scan(note, "%d releases %s of %d", &n, &name, &of):
			begun[fmt.Sprint(n)]++
		case scan(note, "%d acquired %s", &n, &name), scan(note, "%d did not acquire %s", &n, &name),
			scan(note, "%d released %s", &n, &name):
			ended[fmt.Sprint(n)]++
		}
	}
	require.Equal(t, begun, ended, "%q", notes)
	for n, times := range begun {
		require.Equal(t, 1, times, "%s: %q", n, notes)
	}
}

func scan(s, format string, to ...any) bool {
	n, err := fmt.Sscanf(s, format, to...)
	return err == nil && n == len(to)
}

func TestWaitingIsToldOnceToEachThatWaitsAndToNobodyElse(t *testing.T) {
	t.Parallel()
	for kind, of := range map[string]func(c *rlock.Client, name string) *rlock.Lock{
		"reentrant": (*rlock.Client).Reentrant,
		"fair":      (*rlock.Client).Fair,
		"plain":     (*rlock.Client).Plain,
		"spin": func(c *rlock.Client, name string) *rlock.Lock {
			return c.Spin(name, time.Millisecond, 10*time.Millisecond)
		},
		"write": func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := &follower{}
			r := newRig(t, redistest.Embedded(t),
				rlock.Options{CallTimeout: 20 * time.Second, WatchdogTimeout: time.Minute, Observer: f.observer()})
			ctx := within(t)
			l := of(r.locks, kind)
			hold := lock(t, l, ctx)
			_, err := l.TryLock(ctx, 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			for _, note := range f.Take() {
				require.NotContains(t, note, "waits")
			}
			const waiters = 3
			var all sync.WaitGroup
			for range waiters {
				all.Go(func() {
					if err := l.Do(ctx, func(context.Context) error { return nil }); err != nil {
						t.Error(err)
					}
				})
			}
			var notes []string
			waiting := func() (n int) {
				notes = append(notes, f.Take()...)
				for _, note := range notes {
					var id int
					var name string
					if scan(note, "%d waits for %s", &id, &name) {
						require.NotZero(t, id)
						n++
					}
				}
				return n
			}
			require.Eventually(t, func() bool { return waiting() == waiters }, 30*time.Second, time.Millisecond)
			require.NoError(t, hold.Unlock(ctx))
			all.Wait()
			require.Equal(t, waiters, waiting(), "%q", notes)
			var rest []string // the first hold's acquisition was taken before
			for _, note := range notes {
				if !slices.Contains([]string{"1", "2"}, note[:1]) || note[1] != ' ' {
					rest = append(rest, note)
				}
			}
			followed(t, rest)
		})
	}
}
