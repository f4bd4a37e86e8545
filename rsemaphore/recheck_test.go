package rsemaphore_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// A process with a waiter at each of many semaphores asks for many of them in one call whether anything has changed.
// What has changed is found as by a poll of the waiter's own, and a waiter that was asked for so is in the queue as one
// that has asked.
func TestRecheck_ManySemaphores_AreAskedForTogether(t *testing.T) {
	t.Parallel()
	const names = 128
	s := redistest.Start(t)
	eye, holder, r := s.Client(t), newRig(t, s, rsemaphore.Options{}), newRig(t, s,
		rsemaphore.Options{PollCap: 200 * time.Millisecond})
	ctx := within(t)
	permits, had := make([]*rsemaphore.Permit, names), make([]chan struct{}, names)
	var all sync.WaitGroup
	for i := range names {
		name := "n" + strconv.Itoa(i)
		var err error
		permits[i], err = holder.c.Semaphore(name, 1).Acquire(ctx, 1)
		require.NoError(t, err)
		had[i] = make(chan struct{})
		all.Go(func() {
			p, err := r.c.Semaphore(name, 1).Acquire(ctx, 1)
			if err == nil {
				close(had[i])
				err = p.Release(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	queued := func(i int) bool {
		all, err := eye.Do(ctx,
			eye.B().Zrangebyscore().Key("redlatch_queue:{n"+strconv.Itoa(i)+"}").Min("(0").Max("+inf").Build()).AsStrSlice()
		return err == nil && len(all) == 1 && strings.Contains(all[0], " ")
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
	require.NoError(t, eye.Do(ctx, eye.B().Del().Key("n0", "{n0}:timeout").Build()).Error())
	<-had[0]
	require.Less(t, time.Since(began), 10*time.Second, "it was found before the waiter asked by itself")
	require.NoError(t, eye.Do(ctx, eye.B().Del().Key("redlatch_queue:{n1}").Build()).Error())
	redistest.Eventually(t, 9*time.Second, "another place", func() bool { return queued(1) })

	handed := r.c.Stats().HandOvers
	for _, p := range permits[2:] { // whose waiters nobody would trust now, had their places not been stamped
		require.NoError(t, p.Release(ctx))
	}
	require.NoError(t, permits[1].Release(ctx))
	all.Wait()
	require.Greater(t, r.c.Stats().HandOvers-handed, int64(names/2))
}
