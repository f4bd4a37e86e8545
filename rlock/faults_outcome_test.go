package rlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

func TestWaiters_SubscriptionKilledAtRelease_WakeAllTheSame(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := s.Client(t)
	const pollCap = 60 * time.Second // nobody wakes by it
	holder := newRig(t, s, rlock.Options{WatchdogTimeout: 5 * time.Minute})
	var waiters []*rig
	for range 4 {
		waiters = append(waiters, newRig(t, s, rlock.Options{PollCap: pollCap, WatchdogTimeout: 5 * time.Minute}))
	}
	for round := range 20 {
		h := lock(t, holder.locks.Reentrant("l"), within(t))
		var wg sync.WaitGroup
		for _, w := range waiters {
			for range 4 {
				wg.Go(func() {
					if err := w.locks.Reentrant("l").Do(within(t), func(context.Context) error { return nil }); err != nil {
						t.Error(err)
					}
				})
			}
		}
		redistest.Eventually(t, 20*time.Second, "all wait, one of each process in the queue", func() bool {
			n, err := direct.Do(within(t), direct.B().Zcount().Key("redlatch_queue:{l}").Min("0").Max("+inf").Build()).AsInt64()
			for _, w := range waiters {
				if w.locks.Waiting("l") != 4 {
					return false
				}
			}
			return err == nil && n == int64(len(waiters))
		})
		began := time.Now()
		kill := direct.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()
		switch round % 3 {
		case 0: // the message falls into the gap: nobody hears it
			wire.Must(t, direct, "CLIENT", "KILL", "TYPE", "pubsub")
			require.NoError(t, h.Unlock(within(t)))
		case 1:
			require.NoError(t, h.Unlock(within(t)))
			wire.Must(t, direct, "CLIENT", "KILL", "TYPE", "pubsub")
		default: // surely in the gap
			release := direct.B().Del().Key("l").Build()
			for _, res := range direct.DoMulti(within(t), kill, release) {
				require.NoError(t, res.Error())
			}
			require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
		}
		wg.Wait()
		require.Less(t, time.Since(began), 9*time.Second, "not by the poll, which the queue has every 10 s at least")
	}
}

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
