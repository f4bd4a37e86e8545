package stock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// ledger is what callers were told: who won which ordinal, by whatever answer.
type ledger struct {
	mu      sync.Mutex
	winners map[string]int64
	owners  map[int64]string
	granted int
	wrong   []string
}

func newLedger() *ledger { return &ledger{winners: map[string]int64{}, owners: map[int64]string{}} }

func (l *ledger) record(claimant string, g stock.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.Outcome == stock.Granted {
		l.granted++
	}
	old, known := l.winners[claimant]
	switch {
	case g.Won() && known && old != g.Ordinal:
		l.wrong = append(l.wrong, fmt.Sprintf("%s was told %d and %d", claimant, old, g.Ordinal))
	case !g.Won() && known:
		l.wrong = append(l.wrong, fmt.Sprintf("%s had %d and was told %v", claimant, old, g.Outcome))
	case g.Won():
		if o, taken := l.owners[g.Ordinal]; taken && o != claimant {
			l.wrong = append(l.wrong, fmt.Sprintf("%d went to %s and %s", g.Ordinal, o, claimant))
		}
		l.winners[claimant], l.owners[g.Ordinal] = g.Ordinal, claimant
	}
}

// requireExactly fails unless n claimants won the ordinals 1 to n.
func (l *ledger) requireExactly(t testing.TB, n int) {
	t.Helper()
	require.Empty(t, l.wrong)
	require.Len(t, l.winners, n)
	for i := range n {
		require.Contains(t, l.owners, int64(i+1))
	}
}

func TestWinnersAreExactlyTheLimitWithOrdinalsOneToN(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		const limit, callers, users = 100, 256, 1500
		each := 64
		if srv.Embedded != nil {
			each = 4 // its Lua is slow under the race detector
		}
		raw := srv.Client(t)
		stocks := []*stock.Stock{opened(t, on(t, raw, patient), "s", limit)}
		for range 3 {
			stocks = append(stocks, on(t, srv.Client(t), patient).Stock("s"))
		}
		l := newLedger()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range each {
					u := "u" + strconv.Itoa(rand.IntN(users))
					g, err := stocks[i%len(stocks)].Claim(ctx, u)
					if err != nil {
						t.Error(err)
						return
					}
					l.record(u, g)
				}
			})
		}
		wg.Wait()
		l.requireExactly(t, limit)
		require.Equal(t, limit, l.granted, "each unit is Granted once, and Replayed from then on")
		st, err := stocks[0].Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, limit, st.Sold)
		require.EqualValues(t, limit, st.Seq)
		requireEnds(t, raw)
	})
}

func TestLastUnitsWinnerGetsTheSameOrdinalOnRetry(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		s := opened(t, on(t, srv.Client(t), patient), "s", 1)
		first, err := s.Claim(ctx, "ann")
		require.NoError(t, err)
		require.Equal(t, stock.Granted, first.Outcome)
		require.EqualValues(t, 1, first.Ordinal)
		g, err := s.Claim(ctx, "bob")
		require.NoError(t, err)
		require.Equal(t, stock.SoldOut, g.Outcome)
		require.False(t, g.Won())
		again, err := s.Claim(ctx, "ann")
		require.NoError(t, err)
		require.Equal(t, stock.Replayed, again.Outcome)
		require.Equal(t, first.Ordinal, again.Ordinal)
		require.True(t, again.Won())
		require.NoError(t, s.EndSale(ctx))
		again, err = s.Claim(ctx, "ann")
		require.NoError(t, err)
		require.Equal(t, first.Ordinal, again.Ordinal)
		g, err = s.Claim(ctx, "bob")
		require.NoError(t, err)
		require.Equal(t, stock.Ended, g.Outcome)
	})
}

