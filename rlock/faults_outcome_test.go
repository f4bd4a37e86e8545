package rlock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
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

// A resource takes whatever a hold without a token writes for the act of an earlier holder, or refuses it.
func TestFenced_GrantWithoutAToken_IsNoGrant(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	for _, reply := range []string{"return 1700000000000", "return {1, 30000, 1700000000000, 1, 0}",
		"return {1, 30000, 1700000000000, 1, 0, 0}", "return {1, 30000, 1700000000000, 1, 0, -1}"} {
		var cut atomic.Bool
		hub, err := pubsub.New(&wire.Garbled{Client: s.Client(t),
			Instead: func([]string) []string { return []string{"EVAL", reply, "0"} },
			Match: func(args []string) bool {
				return strings.HasPrefix(args[0], "EVAL") && cut.CompareAndSwap(false, true)
			}}, pubsub.Options{})
		require.NoError(t, err)
		defer hub.Close(context.Background())
		locks, err := rlock.New(hub, rlock.Options{})
		require.NoError(t, err)
		defer locks.Close(within(t))
		_, err = locks.Fenced("f").TryLock(within(t), 0, 0)
		require.ErrorContains(t, err, "unexpected reply without a token", reply)
	}
}
