package stock_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// quiet waits until claims on s are answered without the server.
func quiet(t testing.TB, admin rueidis.Client, ask func()) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "answered by the process", func() bool {
		before := redistest.ScriptCalls(t, admin)
		ask()
		ask()
		return redistest.ScriptCalls(t, admin) == before
	})
}

// fresh is the context of those who cannot have won.
var fresh = stock.Fresh(ctx)

// freshly is claimed under Fresh.
func freshly(t testing.TB, s *stock.Stock, claimant string) stock.Grant {
	t.Helper()
	g, err := s.Claim(fresh, claimant)
	require.NoError(t, err)
	return g
}

// loses asks for a unit without a claimant, and gets none.
func loses(t testing.TB, s *stock.Stock) {
	t.Helper()
	g, err := s.ClaimAny(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, stock.SoldOut, g.Outcome)
}

func claimed(t testing.TB, s *stock.Stock, claimant string) stock.Grant {
	t.Helper()
	g, err := s.Claim(ctx, claimant)
	require.NoError(t, err)
	return g
}

func TestSoldOut_Known_IsAnsweredByTheProcess(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	const limit = 10
	a, c := on(t, srv.Client(t), patient), on(t, srv.Client(t), patient)
	s := opened(t, a, "s", limit)
	first := map[string]stock.Grant{}
	for i := range limit - 2 {
		u := "u" + strconv.Itoa(i)
		first[u] = claimed(t, s, u)
	}
	once, err := s.Claim(ctx, "buyer", stock.Request{ID: "order", N: 1})
	require.NoError(t, err)
	g, err := s.ClaimAny(ctx, 5)
	require.NoError(t, err)
	require.EqualValues(t, 1, g.N)

	for _, c := range []*stock.Client{a, c} {
		quiet(t, admin, func() { loses(t, c.Stock("s")) }) // a Stock value made anew for every use
		before := redistest.ScriptCalls(t, admin)
		for i := range 1000 {
			g, err := c.Stock("s").Claim(fresh, "loser"+strconv.Itoa(i))
			require.NoError(t, err)
			require.EqualValues(t, []any{stock.SoldOut, once.Epoch}, []any{g.Outcome, g.Epoch})
			loses(t, c.Stock("s"))
		}
		for what, ask := range map[string]func() (stock.Grant, error){
			"ClaimOnce": func() (stock.Grant, error) {
				return c.Stock("s").Claim(fresh, "buyer", stock.Request{ID: "late order", N: 1})
			},
			"Reserve": func() (stock.Grant, error) {
				return c.Stock("s").Reserve(fresh, "buyer", stock.Request{ID: "late reservation", N: 1}, time.Minute)
			},
		} {
			g, err := ask()
			require.NoError(t, err)
			require.Equal(t, stock.SoldOut, g.Outcome, what)
		}
		// a moment in which nothing is trusted sends a few; two thousand claims are not a few
		require.Less(t, redistest.ScriptCalls(t, admin)-before, 100)

		before = redistest.ScriptCalls(t, admin)
		for u, was := range first {
			g := claimed(t, c.Stock("s"), u)
			require.Equal(t, stock.Grant{Outcome: stock.Replayed, Ordinal: was.Ordinal, N: 1, Epoch: was.Epoch}, g)
		}
		require.Equal(t, stock.SoldOut, claimed(t, c.Stock("s"), "loser").Outcome)
		g, err := c.Stock("s").Claim(ctx, "buyer", stock.Request{ID: "order", N: 1})
		require.NoError(t, err)
		require.Equal(t, []any{stock.Replayed, once.Ordinal}, []any{g.Outcome, g.Ordinal})
		require.GreaterOrEqual(t, redistest.ScriptCalls(t, admin)-before, len(first)+2)
	}
}

func TestSoldOut_NoCache_AsksTheServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	o := srv.Option()
	o.DisableCache = true
	uncached, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(uncached.Close)
	s := opened(t, on(t, uncached, patient), "s", 1)
	claimed(t, s, "winner")
	loses(t, s)
	before := redistest.ScriptCalls(t, admin)
	for range 10 {
		loses(t, s)
		time.Sleep(time.Millisecond) // looks at the flag end in between
	}
	require.Equal(t, 10, redistest.ScriptCalls(t, admin)-before)
}

