package rcounter_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

// lose removes a shard with all that it has.
func lose(t testing.TB, srv *redistest.Server, s *rcounter.ShardedStock, shard int) {
	t.Helper()
	key := s.Shard(shard).Key()
	must(t, srv.Client(t), "DEL", key, key+":u", key+":r", key+":h", key+":o", key+":l")
}

// sellAll sells to that many users, one unit each, and returns how many got one.
func sellAll(t testing.TB, s *rcounter.ShardedStock, first, users int) (won int) {
	t.Helper()
	for i := range users {
		g, err := s.Claim(ctx, "user "+strconv.Itoa(first+i))
		if err != nil {
			require.ErrorIs(t, err, rcounter.ErrCorrupt)
			continue
		}
		if g.Won() {
			won++
		}
	}
	return won
}

// openThrough opens the stock from another process, whose request to shard 0 is kept back by the network: the one that
// makes it (1) or the one that lets it sell (2). What is returned lets it through, and answers what Open did.
func openThrough(t *testing.T, srv *redistest.Server, name string, request int) (release func() error) {
	proxy := redistest.NewProxy(t, srv)
	s := on(t, proxy.Server().Client(t), patient).Sharded(name, 2)
	seen, released, opened := 0, make(chan struct{}), make(chan error, 1)
	trap := proxy.Trap(&redistest.Trap{Fate: redistest.HoldRequest, Release: released, Match: func(words []string) bool {
		if redistest.With(s.Shard(0).Key())(words) {
			seen++
			return seen == request
		}
		return false
	}})
	go func() {
		_, err := s.Open(ctx, spec(100))
		opened <- err
	}()
	<-trap.Caught()
	return func() error {
		close(released)
		return <-opened
	}
}

// B begins to open, and its request that makes shard 0 is kept back by the network; A opens the stock and sells all of it;
// shard 0 loses its data; B's request arrives and makes it anew, and B goes on. C has come as far as to let it sell, and
// that request was kept back as well.
func TestAShardThatWasLostWhileOthersOpenIsNotSoldTwice(t *testing.T) {
	srv := redistest.Start(t)
	openedShards(t, on(t, srv.Client(t), patient), "warm", 2, 2) // no NOSCRIPT is kept back
	for _, openers := range [][]int{{1}, {1, 2}, {1, 1}} {
		t.Run(fmt.Sprint(openers), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint(len(openers), openers[len(openers)-1])
			var release []func() error
			for _, request := range openers {
				release = append(release, openThrough(t, srv, name, request))
			}
			a := on(t, srv.Client(t), patient).Sharded(name, 2)
			_, err := a.Open(ctx, spec(100))
			require.ErrorIs(t, err, rcounter.ErrAlreadyOpen)
			sold := sellAll(t, a, 0, 110)
			require.Equal(t, 100, sold)
			lose(t, srv, a, 0)
			for _, release := range release {
				err := release()
				sold += sellAll(t, a, 1000*sold, 60)
				require.Equal(t, 100, sold, "of 100")
				require.ErrorIs(t, err, rcounter.ErrCorrupt)
				require.ErrorContains(t, err, a.Shard(0).Key())
			}
			_, err = a.Status(ctx)
			require.ErrorIs(t, err, rcounter.ErrCorrupt)
			_, err = a.Open(ctx, spec(100))
			require.ErrorIs(t, err, rcounter.ErrAlreadyOpen)
			require.Zero(t, sellAll(t, a, 9000, 60), "nor does another Open let it sell")
		})
	}
}
