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

func TestProcessName_WhileSomethingIsHeld_IsKept(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{Process: "worker"}, func(t *testing.T, s *redistest.Server, rigs []*rig) {
		ctx := context.Background()
		locks := rigs[0].locks
		is := func(name, process string) {
			t.Helper()
			state, err := rigs[1].locks.Reentrant(name).Inspect(ctx)
			require.NoError(t, err)
			require.Equal(t, process, state.Holders[0].Process)
		}
		h := lock(t, locks.Reentrant("first"), ctx)
		is("first", "") // an acquisition writes nothing
		time.Sleep(1100 * time.Millisecond)
		is("first", "worker")
		before := s.Embedded.CommandCount()
		time.Sleep(time.Hour) // it is written again
		require.NotZero(t, s.Embedded.CommandCount()-before)
		is("first", "worker")
		require.NoError(t, h.Unlock(ctx))
		h = lock(t, locks.Plain("plain"), ctx) // the client is known: so are holds of any length and kind
		is("plain", "worker")
		require.NoError(t, h.Unlock(ctx))
		time.Sleep(25 * time.Minute)
		require.Empty(t, s.Embedded.Keys(), "it is forgotten")
		h = lock(t, locks.Reentrant("again"), ctx)
		time.Sleep(10 * time.Millisecond)
		is("again", "worker")
		require.NoError(t, h.Unlock(ctx))
	})
}

// A client that holds nothing for as long as a second is known as well, once it has held something.
func TestProcessName_ShortHolds_IsShown(t *testing.T) {
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
func TestProcessName_RightMissing_HoldsAsEver(t *testing.T) {
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

func TestProcessName_Cluster_IsShown(t *testing.T) {
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
		redistest.Eventually(t, 30*time.Second, "a refusal names the process", func() bool {
			holder := named(t, other.locks.Reentrant(name)).Holders[0] // a short patience may not suffice for the process
			require.Equal(t, string(holds[i].Owner()), holder.ID)
			return holder.Process == "worker"
		})
		require.NoError(t, holds[i].Unlock(within(t)))
	}
}
