package redlatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestOneProcessNameIsForLocksPermitsAndLeaders(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	open := func(process string) *redlatch.Client {
		red, err := redlatch.Open(s.Option(), redlatch.Options{Process: process, CallTimeout: 5 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { red.Close(context.Background()) })
		return red
	}
	red, other := open("worker"), open("")
	h, err := red.Locks().Reentrant("lock").Lock(t.Context())
	require.NoError(t, err)
	p, err := red.Semaphores().Semaphore("permits", 2).Acquire(t.Context(), 1)
	require.NoError(t, err)
	l, err := red.Elections().Election("leader").Campaign(t.Context(), "")
	require.NoError(t, err)
	redistest.Eventually(t, 20*time.Second, "all say who holds", func() bool {
		lock, err := other.Locks().Reentrant("lock").Inspect(t.Context())
		require.NoError(t, err)
		permits, err := other.Semaphores().Semaphore("permits", 2).Inspect(t.Context())
		require.NoError(t, err)
		leader, err := other.Locks().Reentrant("leader").Inspect(t.Context())
		require.NoError(t, err)
		return lock.Holders[0].Process == "worker" && permits.Permits[0].Process == "worker" &&
			leader.Holders[0].Process == "worker"
	})
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, p.Release(t.Context()))
	require.NoError(t, l.Resign(t.Context()))

	_, err = redlatch.Open(s.Option(), redlatch.Options{Process: string(make([]byte, 257))})
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	require.ErrorContains(t, err, "Process is")
}
