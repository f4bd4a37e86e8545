package rsemaphore_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// A process with a waiter at each of many semaphores asks for many of them in one call whether anything has changed.
// What has changed is found as by a poll of the waiter's own, and a waiter that was asked for so is in the queue as one
// that has asked.
func TestManySemaphoresAreAskedForTogether(t *testing.T) {
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

// What the script says of one semaphore: how long nothing will change, or that its waiter is to ask by itself.
func TestAQuestionForManySemaphoresSaysWhatHasChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	const n = 2
	waiter := entry(baseOf("w", 0), n, process, "")
	full := sem{count: "0", ttl: 50, out: map[string]int{idA: 10, idB: 20, idC: 30}, outTTL: 50}
	with := func(change func(*sem)) sem {
		s := full
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		sem
		entry, ticket string
		units         int // 0: it is to ask
	}{
		"nothing has changed": {full, waiter, "7", 20},
		"one is free":         {with(func(s *sem) { s.count = "1" }), waiter, "7", 10},
		"too many are out":    {with(func(s *sem) { s.count = "-1" }), waiter, "7", 30},
		"enough are free":     {with(func(s *sem) { s.count = "2" }), waiter, "7", 0},
		"enough leases are over": {with(func(s *sem) {
			s.out = map[string]int{idA: -2, idB: -1, idC: 30}
		}), waiter, "7", 0},
		"one lease is over, of two": {with(func(s *sem) {
			s.out = map[string]int{idA: -2, idB: 20, idC: 30}
		}), waiter, "7", 20},
		"too few are out":        {with(func(s *sem) { s.out = map[string]int{idA: 10} }), waiter, "7", 0},
		"nothing is there":       {sem{}, waiter, "7", 0},
		"another place":          {full, waiter, "8", 0},
		"no place":               {full, entry(baseOf("v", 0), n, process, ""), "7", 0},
		"no entry":               {full, "x", "7", 0},
		"the count is no number": {with(func(s *sem) { s.count = "x" }), waiter, "7", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r.put(t, c.sem)
			r.must(t, "ZADD", "redlatch_queue:{s}", "7", waiter)
			reply, err := strconv.ParseInt(r.run(t, "recheck", c.entry, c.ticket)[0], 10, 64)
			require.NoError(t, err)
			stamp, err := r.redis.Do(within(t),
				r.redis.B().Zscore().Key("redlatch_queue:{s}").Member("!"+process).Build()).AsFloat64()
			if c.units == 0 {
				require.Zero(t, reply)
				require.True(t, rueidis.IsRedisNil(err), "who is to ask by itself is not stamped")
				return
			}
			require.Equal(t, c.units, units(reply))
			require.Negative(t, stamp)
		})
	}
}
