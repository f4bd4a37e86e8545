package stock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func openedShards(t testing.TB, c *stock.Client, name string, k int, limit int64) (*stock.Sharded, int64) {
	t.Helper()
	s := c.Sharded(name, k)
	epoch, err := s.Open(ctx, spec(limit))
	require.NoError(t, err)
	return s, epoch
}

// userOf is the n-th user whose home is that shard.
func userOf(s *stock.Sharded, home, n int) string {
	for i := 0; ; i++ {
		if u := fmt.Sprintf("user %d", i); s.Home(u) == home {
			if n == 0 {
				return u
			}
			n--
		}
	}
}

// A model in one variable: how many units are left, wherever they are. Steps of transfers are broken off, repeated
// and delivered late at any time.
func TestAShardedStockKeepsToTheModelOfAnUnshardedOne(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for wire, wrap := range map[string]func(t *testing.T, s *redistest.Server, rnd *rand.Rand) rueidis.Client{
		"once": func(t *testing.T, s *redistest.Server, _ *rand.Rand) rueidis.Client { return s.Client(t) },
		"twice": func(t *testing.T, s *redistest.Server, _ *rand.Rand) rueidis.Client {
			return twice{Client: s.Client(t)}
		},
		"lossy": func(t *testing.T, s *redistest.Server, rnd *rand.Rand) rueidis.Client {
			var mu sync.Mutex // a look reads all shards at the same time
			return newLossy(t, s, func() bool { mu.Lock(); defer mu.Unlock(); return rnd.IntN(4) == 0 })
		},
	} {
		for range 2 {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("%s/%d", wire, seed), func(t *testing.T) {
				srv := redistest.Embedded(t)
				walkShards(t, srv, on(t, wrap(t, srv, rand.New(rand.NewPCG(seed, 2))), patient), rand.New(rand.NewPCG(seed, 1)))
			})
		}
	}
}

func walkShards(t *testing.T, srv *redistest.Server, c *stock.Client, rnd *rand.Rand) {
	k := 2 + rnd.IntN(3)
	limit := 1 + rnd.Int64N(12)
	s, epoch := openedShards(t, c, "s", k, limit)
	held := map[string]int64{}
	given := map[int64]bool{}
	var anys []stock.Grant
	sold := int64(0)
	var late []func() error // steps that were taken, to be taken again
	var trace []string
	for range 60 {
		u := fmt.Sprintf("u%d", rnd.IntN(25))
		left := limit - sold
		fresh := func(g stock.Grant) {
			require.Positive(t, g.N)
			require.LessOrEqual(t, g.N, left, "%v", trace)
			for o := g.Ordinal; o < g.Ordinal+g.N; o++ {
				require.False(t, given[o], "ordinal %d twice: %v", o, trace)
				given[o] = true
			}
			sold += g.N
		}
		switch op := rnd.IntN(100); {
		case op < 50:
			g, err := s.Claim(ctx, u)
			require.NoError(t, err, "%v", trace)
			trace = append(trace, fmt.Sprintf("claim %s: %v %d", u, g.Outcome, g.Ordinal))
			require.Equal(t, epoch, g.Epoch)
			switch {
			case held[u] > 0:
				require.Equal(t, stock.Replayed, g.Outcome)
				require.Equal(t, held[u], g.Ordinal)
			case left == 0:
				require.Equal(t, stock.SoldOut, g.Outcome, "%v", trace)
			default:
				require.Equal(t, stock.Granted, g.Outcome, "%d left: %v", left, trace)
				fresh(g)
				held[u] = g.Ordinal
			}
		case op < 60:
			g, err := s.ClaimAny(ctx, 1+rnd.Int64N(3))
			require.NoError(t, err)
			trace = append(trace, fmt.Sprintf("any: %v %d+%d", g.Outcome, g.Ordinal, g.N))
			if left == 0 {
				require.Equal(t, stock.SoldOut, g.Outcome)
				break
			}
			require.Equal(t, stock.Granted, g.Outcome, "%d left: %v", left, trace)
			fresh(g)
			anys = append(anys, g)
		case op < 72:
			o := held[u]
			if o == 0 || rnd.IntN(4) == 0 {
				o = s.Ordinal(rnd.IntN(k), 1+rnd.Int64N(9))
			}
			ok, err := s.Return(ctx, u, o)
			require.NoError(t, err)
			trace = append(trace, fmt.Sprintf("return %s %d: %v", u, o, ok))
			require.Equal(t, o == held[u], ok)
			if ok {
				delete(held, u)
				sold--
			}
		case op < 76 && len(anys) > 0:
			g := anys[len(anys)-1]
			anys = anys[:len(anys)-1]
			ok, err := s.ReturnAny(ctx, g)
			require.NoError(t, err)
			require.True(t, ok)
			sold -= g.N
			trace = append(trace, fmt.Sprintf("return any %d+%d", g.Ordinal, g.N))
		case op < 80:
			g, found, err := s.Lookup(ctx, u)
			require.NoError(t, err)
			require.Equal(t, held[u] > 0, found)
			require.Equal(t, held[u], g.Ordinal)
		case op < 90: // somebody's transfer, broken off after any step
			from, to := rnd.IntN(k), rnd.IntN(k)
			if from == to {
				break
			}
			steps := rnd.IntN(3)
			tr, err := s.Debit(ctx, epoch, from, to, rnd.IntN(4) > 0)
			require.NoError(t, err)
			late = append(late, func() error { _, err := s.Debit(ctx, epoch, from, to, true); return err })
			if tr.N() > 0 && steps > 0 {
				require.NoError(t, s.Credit(ctx, epoch, from, to, tr))
				late = append(late, func() error { return s.Credit(ctx, epoch, from, to, tr) })
			}
			if tr.N() > 0 && steps > 1 {
				require.NoError(t, s.Acknowledge(ctx, epoch, from, to, tr.Number()))
				late = append(late, func() error { return s.Acknowledge(ctx, epoch, from, to, tr.Number()) })
			}
			trace = append(trace, fmt.Sprintf("transfer %d to %d: %d units, %d steps", from, to, tr.N(), steps))
		case op < 96 && len(late) > 0:
			i := rnd.IntN(len(late))
			require.NoError(t, late[i]())
			trace = append(trace, fmt.Sprintf("again %d", i))
		default:
			st, err := s.Inspect(ctx)
			require.NoError(t, err, "%v", trace)
			require.Equal(t, []int64{limit, sold, limit - sold, epoch, int64(len(given))}, []int64{st.Limit, st.Sold, st.Remaining, st.Epoch, st.Seq})
			require.Equal(t, stock.StateOpen, st.State)
		}
		requireEnds(t, srv.Client(t))
	}
}