func TestReturnsUnderASoldOutStormAreAllResold(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		const limit = 25
		storm := 16
		if srv.Embedded != nil {
			storm = 4 // its Lua is slow under the race detector
		}
		raw := srv.Client(t)
		c := on(t, raw, patient)
		s := opened(t, c, "s", limit)
		ordinals := map[string]int64{}
		for i := range limit {
			u := "first" + strconv.Itoa(i)
			g, err := s.Claim(ctx, u)
			require.NoError(t, err)
			ordinals[u] = g.Ordinal
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		resold := map[int64]bool{}
		for i := range storm {
			other := on(t, srv.Client(t), exact).Stock("s")
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					g, err := other.Claim(ctx, fmt.Sprintf("late%d-%d", i, n))
					if err != nil {
						t.Error(err)
						return
					}
					if g.Outcome == stock.Granted {
						mu.Lock()
						if resold[g.Ordinal] {
							t.Errorf("ordinal %d twice", g.Ordinal)
						}
						resold[g.Ordinal] = true
						mu.Unlock()
					}
				}
			})
		}
		for u, o := range ordinals {
			ok, err := s.Return(ctx, stock.Units{Claimant: u, Ordinal: o})
			require.NoError(t, err)
			require.Positive(t, ok)
			st, err := s.Inspect(ctx)
			require.NoError(t, err)
			require.GreaterOrEqual(t, st.Sold, int64(limit-1), "never more out than one return took")
			require.LessOrEqual(t, st.Sold, int64(limit))
			redistest.Eventually(t, 10*time.Second, "the returned unit is sold again", func() bool {
				st, err := s.Inspect(ctx)
				return err == nil && st.Remaining == 0
			})
		}
		close(stop)
		wg.Wait()
		require.Len(t, resold, limit)
		for o := range resold {
			require.Greater(t, o, int64(limit), "an ordinal is never used again")
		}
		requireEnds(t, raw)
	})
}

func TestReturnIsOnceAndTheClaimantMayClaimAgain(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		s := opened(t, on(t, srv.Client(t), patient), "s", 1)
		first, err := s.Claim(ctx, "ann")
		require.NoError(t, err)
		ok, err := s.Return(ctx, stock.Units{Claimant: "ann", Ordinal: first.Ordinal})
		require.NoError(t, err)
		require.Positive(t, ok)
		ok, err = s.Return(ctx, stock.Units{Claimant: "ann", Ordinal: first.Ordinal})
		require.NoError(t, err)
		require.Zero(t, ok, "once")
		_, found, err := lookup(s, "ann")
		require.NoError(t, err)
		require.False(t, found)

		second, err := s.Claim(ctx, "ann")
		require.NoError(t, err)
		require.Equal(t, stock.Granted, second.Outcome)
		require.EqualValues(t, 2, second.Ordinal)
		ok, err = s.Return(ctx, stock.Units{Claimant: "ann", Ordinal: first.Ordinal}) // a cancellation delivered twice
		require.NoError(t, err)
		require.Zero(t, ok)
		g, found, err := lookup(s, "ann")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, second.Ordinal, g.Ordinal, "the later unit is untouched")
	})
}

func TestOneClaimantGetsOneUnitFromAThousandClaims(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		s := opened(t, on(t, srv.Client(t), patient), "s", 1000)
		l := newLedger()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				g, err := s.Claim(ctx, "ann")
				if err != nil {
					t.Error(err)
				}
				l.record("ann", g)
			})
		}
		wg.Wait()
		l.requireExactly(t, 1)
		require.Equal(t, 1, l.granted)
	})
}

func TestOpenNeverOverwrites(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		s := c.Stock("s")
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []int64
		var seen []int64
		for range 16 {
			wg.Go(func() {
				epoch, err := s.Open(ctx, spec(3))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, epoch)
					return
				}
				if !errors.Is(err, errs.ErrAlreadyOpen) {
					t.Error(err)
					return
				}
				seen = append(seen, epoch)
			})
		}
		wg.Wait()
		require.Len(t, won, 1)
		for _, e := range seen {
			require.Equal(t, won[0], e)
		}
		_, err := s.Claim(ctx, "ann")
		require.NoError(t, err)
		require.NoError(t, s.EndSale(ctx))
		_, err = s.Open(ctx, spec(3))
		require.ErrorIs(t, err, errs.ErrAlreadyOpen)
		require.ErrorContains(t, err, `"s"`)
		g, _, err := lookup(s, "ann")
		require.NoError(t, err)
		require.Equal(t, won[0], g.Epoch)
	})
}

