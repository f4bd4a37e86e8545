package rlock_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
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
// for it. ok says that it names enough.
func named(t *testing.T, l *rlock.Lock, ok func(h rlock.Holder) bool) (refused *rlock.NotAcquiredError) {
	t.Helper()
	redistest.Eventually(t, 30*time.Second, "the holder is named", func() bool {
		refused = refusal(t, l, 110*time.Millisecond)
		return len(refused.Holders) > 0 && ok(refused.Holders[0])
	})
	return refused
}

func anyone(rlock.Holder) bool { return true }

func withProcess(h rlock.Holder) bool { return h.Process != "" }

func TestWhoGivesUpIsToldWhoHolds(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		host, err := os.Hostname()
		require.NoError(t, err)
		a, b := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{Process: "waiter"})
		redistest.SideBySide(t, exclusive, func(t *testing.T, kind string, k exclusiveKind) {
			h := lock(t, k.lock(a.locks, kind), within(t))
			who := fmt.Sprintf("%s:%d", host, os.Getpid())
			refused := named(t, k.lock(b.locks, kind), withProcess)
			require.Len(t, refused.Holders, 1, kind)
			require.Equal(t, h.Owner(), refused.Holders[0].Owner)
			require.Equal(t, who, refused.Holders[0].Process)
			require.Positive(t, refused.Holders[0].Lease)
			require.Regexp(t, fmt.Sprintf(
				`^rlock: %q not acquired after [\dms.]+: held by %s \(owner %s\), lease ends in [\d.]+s`,
				kind, who, h.Owner()), refused.Error())
			require.NoError(t, h.Unlock(within(t)))
		})
	})
}

func TestAHolderOfAnotherProgramIsNamedByItsOwner(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		set := r.redis.B().Set().Key("redsync").Value("b64==").Nx().Px(time.Minute).Build()
		require.NoError(t, r.redis.Do(within(t), set).Error())
		const java = "1a2b3c4d-5a1e-4c61-9d0a-6f4f3a2b1c0d:42"
		require.NoError(t, r.redis.Do(within(t),
			r.redis.B().Hset().Key("java").FieldValue().FieldValue(java, "1").Build()).Error())
		require.NoError(t, r.redis.Do(within(t), r.redis.B().Pexpire().Key("java").Milliseconds(60_000).Build()).Error())

		migrated := named(t, r.locks.Reentrant("redsync"), anyone)
		require.Equal(t, "string", migrated.Kind)
		require.Len(t, migrated.Holders, 1)
		require.EqualValues(t, "b64==", migrated.Holders[0].Owner)
		require.Regexp(t, `held by owner "b64==", lease ends in .* \(the holder is not of this library\) \(it is held as`,
			migrated.Error())

		refused := named(t, r.locks.Reentrant("java"), anyone)
		require.Len(t, refused.Holders, 1)
		require.EqualValues(t, java, refused.Holders[0].Owner)
		require.Empty(t, refused.Holders[0].Process)
		require.True(t, refused.Foreign)
		require.ErrorContains(t, refused, `held by owner "`+java+`", lease ends in`)
	})
}

func TestManyReadersAreNotAllNamed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, other := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
	for range 14 {
		lock(t, r.locks.ReadWrite("rw").Read().WithLabel("a reader"), within(t))
	}
	refused := named(t, other.locks.ReadWrite("rw").Write(), anyone)
	require.Len(t, refused.Holders, 10)
	require.Equal(t, "a reader", refused.Holders[0].Owner.Label())
	require.ErrorContains(t, refused, ", 7 more")
}

func TestHoldersAreNamedInACluster(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	r, other := newRig(t, s, rlock.Options{Process: "worker"}), newRig(t, s, rlock.Options{})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	refused := named(t, other.locks.Reentrant("l"), withProcess)
	require.Equal(t, "worker", refused.Holders[0].Process)
	require.Equal(t, h.Owner(), refused.Holders[0].Owner)
	require.NoError(t, h.Unlock(within(t)))
}

// In simulated time, where no machine is busy: the deadline of a context counts as a waitTime does, and the end of a
// call is not put off.
func TestWhoseContextEndsIsToldWhoHolds(t *testing.T) {
	t.Parallel()
	bubble(t, 2, rlock.Options{Process: "worker"}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		h := lock(t, rigs[0].locks.Reentrant("l"), context.Background())
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := rigs[1].locks.Reentrant("l").Lock(ctx)
		var refused *rlock.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(began))
		require.ErrorContains(t, err, `rlock: "l" not acquired after 2s: held by worker (owner `+string(h.Owner())+`), `)
		require.NoError(t, h.Unlock(context.Background()))
	})
}

// One that does not wait costs one call, and one that was cancelled is read by nobody.
func TestNobodyIsAskedWhoHoldsForACallThatDidNotWait(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newUntracked(t, s)
	require.NoError(t, r.redis.Do(within(t),
		r.redis.B().Hset().Key("l").FieldValue().FieldValue("other:1", "1").Build()).Error())
	require.NoError(t, r.redis.Do(within(t), r.redis.B().Pexpire().Key("l").Milliseconds(600_000).Build()).Error())
	l := r.locks.Reentrant("l")
	require.Empty(t, refusal(t, l, 0).Holders)
	before := redistest.CommandCalls(t, r.redis)
	for range 5 {
		require.Empty(t, refusal(t, l, 0).Holders)
	}
	require.Equal(t, 5, redistest.CommandCalls(t, r.redis)["evalsha"]-before["evalsha"])
	require.Empty(t, refusal(t, l, 20*time.Millisecond).Holders, "nor for a short wait")

	ctx, cancel := context.WithCancel(within(t))
	time.AfterFunc(150*time.Millisecond, cancel)
	_, err := l.Lock(ctx)
	var refused *rlock.NotAcquiredError
	require.ErrorAs(t, err, &refused)
	require.Empty(t, refused.Holders)
}
