package rlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// killed ends the connections of the processes behind a proxy, for good.
func killed(p *redistest.Proxy) {
	p.Refuse()
	p.Cut()
	time.Sleep(time.Millisecond) // the server notices
}

// stopped keeps back what the processes behind a proxy send and hear, until Heal.
func stopped(p *redistest.Proxy) {
	p.Hold(redistest.Up)
	p.Hold(redistest.Down)
}

func TestQueue_WaitersWereKilled_KeepsItsOrder(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		c := s.Client(t)
		h := lock(t, newRig(t, s, rlock.Options{}).locks.Reentrant("l"), within(t))
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		var alive []<-chan result
		var owners []string
		var dead []*redistest.Proxy
		for i := range 3 {
			dead = append(dead, redistest.NewProxy(t, s))
			queueUp(t, c, newRig(t, dead[i].Server(), rlock.Options{}).locks.Reentrant("l"), ctx, 2*i+1)
			live := newRig(t, s, rlock.Options{PollCap: 30 * time.Second})
			alive = append(alive, queueUp(t, c, live.locks.Reentrant("l"), within(t), 2*i+2))
			owners = append(owners, queued(t, c, "l")[2*i+1])
		}
		for _, p := range dead {
			killed(p)
		}
		began := time.Now()
		require.NoError(t, h.Unlock(within(t)))
		for i, w := range alive {
			got := <-w
			require.NoError(t, got.err)
			require.EqualValues(t, owners[i], got.hold.Owner())
			got.unlock(t)
		}
		require.Less(t, time.Since(began), time.Second, "by messages")
	})
}

// Waiters that are stopped are there, but have not looked for long.
func TestQueue_WaitersWereStopped_CostOneLeaseTogether(t *testing.T) {
	t.Parallel()
	const clients = 20
	o := rlock.Options{PollCap: 100 * time.Millisecond, CallTimeout: 100 * time.Millisecond} // a first lease of 1 s
	for name, x := range map[string]struct{ before, most time.Duration }{
		"just now": {0, 2 * time.Second},
		"for long": {4 * o.PollCap, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				s := servers[0]
				c, p := s.Client(t), redistest.NewProxy(t, s)
				live := newRig(t, s, rlock.Options{})
				h := lock(t, newRig(t, s, rlock.Options{}).locks.Reentrant("l"), within(t))
				var all []<-chan result
				for i := range clients {
					all = append(all, queueUp(t, c, newRig(t, p.Server(), o).locks.Reentrant("l"), within(t), i+1))
				}
				w := queueUp(t, c, live.locks.Reentrant("l"), within(t), clients+1)
				stopped(p)
				time.Sleep(x.before)
				began := time.Now()
				require.NoError(t, h.Unlock(within(t)))
				got := <-w
				require.NoError(t, got.err)
				require.Less(t, got.at.Sub(began), x.most)
				p.Heal()
				time.Sleep(2 * o.PollCap)
				require.Equal(t, map[string]string{string(got.hold.Owner()): "1"}, live.hash(t, "l"), "their grants are over")
				require.NoError(t, got.hold.Err())
				got.unlock(t)
				var served sync.WaitGroup
				for _, w := range all {
					served.Go(func() {
						got := <-w
						if got.err == nil {
							got.err = got.hold.Unlock(within(t))
						}
						if got.err != nil {
							t.Error(got.err)
						}
					})
				}
				served.Wait()
				require.Empty(t, keys(t, c))
			})
		})
	}
}

func TestQueue_WaiterKilledWithItsGrant_BlocksForItsFirstLease(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		c, p := s.Client(t), redistest.NewProxy(t, s)
		r := newRig(t, s, rlock.Options{})
		h := lock(t, r.locks.Reentrant("l"), within(t))
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		queueUp(t, c, newRig(t, p.Server(), rlock.Options{}).locks.Reentrant("l"), ctx, 1)
		doomed := queued(t, c, "l")[0]
		w := queueUp(t, c, newRig(t, s, rlock.Options{}).locks.Reentrant("l"), within(t), 2)
		stopped(p)
		require.NoError(t, h.Unlock(within(t)))
		began := time.Now()
		require.Equal(t, map[string]string{doomed: "1"}, r.hash(t, "l"), "granted, and not used")
		left := r.pttl(t, "l")
		killed(p)
		got := <-w
		require.NoError(t, got.err)
		require.GreaterOrEqual(t, got.at.Sub(began), left)
		require.Less(t, got.at.Sub(began), left+time.Second, "the first lease, not the watchdog's")
		got.unlock(t)
	})
}