// The life of a stock on a clock that the test moves.
func TestWindowAndRetentionAreInServerTime(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	raw := srv.Client(t)
	s := on(t, raw, patient).Stock("s")
	forward := srv.Clock()
	claim := func(u string) stock.Outcome {
		t.Helper()
		g, err := s.Claim(ctx, u)
		require.NoError(t, err)
		return g.Outcome
	}
	state := func() stock.State {
		t.Helper()
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		return st
	}

	require.Equal(t, stock.NotOpen, claim("ann"))
	require.Equal(t, stock.PhaseAbsent, state().Phase)
	epoch, err := s.Open(ctx, stock.Spec{Limit: 2, StartIn: time.Minute, OpenFor: time.Hour, Retain: 24 * time.Hour})
	require.NoError(t, err)
	require.Equal(t, stock.NotStarted, claim("ann"))
	st := state()
	require.Equal(t, stock.PhasePending, st.Phase)
	require.Equal(t, []time.Duration{time.Minute, 61 * time.Minute, 25*time.Hour + time.Minute},
		[]time.Duration{st.UntilStart, st.UntilEnd, st.UntilGone})
	forward(time.Minute - time.Millisecond)
	require.Equal(t, stock.NotStarted, claim("ann"))
	forward(time.Millisecond)
	require.Equal(t, stock.Granted, claim("ann"))
	require.Equal(t, number(t, raw, "PTTL", "rc:{s}")+hour, number(t, raw, "PTTL", "rc:{s}:u"),
		"the claimants outlive the stock")
	require.EqualValues(t, 25*hour, number(t, raw, "PTTL", "rc:{s}"))
	forward(time.Hour - time.Millisecond)
	require.Equal(t, stock.Granted, claim("bob"))
	require.Equal(t, number(t, raw, "PTTL", "rc:{s}")+hour, number(t, raw, "PTTL", "rc:{s}:u"))
	forward(time.Millisecond)
	require.Equal(t, stock.Ended, claim("cid"))
	require.Equal(t, stock.PhaseEnded, state().Phase)
	_, err = s.Open(ctx, spec(5))
	require.ErrorIs(t, err, errs.ErrAlreadyOpen)
	forward(24*time.Hour - time.Millisecond)
	require.Equal(t, stock.Replayed, claim("ann"))
	forward(time.Millisecond)
	require.Equal(t, stock.NotOpen, claim("ann"))
	require.Empty(t, keys(t, raw), "everything ends by itself")
	next, err := s.Open(ctx, spec(5))
	require.NoError(t, err)
	require.Greater(t, next, epoch)
}

func TestDefaultRetainIsADay(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	s := on(t, srv.Client(t), patient).Stock("s")
	srv.Embedded.SetTime(time.Now())
	_, err := s.Open(ctx, stock.Spec{Limit: 1, PerUser: 1, OpenFor: time.Hour})
	require.NoError(t, err)
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, time.Hour+24*time.Hour, st.UntilGone)
}

func TestFractionsOfAMillisecondAreRoundedUp(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	s := on(t, srv.Client(t), patient).Stock("s")
	srv.Embedded.SetTime(time.Now())
	_, err := s.Open(ctx, stock.Spec{Limit: 1, StartIn: time.Nanosecond, OpenFor: 1500 * time.Microsecond,
		Retain: time.Hour})
	require.NoError(t, err)
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, time.Millisecond, st.UntilStart)
	require.Equal(t, 3*time.Millisecond, st.UntilEnd)
}

// expire ends the life of key now, between two scripts. A real server's keys expire between scripts only; the embedded
// one's in the middle of them too, unless its clock stands still.
func expire(t testing.TB, srv *redistest.Server, c rueidis.Client, key string) {
	t.Helper()
	if srv.Embedded != nil {
		now := time.Now()
		srv.Embedded.SetTime(now)
		must(t, c, "PEXPIRE", key, "1")
		srv.Embedded.SetTime(now.Add(time.Millisecond))
	} else {
		must(t, c, "PEXPIRE", key, "1")
	}
	redistest.Eventually(t, 10*time.Second, "the key expires", func() bool { return number(t, c, "EXISTS", key) == 0 })
}

// loseDuring runs claims from many goroutines, loses a key in the middle, and returns what they were told before it
// was known to be gone and afterwards.
func loseDuring(_ *testing.T, s *stock.Stock, lose func()) (after []stock.Grant, failed []error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	gone := make(chan struct{})
	started := make(chan struct{}, 8)
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				lost := false
				select {
				case <-gone:
					lost = true
				default:
				}
				g, err := s.Claim(ctx, fmt.Sprintf("u%d-%d", i, n))
				if n == 10 {
					started <- struct{}{}
				}
				if lost {
					mu.Lock()
					after, failed = append(after, g), append(failed, err)
					mu.Unlock()
					if n > 10 {
						return
					}
				}
			}
		})
	}
	for range 8 {
		<-started
	}
	lose()
	close(gone)
	wg.Wait()
	return after, failed
}

