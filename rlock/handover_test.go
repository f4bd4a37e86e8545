package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// queued are the owners in the queue of name, first to last.
func queued(t testing.TB, c rueidis.Client, name string) []string {
	t.Helper()
	members, err := c.Do(within(t),
		c.B().Zrange().Key("redlatch_queue:{"+name+"}").Min("0").Max("-1").Build()).AsStrSlice()
	require.NoError(t, err)
	var owners []string
	for _, m := range members {
		if m[0] != '!' {
			entry, ok := wait.ReadEntry(m)
			require.True(t, ok, m)
			owners = append(owners, entry.Owner())
		}
	}
	return owners
}

// result is how a call of Lock ended.
type result struct {
	hold *rlock.Hold
	err  error
	at   time.Time
}

// acquiring is an acquisition under way.
func acquiring(t testing.TB, l *rlock.Lock) <-chan result { return acquiringUnder(within(t), l) }

func acquiringUnder(ctx context.Context, l *rlock.Lock) <-chan result {
	got := make(chan result, 1)
	go func() {
		h, err := l.Lock(ctx)
		got <- result{h, err, time.Now()}
	}()
	return got
}

// queueUp has a client wait for the lock, and returns once it stands in the queue on the server as the n-th.
func queueUp(t testing.TB, c rueidis.Client, l *rlock.Lock, ctx context.Context, n int) <-chan result {
	t.Helper()
	got := acquiringUnder(ctx, l)
	redistest.Eventually(t, 20*time.Second, fmt.Sprintf("%d in the queue of %s", n, l.Name()), func() bool {
		return len(queued(t, c, l.Name())) == n
	})
	return got
}

func (r result) unlock(t testing.TB) {
	t.Helper()
	require.NoError(t, r.err)
	require.NoError(t, r.hold.Unlock(within(t)))
}

// warmUp has the server know the scripts, and the client the server's clock.
func (r *rig) warmUp(t testing.TB) *rig {
	t.Helper()
	name := "warm " + r.locks.ID()
	first := lock(t, r.locks.Reentrant(name), within(t))
	second := pass(t, r.locks.Reentrant(name))
	redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return r.locks.Waiting(name) == 1 })
	if len(r.server.Addrs) == 1 { // in a Cluster there is a channel for each name
		redistest.Eventually(t, 20*time.Second, "grants are listened for", func() bool {
			sub, ok := accessor.Of[accessor.Hub[*pubsub.Subscription]](r.hub).TrySubscribe("redlatch_grant:" + r.locks.ID())
			if ok {
				sub.Close()
			}
			return ok
		})
	}
	require.NoError(t, first.Unlock(within(t)))
	require.NoError(t, <-second)
	return r
}

// looks counts the calls through p that ask for name, or give it back; renewals and the watchdog's looks are not among
// them.
func looks(p *redistest.Proxy, name string) *atomic.Int32 {
	var n atomic.Int32
	with := redistest.With("redlatch_queue:{" + name + "}")
	p.Trap(&redistest.Trap{Every: true, Match: func(words []string) bool {
		if redistest.IsScript(words) && with(words) {
			n.Add(1)
		}
		return false
	}})
	return &n
}

// grantsOf hears what is granted to r's process.
func grantsOf(t *testing.T, c rueidis.Client, r *rig) func() []string {
	t.Helper()
	heard, _ := wire.Overhear(t, c, []string{"redlatch_grant:" + r.locks.ID()}, nil)
	return func() []string {
		var grants []string
		for _, m := range heard() {
			_, text, _ := strings.Cut(m, " ")
			grants = append(grants, text)
		}
		return grants
	}
}

func publish(t testing.TB, c rueidis.Client, r *rig, grant string) {
	t.Helper()
	wire.Must(t, c, "PUBLISH", "redlatch_grant:"+r.locks.ID(), grant)
}

// TestGrant_JustArrived_NeedsNoFurtherCall: a release is all that is asked of the server from one hold to the next.
func TestGrant_JustArrived_NeedsNoFurtherCall(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	p := redistest.NewProxy(t, s)
	o := rlock.Options{PollCap: 30 * time.Second}
	holder, waiter := newRig(t, s, o).warmUp(t), newRig(t, p.Server(), o).warmUp(t)
	calls := looks(p, "l")
	for range 5 {
		h := lock(t, holder.locks.Reentrant("l"), within(t))
		w := queueUp(t, c, waiter.locks.Reentrant("l"), within(t), 1)
		before, began := calls.Load(), time.Now()
		require.NoError(t, h.Unlock(within(t)))
		got := <-w
		require.Less(t, got.at.Sub(began), 20*time.Second, "at once")
		require.Equal(t, before, calls.Load())
		require.Equal(t, map[string]string{string(got.hold.Owner()): "1"}, waiter.hash(t, "l"))
		got.unlock(t)
	}
}

