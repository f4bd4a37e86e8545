package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

// granted writes what a late try of an owner writes.
func (r *rig) granted(t *testing.T, key string, owner rlock.Owner) {
	t.Helper()
	wire.Must(t, r.redis, "HSET", key, string(owner), "1")
	wire.Must(t, r.redis, "PEXPIRE", key, "60000")
}

// A first request without an answer may be granted after the hold that a second one brought has been released.
func TestLateGrant_HoldReleased_IsGivenBack(t *testing.T) {
	t.Parallel()
	gone := func(t *testing.T, r *rig, key string) {
		redistest.Eventually(t, 20*time.Second, "the late grant is given back", func() bool {
			return len(r.hash(t, key)) == 0
		})
	}
	t.Run("past MaxHold", func(t *testing.T) {
		r := newRig(t, redistest.Start(t), rlock.Options{MaxHold: 50 * time.Millisecond})
		h := lock(t, r.locks.Reentrant("l"), within(t))
		late := h.Late()
		<-h.Done()
		require.ErrorIs(t, h.Err(), errs.ErrMaxHold)
		late()
		require.Zero(t, r.locks.Owed(), "it is held until its Unlock")
		h.Unlock(within(t))
		r.granted(t, "l", h.Owner())
		late()
		gone(t, r, "l")
	})
	t.Run("in a client that is being closed", func(t *testing.T) {
		r := newRig(t, redistest.Start(t), rlock.Options{})
		h, other := lock(t, r.locks.Reentrant("l"), within(t)), lock(t, r.locks.Reentrant("other"), within(t))
		late := h.Late()
		closed := make(chan error, 1)
		go func() { closed <- r.locks.Close(within(t)) }()
		<-h.Done()
		require.ErrorIs(t, h.Err(), errs.ErrClosed)
		late()
		require.NotEmpty(t, r.hash(t, "l"), "it is held until its Unlock")
		require.NoError(t, h.Unlock(within(t)))
		r.granted(t, "l", h.Owner())
		late()
		gone(t, r, "l")
		require.NoError(t, other.Unlock(within(t)))
		require.NoError(t, <-closed)
	})
}

// A hold that is not renewed may be dropped on purpose, to be left to its lease.
func TestLateGrant_HoldDropped_IsLeftToItsLease(t *testing.T) {
	t.Parallel()
	r, log := newLoggedRig(t, redistest.Start(t), rlock.Options{WatchdogTimeout: time.Minute})
	var late func()
	var owner rlock.Owner
	func() {
		h := lock(t, r.locks.Reentrant("l"), context.Background())
		late, owner = h.Late(), h.Owner()
	}()
	dropped(t, "it is dropped", func() bool {
		return log.Count("dropped without Unlock") == 1
	})
	late()
	require.Zero(t, r.locks.Owed())
	require.Equal(t, map[string]string{string(owner): "1"}, r.hash(t, "l"))
}
