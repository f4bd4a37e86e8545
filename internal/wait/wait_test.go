package wait_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
)

const pollCap = time.Second

// room is a queue on an embedded server inside a bubble, and a lock that is only a variable.
type room struct {
	*wait.Waiters
	server *redistest.Server
	taken  atomic.Bool
	tries  atomic.Int32
	woken  atomic.Int32 // by messages
	sealed atomic.Bool  // no new connections, and so no subscriptions
	slow   atomic.Int64 // how long a new connection takes, ns
	far    atomic.Int64 // how long an answer of the server takes, ns

	mu    sync.Mutex
	conns []net.Conn
}

// cut ends all connections, and returns when those who listened for grants do so again.
func (r *room) cut(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	synctest.Wait()
	for began := time.Now(); r.server.Embedded.PubSubNumSub("g")["g"] != 1; time.Sleep(time.Millisecond) {
		require.Less(t, time.Since(began), 10*time.Second)
	}
}

func inRoom(t *testing.T, fn func(t *testing.T, r *room)) {
	t.Helper()
	inRoomOf(t, pollCap, fn)
}

func inRoomOf(t *testing.T, pollCap time.Duration, fn func(t *testing.T, r *room)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &room{server: redistest.Bubble(t)}
		o := r.server.Option()
		dial := o.DialCtxFn
		o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			if r.sealed.Load() {
				return nil, errors.New("sealed")
			}
			time.Sleep(time.Duration(r.slow.Load()))
			conn, err := dial(ctx, addr, d, c)
			if err == nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.conns = append(r.conns, conn)
				conn = &farConn{conn, &r.far}
			}
			return conn, err
		}
		c, err := rueidis.NewClient(o)
		require.NoError(t, err)
		hub, err := pubsub.New(c, pubsub.Options{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		r.Waiters = wait.NewWaiters(hub, pollCap, func(_ context.Context, _ string, byMessage bool) {
			if byMessage {
				r.woken.Add(1)
			}
		}, nil)
		fn(t, r)
		synctest.Wait() // a call for waiters that have left may be about to end
		require.Zero(t, r.Census(), "nothing is left of names nobody waits for")
		r.Close()
		require.NoError(t, hub.Close(context.Background()))
		c.Close()
		r.server.Embedded.Close()
	})
}

// farConn is a connection to a server that is far away.
type farConn struct {
	net.Conn
	far *atomic.Int64
}

func (c *farConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(time.Duration(c.far.Load()))
	return n, err
}

func (r *room) try(context.Context) (wait.Answer, error) {
	r.tries.Add(1)
	if r.taken.CompareAndSwap(false, true) {
		return wait.Answer{Granted: true}, nil
	}
	return wait.Answer{Left: time.Hour}, nil
}

func (r *room) request() wait.Request {
	return wait.Request{Name: "n", Channel: "c", Try: r.try}
}

func (r *room) release(publish bool) {
	r.taken.Store(false)
	if publish {
		r.server.Embedded.Publish("c", "0")
	}
}

func TestWait_ReleaseBeforeSubscription_IsFound(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.taken.Store(true)
		q := r.request()
		q.Try = func(ctx context.Context) (wait.Answer, error) {
			a, err := r.try(ctx)
			if !a.Granted {
				r.release(true) // heard by nobody: the subscription comes after this
			}
			return a, err
		}
		began := time.Now()
		require.NoError(t, r.Wait(t.Context(), q))
		require.EqualValues(t, 2, r.tries.Load())
		require.Less(t, time.Since(began), pollCap/2, "found by trying again, not by the poll")
	})
}

func TestWait_Message_WakesAndALostOneCostsPollCap(t *testing.T) {
	for name, x := range map[string]struct {
		pollCap, each time.Duration // how often it is to ask
		published     bool
	}{
		"published": {pollCap: pollCap, each: pollCap, published: true},
		"lost":      {pollCap: pollCap, each: pollCap},
	} {
		t.Run(name, func(t *testing.T) {
			inRoomOf(t, x.pollCap, func(t *testing.T, r *room) {
				r.taken.Store(true)
				q := r.request()
				got := make(chan error)
				go func() { got <- r.Wait(t.Context(), q) }()
				time.Sleep(10*x.each + x.each/3)
				require.InDelta(t, 12, r.tries.Load(), 2, "one try each, no more")
				r.release(x.published)
				began := time.Now()
				require.NoError(t, <-got)
				if x.published {
					require.Zero(t, time.Since(began))
					require.Positive(t, r.woken.Load())
				} else {
					require.LessOrEqual(t, time.Since(began), x.each)
				}
			})
		})
	}
}