func TestGrant_ComesTwice_DoesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	holder, waiter := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{}).warmUp(t)
	l := waiter.locks.Reentrant("l")
	heard := grantsOf(t, c, waiter)
	h := lock(t, holder.locks.Reentrant("l"), within(t))
	w := queueUp(t, c, l, within(t), 1)
	require.NoError(t, h.Unlock(within(t)))
	got := <-w
	require.NoError(t, got.err)
	grant := heard()
	require.Len(t, grant, 1)
	publish(t, c, waiter, grant[0])
	require.Equal(t, map[string]string{string(got.hold.Owner()): "1"}, waiter.hash(t, "l"))
	require.NoError(t, got.hold.Err())
	got.unlock(t)
	publish(t, c, waiter, grant[0])
	require.Len(t, heard(), 2)
	require.Empty(t, waiter.hash(t, "l"))
	// and while the same process waits anew
	h = lock(t, holder.locks.Reentrant("l"), within(t))
	w = queueUp(t, c, l, within(t), 1)
	publish(t, c, waiter, grant[0])
	require.Len(t, heard(), 1)
	select {
	case <-w:
		t.Fatal("two holders")
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, h.Unlock(within(t)))
	got = <-w
	got.unlock(t)
	require.Empty(t, keys(t, c))
}

func TestGrant_MinReplicas_IsConfirmed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	host, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	redistest.Start(t, "--replicaof", host, port)
	c := s.Client(t)
	redistest.Eventually(t, 20*time.Second, "the replica is in step", func() bool {
		info, err := c.Do(within(t), c.B().Info().Section("replication").Build()).ToString()
		return err == nil && strings.Contains(info, "state=online")
	})
	o := rlock.Options{MinReplicas: 1, ReplicaTimeout: 9 * time.Second, CallTimeout: 10 * time.Second,
		PollCap: 10 * time.Second}
	holder, waiter := newRig(t, s, rlock.Options{}).warmUp(t), newRig(t, s, o).warmUp(t)
	h := lock(t, holder.locks.Reentrant("l"), within(t))
	w := queueUp(t, c, waiter.locks.Reentrant("l"), within(t), 1)
	before := redistest.CommandCalls(t, c)
	require.NoError(t, h.Unlock(within(t)))
	got := <-w
	after := redistest.CommandCalls(t, c)
	require.Positive(t, after["wait"]-before["wait"]) // a look at a hold that is 50 ms old makes another
	require.Greater(t, waiter.pttl(t, "l"), rlock.DefaultWatchdogTimeout/2, "which made the lease full")
	got.unlock(t)
}

// TestGrant_HalfOver_IsConfirmed: its waiter asks before it acts.
func TestGrant_HalfOver_IsConfirmed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	holder, waiter := newRig(t, s, rlock.Options{}).warmUp(t),
		newRig(t, s, rlock.Options{PollCap: 4 * time.Second}).warmUp(t)
	h := lock(t, holder.locks.Reentrant("l"), within(t))
	w := queueUp(t, c, waiter.locks.Reentrant("l"), within(t), 1)
	owner := queued(t, c, "l")[0]
	// The waiter's last request was sent more than half of the lease that the grant names ago.
	time.Sleep(5 * time.Millisecond)
	scores, err := c.Do(within(t),
		c.B().Zrange().Key("redlatch_queue:{l}").Min("0").Max("-1").Withscores().Build()).AsZScores()
	require.NoError(t, err)
	before := redistest.ScriptCalls(t, c)
	publish(t, c, waiter, fmt.Sprintf("%d 1 %s", int64(scores[0].Score), owner))
	redistest.Eventually(t, 20*time.Second, "it asks", func() bool { return redistest.ScriptCalls(t, c) > before })
	select {
	case got := <-w:
		t.Fatal("two holders", got.hold, got.err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, h.Unlock(within(t)))
	(<-w).unlock(t)
}