// claimLog is when claims and returns on one stock began and ended, and what came of them.
type claimLog struct {
	mu      sync.Mutex
	clock   atomic.Int64
	grants  []span
	returns []span
	soldOut []span
}

type span struct{ began, ended int64 }

// requireTrueSoldOuts fails if SoldOut was said although a unit was left during all of the call: with every grant that
// can have happened before it ended, and without every return that surely happened before it began, some of the limit
// was not sold.
func (l *claimLog) requireTrueSoldOuts(t testing.TB, limit int) {
	t.Helper()
	for _, s := range l.soldOut {
		most := 0
		for _, g := range l.grants {
			if g.began < s.ended {
				most++
			}
		}
		for _, r := range l.returns {
			if r.ended < s.began {
				most--
			}
		}
		if most < limit {
			t.Fatalf("sold out was said when at most %d of %d were sold", most, limit)
		}
	}
}

// crowdShards has many users, most of them at home at one shard, claim and now and then return, until all are sold.
func crowdShards(t *testing.T, stocks []*stock.Sharded, limit, users int, patience time.Duration) *claimLog {
	l := &claimLog{}
	book := newLedger()
	var returned sync.Map
	next := make(chan string, 4*users)
	for range 2 {
		for _, i := range rand.Perm(users) {
			home := i % 4 // three of four at one shard
			if home > 1 || len(stocks[0].Shards()) == 1 {
				home = 0
			}
			next <- userOf(stocks[0], home, i)
		}
	}
	close(next)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			s := stocks[i%len(stocks)]
			for u := range next {
				var g stock.Grant
				sp := span{began: l.clock.Add(1)}
				err := errors.New("not asked")
				for end := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(end); {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					if g, err = s.Claim(ctx, u); errors.Is(err, stock.ErrCorrupt) {
						t.Error(err)
					}
					cancel()
				}
				if err != nil {
					t.Error(err)
					return
				}
				sp.ended = l.clock.Add(1)
				if _, was := returned.Load(u); !was {
					book.record(u, g)
				}
				l.mu.Lock()
				switch g.Outcome {
				case stock.SoldOut:
					l.soldOut = append(l.soldOut, sp)
				case stock.Granted, stock.Replayed:
					l.grants = append(l.grants, sp) // a replay too: its grant may have been that of a call given up on
				}
				l.mu.Unlock()
				if g.Outcome == stock.Granted && rand.IntN(10) == 0 {
					returned.Store(u, true)
					r := span{began: l.clock.Add(1)}
					var ok bool
					err := errors.New("not asked")
					for end := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(end); {
						ok, err = s.Return(ctx, u, g.Ordinal)
					}
					r.ended = l.clock.Add(1)
					if ok {
						l.mu.Lock()
						l.returns = append(l.returns, r)
						l.mu.Unlock()
					}
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, book.wrong)
	return l
}

func TestShardsSellExactlyTheLimitAndNeverSaySoldOutTooEarly(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		limit, users := 120, 400
		if srv.Embedded != nil {
			limit, users = 25, 60
		}
		s, _ := openedShards(t, on(t, srv.Client(t), patient), "s", 4, int64(limit))
		stocks := []*stock.Sharded{s, on(t, srv.Client(t), patient).Sharded("s", 4), on(t, srv.Client(t), patient).Sharded("s", 4)}
		l := crowdShards(t, stocks, limit, users, 20*time.Second)
		l.requireTrueSoldOuts(t, limit)
		requireAllSell(t, s, limit)
	})
}

// requireAllSell sells what is left, if returns came last, one by one from one home, down to the last.
func requireAllSell(t testing.TB, s *stock.Sharded, limit int) {
	t.Helper()
	for i := 0; ; i++ {
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, limit, st.Limit)
		require.EqualValues(t, limit, st.Sold+st.Remaining)
		g, err := s.Claim(ctx, userOf(s, 0, 1000+i))
		require.NoError(t, err)
		if st.Remaining == 0 {
			require.Equal(t, stock.SoldOut, g.Outcome)
			return
		}
		require.Equal(t, stock.Granted, g.Outcome)
	}
}