// Once the news of a unit that came back is in the process, no answer goes by what was known before: not even the
// first.
func TestSoldOut_NewsOfAReturn_EndsIt(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	home := opened(t, on(t, admin, exact), "s", 1)
	holder, ordinal := "first", claimed(t, home, "first").Ordinal
	mine := srv.Client(t)
	o := patient
	o.SoldOutTrust = time.Hour // but for the news, it would stand
	s := on(t, mine, o).Stock("s")
	comesBack := func() {
		t.Helper()
		quiet(t, admin, func() { loses(t, s) })
		ok, err := home.Return(ctx, stock.Units{Claimant: holder, Ordinal: ordinal})
		require.NoError(t, err)
		require.Positive(t, ok)
		redistest.Eventually(t, 20*time.Second, "the news is here", func() bool {
			_, err := mine.DoCache(ctx, mine.B().Get().Key("rc:{s}:o").Cache(), time.Hour).ToString()
			return rueidis.IsRedisNil(err)
		})
	}
	for i := range 5 {
		comesBack()
		holder = "next" + strconv.Itoa(i)
		g, err := s.Claim(fresh, holder)
		require.NoError(t, err)
		require.Equal(t, stock.Granted, g.Outcome)
		ordinal = g.Ordinal

		comesBack()
		holder = "anybody" + strconv.Itoa(i)
		g, err = s.Reserve(fresh, holder, stock.Request{ID: holder, N: 1}, time.Hour)
		require.NoError(t, err)
		require.Equal(t, stock.Granted, g.Outcome)
		g, err = s.Confirm(ctx, holder)
		require.NoError(t, err)
		ordinal = g.Ordinal
		back, err := s.Return(ctx, stock.Units{Request: holder})
		require.NoError(t, err)
		require.Positive(t, back)
		ordinal = claimed(t, home, holder).Ordinal
	}
}

// A server that cannot be asked is not a stock that is sold out.
func TestSoldOut_TrustOver_IsNotSaid(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	o := stock.Options{CallTimeout: 50 * time.Millisecond, SoldOutTrust: 300 * time.Millisecond}
	opened(t, on(t, admin, exact), "s", 1)
	c := on(t, srv.Client(t), o)
	s := c.Stock("s")
	redistest.Eventually(t, 20*time.Second, "sold out", func() bool {
		g, err := s.Claim(ctx, "ann")
		return err == nil && g.Won()
	})
	quiet(t, admin, func() { s.ClaimAny(ctx, 1) })
	srv.Stop(t)
	redistest.Eventually(t, 6*time.Second, "no answer is not an answer", func() bool {
		g, err := s.ClaimAny(ctx, 1)
		return err != nil && !g.Won()
	})
	for range 3 {
		_, err := s.ClaimAny(ctx, 1)
		require.Error(t, err, "and stays so")
	}
	srv.Resume(t)
	redistest.Eventually(t, 20*time.Second, "until it answers again", func() bool {
		g, err := s.ClaimAny(ctx, 1)
		return err == nil && g.Outcome == stock.SoldOut
	})
}

func TestSoldOut_OwnReturn_EndsItAtOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	s := opened(t, on(t, srv.Client(t), patient), "s", 1)
	g := claimed(t, s, "u0")
	for i := range 3 {
		quiet(t, admin, func() { loses(t, s) })
		ok, err := s.Return(ctx, stock.Units{Claimant: "u" + strconv.Itoa(i), Ordinal: g.Ordinal})
		require.NoError(t, err)
		require.Positive(t, ok)
		g = freshly(t, s, "u"+strconv.Itoa(i+1))
		require.Equal(t, stock.Granted, g.Outcome, "claim %d", i)
	}
}

func TestSoldOut_TimeOver_Ends(t *testing.T) {
	t.Parallel()
	redistest.SideBySide(t, map[string]func(t *testing.T, c *stock.Client, admin rueidis.Client){
		"of a reservation": timeEndsAReservation, "of the sale": timeEndsASale,
	}, func(t *testing.T, _ string, fn func(t *testing.T, c *stock.Client, admin rueidis.Client)) {
		srv := redistest.Start(t)
		fn(t, on(t, srv.Client(t), patient), srv.Client(t))
	})
}