// TestHandOver_EachLease_CountsFromTheGrant: the first lease is short. The watchdog makes it full, and renews on only
// what is to be renewed. The time of a hold counts from the grant, and not from when its waiter last looked.
func TestHandOver_EachLease_CountsFromTheGrant(t *testing.T) {
	t.Parallel()
	const watchdog, short = 9 * time.Second, 2 * time.Second
	for _, x := range []struct {
		name     string
		lease    time.Duration // 0: renewed
		maxHold  time.Duration
		lasts    time.Duration // from the grant on; 0: until it is released
		renewals int           // at least two, if it is renewed for as long as it lasts
	}{
		{name: "fixed and long", lease: time.Minute, lasts: time.Minute, renewals: 1},
		{name: "fixed and short", lease: short, lasts: short},
		{name: "renewed", renewals: 2},
		{name: "MaxHold", maxHold: short, lasts: short},
	} {
		t.Run(x.name, func(t *testing.T) {
			simulated(t, 1, func(t *testing.T, servers quorumServers) {
				s := servers[0]
				c := s.Client(t)
				var renewed atomic.Int32
				o := rlock.Options{PollCap: time.Second, WatchdogTimeout: watchdog, MaxHold: x.maxHold}
				o.Observer = heeding(redlatch.EventRenewed, func(e redlatch.Event) {
					if e.Err == nil {
						renewed.Add(1)
					}
				})
				holder, waiter := newRig(t, s, rlock.Options{}).warmUp(t), newRig(t, s, o).warmUp(t)
				h := lock(t, holder.locks.Reentrant(x.name), within(t))
				w := queueUp(t, c, waiter.locks.Reentrant(x.name).WithLease(x.lease), within(t), 1)
				time.Sleep(900 * time.Millisecond) // it looked that long ago when it is granted
				renewed.Store(0)
				released := time.Now()
				require.NoError(t, h.Unlock(within(t)))
				got := <-w
				require.NoError(t, got.err)
				defer letGo(got.hold)
				first := waiter.pttl(t, x.name)
				untilIsSafe(t, waiter, got.hold)
				if x.lease != short {
					require.Less(t, first, watchdog, "the waiter may never hear of it")
					redistest.Eventually(t, 20*time.Second, "the full lease", func() bool {
						untilIsSafe(t, waiter, got.hold)
						return x.maxHold > 0 || waiter.pttl(t, x.name) > first
					})
				}
				if x.lasts == 0 {
					redistest.Eventually(t, 20*time.Second, "another renewal", func() bool {
						untilIsSafe(t, waiter, got.hold)
						return int(renewed.Load()) >= x.renewals
					})
					require.NoError(t, got.hold.Err())
					return
				}
				if x.lease > short {
					require.Greater(t, got.hold.Until().Sub(released), x.lasts-x.lasts/100, "from the grant on")
				}
				<-got.hold.Done()
				require.InDelta(t, x.lasts, time.Since(released), float64(x.lasts/50))
				if x.maxHold == 0 {
					require.EqualValues(t, x.renewals, renewed.Load(), "once, or not at all")
				}
			})
		})
	}
}

// untilIsSafe: the server's lease ends no earlier than the hold believes.
func untilIsSafe(t testing.TB, r *rig, h *rlock.Hold) {
	t.Helper()
	until := h.Until()
	left := r.pttl(t, h.Name())
	if over := time.Now().Add(left + time.Millisecond); until.After(over) {
		t.Errorf("the hold believes in itself for %v longer than the server", until.Sub(over))
	}
}

// Until is never after the server's expiry, whatever delays messages and replies.
func TestUntil_MessagesDelayed_IsNeverAfterTheServersEnd(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		direct := newRig(t, s, rlock.Options{}).warmUp(t)
		var wg sync.WaitGroup
		var granted atomic.Int32
		for i, d := range []time.Duration{0, 60 * time.Millisecond, 150 * time.Millisecond} {
			for _, lease := range []time.Duration{0, 700 * time.Millisecond} {
				name := fmt.Sprintf("l%d-%v", i, lease)
				p := redistest.NewProxy(t, s)
				waiter := newRig(t, p.Server(), rlock.Options{PollCap: 200 * time.Millisecond}).warmUp(t)
				p.Delay(0, d)
				wg.Go(func() {
					for range 6 {
						h, err := direct.locks.Reentrant(name).Lock(within(t))
						if err != nil {
							t.Error(err)
							return
						}
						got := make(chan result, 1)
						go func() {
							h, err := waiter.locks.Reentrant(name).WithLease(lease).Lock(within(t))
							if err == nil {
								until := h.Until() // the server is asked past the proxy
								left, e := direct.redis.Do(within(t), direct.redis.B().Pttl().Key(name).Build()).AsInt64()
								if over := time.Now().Add(time.Duration(left+1) * time.Millisecond); e == nil && until.After(over) {
									t.Errorf("%s: believes in itself for %v longer than the server", name, until.Sub(over))
								}
							}
							got <- result{hold: h, err: err}
						}()
						for range 2000 {
							if len(queued(t, direct.redis, name)) == 1 {
								break
							}
							time.Sleep(time.Millisecond)
						}
						// goes on in the background
						if err := h.Unlock(within(t)); err != nil && !errors.Is(err, errs.ErrUnknownOutcome) {
							t.Error(err)
						}
						g := <-got
						if g.err != nil {
							t.Error(g.err)
							return
						}
						granted.Add(1)
						if err := g.hold.Unlock(within(t)); err != nil && !errors.Is(err, errs.ErrLost) &&
							!errors.Is(err, errs.ErrUnknownOutcome) {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		require.EqualValues(t, 36, granted.Load())
	})
}
