package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// withPeer is a client of a peer and one of ours, on a server of their own, for the length of t.
func withPeer(t *testing.T, peer string) (ctx context.Context, theirs Locker, ours *rlock.Client) {
	p := redistest.NoError(peerNamed(peer))(t)
	s := redistest.NoError(startRedis(false))(t)
	t.Cleanup(s.stop)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	setup := Setup{Redis: s.addr, Lease: 20 * time.Second}
	theirs = redistest.NoError(p.Open(ctx, setup))(t)
	t.Cleanup(theirs.Close)
	hub := redistest.NoError(dial(setup))(t)
	t.Cleanup(func() { hub.Close(context.Background()) })
	ours = redistest.NoError(rlock.New(hub, rlock.Options{}))(t)
	t.Cleanup(func() { ours.Close(context.Background()) })
	return ctx, theirs, ours
}

// goLock has a peer lock order:1 and release it, in a goroutine.
func goLock(ctx context.Context, theirs Locker) <-chan error {
	got := make(chan error, 1)
	go func() {
		release, err := theirs.Lock(ctx, "order:1")
		if err == nil {
			err = release(ctx)
		}
		got <- err
	}()
	return got
}

// A service that moves from one of these libraries may run both for a while, see docs/migration.md.
func TestPlain_KeyOfAnotherLibrary_Excludes(t *testing.T) {
	redistest.NeedServer(t)
	for _, c := range []struct {
		peer string
		key  string // of the lock that the peer calls order:1
	}{
		{"redsync", "order:1"},
		{"redislock, 1 ms", "order:1"},
		{"rueidislock", "rueidislock:0:order:1"},
	} {
		t.Run(c.peer, func(t *testing.T) {
			ctx, theirs, ours := withPeer(t, c.peer)
			plain := ours.Plain(c.key)

			release := redistest.NoError(theirs.Lock(ctx, "order:1"))(t)
			_, err := plain.TryLock(ctx, 0, 0)
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
			got := goLock(ctx, theirs)
			require.NoError(t, h.Unlock(ctx))
			require.NoError(t, <-got)
		})
	}
}

// A hash is what all other locks of redlatch are. Two of the libraries wait for one; redislock cannot.
func TestHash_KeyOfAnotherLibrary_WaitsOrFails(t *testing.T) {
	redistest.NeedServer(t)
	for _, c := range []struct {
		peer, key string // the key of the lock that the peer calls order:1
		waits     bool
	}{
		{"redsync", "order:1", true},
		{"redislock, 1 ms", "order:1", false},
		{"rueidislock", "rueidislock:0:order:1", true},
	} {
		t.Run(c.peer, func(t *testing.T) {
			ctx, theirs, ours := withPeer(t, c.peer)
			h := redistest.NoError(ours.Reentrant(c.key).Lock(ctx))(t)
			got := goLock(ctx, theirs)
			if !c.waits {
				require.ErrorContains(t, <-got, "WRONGTYPE")
				require.NoError(t, h.Unlock(ctx))
				return
			}
			select {
			case err := <-got:
				require.Fail(t, "it did not wait", "%v", err)
			case <-time.After(300 * time.Millisecond):
			}
			require.NoError(t, h.Unlock(ctx))
			require.NoError(t, <-got)
		})
	}
}
