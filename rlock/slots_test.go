package rlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// sameSlot is how a proxy refuses keys of several slots.
const sameSlot = "ERR eval/evalsha command keys must be in same slot"

func TestRenewal_SeveralSlotsRefused_NoneFails(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t))
	_, refused := p.RefuseSeveralSlots(sameSlot)
	var renewed atomic.Int64
	var failed atomic.Pointer[error]
	var book redistest.Logbook
	const held, watchdog = 50, 2 * time.Second
	r := newRig(t, p.Server(), rlock.Options{
		WatchdogTimeout: watchdog, CallTimeout: 5 * time.Second, Logger: book.Logger(),
		Observer: func(ctx context.Context, e redlatch.Event) context.Context {
			if e.Kind == redlatch.EventRenewed {
				renewed.Add(1)
				if e.Err != nil && !errors.Is(e.Err, errs.ErrUnavailable) && !errors.Is(e.Err, errs.ErrLost) { // a busy machine
					failed.Store(&e.Err)
				}
			}
			return ctx
		}})
	var holds [held]*rlock.Hold // dropped, they would not be renewed
	for n := range holds {
		holds[n] = lock(t, r.locks.Reentrant("l"+strconv.Itoa(n)), within(t))
	}
	redistest.Eventually(t, 20*time.Second, "the first renewals", func() bool { return renewed.Load() >= held })
	first := refused.Load()
	require.Positive(t, first)
	redistest.Eventually(t, 20*time.Second, "more renewals", func() bool { return renewed.Load() >= 3*held })
	if err := failed.Load(); err != nil {
		require.NoError(t, *err)
	}
	require.Equal(t, first, refused.Load(), "from then on each call is of one slot")
	require.Equal(t, "keys of several slots", r.hub.Stats().Lacks[0].Command)
	require.Equal(t, 1, book.Count("several slots"), &book)
	for _, h := range holds {
		if err := h.Unlock(within(t)); !errors.Is(err, errs.ErrLost) {
			require.NoError(t, err)
		}
	}
}

func TestAcquire_SeveralSlotsRefused_NoneFails(t *testing.T) {
	t.Parallel()
	near, far, p := redistest.Away(t)
	_, refused := p.RefuseSeveralSlots(sameSlot)
	r := newRig(t, far, rlock.Options{CallTimeout: 30 * time.Second})
	m, err := rlock.Multi(r.locks.Reentrant("a"), r.locks.Reentrant("b"))
	require.NoError(t, err)
	cycle(t, m)
	require.EqualValues(t, 1, refused.Load(), "they are acquired one after the other")
	cycle(t, m)
	require.EqualValues(t, 1, refused.Load())

	var shares redistest.Shares // of a client that knows of nothing yet
	other := newRig(t, far, rlock.Options{CallTimeout: 30 * time.Second, Observer: shares.Observe})
	crowd := func() {
		var wg sync.WaitGroup
		for g := range 40 {
			wg.Go(func() {
				for range 5 {
					cycle(t, other.locks.Reentrant("own"+strconv.Itoa(g)))
				}
			})
		}
		wg.Wait()
	}
	crowd()
	first := refused.Load()
	require.Greater(t, first, int64(1))
	shared := shares.Calls.Load()
	crowd()
	require.Equal(t, first, refused.Load())
	require.Equal(t, shared, shares.Calls.Load())
	require.Empty(t, redistest.Objects(keys(t, near.Client(t))))
}

// network is the network of one process. Closing the process's rueidis client would not do: in rueidis 1.0.79 a
// connection that is being dialed at that moment stays open, and the process goes on with it.
type network struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func (n *network) dial(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isCut {
		conn.Close()
		return nil, net.ErrClosed
	}
	n.conns = append(n.conns, conn)
	return conn, nil
}

// cut ends all connections, and refuses those that follow.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = true
	for _, conn := range n.conns {
		conn.Close()
	}
}

// One process is a client of the Cluster, and the other sees it as one server: they have the same locks, and each finds
// the heartbeats of the other. A holder that lives is not taken from, and one that is gone is followed.
func TestLiveness_ProxyAndClusterClients_SeeEachOther(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	behind := redistest.OneAddress(t, s)
	seen := map[string]func(t *testing.T, o rlock.Options, over *network) *rig{
		"Cluster": func(t *testing.T, o rlock.Options, over *network) *rig {
			return newRigWith(t, s, o, func(o *rueidis.ClientOption) { o.DialCtxFn = over.dial })
		},
		"proxy": func(t *testing.T, o rlock.Options, over *network) *rig {
			return newRigWith(t, behind, o, func(o *rueidis.ClientOption) {
				o.DialCtxFn, o.DisableCache = over.dial, true
			})
		},
	}
	for from, holder := range seen {
		for to, waiter := range seen {
			if from == to {
				continue
			}
			for _, dead := range []bool{false, true} {
				t.Run(fmt.Sprintf("from %s to %s, dead %v", from, to, dead), func(t *testing.T) {
					t.Parallel()
					o := living()
					// Three heartbeats outlast a busy machine's pauses, and so does a call.
					o.Heartbeat, o.CallTimeout = 500*time.Millisecond, 5*time.Second
					var network, other network
					h, w := holder(t, o, &network), waiter(t, o, &other)
					var holds [6]*rlock.Hold
					var acquired atomic.Int64
					var wg sync.WaitGroup
					for n := range holds {
						name := fmt.Sprint(from, dead, n)
						holds[n] = lock(t, h.locks.Reentrant(name), within(t))
						_, err := w.locks.Reentrant(name).TryLock(within(t), 0, 0)
						require.ErrorIs(t, err, errs.ErrNotAcquired)
						wg.Go(func() {
							x, err := w.locks.Reentrant(name).Lock(within(t))
							if err == nil {
								acquired.Add(1)
								err = x.Unlock(within(t))
							}
							if err != nil {
								t.Error(err)
							}
						})
					}
					if dead {
						network.cut() // the leases are of minutes
						wg.Wait()
						return
					}
					time.Sleep(7 * o.Heartbeat / 2) // others take over after three
					require.Zero(t, acquired.Load())
					for _, x := range holds {
						require.NoError(t, x.Err())
						require.NoError(t, x.Unlock(within(t)))
					}
					wg.Wait()
				})
			}
		}
	}
}