// On a real Cluster, whose nodes lose connections, scripts and time all the while.
func TestShardsOnAClusterUnderFaultsSellExactlyTheLimit(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	var nodes []rueidis.Client
	for _, addr := range srv.Addrs {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		nodes = append(nodes, c)
	}
	const limit, users = 90, 300
	s, _ := openedShards(t, on(t, srv.Client(t), patient), "s", 3, limit)
	for _, n := range nodes {
		shards := 0
		for _, k := range keys(t, n) {
			if strings.HasPrefix(k, "rc:{s#") {
				shards++
			}
		}
		require.Equal(t, 1, shards, "every node has one")
	}
	o := stock.Options{CallTimeout: 2 * time.Second}
	stocks := []*stock.Sharded{on(t, srv.Client(t), o).Sharded("s", 3), on(t, srv.Client(t), o).Sharded("s", 3)}
	var l *claimLog
	during(func() {
		for _, n := range nodes {
			switch rand.IntN(3) {
			case 0:
				raw(n, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			case 1:
				raw(n, "SCRIPT", "FLUSH")
			default:
				raw(n, "CLIENT", "PAUSE", "15")
			}
		}
		time.Sleep(30 * time.Millisecond)
	}, func() { l = crowdShards(t, stocks, limit, users, 8*time.Second) })
	l.requireTrueSoldOuts(t, limit)
	requireAllSell(t, s, limit)
	for _, n := range nodes {
		requireEnds(t, n)
	}
}

func TestUnitsOnTheirWayAreNotSoldOut(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		for steps := range 3 {
			name := strconv.Itoa(steps)
			s, epoch := openedShards(t, c, name, 3, 1) // the unit is at shard 0
			tr, err := s.Debit(ctx, epoch, 0, 2, true) // and its carrier dies
			require.NoError(t, err)
			require.EqualValues(t, 1, tr.N())
			if steps > 0 {
				require.NoError(t, s.Credit(ctx, epoch, 0, 2, tr))
			}
			st, err := s.Inspect(ctx)
			require.NoError(t, err)
			require.EqualValues(t, 1, st.Remaining)
			g, err := s.Claim(ctx, userOf(s, 1, 0)) // neither from there nor to there
			require.NoError(t, err)
			require.Equal(t, stock.Granted, g.Outcome)
			require.EqualValues(t, 1, g.Ordinal>>40)
			for home := range 3 {
				g, err := s.Claim(ctx, userOf(s, home, 1))
				require.NoError(t, err)
				require.Equal(t, stock.SoldOut, g.Outcome)
				require.Equal(t, epoch, g.Epoch)
			}
			ok, err := s.Return(ctx, userOf(s, 1, 0), g.Ordinal)
			require.NoError(t, err)
			require.True(t, ok)
			g, err = s.Claim(ctx, userOf(s, 0, 2))
			require.NoError(t, err)
			require.Equal(t, stock.Granted, g.Outcome, "what is returned at one home is sold at another")
		}
	})
}

func TestACreditIsAddedOnceHoweverLateItComes(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s, epoch := openedShards(t, on(t, raw, patient), "s", 2, 40)
		limits := func() [2]int64 {
			return [2]int64{number(t, raw, "HGET", s.Shard(0).Key(), "limit"), number(t, raw, "HGET", s.Shard(1).Key(), "limit")}
		}
		none, err := s.Debit(ctx, epoch, 0, 1, false)
		require.NoError(t, err)
		require.Zero(t, none.N(), "nothing is on its way there, and nothing is to set out")
		first, err := s.Debit(ctx, epoch, 0, 1, true)
		require.NoError(t, err)
		require.EqualValues(t, 10, first.N())
		again, err := s.Debit(ctx, epoch, 0, 1, true)
		require.NoError(t, err)
		require.Equal(t, first, again)
		for range 3 {
			require.NoError(t, s.Credit(ctx, epoch, 0, 1, first))
			require.Equal(t, [2]int64{10, 30}, limits())
		}
		again, err = s.Debit(ctx, epoch, 0, 1, true)
		require.NoError(t, err)
		require.Equal(t, first, again, "not before the giver knows that they have arrived")
		for range 2 {
			require.NoError(t, s.Acknowledge(ctx, epoch, 0, 1, first.Number()))
		}
		second, err := s.Debit(ctx, epoch, 0, 1, true)
		require.NoError(t, err)
		require.EqualValues(t, 5, second.N())
		require.NoError(t, s.Acknowledge(ctx, epoch, 0, 1, first.Number()), "a late copy")
		again, err = s.Debit(ctx, epoch, 0, 1, false)
		require.NoError(t, err)
		require.Equal(t, second, again, "still on its way")
		require.NoError(t, s.Credit(ctx, epoch, 0, 1, first), "a late copy")
		require.Equal(t, [2]int64{5, 30}, limits())
		require.NoError(t, s.Credit(ctx, epoch, 0, 1, second))
		require.NoError(t, s.Credit(ctx, epoch, 0, 1, first), "a later copy")
		require.Equal(t, [2]int64{5, 35}, limits())
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 40, st.Remaining)

		// the receiver was known to be sold out, and is not any more
		for range 7 {
			for home := range 2 {
				_, err = s.Shard(home).ClaimAny(ctx, 5)
				require.NoError(t, err)
			}
		}
		st, err = s.Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 0, st.Remaining)
		flag := s.Shard(1).Key() + ":o"
		require.EqualValues(t, 1, number(t, raw, "EXISTS", flag))
		u := userOf(s, 1, 0)
		must(t, raw, "HINCRBY", s.Shard(1).Key(), "limit", "-1") // as if on its way
		must(t, raw, "HINCRBY", s.Shard(1).Key(), "sold", "-1")
		third := stock.MakeTransfer(3, 1)
		require.NoError(t, s.Credit(ctx, epoch, 0, 1, third))
		require.EqualValues(t, 0, number(t, raw, "EXISTS", flag))
		g, err := s.Claim(ctx, u)
		require.NoError(t, err)
		require.Equal(t, stock.Granted, g.Outcome)

		// of another opening: nothing
		require.ErrorIs(t, s.Credit(ctx, epoch+1, 0, 1, second), stock.ErrCorrupt)
		_, err = s.Debit(ctx, epoch+1, 0, 1, true)
		require.ErrorIs(t, err, stock.ErrCorrupt)
		require.ErrorIs(t, s.Acknowledge(ctx, epoch+1, 0, 1, 2), stock.ErrCorrupt)
		require.ErrorIs(t, s.Enliven(ctx, 0, epoch+1), stock.ErrCorrupt)
		_, err = s.Debit(ctx, epoch, 0, 0, true)
		require.ErrorIs(t, err, stock.ErrCorrupt, "to itself")
		_, err = s.Debit(ctx, epoch, 0, 2, true)
		require.ErrorIs(t, err, stock.ErrCorrupt, "to nowhere")
		require.Equal(t, [2]int64{5, 35}, limits())
	})
}