func TestWaiter_HoldersLeaseEnds_Wakes(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.taken.Store(true)
		began := time.Now()
		q := r.request()
		q.Try = func(_ context.Context) (wait.Answer, error) {
			if left := time.Until(began.Add(300 * time.Millisecond)); left > 0 {
				return wait.Answer{Left: left}, nil
			}
			return wait.Answer{Granted: true}, nil
		}
		require.NoError(t, r.Wait(t.Context(), q))
		require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
		require.Less(t, time.Since(began), 350*time.Millisecond)
	})
}

func TestLocalQueue_Hundred_OneContenderAsks(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.taken.Store(true)
		var order []int
		done := make(chan struct{})
		for i := range 100 {
			go func() {
				err := r.Wait(t.Context(), r.request())
				if err != nil {
					t.Error(err)
				}
				order = append(order, i) // under the "lock"
				r.release(true)
				done <- struct{}{}
			}()
			synctest.Wait()
		}
		require.Equal(t, 100, r.Members("n"))
		require.LessOrEqual(t, r.tries.Load(), int32(2), "99 of them have not asked")
		r.release(true)
		for range 100 {
			<-done
		}
		for i, v := range order {
			require.Equal(t, i, v, "first come, first served")
		}
		require.LessOrEqual(t, r.tries.Load(), int32(300))
	})
}

func TestLocalQueue_Alone_IsNotInIt(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.taken.Store(true)
		got := make(chan error)
		go func() { got <- r.Wait(t.Context(), r.request()) }()
		synctest.Wait()
		alone := r.request()
		alone.Mode = wait.Alone
		alone.Try = func(context.Context) (wait.Answer, error) { return wait.Answer{Granted: true}, nil }
		require.NoError(t, r.Wait(t.Context(), alone))
		r.release(true)
		require.NoError(t, <-got)
	})
}

func TestLocalQueue_Yielding_DoesNotAskWhileOthersWait(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		yields := r.request()
		yields.Mode, yields.Until, yields.QueueKey = wait.Yielding, time.Now(), "k"
		r.taken.Store(true)
		var g *wait.GaveUp
		require.ErrorAs(t, r.Wait(t.Context(), yields), &g)
		require.EqualValues(t, 1, r.tries.Load(), "nobody waits: it asks")

		q := r.request()
		q.QueueKey = "k"
		got := make(chan error)
		go func() { got <- r.Wait(t.Context(), q) }()
		synctest.Wait()
		require.Equal(t, wait.Census{LocalQueues: 1, Waiting: 1}, r.Census())
		asked := r.tries.Load()
		r.taken.Store(false) // free, and not yet known to those that wait
		require.ErrorAs(t, r.Wait(t.Context(), yields), &g)
		require.NoError(t, g.Cause)
		require.NoError(t, g.Failure)
		require.Equal(t, asked, r.tries.Load())

		r.server.Embedded.Publish("c", "0")
		require.NoError(t, <-got)
		require.Zero(t, r.Census())
		r.taken.Store(false)
		require.NoError(t, r.Wait(t.Context(), yields))
	})
}

func TestWait_OnlyFailures_AreRetriedAndReported(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		down := fmt.Errorf("%w: the server is away", errs.ErrUnavailable)
		var failing atomic.Bool
		failing.Store(true)
		q := r.request()
		q.Try = func(ctx context.Context) (wait.Answer, error) {
			if failing.Load() {
				r.tries.Add(1)
				return wait.Answer{}, down
			}
			return r.try(ctx)
		}
		got := make(chan error)
		for i := range 3 {
			q.Until = time.Now().Add(time.Duration(10-i) * time.Second) // those behind give up first
			go func(q wait.Request) { got <- r.Wait(t.Context(), q) }(q)
			synctest.Wait()
		}
		for range 3 {
			var g *wait.GaveUp
			require.ErrorAs(t, <-got, &g)
			require.ErrorIs(t, g.Failure, errs.ErrUnavailable, "nobody knows whether it is held")
		}
		require.Less(t, r.tries.Load(), int32(120), "with growing pauses")
		require.Greater(t, r.tries.Load(), int32(20))

		q.Until = time.Time{}
		time.AfterFunc(5*time.Second, func() { failing.Store(false) })
		require.NoError(t, r.Wait(t.Context(), q), "the server came back")
	})
}

// The server refuses what reaches it after the end of the wait, and its clock may be a little ahead of what we think.
func TestWait_LateTryRefused_IsNoFailure(t *testing.T) {
	for _, failed := range []bool{true, false} {
		inRoom(t, func(t *testing.T, r *room) {
			q := r.request()
			began := time.Now()
			q.Until = began.Add(700 * time.Millisecond)
			late := 0
			q.Try = func(ctx context.Context) (wait.Answer, error) {
				if left := time.Until(began.Add(300 * time.Millisecond)); left > 0 {
					return wait.Answer{Left: left}, nil
				}
				if late++; !failed {
					time.Sleep(time.Until(q.Until) - time.Millisecond)
					require.NoError(t, ctx.Err())
				}
				return wait.Answer{}, errs.ErrUnavailable
			}
			var g *wait.GaveUp
			require.ErrorAs(t, r.Wait(t.Context(), q), &g)
			require.Positive(t, late)
			require.Equal(t, failed, g.Failure != nil, "if there was no time for another, it is held, as last heard")
		})
	}
}

