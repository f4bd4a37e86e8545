package stock_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// lose removes a shard with all that it has.
func lose(t testing.TB, srv *redistest.Server, s *stock.Sharded, shard int) {
	t.Helper()
	key := s.Shard(shard).Key()
	must(t, srv.Client(t), "DEL", key, key+":u", key+":r", key+":h", key+":o", key+":l", key+":f")
}

// sellAll sells to that many users, one unit each, and returns how many got one.
func sellAll(t testing.TB, s *stock.Sharded, first, users int) (won int) {
	t.Helper()
	for i := range users {
		g, err := s.Claim(ctx, "user "+strconv.Itoa(first+i))
		if err != nil {
			require.ErrorIs(t, err, stock.ErrCorrupt)
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
	select {
	case <-trap.Caught():
	case err := <-opened:
		require.Fail(t, "opened without that request", "%v", err)
	}
	return func() error {
		close(released)
		return <-opened
	}
}

// B begins to open, and its request that makes shard 0 is kept back by the network; A opens the stock and sells all of it;
// shard 0 loses its data; B's request arrives and makes it anew, and B goes on. C has come as far as to let it sell, and
// that request was kept back as well.
func TestAShardThatWasLostWhileOthersOpenIsNotSoldTwice(t *testing.T) {
	t.Parallel()
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
			require.ErrorIs(t, err, stock.ErrAlreadyOpen)
			sold := sellAll(t, a, 0, 110)
			require.Equal(t, 100, sold)
			lose(t, srv, a, 0)
			for _, release := range release {
				err := release()
				sold += sellAll(t, a, 1000*sold, 60)
				require.Equal(t, 100, sold, "of 100")
				require.ErrorIs(t, err, stock.ErrCorrupt)
				require.ErrorContains(t, err, a.Shard(0).Key())
			}
			_, err = a.Inspect(ctx)
			require.ErrorIs(t, err, stock.ErrCorrupt)
			_, err = a.Open(ctx, spec(100))
			require.ErrorIs(t, err, stock.ErrAlreadyOpen)
			require.Zero(t, sellAll(t, a, 9000, 60), "nor does another Open let it sell")
		})
	}
}

// A clock that stands still, or was set back to the same microsecond, names no two shards alike.
func TestAShardMadeAnewInTheSameMicrosecondIsAnother(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	srv.Embedded.SetTime(time.Now())
	raw := srv.Client(t)
	s := on(t, raw, patient).Sharded("s", 2)
	p, err := s.Begin(ctx, "A", spec(4))
	require.NoError(t, err)
	require.NoError(t, s.Fix(ctx, p))
	first := text(t, raw, "HGET", s.Shard(0).Key(), "inc")
	for range 2 {
		require.NoError(t, s.Prepare(ctx, 0, p))
		require.Equal(t, first, text(t, raw, "HGET", s.Shard(0).Key(), "inc"), "it is there")
	}
	lose(t, srv, s, 0)
	require.NoError(t, s.Prepare(ctx, 0, p))
	require.NotEqual(t, first, text(t, raw, "HGET", s.Shard(0).Key(), "inc"))
	require.ErrorIs(t, s.Enliven(ctx, 0, p.Epoch()), stock.ErrCorrupt)
	require.ErrorIs(t, s.Fix(ctx, p), nil, "a later one changes nothing")
	require.ErrorIs(t, s.Enliven(ctx, 0, p.Epoch()), stock.ErrCorrupt)

	// nor do units come to it, or leave it
	require.NoError(t, s.Enliven(ctx, 1, p.Epoch()))
	_, err = s.Debit(ctx, p.Epoch(), 0, 1, true)
	require.ErrorIs(t, err, stock.ErrCorrupt)
	tr, err := s.Debit(ctx, p.Epoch(), 1, 0, true)
	require.NoError(t, err)
	require.ErrorIs(t, s.Credit(ctx, p.Epoch(), 1, 0, tr), stock.ErrCorrupt)
	require.Equal(t, "2", text(t, raw, "HGET", s.Shard(0).Key(), "limit"))
}