// meddler does something just before a look at one shard is sent, once the other shards have answered, and just
// before the plan is read.
type meddler struct {
	rueidis.Client
	key    string
	others atomic.Int64
	meddle func()
	plan   func()
}

func (m *meddler) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := cmd.Commands()
	if m.plan != nil && len(words) == 8 && words[5] == "0" && strings.HasPrefix(words[0], "EVAL") {
		m.plan()
	}
	look := len(words) == 12 && words[10] == "3" && strings.HasPrefix(words[0], "EVAL")
	if !look {
		return m.Client.Do(ctx, cmd)
	}
	if words[3] == m.key {
		for m.others.Load() < 2 {
			time.Sleep(time.Millisecond)
		}
		m.meddle()
		r := m.Client.Do(ctx, cmd)
		m.others.Store(0)
		return r
	}
	r := m.Client.Do(ctx, cmd)
	if r.Error() == nil {
		m.others.Add(1)
	}
	return r
}

// The unit is never seen: whenever a shard is looked at, it has just gone to one that was looked at before. All shards
// are seen empty, one after the other, and nothing on its way. It is not sold out.
func TestAUnitThatMovesFromShardToShardBehindTheLooksIsFound(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	calm, epoch := openedShards(t, on(t, srv.Client(t), patient), "s", 3, 1)
	wire := &meddler{Client: srv.Client(t), key: calm.Shard(2).Key()}
	s := on(t, wire, patient).Sharded("s", 3)
	move := func(from, to int) {
		tr, err := calm.Debit(ctx, epoch, from, to, true)
		require.NoError(t, err)
		require.EqualValues(t, 1, tr.N())
		require.NoError(t, calm.Credit(ctx, epoch, from, to, tr))
		require.NoError(t, calm.Acknowledge(ctx, epoch, from, to, tr.Number()))
	}
	move(0, 2)
	looks := 0
	wire.meddle = func() {
		if looks++; looks == 1 {
			move(2, 1)
		}
	}
	require.NoError(t, s.WarmLook(ctx)) // not EVAL after a NOSCRIPT: a look is one call then
	looks = 0
	move(1, 2)
	g, err := s.Claim(ctx, userOf(s, 0, 0))
	require.NoError(t, err)
	require.Equal(t, stock.Granted, g.Outcome)
	require.GreaterOrEqual(t, looks, 2)

	// the same, and back again in time for the second look at its old place: it has been seen nowhere twice
	ok, err := calm.Return(ctx, userOf(s, 0, 0), g.Ordinal)
	require.NoError(t, err)
	require.True(t, ok)
	move(0, 2)
	looks = 0
	back := false
	wire.meddle = func() {
		switch looks++; {
		case looks == 1:
			move(2, 1)
		case looks == 2 && !back:
			back = true
			move(1, 2) // looked at already in this round: it was there
			move(2, 0)
		}
	}
	g, err = s.Claim(ctx, userOf(s, 0, 1))
	require.NoError(t, err)
	require.Equal(t, stock.Granted, g.Outcome)
}