// refuse has the server answer SUBSCRIBE of such channels so, and counts that.
func (r *room) refuse(prefix, answer string) (refused *atomic.Int32) {
	refused = new(atomic.Int32)
	r.server.Embedded.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if cmd == "SUBSCRIBE" && strings.HasPrefix(args[0], prefix) && answer != "" {
			refused.Add(1)
			c.WriteError(answer)
			return true
		}
		return false
	})
	return refused
}

func TestSubscribe_MissingRight_IsAskedForOncePerKind(t *testing.T) {
	for _, kind := range []string{"redlatch_barrier:", "redisson_countdownlatch__channel__"} {
		inRoom(t, func(t *testing.T, r *room) {
			ask := func(channel string) {
				q := r.request()
				q.Name, q.Channel, q.Until = channel, channel, time.Now().Add(pollCap/2)
				var g *wait.GaveUp
				require.ErrorAs(t, r.Wait(t.Context(), q), &g)
			}
			refused := r.refuse(kind, "NOPERM this user has no permissions to access one of the channels used as arguments")
			r.taken.Store(true)
			for i := range 10 {
				ask(fmt.Sprintf("%s{%d}", kind, i))
				ask(fmt.Sprintf("permits:{%d}", i))
			}
			require.EqualValues(t, 1, refused.Load(), kind)
			require.Len(t, r.server.Embedded.PubSubChannels(""), 10, "it costs the other kinds nothing")
		})
	}
}

func TestSubscribe_RefusedForAMoment_SucceedsSoonAfter(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		// not LOADING, which rueidis repeats by itself, at intervals of its own
		r.refuse("c", "ERR not now")
		r.taken.Store(true)
		got := make(chan error)
		go func() { got <- r.Wait(t.Context(), r.request()) }()
		time.Sleep(2 * pollCap)
		require.Less(t, r.tries.Load(), int32(60), "with growing pauses")
		r.refuse("", "")
		time.Sleep(pollCap / 2)
		require.Equal(t, []string{"c"}, r.server.Embedded.PubSubChannels(""))
		r.release(true)
		require.NoError(t, <-got)
	})
}

func TestWaiter_NoSubscription_WakesAsIfItSlept(t *testing.T) {
	for name, c := range map[string]struct {
		lease time.Duration // the holder's, 0: unknown
		free  func(r *room)
		by    time.Duration
	}{
		"a nudge":                       {time.Hour, func(r *room) { r.Wake("n") }, 0},
		"the end of the holder's lease": {700 * time.Millisecond, func(*room) {}, 300 * time.Millisecond},
		"PollCap":                       {0, func(*room) {}, pollCap},
	} {
		for _, denied := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", denied ", denied), func(t *testing.T) {
				inRoom(t, func(t *testing.T, r *room) {
					if denied {
						r.refuse("", "NOPERM no subscriptions for you")
					}
					r.sealed.Store(!denied)
					q := r.request()
					began := time.Now()
					var free atomic.Bool
					q.Try = func(context.Context) (wait.Answer, error) {
						r.tries.Add(1)
						left := max(0, c.lease-time.Since(began))
						if c.lease == 0 {
							left = -1
						}
						return wait.Answer{Granted: free.Load(), Left: left}, nil
					}
					got := make(chan error)
					go func() { got <- r.Wait(t.Context(), q) }()
					time.Sleep(500 * time.Millisecond)
					require.EqualValues(t, 1, r.tries.Load())
					free.Store(true)
					at := time.Now()
					c.free(r)
					require.NoError(t, <-got)
					require.LessOrEqual(t, time.Since(at), c.by)
				})
			})
		}
	}
}

// A caller whose first request is in flight is in no list yet, and comes before callers that came later.
func TestWaits_CallerEntersAfterItsFirstRequest_AreListedByArrival(t *testing.T) {
	t.Parallel()
	inRoom(t, func(t *testing.T, r *room) {
		came := time.Now()
		time.Sleep(time.Millisecond)
		enter := func(name string, began time.Time) *wait.Caller {
			return r.Enter(t.Context(), wait.Request{Name: name, QueueKey: "n", Began: began, Mode: wait.Turn})
		}
		second, first := enter("second", time.Now()), enter("first", came)
		waits, all := r.Waits(1, func(string) bool { return true })
		require.Equal(t, 2, all)
		require.Equal(t, "first", waits[0].Name)
		second.Leave()
		first.Leave()
	})
}
