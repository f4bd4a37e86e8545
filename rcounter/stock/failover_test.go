package stock_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// pair is a primary and its replica, which can be cut off and promoted.
type pair struct {
	primary, replica *redistest.Server
	link             *redistest.Wire // between them
	admin, heir      rueidis.Client
}

func newPair(t testing.TB) *pair {
	t.Helper()
	// by default WAIT ends with the next 100 ms, whatever its timeout
	p := &pair{primary: redistest.Start(t, "--hz", "100")}
	p.link = redistest.NewWire(t, p.primary.Addr())
	host, port, err := net.SplitHostPort(p.link.Addr())
	require.NoError(t, err)
	p.replica = redistest.Start(t, "--replicaof", host, port)
	p.admin, p.heir = p.primary.Client(t), p.replica.Client(t)
	redistest.Eventually(t, 30*time.Second, "the replica is in step", func() bool {
		return strings.Contains(text(t, p.heir, "INFO", "replication"), "master_link_status:up")
	})
	return p
}

// promote makes the replica what clients find after a failover.
func (p *pair) promote(t testing.TB) {
	t.Helper()
	require.NoError(t, p.primary.Process.Kill())
	must(t, p.heir, "REPLICAOF", "NO", "ONE")
}

func isUnconfirmed(err error) bool { return errors.Is(err, errs.ErrNotReplicated) }

// What a caller cannot ask for again is given back; what it can ask for again is confirmed once a replica has it.
func TestNotReplicated_Units_ComeBackOrAreConfirmedLater(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s := opened(t, on(t, p.primary.Client(t),
		stock.Options{CallTimeout: 5 * time.Second, MinReplicas: 1, ReplicaTimeout: 50 * time.Millisecond}), "s", 100)
	p.link.Lead("")
	_, err := s.Claim(ctx, "ann")
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	_, err = s.ClaimAny(ctx, 3)
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	redistest.Eventually(t, 20*time.Second, "ClaimAny's units are returned", func() bool {
		st, err := s.Inspect(ctx)
		return err == nil && st.Sold == 1
	})
	p.link.Lead(p.primary.Addr())
	redistest.Eventually(t, 60*time.Second, "the replica is back", func() bool {
		g, err := s.Claim(ctx, "ann")
		return err == nil && g.Outcome == stock.Replayed && g.Ordinal == 1
	})
}

// A mover waits for the replicas: it neither moves what they do not have nor ends.
func TestKeepLedger_NotReplicated_MovesOnceItIs(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	unconfirmed := make(chan error, 1000)
	s := on(t, p.primary.Client(t),
		stock.Options{CallTimeout: 5 * time.Second, MinReplicas: 1, ReplicaTimeout: 50 * time.Millisecond,
			Observer: func(_ context.Context, e redlatch.Event) context.Context {
				if e.Kind == redlatch.EventBackgroundFailed {
					select {
					case unconfirmed <- e.Err:
					default:
					}
				}
				return nil
			}}).Stock("s")
	o := spec(100)
	o.Ledger = true
	_, err := s.Open(ctx, o)
	require.NoError(t, err)
	p.link.Lead("")
	_, err = s.Claim(ctx, "ann")
	require.ErrorIs(t, err, errs.ErrNotReplicated)

	keeping, stop := context.WithCancel(ctx)
	defer stop()
	moved, ended := make(chan stock.Entry, 10), make(chan error, 1)
	go func() {
		ended <- s.KeepLedger(keeping, time.Millisecond, 10, func(_ context.Context, entries []stock.Entry) error {
			for _, e := range entries {
				moved <- e
			}
			return nil
		})
	}()
	for range 3 {
		select {
		case err := <-unconfirmed:
			require.ErrorIs(t, err, errs.ErrNotReplicated)
		case err := <-ended:
			t.Fatal("the mover ended: ", err)
		}
	}
	require.Empty(t, moved)
	p.link.Lead(p.primary.Addr())
	select {
	case e := <-moved:
		require.Equal(t, "ann", e.Claimant)
	case err := <-ended:
		t.Fatal("the mover ended: ", err)
	case <-time.After(time.Minute):
		t.Fatal("nothing is moved")
	}
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}