func TestNothingIsGrantedOrCreatedOnceTheStockIsGone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		c := on(t, raw, patient)
		for name, lose := range map[string]func(key string){
			"deleted": func(key string) { must(t, raw, "DEL", key) },
			"expired": func(key string) { expire(t, srv, raw, key) },
		} {
			t.Run(name, func(t *testing.T) {
				must(t, raw, "FLUSHALL")
				s := opened(t, c, "s", 1_000_000)
				after, failed := loseDuring(t, s, func() { lose("rc:{s}") })
				for i, g := range after {
					require.NoError(t, failed[i])
					require.Equal(t, stock.NotOpen, g.Outcome)
				}
				require.Equal(t, []string{"rc:{s}:u"}, keys(t, raw), "nothing but Open creates the stock")
				requireEnds(t, raw)
				_, found, err := lookup(s, "u0-0")
				require.NoError(t, err)
				require.False(t, found)
				ok, err := s.Return(ctx, stock.Units{Claimant: "u0-0", Ordinal: 1})
				require.NoError(t, err)
				require.Zero(t, ok)
				require.NoError(t, s.EndSale(ctx))
				require.Equal(t, []string{"rc:{s}:u"}, keys(t, raw))
				_, err = s.Open(ctx, spec(5))
				require.ErrorIs(t, err, errs.ErrCorrupt, "its claimants have units")
			})
		}
	})
}

func TestNothingIsGrantedOnceRecordsAreMissing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		c := on(t, raw, patient)
		for name, lose := range map[string]func(){
			"deleted": func() { must(t, raw, "DEL", "rc:{s}:u") },
			"in part": func() { must(t, raw, "HDEL", "rc:{s}:u", "u0-0") },
			"expired": func() { expire(t, srv, raw, "rc:{s}:u") },
		} {
			t.Run(name, func(t *testing.T) {
				must(t, raw, "FLUSHALL")
				s := opened(t, c, "s", 1_000_000)
				after, failed := loseDuring(t, s, lose)
				for i, g := range after {
					require.ErrorIs(t, failed[i], errs.ErrCorrupt)
					require.Equal(t, stock.Grant{}, g)
				}
				before := counts(t, raw)
				_, _, err := lookup(s, "u0-0")
				require.ErrorIs(t, err, errs.ErrCorrupt)
				_, err = s.Return(ctx, stock.Units{Claimant: "u0-0", Ordinal: 1})
				require.ErrorIs(t, err, errs.ErrCorrupt)
				st, err := s.Inspect(ctx)
				require.ErrorIs(t, err, errs.ErrCorrupt)
				require.EqualValues(t, 1_000_000, st.Limit, "what the stock says is told all the same")
				require.Equal(t, before, counts(t, raw))
				if name != "in part" {
					require.Equal(t, []string{"rc:{s}"}, keys(t, raw))
				}
			})
		}
	})
}

func TestWrongTypeUnderAStocksKeysIsTypedAndChangesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := on(t, raw, patient).Stock("s")
		verbs := map[string]func() error{
			"Open":    func() error { _, err := s.Open(ctx, spec(5)); return err },
			"Claim":   func() error { _, err := s.Claim(ctx, "b"); return err },
			"Lookup":  func() error { _, _, err := lookup(s, "a"); return err },
			"Return":  func() error { _, err := s.Return(ctx, stock.Units{Claimant: "a", Ordinal: 1}); return err },
			"Inspect": func() error { _, err := s.Inspect(ctx); return err },
			"EndSale": func() error { return s.EndSale(ctx) },
		}
		must(t, raw, "RPUSH", "rc:{s}", "x")
		for name, verb := range verbs {
			require.ErrorIs(t, verb(), errs.ErrWrongType, name)
		}
		require.Equal(t, []string{"rc:{s}"}, keys(t, raw))
		require.EqualValues(t, 1, number(t, raw, "LLEN", "rc:{s}"))

		selling(5, 1, 1, 1).write(t, raw)
		must(t, raw, "RPUSH", "rc:{s}:u", "x")
		before := hash(t, raw, "rc:{s}")
		for name, verb := range verbs {
			if name != "Open" && name != "EndSale" { // those have no need of it
				require.ErrorIs(t, verb(), errs.ErrWrongType, name)
			}
		}
		require.Equal(t, before, hash(t, raw, "rc:{s}"), "no part of a script's work is left behind")
		must(t, raw, "DEL", "rc:{s}")
		require.ErrorIs(t, verbs["Open"](), errs.ErrWrongType)
		require.Equal(t, []string{"rc:{s}:u"}, keys(t, raw))
	})
}