// The same with units that are returned and claimed: before one that was left is claimed, another is returned at a
// shard that was just looked at. At no moment is it sold out, and every shard looks the same both times.
func TestAUnitThatIsAlwaysLeftSomewhereElseIsFound(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	calm, _ := openedShards(t, on(t, srv.Client(t), patient), "s", 3, 3)
	wire := &meddler{Client: srv.Client(t), key: calm.Shard(2).Key(), meddle: func() {}}
	s := on(t, wire, patient).Sharded("s", 3)
	require.NoError(t, s.WarmLook(ctx))
	wire.others.Store(0)
	claim := func(home, n int) (back func()) {
		g, err := calm.Claim(ctx, userOf(s, home, n))
		require.NoError(t, err)
		require.Equal(t, stock.Granted, g.Outcome)
		return func() {
			ok, err := calm.Return(ctx, userOf(s, home, n), g.Ordinal)
			require.NoError(t, err)
			require.True(t, ok)
		}
	}
	returnA, returnB := claim(0, 0), claim(1, 0)
	var returnC func()
	looks, plans := 0, 0
	wire.plan = func() {
		if plans++; plans == 2 { // between the two looks at all shards
			returnC()
			claim(1, 1)
		}
	}
	wire.meddle = func() {
		switch looks++; looks {
		case 1: // shards 0 and 1 have been looked at
			returnB()
			returnC = claim(2, 0)
		case 2:
			returnA()
			claim(2, 1)
		}
	}
	g, err := s.Claim(ctx, userOf(s, 0, 5))
	require.NoError(t, err)
	require.Equal(t, stock.Granted, g.Outcome)
	require.GreaterOrEqual(t, looks, 2)
}

func TestAnOpeningThatWasBrokenOffIsBroughtToItsEnd(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		for at := range 7 {
			if srv.Embedded != nil && at%2 == 1 {
				continue // its Lua is slow under the race detector
			}
			s := c.Sharded(strconv.Itoa(at), 3)
			p, err := s.Begin(ctx, "A", spec(7))
			require.NoError(t, err)
			// 0: nothing more; 1, 2: some shards; 3: all; 4: may sell; 5: one does; 6: all do
			for i := range min(at, 3) {
				require.NoError(t, s.Prepare(ctx, i, p))
			}
			if at < 4 {
				for home := range 3 {
					g, err := s.Claim(ctx, userOf(s, home, 0))
					require.NoError(t, err)
					require.Equal(t, stock.Grant{Outcome: stock.NotOpen}, g, "after step %d", at)
				}
				st, err := s.Inspect(ctx)
				require.NoError(t, err)
				require.Equal(t, stock.StateAbsent, st.State)
			} else {
				require.NoError(t, s.Fix(ctx, p))
			}
			if at > 4 {
				require.NoError(t, s.Enliven(ctx, 1, p.Epoch()))
			}
			if at > 5 {
				require.NoError(t, s.Enliven(ctx, 0, p.Epoch()))
				require.NoError(t, s.Enliven(ctx, 2, p.Epoch()))
			}
			if at < 4 || rand.IntN(2) == 0 {
				standing, err := c.Sharded(strconv.Itoa(at), 5).Open(ctx, spec(100)) // what it asks for does not matter
				require.ErrorIs(t, err, stock.ErrAlreadyOpen)
				require.Equal(t, p.Epoch(), standing)
			}
			for i := range 3 { // late copies
				require.NoError(t, s.Prepare(ctx, i, p))
			}
			n := 0
			for i := range 12 {
				g, err := s.Claim(ctx, strconv.Itoa(i))
				require.NoError(t, err)
				if g.Won() {
					n++
				} else {
					require.Equal(t, stock.SoldOut, g.Outcome)
				}
			}
			require.Equal(t, 7, n)
			require.NoError(t, s.Fix(ctx, p)) // and later copies
			require.EqualValues(t, 3, number(t, srv.Client(t), "HGET", "rc:{"+strconv.Itoa(at)+"}:s", "phase"))
			for i := range 3 {
				require.NoError(t, s.Prepare(ctx, i, p))
				require.NoError(t, s.Enliven(ctx, i, p.Epoch()))
			}
			st, err := s.Inspect(ctx)
			require.NoError(t, err)
			require.EqualValues(t, []int64{7, 7, 0}, []int64{st.Limit, st.Sold, st.Remaining})
		}
		requireEnds(t, srv.Client(t))
	})
}

