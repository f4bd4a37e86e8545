package rlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func TestInspectNamesTheProcessOfEachHolderWithoutLiveness(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	bubble(t, 2, rlock.Options{Process: "worker"}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		a, b := rigs[0].locks, rigs[1].locks
		who := func(name string) (all []string) {
			state, err := b.Reentrant(name).Inspect(ctx)
			require.NoError(t, err)
			for _, h := range state.Holders {
				all = append(all, h.Process)
			}
			for _, w := range state.Waiters {
				all = append(all, "waits: "+w.Process)
			}
			return all
		}
		h := lock(t, a.Reentrant("first"), ctx)
		require.Equal(t, []string{""}, who("first"), "an acquisition writes nothing")
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, []string{"worker"}, who("first"))
		require.NoError(t, h.Unlock(ctx))

		// For the client is known now, and holds of any length and kind are.
		r, w := a.ReadWrite("rw").Read(), lock(t, a.Plain("plain"), ctx)
		hold := lock(t, r, ctx)
		require.Equal(t, []string{"worker"}, who("rw"))
		require.Equal(t, []string{"worker"}, who("plain"))
		waited := make(chan error)
		go func() { waited <- b.Reentrant("kept").Do(ctx, func(context.Context) error { return nil }) }()
		require.NoError(t, <-waited)
		require.NoError(t, w.Unlock(ctx))
		require.NoError(t, hold.Unlock(ctx))

		// It is written again while something is held, and forgotten when nothing is.
		h = lock(t, a.Reentrant("long"), ctx)
		before := s.Embedded.CommandCount()
		time.Sleep(time.Hour)
		require.NotZero(t, s.Embedded.CommandCount()-before)
		require.Equal(t, []string{"worker"}, who("long"))
		require.NoError(t, h.Unlock(ctx))
		time.Sleep(25 * time.Minute)
		require.Empty(t, s.Embedded.Keys())
		h = lock(t, a.Reentrant("again"), ctx)
		time.Sleep(10 * time.Millisecond)
		require.Equal(t, []string{"worker"}, who("again"))
		require.NoError(t, h.Unlock(ctx))
	})
}

// A client that holds nothing for as long as a second is known as well, once it has held something.
func TestAProcessOfShortHoldsIsNamed(t *testing.T) {
	t.Parallel()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		l := rigs[0].locks.Reentrant("l")
		for range 30 {
			h := lock(t, l, ctx)
			time.Sleep(50 * time.Millisecond)
			require.NoError(t, h.Unlock(ctx))
		}
		h := lock(t, l, ctx)
		state, err := l.Inspect(ctx)
		require.NoError(t, err)
		require.Regexp(t, `^.+:\d+$`, state.Holders[0].Process, "host:pid")
		require.NoError(t, h.Unlock(ctx))
	})
}

// What cannot be written costs no hold, and no line.
func TestAProcessThatMayNotSayItsNameHoldsAsEver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Ask(t, "ACL", "SETUSER", "nameless", "on", ">secret", "~l*", "~redlatch_queue:*", "~redlatch_rw*", "~redisson_*",
		"&*", "+@all")
	var log redistest.Logbook
	r := newRigWith(t, s, rlock.Options{Logger: log.Logger()}, func(o *rueidis.ClientOption) {
		o.Username, o.Password = "nameless", "secret"
	})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	redistest.Eventually(t, 10*time.Second, "it is refused", func() bool {
		return strings.Contains(s.Ask(t, "ACL", "LOG"), "redlatch_alive")
	})
	state, err := r.locks.Reentrant("l").Inspect(within(t))
	require.NoError(t, err)
	require.Len(t, state.Holders, 1)
	require.Empty(t, state.Holders[0].Process)
	require.NoError(t, h.Err())
	require.NoError(t, h.Unlock(within(t)))
	require.Empty(t, log.String())
}

func TestInspectNamesProcessesInACluster(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	r, other := newRig(t, s, rlock.Options{Process: "worker"}), newRig(t, s, rlock.Options{})
	names := []string{"a", "b", "c{1}"} // in several parts of the slots
	var holds []*rlock.Hold
	for _, name := range names {
		holds = append(holds, lock(t, r.locks.Reentrant(name), within(t)))
	}
	for i, name := range names {
		redistest.Eventually(t, 10*time.Second, "it says who it is", func() bool {
			state, err := other.locks.Reentrant(name).Inspect(within(t))
			return err == nil && len(state.Holders) == 1 && state.Holders[0].Process == "worker"
		})
		require.NoError(t, holds[i].Unlock(within(t)))
	}
}