func TestEveryKeyOfAStockHasAnEndAfterEveryVerb(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		c := on(t, raw, patient)
		s := c.Stock("s")
		_, err := s.Open(ctx, spec(2))
		require.NoError(t, err)
		requireEnds(t, raw)
		for _, act := range []func() error{
			func() error { _, err := s.Claim(ctx, "a"); return err },
			func() error { _, err := s.Claim(ctx, "a"); return err },
			func() error { _, err := s.Claim(ctx, "b"); return err },
			func() error { _, err := s.Claim(ctx, "c"); return err },
			func() error { _, err := s.Return(ctx, stock.Units{Claimant: "a", Ordinal: 1}); return err },
			func() error { _, _, err := lookup(s, "b"); return err },
			func() error { _, err := s.Inspect(ctx); return err },
			func() error { return s.EndSale(ctx) },
		} {
			require.NoError(t, act())
			requireEnds(t, raw)
		}
		// and one that lost its end gets it back from the next verb that writes
		must(t, raw, "DEL", "rc:{s}", "rc:{s}:u")
		_, err = s.Open(ctx, spec(2))
		require.NoError(t, err)
		must(t, raw, "PERSIST", "rc:{s}")
		_, err = s.Claim(ctx, "a")
		require.NoError(t, err)
		requireEnds(t, raw)
		must(t, raw, "PERSIST", "rc:{s}:u")
		_, err = s.Return(ctx, stock.Units{Claimant: "a", Ordinal: 1})
		require.NoError(t, err)
		requireEnds(t, raw)
	})
}

func TestStocksWorkOnEverySlotOfACluster(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	raw := srv.Client(t)
	c := on(t, raw, stock.Options{KeyPrefix: "shop:", CallTimeout: patient.CallTimeout})
	for i := range redistest.Sized(8, 8, 30) {
		s := opened(t, c, "sale"+strconv.Itoa(i), 2)
		for _, u := range []string{"a", "b", "c", "a"} {
			_, err := s.Claim(ctx, u)
			require.NoError(t, err)
		}
		ok, err := s.Return(ctx, stock.Units{Claimant: "a", Ordinal: 1})
		require.NoError(t, err)
		require.Positive(t, ok)
		g, err := s.Claim(ctx, "c")
		require.NoError(t, err)
		require.EqualValues(t, 3, g.Ordinal)
		_, found, err := lookup(s, "b")
		require.NoError(t, err)
		require.True(t, found)
		// as sold out as it is, the process comes to know it, on the node that has it
		for range 20 {
			require.Equal(t, stock.SoldOut, claimed(t, s, "d").Outcome)
			require.Equal(t, stock.Replayed, claimed(t, s, "b").Outcome)
		}
		require.NoError(t, s.Change(ctx, stock.Change{Limit: 9}))
		g, err = s.Claim(ctx, "d", stock.Request{ID: "r", N: 3, UpTo: true})
		require.NoError(t, err)
		require.EqualValues(t, 1, g.N, "one a claimant")
		g, err = s.ClaimAny(ctx, 2)
		require.NoError(t, err)
		require.EqualValues(t, 2, g.N)
		ok, err = s.Return(ctx, stock.Units{Request: g.Request, Ordinal: g.Ordinal, N: g.N})
		require.NoError(t, err)
		require.Positive(t, ok)
		g2 := c.Group("sale" + strconv.Itoa(i))
		grouped(t, g2, spec(2), "a", "b")
		cart, err := g2.Reserve(ctx, "e", stock.CartRequest{ID: "h", Lines: lines(1, "a", "b")}, time.Minute)
		require.NoError(t, err)
		require.True(t, cart.Won())
		cart, err = g2.Confirm(ctx, "h", lines(1, "a", "b")...)
		require.NoError(t, err)
		require.True(t, cart.Won())
		_, err = s.Reserve(ctx, "e", stock.Request{ID: "h", N: 1}, time.Minute)
		require.NoError(t, err)
		_, err = s.Confirm(ctx, "h")
		require.NoError(t, err)
		for _, id := range []string{"r", "h"} {
			ok, err = s.Return(ctx, stock.Units{Request: id})
			require.NoError(t, err)
			require.Positive(t, ok)
		}
		_, err = s.Cancel(ctx, "h2")
		require.NoError(t, err)
		_, err = s.Reap(ctx)
		require.NoError(t, err)
		_, err = s.Restore(ctx, func(func(stock.Entry, error) bool) {})
		require.NoError(t, err)
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 2, st.Sold)
		p := watch(t, s, time.Hour) // by sharded channels
		p.says("gap")
		require.NoError(t, s.Publish(ctx, sold(1, 1)))
		p.says("1/1")
		require.NoError(t, s.EndSale(ctx))
	}
	for _, name := range []string{"a{b}", "{a}", "a{b", "a}b", "{}", "a{}b"} {
		_, err := c.Stock(name).Claim(ctx, "u")
		require.ErrorIs(t, err, errs.ErrInvalidName, name)
	}
}