func TestTwoOpensAtTheSameTimeMakeOneStock(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for round := range 10 {
		name := strconv.Itoa(round)
		var opened, refused atomic.Int64
		var wg sync.WaitGroup
		for i := range 4 {
			c := on(t, srv.Client(t), patient)
			wg.Go(func() {
				_, err := c.Sharded(name, 3).Open(ctx, spec(int64(10+i)))
				switch {
				case err == nil:
					opened.Add(1)
				case errors.Is(err, stock.ErrAlreadyOpen):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, opened.Load())
		require.EqualValues(t, 3, refused.Load())
		s := on(t, srv.Client(t), patient).Sharded(name, 3)
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, st.Limit, st.Remaining)
		requireAllSell(t, s, int(st.Limit))
	}
}

func TestAShardThatIsGoneFailsClosed(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		c := on(t, raw, patient)
		s, epoch := openedShards(t, c, "s", 3, 6)
		lost := s.Shard(1).Key()
		must(t, raw, "DEL", lost)
		for range 2 {
			_, err := s.Claim(ctx, userOf(s, 1, 0))
			require.ErrorIs(t, err, stock.ErrCorrupt)
			require.ErrorContains(t, err, lost)
			_, _, err = s.Lookup(ctx, userOf(s, 1, 0))
			require.ErrorIs(t, err, stock.ErrCorrupt)
			_, err = s.Inspect(ctx)
			require.ErrorIs(t, err, stock.ErrCorrupt)
			require.EqualValues(t, 0, number(t, raw, "EXISTS", lost))
		}
		for i := range 2 {
			g, err := s.Claim(ctx, userOf(s, 0, i))
			require.NoError(t, err)
			require.True(t, g.Won(), "the others go on")
		}
		_, err := s.Claim(ctx, userOf(s, 0, 2))
		require.ErrorIs(t, err, stock.ErrCorrupt, "and do not say sold out")
		_, err = s.Open(ctx, spec(6))
		require.ErrorIs(t, err, stock.ErrAlreadyOpen)
		require.EqualValues(t, 0, number(t, raw, "EXISTS", lost), "nothing makes it anew")
		_, err = s.Debit(ctx, epoch, 1, 0, true)
		require.ErrorIs(t, err, stock.ErrCorrupt)

		// made anew by a request that came late: not sold a second time
		p, err := s.Begin(ctx, "late", spec(6))
		require.NoError(t, err)
		require.NoError(t, s.Prepare(ctx, 1, p))
		_, err = s.Claim(ctx, userOf(s, 1, 0))
		require.ErrorIs(t, err, stock.ErrCorrupt)

		// the plan lost
		s, _ = openedShards(t, c, "t", 2, 2)
		must(t, raw, "DEL", "rc:{t}:s")
		for i := range 3 {
			g, err := s.Claim(ctx, userOf(s, 0, i))
			if i == 0 {
				require.NoError(t, err)
				require.True(t, g.Won(), "homes go on")
			} else {
				require.ErrorIs(t, err, stock.ErrCorrupt)
			}
		}
		_, err = s.Open(ctx, spec(2))
		require.ErrorIs(t, err, stock.ErrAlreadyOpen, "over what is there nothing is opened")

		// units that do not add up
		s, _ = openedShards(t, c, "u", 2, 2)
		must(t, raw, "HSET", s.Shard(1).Key(), "limit", "0")
		_, err = s.Inspect(ctx)
		require.ErrorIs(t, err, stock.ErrCorrupt)
		require.ErrorContains(t, err, "have 1 units, and there must be 2")
		_, err = s.Claim(ctx, userOf(s, 0, 0))
		require.NoError(t, err)
		_, err = s.Claim(ctx, userOf(s, 0, 1))
		require.ErrorIs(t, err, stock.ErrCorrupt)

		// something else under its names
		s = c.Sharded("v", 2)
		must(t, raw, "HSET", "rc:{v}:s", "x", "y")
		for _, err := range []error{func() error { _, err := s.Open(ctx, spec(1)); return err }(), func() error { _, err := s.Claim(ctx, "a"); return err }()} {
			require.ErrorIs(t, err, stock.ErrCorrupt)
		}
		opened(t, c, "w#0/2", 5)
		_, err = c.Sharded("w", 2).Open(ctx, spec(1))
		require.ErrorIs(t, err, stock.ErrAlreadyOpen)
	})
}

func TestAShardedStockGoesThroughItsLife(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	at := time.Now().Truncate(time.Millisecond)
	srv.Embedded.SetTime(at)
	raw := srv.Client(t)
	c := on(t, raw, patient)
	s := c.Sharded("s", 3)
	says := func(want stock.Outcome, state stock.State, u string) {
		t.Helper()
		g, err := s.Claim(ctx, u)
		require.NoError(t, err)
		require.Equal(t, want, g.Outcome)
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, state, st.State)
	}
	says(stock.NotOpen, stock.StateAbsent, "a")
	o := stock.Spec{Limit: 5, StartIn: time.Minute, OpenFor: time.Minute, Retain: time.Hour}
	epoch, err := s.Open(ctx, o)
	require.NoError(t, err)
	says(stock.NotStarted, stock.StatePending, "a")
	srv.Embedded.SetTime(at.Add(time.Minute))
	says(stock.Granted, stock.StateOpen, "a")
	says(stock.Replayed, stock.StateOpen, "a")
	srv.Embedded.SetTime(at.Add(2 * time.Minute))
	says(stock.Replayed, stock.StateEnded, "a")
	says(stock.Ended, stock.StateEnded, "b")
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, stock.Status{State: stock.StateEnded, Limit: 5, Sold: 1, Remaining: 4, Seq: 1, Epoch: epoch, UntilGone: time.Hour}, st)
	srv.Embedded.SetTime(at.Add(62 * time.Minute))
	says(stock.NotOpen, stock.StateAbsent, "a")
	require.Empty(t, keys(t, raw), "whoever asks removes what is left")
	o.StartIn = 0
	_, err = s.Open(ctx, o)
	require.NoError(t, err)
	says(stock.Granted, stock.StateOpen, "a")
	require.NoError(t, s.Close(ctx))
	says(stock.Replayed, stock.StateClosed, "a")
	says(stock.Ended, stock.StateClosed, "b")
	for i := range 3 { // a late copy
		st, err := s.Shard(i).Inspect(ctx)
		require.NoError(t, err)
		require.NoError(t, s.Enliven(ctx, i, st.Epoch))
	}
	says(stock.Ended, stock.StateClosed, "b")

	// an opening given up makes room when its time is over, and a shard of it that is left, at once
	given := c.Sharded("g", 2)
	p, err := given.Begin(ctx, "A", stock.Spec{Limit: 2, OpenFor: time.Minute, Retain: time.Minute})
	require.NoError(t, err)
	require.NoError(t, given.Prepare(ctx, 1, p))
	must(t, raw, "DEL", "rc:{g}:s")
	srv.Embedded.SetTime(at.Add(63 * time.Minute))
	_, err = given.Open(ctx, spec(9))
	require.NoError(t, err)
	st, err = given.Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 9, st.Remaining)
	require.ErrorIs(t, given.Prepare(ctx, 1, p), stock.ErrAlreadyOpen, "a late copy of the earlier")
}

