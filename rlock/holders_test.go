package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

// refusal is the error of a call that waited for so long and gave up.
func refusal(t *testing.T, l *rlock.Lock, wait time.Duration) *rlock.NotAcquiredError {
	t.Helper()
	_, err := l.TryLock(within(t), wait, 0)
	var refused *rlock.NotAcquiredError
	require.ErrorAs(t, err, &refused)
	return refused
}

// named is such an error that names holders, as so many tries in a row on a busy machine need not: there is little time
// for it.
func named(t *testing.T, l *rlock.Lock) (refused *rlock.NotAcquiredError) {
	t.Helper()
	redistest.Eventually(t, 30*time.Second, "the holder is named", func() bool {
		refused = refusal(t, l, 110*time.Millisecond)
		return len(refused.Holders) > 0
	})
	return refused
}

func TestNotAcquired_OtherProgram_NamesItsOwner(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		set := r.redis.B().Set().Key("redsync").Value("b64==").Nx().Px(time.Minute).Build()
		require.NoError(t, r.redis.Do(within(t), set).Error())
		const java = "1a2b3c4d-5a1e-4c61-9d0a-6f4f3a2b1c0d:42"
		wire.Must(t, r.redis, "HSET", "java", java, "1")
		wire.Must(t, r.redis, "PEXPIRE", "java", "60000")

		migrated := named(t, r.locks.Reentrant("redsync"))
		require.Equal(t, "string", migrated.Kind)
		require.Len(t, migrated.Holders, 1)
		require.EqualValues(t, "b64==", migrated.Holders[0].ID)
		require.Regexp(t, `held by owner "b64==", lease ends in .* \(the holder is not of this library\) \(held as`,
			migrated.Error())

		refused := named(t, r.locks.Reentrant("java"))
		require.Len(t, refused.Holders, 1)
		require.EqualValues(t, java, refused.Holders[0].ID)
		require.Empty(t, refused.Holders[0].Process)
		require.True(t, refused.Foreign)
		require.ErrorContains(t, refused, `held by owner "`+java+`", lease ends in`)
	})
}

func TestNotAcquired_ManyReaders_AreNotAllNamed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, other := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
	for range 14 {
		lock(t, r.locks.ReadWrite("rw").Read().WithLabel("a reader"), within(t))
	}
	refused := named(t, other.locks.ReadWrite("rw").Write())
	require.Len(t, refused.Holders, 10)
	require.Equal(t, "a reader", refused.Holders[0].Label)
	require.ErrorContains(t, refused, ", 7 more")
}

// One that does not wait costs one call, and one that was cancelled is read by nobody.
func TestNotAcquired_DidNotWait_AsksNoOneWhoHolds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newUntracked(t, s)
	wire.Must(t, r.redis, "HSET", "l", "other:1", "1")
	wire.Must(t, r.redis, "PEXPIRE", "l", "600000")
	l := r.locks.Reentrant("l")
	require.Empty(t, refusal(t, l, 0).Holders)
	before := redistest.CommandCalls(t, r.redis)
	for range 5 {
		require.Empty(t, refusal(t, l, 0).Holders)
	}
	after := redistest.CommandCalls(t, r.redis)
	require.Equal(t, 5, after["evalsha"]-before["evalsha"])
	require.Zero(t, after["subscribe"])
	require.Empty(t, refusal(t, l, 20*time.Millisecond).Holders, "nor for a short wait")

	ctx, cancel := context.WithCancel(within(t))
	time.AfterFunc(150*time.Millisecond, cancel)
	_, err := l.Lock(ctx)
	var refused *rlock.NotAcquiredError
	require.ErrorAs(t, err, &refused)
	require.Empty(t, refused.Holders)
}
