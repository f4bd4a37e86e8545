package rlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

func TestReply_OfNoScript_IsSaidAsItIs(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	hub, err := pubsub.New(redistest.Forged{Client: s.Client(t)}, pubsub.Options{})
	require.NoError(t, err)
	defer hub.Close(context.Background())
	locks, err := rlock.New(hub, rlock.Options{})
	require.NoError(t, err)
	defer locks.Close(within(t))
	m, err := rlock.Multi(locks.Reentrant("a"), locks.Reentrant("b"))
	require.NoError(t, err)
	_, err = m.TryLock(within(t), 0, 0)
	require.ErrorContains(t, err, "unexpected reply [1]")
	require.NotContains(t, err.Error(), "%!")
	_, err = locks.Reentrant("a").Inspect(within(t))
	require.ErrorContains(t, err, "unexpected reply of 1 values")
	require.NotContains(t, err.Error(), "%!")
}