// A failover has set the plan back to before the names were written, and a shard that sold is lost.
func TestAPlanThatWasSetBackDoesNotNameShardsASecondTime(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s, _ := openedShards(t, on(t, raw, patient), "s", 2, 20)
		sold := sellAll(t, s, 0, 10)
		require.Equal(t, 10, sold)
		must(t, raw, "HDEL", "rc:{s}:s", "incs")
		must(t, raw, "HSET", "rc:{s}:s", "phase", "1")
		lose(t, srv, s, 0)
		_, err := s.Open(ctx, spec(20))
		require.ErrorIs(t, err, stock.ErrCorrupt)
		require.LessOrEqual(t, sold+sellAll(t, s, 100, 40), 20)
		require.Equal(t, "1", text(t, raw, "HGET", "rc:{s}:s", "phase"))

		// names without a phase, and a phase without names
		must(t, raw, "HSET", "rc:{s}:s", "phase", "3")
		_, err = s.Inspect(ctx)
		require.ErrorIs(t, err, stock.ErrCorrupt)
	})
}

// With MinReplicas no shard sells before replicas have the names in the plan. B is told a name of each shard; A completes the
// opening, sells shard 1, and shard 1 is lost; B makes it anew; a failover sets the plan back to before the names. Without
// this B's names would stand, and shard 1 would sell a second time: the search of sharded_search_test.go finds that way.
func TestNoShardSellsBeforeReplicasHaveThePlansNames(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--save", "")
	raw := srv.Client(t)
	sure := stock.Options{CallTimeout: patient.CallTimeout, MinReplicas: 1, ReplicaTimeout: time.Millisecond}
	s := on(t, srv.Client(t), sure).Sharded("s", 2)
	_, err := s.Open(ctx, spec(20))
	require.ErrorIs(t, err, stock.ErrNotReplicated)
	require.Equal(t, "2", text(t, raw, "HGET", "rc:{s}:s", "phase"))
	for i := range 2 {
		require.Equal(t, "4", text(t, raw, "HGET", s.Shard(i).Key(), "state"))
	}

	// whoever goes on, by an opening or a claim, has the names confirmed too, which takes a write
	for what, call := range map[string]func() error{
		"Open":  func() error { _, err := s.Open(ctx, spec(20)); return err },
		"Claim": func() error { _, err := s.Claim(ctx, "ann"); return err },
	} {
		before := rig.Writes(t, raw)
		require.ErrorIs(t, call(), stock.ErrNotReplicated, what)
		require.Greater(t, rig.Writes(t, raw), before, what)
		require.Equal(t, "4", text(t, raw, "HGET", s.Shard(0).Key(), "state"), what)
	}

	p, err := on(t, srv.Client(t), patient).Sharded("s", 2).Open(ctx, spec(20))
	require.ErrorIs(t, err, stock.ErrAlreadyOpen)
	require.NotZero(t, p)
	require.Equal(t, "1", text(t, raw, "HGET", s.Shard(0).Key(), "state"))
}

// A plain stock in the place of a lost shard would sell what the shard has sold.
func TestAShardIsNotOpenedResizedOrRestoredByItself(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Embedded(t).Client(t)}
	shard := on(t, wire, patient).Sharded("s", 2).Shard(1)
	wire.Sent.Store(0)
	for _, err := range []error{
		func() error { _, err := shard.Open(ctx, spec(1)); return err }(),
		shard.Resize(ctx, 2),
		func() error { _, err := shard.Restore(ctx, sequence()); return err }(),
	} {
		require.ErrorIs(t, err, stock.ErrInvalidOption)
		require.ErrorContains(t, err, `"s#1/2`)
	}
	require.Zero(t, wire.Sent.Load())
}
