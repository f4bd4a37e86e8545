package main

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"

	"github.com/redlatch/redlatch/rlock"
)

// withPeer is a client of a peer and one of ours, on a server of their own, for the length of t.
func withPeer(t *testing.T, p Peer) (ctx context.Context, theirs Locker, ours *redlatchLocker) {
	s, err := startRedis()
	require.NoError(t, err)
	t.Cleanup(s.stop)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	theirs, err = p.Open(ctx, Setup{Redis: s.addr, Lease: 20 * time.Second})
	require.NoError(t, err)
	t.Cleanup(theirs.Close)
	ours, err = openRedlatch(rueidis.ClientOption{InitAddress: []string{s.addr}}, Setup{Lease: 20 * time.Second})
	require.NoError(t, err)
	t.Cleanup(ours.Close)
	return ctx, theirs, ours
}

// A service that moves from one of these libraries may run both for a while, see docs/migration.md.
func TestPlainExcludesThePeersOnTheirKeys(t *testing.T) {
	redistest.NeedServer(t)
	for _, c := range []struct {
		peer Peer
		key  string // of the lock that the peer calls order:1
	}{
		{redsyncGoRedis, "order:1"},
		{redsyncRueidis, "order:1"},
		{redislock1ms, "order:1"},
		{rueidislockTuned, "rueidislock:0:order:1"},
	} {
		t.Run(c.peer.Name, func(t *testing.T) {
			ctx, theirs, ours := withPeer(t, c.peer)
			plain := ours.client.Plain(c.key)

			release, err := theirs.Lock(ctx, "order:1")
			require.NoError(t, err)
			_, err = plain.TryLock(ctx, 0, 0)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			waiting := make(chan *rlock.Hold, 1)
			go func() {
				h, _ := plain.Lock(ctx)
				waiting <- h
			}()
			require.NoError(t, release(ctx))
			h := <-waiting
			require.NotNil(t, h)

			short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
			defer stop()
			_, err = theirs.Lock(short, "order:1")
			require.Error(t, err)
			require.NoError(t, h.Err(), "and it left our hold alone")
			got := make(chan error, 1)
			go func() {
				release, err := theirs.Lock(ctx, "order:1")
				if err == nil {
					err = release(ctx)
				}
				got <- err
			}()
			require.NoError(t, h.Unlock(ctx))
			require.NoError(t, <-got)
		})
	}
}