func TestRequestsOnShards(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		s := c.Sharded("s", 2)
		o := spec(10)
		o.PerUser, o.Ledger = 10, true
		_, err := s.Open(ctx, o)
		require.NoError(t, err)
		u := userOf(s, 1, 0)
		g, err := s.ClaimUpTo(ctx, "r1", u, 7)
		require.NoError(t, err)
		require.Equal(t, stock.Granted, g.Outcome)
		require.EqualValues(t, 5, g.N, "what its home has")
		require.EqualValues(t, 1, g.Ordinal>>40)
		again, err := s.ClaimUpTo(ctx, "r1", u, 7)
		require.NoError(t, err)
		require.Equal(t, stock.Replayed, again.Outcome)
		require.Equal(t, []int64{g.Ordinal, g.N}, []int64{again.Ordinal, again.N})
		g, err = s.ClaimUpTo(ctx, "r2", u, 7)
		require.NoError(t, err)
		require.EqualValues(t, 3, g.N, "half of what the other has")
		ok, err := s.ReturnOnce(ctx, "r1", u)
		require.NoError(t, err)
		require.True(t, ok)
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 7, st.Remaining)
		any, err := s.ClaimAny(ctx, 7)
		require.NoError(t, err)
		require.True(t, any.Won())
		part := any
		part.N = 1
		ok, err = s.ReturnAny(ctx, part)
		require.NoError(t, err)
		require.True(t, ok)
		n := 0
		for i := range len(s.Shards()) {
			moved, err := s.Shard(i).Ledger(ctx, 100, func(context.Context, []stock.Entry) error { return nil })
			require.NoError(t, err)
			n += moved
		}
		require.Equal(t, 5, n, "three grants and two returns")
	})
}

func shardedVerbs(s *stock.Sharded) map[string]func() error {
	return map[string]func() error{
		"Open":       func() error { _, err := s.Open(ctx, spec(1)); return err },
		"Claim":      func() error { _, err := s.Claim(ctx, "u"); return err },
		"ClaimUpTo":  func() error { _, err := s.ClaimUpTo(ctx, "r", "u", 1); return err },
		"ClaimAny":   func() error { _, err := s.ClaimAny(ctx, 1); return err },
		"Lookup":     func() error { _, _, err := s.Lookup(ctx, "u"); return err },
		"Return":     func() error { _, err := s.Return(ctx, "u", 1); return err },
		"ReturnOnce": func() error { _, err := s.ReturnOnce(ctx, "r", "u"); return err },
		"ReturnAny": func() error {
			_, err := s.ReturnAny(ctx, stock.Grant{Outcome: 1, Request: "x", Ordinal: 1, N: 1})
			return err
		},
		"Status": func() error { _, err := s.Inspect(ctx); return err },
		"Close":  func() error { return s.Close(ctx) },
	}
}

