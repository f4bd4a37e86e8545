package rlock_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// A process that waits for many locks asks for many of them in one call whether anything has changed. What has changed
// is found as by a poll of the waiter's own, and a waiter that was asked for so is in the queue as one that has asked.
func TestManyWaitersAskTogether(t *testing.T) {
	t.Parallel()
	const names = 128
	s := redistest.Start(t)
	eye, holder, r := s.Client(t), newRig(t, s, rlock.Options{}), newRig(t, s,
		rlock.Options{PollCap: 200 * time.Millisecond})
	ctx := within(t)
	holds, had := make([]*rlock.Hold, names), make([]chan struct{}, names)
	var all sync.WaitGroup
	for i := range names {
		name := "n" + strconv.Itoa(i)
		var err error
		holds[i], err = holder.locks.Reentrant(name).Lock(ctx)
		require.NoError(t, err)
		had[i] = make(chan struct{})
		all.Go(func() {
			h, err := r.locks.Reentrant(name).Lock(ctx)
			if err == nil {
				close(had[i])
				err = h.Unlock(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	queued := func(i int) bool {
		all, err := eye.Do(ctx,
			eye.B().Zrange().Key("redlatch_queue:{n"+strconv.Itoa(i)+"}").Min("0").Max("-1").Build()).AsStrSlice()
		for _, entry := range all {
			if strings.Contains(entry, " ") {
				return err == nil
			}
		}
		return false
	}
	redistest.Eventually(t, time.Minute, "all in their queues", func() bool {
		for i := range names {
			if !queued(i) {
				return false
			}
		}
		return true
	})
	time.Sleep(300 * time.Millisecond) // the second question of each, which is its own
	before := redistest.CommandCalls(t, eye)["evalsha"]
	const polls = 4
	time.Sleep(polls * 200 * time.Millisecond)
	asked := redistest.CommandCalls(t, eye)["evalsha"] - before
	require.Less(t, asked, polls*names/2)

	began := time.Now()
	require.NoError(t, eye.Do(ctx, eye.B().Del().Key("n0").Build()).Error())
	<-had[0]
	require.Less(t, time.Since(began), 10*time.Second, "it was found before the waiter asked by itself")
	require.NoError(t, eye.Do(ctx, eye.B().Del().Key("redlatch_queue:{n1}").Build()).Error())
	redistest.Eventually(t, 9*time.Second, "another place", func() bool { return queued(1) })

	handed := r.locks.Stats().HandOvers
	for i := 2; i < names; i++ {
		require.NoError(t, holds[i].Unlock(ctx))
	}
	require.NoError(t, holds[1].Unlock(ctx))
	all.Wait()
	require.Greater(t, r.locks.Stats().HandOvers-handed, int64(names/2))
}
