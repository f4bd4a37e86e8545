package rlock_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// Forty processes want one lock. Each of them gets it, and what that costs does not grow with those that wait: were all
// told of a release, or did those that have just released ask as soon as those that wait, some would get none.
func TestPlain_FortyProcessesWait_EachGetsItAtTheSameCost(t *testing.T) {
	t.Parallel()
	const processes, rounds = 40, 15
	rigs := newRigs(t, redistest.Start(t), processes, rlock.Options{})
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute) // it takes a second; on a busy machine, minutes
	defer stop()
	var all atomic.Int64
	shares := make([]atomic.Int64, processes)
	var wg sync.WaitGroup
	before := redistest.CommandCalls(t, rigs[0].redis)
	for i, r := range rigs {
		wg.Go(func() {
			for ctx.Err() == nil {
				if r.locks.Plain("l").Do(ctx, func(context.Context) error { return nil }) == nil {
					shares[i].Add(1)
					if all.Add(1) >= processes*rounds {
						stop()
					}
				}
			}
		})
	}
	wg.Wait()
	after := redistest.CommandCalls(t, rigs[0].redis)
	least := all.Load()
	for i := range shares {
		least = min(least, shares[i].Load())
	}
	calls, published := float64(after["evalsha"]-before["evalsha"])/float64(all.Load()),
		float64(after["publish"]-before["publish"])/float64(all.Load())
	t.Logf("%.1f calls and %.1f messages an acquisition; least: %d of %d on average", calls, published, least, rounds)
	require.GreaterOrEqual(t, all.Load(), int64(processes*rounds), "within minutes")
	require.Greater(t, least, int64(1), "a process starved")
	require.Less(t, calls, 9., "3 are needed")
}

// Whoever is refused because the lock is left to another is told when it no longer is.
func TestPlain_LeftToAnother_SaysForHowLong(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := newScriptRig(t, s)
	src := source(t, "plain_acquire")
	const reservation = 200
	until := g.now(t) + reservation
	g.must(t, "ZADD", "q", strconv.FormatInt(1000*until, 10), plainEntryOf(alice, reservation*time.Millisecond),
		strconv.FormatInt(-4e12-until, 10), "!told")
	got, err := eval(t, g.c, src, []string{"p", "q"}, bob, "300000", "0", "PUBLISH", "g:",
		plainEntryOf(bob, reservation*time.Millisecond))
	require.NoError(t, err)
	if got[0] == 0 { // otherwise the machine took so long that it is left to nobody
		require.Equal(t, until-got[2], got[1])
	}
}

// One process is nearer to the server than another that waits. It releases, and asks again before the other, who was
// told, has asked. It never waits, so it has no place in the line.
func TestPlain_OneProcessIsNearer_FartherIsNotStarved(t *testing.T) {
	t.Parallel()
	const most = 30
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	p.Delay(5*time.Millisecond, 5*time.Millisecond)
	near, far := newRig(t, s, rlock.Options{}), newRigWith(t, s, rlock.Options{}, func(co *rueidis.ClientOption) {
		co.InitAddress = []string{p.Addr()}
	}).warmUp(t)
	ctx := within(t)
	hold := lock(t, near.locks.Plain("l"), ctx)
	had := make(chan error, 1)
	go func() {
		h, err := far.locks.Plain("l").Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		had <- err
	}()
	redistest.Eventually(t, 20*time.Second, "it stands in line", func() bool {
		n, err := near.redis.Do(ctx, near.redis.B().Zcard().Key("redlatch_queue:{l}").Build()).AsInt64()
		return err == nil && n == 1
	})
	require.NoError(t, hold.Unlock(ctx))
	for n := 0; len(had) == 0; n++ {
		require.Less(t, n, most, "it waits still")
		require.NoError(t, near.locks.Plain("l").Do(ctx, func(context.Context) error {
			time.Sleep(20 * time.Millisecond) // its work
			return nil
		}))
	}
	require.NoError(t, <-had)
}