func TestAShardedStocksBadInputIsRefusedByNameAndValueAndNothingIsSent(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Embedded(t).Client(t)}
	c := on(t, wire, patient)
	wire.Sent.Store(0)
	for _, name := range []string{"", "a{b}", "a\xff", strings.Repeat("x", 64<<10)} {
		for verb, call := range shardedVerbs(c.Sharded(name, 2)) {
			require.ErrorIs(t, call(), stock.ErrInvalidName, verb)
		}
	}
	for _, k := range []int{0, -1, 65} {
		for verb, call := range shardedVerbs(c.Sharded("s", k)) {
			require.ErrorIs(t, call(), stock.ErrInvalidOption, verb)
			require.ErrorContains(t, call(), "shards is "+strconv.Itoa(k), verb)
		}
	}
	s := c.Sharded("s", 64)
	require.Len(t, s.Shards(), 64)
	require.Nil(t, s.Shard(64))
	require.Nil(t, s.Shard(-1))
	for says, o := range map[string]stock.Spec{
		"Limit is 0":                {OpenFor: time.Hour},
		"Limit is 1099511627776":    {Limit: 1 << 40, OpenFor: time.Hour},
		"Suspended is true":         {Limit: 1, OpenFor: time.Hour, Suspended: true},
		"OpenFor is 0s":             {Limit: 1},
		"StartIn is -1s":            {Limit: 1, OpenFor: time.Hour, StartIn: -time.Second},
		"between 1 and 10995116277": {Limit: 1 << 41, OpenFor: time.Hour},
	} {
		_, err := s.Open(ctx, o)
		require.ErrorIs(t, err, stock.ErrInvalidOption)
		require.ErrorContains(t, err, says)
	}
	long := strings.Repeat("x", 1024+1)
	for _, err := range []error{
		func() error { _, err := s.Claim(ctx, ""); return err }(),
		func() error { _, err := s.ClaimUpTo(ctx, "", "u", 1); return err }(),
		func() error { _, err := s.ClaimUpTo(ctx, "r", long, 1); return err }(),
		func() error { _, _, err := s.Lookup(ctx, long); return err }(),
		func() error { _, err := s.Return(ctx, "", 1); return err }(),
		func() error { _, err := s.ReturnOnce(ctx, "r", ""); return err }(),
	} {
		require.ErrorIs(t, err, stock.ErrInvalidName)
	}
	for _, err := range []error{
		func() error { _, err := s.ClaimAny(ctx, 0); return err }(),
		func() error { _, err := s.ClaimUpTo(ctx, "r", "u", -1); return err }(),
		func() error { _, err := s.Return(ctx, "u", 0); return err }(),
		func() error { _, err := s.ReturnAny(ctx, stock.Grant{Ordinal: 1 << 46}); return err }(),
	} {
		require.ErrorIs(t, err, stock.ErrInvalidOption)
	}
	ok, err := s.Return(ctx, "u", s.Ordinal((s.Home("u")+1)%64, 1))
	require.NoError(t, err)
	require.False(t, ok, "another home's")
	require.Zero(t, wire.Sent.Load())
	require.NoError(t, c.Close(ctx))
	for verb, call := range shardedVerbs(s) {
		require.ErrorIs(t, call(), stock.ErrClosed, verb)
	}
}

func TestAnotherNumberOfShardsIsRefusedBeforeAnythingIsGranted(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		openedShards(t, c, "s", 3, 10)
		wrong := c.Sharded("s", 2)
		for i := range 10 {
			_, err := wrong.Claim(ctx, strconv.Itoa(i))
			require.ErrorIs(t, err, stock.ErrInvalidOption)
			require.ErrorContains(t, err, "shards is 2, must be 3")
		}
		_, err := wrong.Inspect(ctx)
		require.ErrorIs(t, err, stock.ErrInvalidOption)
	})
}

// Shards lie apart: for most names every one of k equal pieces of the slots has one.
func TestShardsAreSpreadEvenlyOverTheSlots(t *testing.T) {
	t.Parallel()
	c := on(t, redistest.Embedded(t).Client(t), patient)
	for _, k := range []int{2, 3, 4, 7, 16, 64} {
		even := 0
		for n := range 50 {
			s := c.Sharded("sale "+strconv.Itoa(n), k)
			first := int(keyname.Slot(s.Shard(0).Key()))
			pieces := map[int]bool{}
			for i := range k {
				slot := int(keyname.Slot(s.Shard(i).Key()))
				pieces[slot*k/keyname.Slots] = true
				d := (slot - first - i*keyname.Slots/k + 2*keyname.Slots) % keyname.Slots
				require.LessOrEqual(t, min(d, keyname.Slots-d), keyname.Slots/k/8, "shard %d of %d", i, k)
			}
			if len(pieces) == k {
				even++
			}
		}
		require.Greater(t, even, 20, "%d shards", k)
	}
}

func TestUsersAreSpreadEvenlyOverTheShards(t *testing.T) {
	t.Parallel()
	c := on(t, redistest.Embedded(t).Client(t), patient)
	for _, k := range []int{2, 3, 8, 64} {
		s := c.Sharded("s", k)
		for _, form := range []string{"user-%d", "%019d", "%x"} {
			n := make([]int, k)
			for i := range 1000 * k {
				n[s.Home(fmt.Sprintf(form, i))]++
			}
			for _, n := range n {
				require.InDelta(t, 1000, n, 200)
			}
		}
	}
}

// A claim at a home that has units is one round trip, as with a Stock.
func TestAClaimAtAHomeWithUnitsIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Start(t).Client(t)}
	s, _ := openedShards(t, on(t, wire, patient), "s", 3, 30)
	_, err := s.Claim(ctx, userOf(s, 0, 0))
	require.NoError(t, err)
	wire.Sent.Store(0)
	for home := range 3 {
		_, err := s.Claim(ctx, userOf(s, home, 1))
		require.NoError(t, err)
	}
	require.EqualValues(t, 3, wire.Sent.Load())
}

func TestAClaimAtAnEmptyHomeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	s, _ := openedShards(t, on(t, srv.Client(t), stock.Options{CallTimeout: 50 * time.Millisecond}), "s", 3, 3)
	_, err := s.Claim(ctx, userOf(s, 0, 0))
	require.NoError(t, err)
	// the node of shard 1 is lost: shard 0 is empty, and whether anything is left cannot be known
	addr := srv.Addrs[1]
	one, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true})
	require.NoError(t, err)
	defer one.Close()
	raw(one, "CLIENT", "PAUSE", "1500")
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	g, err := s.Claim(short, userOf(s, 0, 1))
	require.ErrorIs(t, err, stock.ErrUnavailable)
	require.NotErrorIs(t, err, stock.ErrUnknownOutcome, "nothing was granted")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, g.Won())
}