func timeEndsAReservation(t *testing.T, c *stock.Client, admin rueidis.Client) {
	s := opened(t, c, "held", 1)
	began := time.Now()
	r, err := s.Reserve(ctx, "ann", stock.Request{ID: "hold", N: 1}, time.Second)
	require.NoError(t, err)
	require.True(t, r.Won())
	quiet(t, admin, func() { loses(t, s) })
	redistest.Eventually(t, 20*time.Second, "the reservation's unit is sold", func() bool {
		return freshly(t, s, "bob").Won()
	})
	require.GreaterOrEqual(t, time.Since(began), time.Second)
}

func timeEndsASale(t *testing.T, c *stock.Client, admin rueidis.Client) {
	s := c.Stock("short")
	_, err := s.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Second, Retain: time.Hour})
	require.NoError(t, err)
	claimed(t, s, "ann")
	quiet(t, admin, func() { loses(t, s) })
	redistest.Eventually(t, 20*time.Second, "it has ended", func() bool {
		return freshly(t, s, "bob").Outcome == stock.Ended
	})
	require.Equal(t, stock.Replayed, claimed(t, s, "ann").Outcome)
}

// A key that many track and many write makes the server send a message to each for every write: only the flag may be
// tracked, and only once there is one.
func TestSoldOut_Tracking_IsOfTheFlagOnly(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	s := opened(t, on(t, srv.Client(t), patient), "s", 200)
	tracked := func() string {
		for l := range strings.Lines(text(t, admin, "INFO", "stats")) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(l), "tracking_total_keys:"); ok {
				return n
			}
		}
		return "unknown"
	}
	for i := range 200 {
		claimed(t, s, strconv.Itoa(i))
		require.Equal(t, "0", tracked())
	}
	quiet(t, admin, func() { loses(t, s) })
	require.Equal(t, "1", tracked())
}

// Somebody else writes to the key that says "sold out".
func TestSoldOut_FlagIsSomethingElse_IsNone(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	for _, flag := range []string{"1;1;-1000000;1", "1;1;1;-1000000", "1;1;1", "x"} {
		must(t, admin, "FLUSHALL")
		c := on(t, srv.Client(t), patient)
		s := opened(t, c, "s", 1)
		claimed(t, s, "ann")
		must(t, admin, "SET", "rc:{s}:o", flag)
		require.Equal(t, stock.SoldOut, claimed(t, s, "bob").Outcome)
		require.Equal(t, stock.Replayed, claimed(t, s, "ann").Outcome)
		require.NoError(t, c.Close(ctx)) // waits for the look at the flag
	}
}

// A process that knows a stock sold out must not say so when the server would say something else: not while the stock
// is paused, not after an end that came sooner, not when there are more units.
func TestSoldOut_PausedOrOver_IsNotSaid(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	mine := opened(t, on(t, srv.Client(t), patient), "s", 1)
	theirs := on(t, srv.Client(t), patient).Stock("s")
	claimed(t, mine, "winner")
	for i, change := range []struct {
		call func() error
		want stock.Outcome
	}{
		{func() error { return mine.Change(ctx, stock.Change{Pause: true}) }, stock.Paused},
		{func() error { return mine.Change(ctx, stock.Change{Resume: true}) }, stock.SoldOut},
		{func() error { return mine.Change(ctx, stock.Change{EndIn: stock.In(0)}) }, stock.Ended},
		{func() error { return mine.Change(ctx, stock.Change{EndIn: stock.In(time.Hour)}) }, stock.SoldOut},
		{func() error { return mine.Change(ctx, stock.Change{Limit: 2}) }, stock.Granted},
	} {
		loser := "loser" + strconv.Itoa(i)
		if i%2 == 0 {
			for _, s := range []*stock.Stock{mine, theirs} {
				quiet(t, admin, func() { loses(t, s) })
			}
		}
		require.NoError(t, change.call())
		require.Equal(t, change.want, freshly(t, mine, loser).Outcome, "at once where it was changed: %d", i)
		want, ask := change.want, freshly
		if want == stock.Granted {
			want, ask = stock.Replayed, claimed
		}
		redistest.Eventually(t, 30*time.Second, "the others have the news", func() bool {
			return ask(t, theirs, loser).Outcome == want
		})
		require.Equal(t, stock.Replayed, claimed(t, theirs, "winner").Outcome)
	}
}
