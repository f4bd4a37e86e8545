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

// scripts is how many scripts the server has run for clients.
func scripts(t testing.TB, c rueidis.Client) int {
	t.Helper()
	calls := redistest.CommandCalls(t, c)
	return calls["evalsha"] + calls["eval"]
}

// quiet waits until claims on s are answered without the server.
func quiet(t testing.TB, admin rueidis.Client, ask func()) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "answered by the process", func() bool {
		before := scripts(t, admin)
		ask()
		ask()
		return scripts(t, admin) == before
	})
}

func claimed(t testing.TB, s *stock.Stock, claimant string) stock.Grant {
	t.Helper()
	g, err := s.Claim(ctx, claimant)
	require.NoError(t, err)
	return g
}

func TestSoldOutIsAnsweredWithoutTheServerAndWinnersByIt(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	eachCache(t, func(t *testing.T, srv *redistest.Server, client func() rueidis.Client) {
		admin := srv.Client(t)
		const limit = 1500 // several parts of a scan
		a, c := on(t, client(), patient), on(t, client(), patient)
		s := opened(t, a, "s", limit)
		first := map[string]stock.Grant{}
		for i := range limit - 2 {
			u := "u" + strconv.Itoa(i)
			first[u] = claimed(t, s, u)
		}
		once, err := s.ClaimOnce(ctx, "order", "buyer", 1)
		require.NoError(t, err)
		ok, err := s.Return(ctx, "u3", first["u3"].Ordinal)
		require.NoError(t, err)
		require.True(t, ok)
		delete(first, "u3")
		g, err := s.ClaimAny(ctx, 5)
		require.NoError(t, err)
		require.EqualValues(t, 2, g.N)

		for _, c := range []*stock.Client{a, c} {
			require.Equal(t, stock.SoldOut, claimed(t, c.Stock("s"), "late").Outcome)
			quiet(t, admin, func() { claimed(t, c.Stock("s"), "late") }) // a Stock value made anew for every use
			for u, was := range first {
				g := claimed(t, c.Stock("s"), u)
				require.Equal(t, stock.Grant{Outcome: stock.Replayed, Ordinal: was.Ordinal, N: 1, Epoch: was.Epoch}, g)
			}
			before := scripts(t, admin)
			for i := range 1000 {
				require.Equal(t, stock.Grant{Outcome: stock.SoldOut, Epoch: once.Epoch}, claimed(t, c.Stock("s"), "loser"+strconv.Itoa(i)))
			}
			require.Equal(t, stock.SoldOut, claimed(t, c.Stock("s"), "u3").Outcome, "returned")
			g, err := c.Stock("s").ClaimAny(ctx, 3)
			require.NoError(t, err)
			require.Equal(t, stock.SoldOut, g.Outcome)
			g, err = c.Stock("s").ClaimOnce(ctx, "late order", "buyer", 1)
			require.NoError(t, err)
			require.Equal(t, stock.SoldOut, g.Outcome)
			r, err := c.Stock("s").Reserve(ctx, "late reservation", "buyer", 1, time.Minute)
			require.NoError(t, err)
			require.Equal(t, stock.SoldOut, r.Outcome)
			// a moment in which nothing is trusted sends a few; a thousand claims are not a few
			require.Less(t, scripts(t, admin)-before, 100)

			g, err = c.Stock("s").ClaimOnce(ctx, "order", "buyer", 1)
			require.NoError(t, err)
			require.Equal(t, stock.Replayed, g.Outcome)
			require.Equal(t, once.Ordinal, g.Ordinal)
		}
	})
}

// Of two claimants of one unit never both are told that they have it: X wins, returns the unit in another process, Y
// claims it there, and only then X asks here, where the news of both is late.
func TestNobodyIsToldOfAUnitThatSomebodyElseHas(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv)
	proxy.SwallowPushes()
	admin := srv.Client(t)
	far := on(t, admin, exact)
	o := patient
	o.SoldOutTrust = time.Hour // no look at the flag interferes
	near := on(t, proxy.Server().Client(t), o)
	for i := range 20 {
		name := "s" + strconv.Itoa(i)
		home, s := opened(t, far, name, 1), near.Stock(name)
		x := claimed(t, s, "X")
		require.True(t, x.Won())
		quiet(t, admin, func() { claimed(t, s, "crowd") })
		ok, err := home.Return(ctx, "X", x.Ordinal)
		require.NoError(t, err)
		require.True(t, ok)
		y := claimed(t, home, "Y")
		require.True(t, y.Won())
		require.Equal(t, stock.SoldOut, claimed(t, s, "X").Outcome, "round %d", i)
	}
	require.Positive(t, proxy.Swallowed())
}

// The answer of a process about an id that was cancelled before it was reserved is the server's: at once in the process
// that cancelled it, and in the others when they have the news.
func TestWhatIsCancelledBeforeItIsReservedIsCancelledOnASoldOutStock(t *testing.T) {
	t.Parallel()
	eachCache(t, func(t *testing.T, srv *redistest.Server, client func() rueidis.Client) {
		admin := srv.Client(t)
		here, there := on(t, client(), patient), on(t, client(), patient)
		mine, theirs := opened(t, here, "s", 1), there.Stock("s")
		claimed(t, mine, "winner")
		for i := range 3 {
			for _, s := range []*stock.Stock{mine, theirs} {
				quiet(t, admin, func() {
					_, err := s.Reserve(ctx, "loser", "loser", 1, time.Minute)
					require.NoError(t, err)
				})
			}
			id := "early" + strconv.Itoa(i)
			ok, err := mine.Cancel(ctx, id)
			require.NoError(t, err)
			require.False(t, ok)
			g, err := mine.Reserve(ctx, id, "ann", 1, time.Minute)
			require.NoError(t, err)
			require.Equal(t, stock.Cancelled, g.Outcome)
			g, err = mine.ClaimOnce(ctx, id, "ann", 1)
			require.NoError(t, err)
			require.Equal(t, stock.Cancelled, g.Outcome)
			redistest.Eventually(t, 20*time.Second, "the others have the news", func() bool {
				g, err = theirs.Reserve(ctx, id, "ann", 1, time.Minute)
				return err == nil && g.Outcome == stock.Cancelled
			})
			g, err = theirs.ClaimOnce(ctx, id, "ann", 1)
			require.NoError(t, err)
			require.Equal(t, stock.Cancelled, g.Outcome)
		}
	})
}

func TestFreshAsksTheServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	s := opened(t, on(t, srv.Client(t), patient), "s", 1)
	claimed(t, s, "winner")
	quiet(t, admin, func() { claimed(t, s, "crowd") })
	fresh := stock.Fresh(ctx)
	for what, ask := range map[string]func() error{
		"Claim":     func() error { _, err := s.Claim(fresh, "crowd"); return err },
		"ClaimAny":  func() error { _, err := s.ClaimAny(fresh, 1); return err },
		"ClaimOnce": func() error { _, err := s.ClaimOnce(fresh, "order", "crowd", 1); return err },
		"Reserve":   func() error { _, err := s.Reserve(fresh, "order", "crowd", 1, time.Minute); return err },
	} {
		before := scripts(t, admin)
		require.NoError(t, ask())
		require.Positive(t, scripts(t, admin)-before, what)
	}
}

func TestNoTurnOfASoldOutStockHasTheNameOfAnotherAfterAFailover(t *testing.T) {
	t.Parallel()
	admin := redistest.Start(t).Client(t)
	s := opened(t, on(t, admin, exact), "s", 1)
	heard := text(t, admin, "DUMP", "rc:{s}") // what a replica has
	claimed(t, s, "X")
	first := text(t, admin, "GET", "rc:{s}:o")
	must(t, admin, "DEL", "rc:{s}:o", "rc:{s}:u")
	must(t, admin, "RESTORE", "rc:{s}", "3600000", heard, "REPLACE")
	sold := serverNow(t, admin)
	redistest.Eventually(t, time.Minute, "the server's time goes on", func() bool { return serverNow(t, admin) > sold })
	claimed(t, s, "Y")
	require.NotEqual(t, first, text(t, admin, "GET", "rc:{s}:o"))
}

func TestAStockWithMoreWinnersThanAreReadAsksTheServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	o := patient
	o.MaxWinners = 2
	s := opened(t, on(t, srv.Client(t), o), "s", 3)
	for i := range 3 {
		claimed(t, s, "u"+strconv.Itoa(i))
	}
	quiet(t, admin, func() {
		g, err := s.ClaimAny(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, stock.SoldOut, g.Outcome)
	})
	before := scripts(t, admin)
	for i := range 10 {
		require.Equal(t, i < 3, claimed(t, s, "u"+strconv.Itoa(i)).Won())
	}
	require.Equal(t, 10, scripts(t, admin)-before)
}

func TestAReturnedUnitIsSoldByEveryProcess(t *testing.T) {
	t.Parallel()
	for name, severed := range map[string]bool{"told by the server": false, "the server's messages are lost": true} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			proxy := redistest.NewProxy(t, srv)
			if severed {
				proxy.SwallowPushes()
			}
			admin := srv.Client(t)
			home := opened(t, on(t, admin, exact), "s", 1)
			holder, ordinal := "first", claimed(t, home, "first").Ordinal
			var worst time.Duration
			for i := range 4 {
				s := on(t, proxy.Server().Client(t), patient).Stock("s")
				quiet(t, admin, func() { claimed(t, s, "crowd") })
				began := time.Now()
				ok, err := home.Return(ctx, holder, ordinal)
				require.NoError(t, err)
				require.True(t, ok)
				u := "next" + strconv.Itoa(i)
				redistest.Eventually(t, 30*time.Second, "the unit is sold again", func() bool {
					g := claimed(t, s, u)
					holder, ordinal = u, g.Ordinal
					return g.Won()
				})
				worst = max(worst, time.Since(began))
			}
			// Trust is a second, and the claim that comes after it takes one round trip; the rest is a busy machine's
			require.Less(t, worst, 15*time.Second)
			if severed {
				require.Positive(t, proxy.Swallowed())
			}
			t.Logf("%s: at most %v", name, worst)
		})
	}
}

// Once the news of a unit that came back is in the process, no answer goes by what was known Before: not even the
// first, and not to its new owner.
func TestNoAnswerIsOlderThanTheNewsOfAReturn(t *testing.T) {
	t.Parallel()
	eachCache(t, func(t *testing.T, srv *redistest.Server, client func() rueidis.Client) {
		admin := srv.Client(t)
		home := opened(t, on(t, admin, exact), "s", 1)
		holder, ordinal := "first", claimed(t, home, "first").Ordinal
		mine := client()
		o := patient
		o.SoldOutTrust = time.Hour // but for the news, it would stand
		s := on(t, mine, o).Stock("s")
		giveBack := func() {
			t.Helper()
			quiet(t, admin, func() { claimed(t, s, "crowd") })
			ok, err := home.Return(ctx, holder, ordinal)
			require.NoError(t, err)
			require.True(t, ok)
		}
		arrived := func() {
			time.Sleep(20 * time.Millisecond) // without a cache nothing arrives; an answer goes by what was asked for 10 ms ago at most
			redistest.Eventually(t, 20*time.Second, "the news is here", func() bool {
				v, err := mine.DoCache(ctx, mine.B().Get().Key("rc:{s}:o").Cache(), time.Hour).ToString()
				return rueidis.IsRedisNil(err) || err == nil && v == text(t, admin, "GET", "rc:{s}:o")
			})
		}
		for i := range 5 {
			giveBack()
			holder = "winner" + strconv.Itoa(i)
			ordinal = claimed(t, home, holder).Ordinal
			arrived()
			g := claimed(t, s, holder)
			require.Equal(t, stock.Replayed, g.Outcome)
			require.Equal(t, ordinal, g.Ordinal)

			giveBack()
			arrived()
			holder = "next" + strconv.Itoa(i)
			g = claimed(t, s, holder)
			require.Equal(t, stock.Granted, g.Outcome)
			ordinal = g.Ordinal

			giveBack()
			arrived()
			holder = "anybody" + strconv.Itoa(i)
			r, err := s.Reserve(ctx, holder, holder, 1, time.Hour)
			require.NoError(t, err)
			require.Equal(t, stock.Granted, r.Outcome)
			ok, err := s.Cancel(ctx, holder)
			require.NoError(t, err)
			require.True(t, ok)
			ordinal = claimed(t, home, holder).Ordinal
		}
	})
}

// hscans is how many parts of hashes the server has read out.
func hscans(t testing.TB, c rueidis.Client) int { return redistest.CommandCalls(t, c)["hscan"] }

func TestConfirmsOfASoldOutStockHaveNobodyReadTheWinnersAgain(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	home := opened(t, on(t, admin, exact), "s", 20)
	for i := range 20 {
		_, err := home.Reserve(ctx, "h"+strconv.Itoa(i), "u"+strconv.Itoa(i), 1, time.Duration(60-i)*time.Minute)
		require.NoError(t, err)
	}
	s := on(t, srv.Client(t), patient).Stock("s")
	quiet(t, admin, func() { claimed(t, s, "crowd") })
	before := hscans(t, admin)
	for i := range 20 {
		_, err := home.Confirm(ctx, "h"+strconv.Itoa(i))
		require.NoError(t, err)
		quiet(t, admin, func() { claimed(t, s, "crowd") })
	}
	require.Equal(t, before, hscans(t, admin))
}

func TestALastUnitThatComesAndGoesDoesNotHaveTheWinnersReadAllTheTime(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	const limit = 20_000
	c := on(t, admin, exact)
	home := opened(t, c, "s", limit)
	crowd(64, limit/64+1, func(i, j int) { home.Claim(ctx, strconv.Itoa(i)+"/"+strconv.Itoa(j)) })
	g, err := home.ClaimAny(ctx, limit)
	require.NoError(t, err)
	require.Equal(t, stock.SoldOut, g.Outcome)
	ordinal := claimed(t, home, "0/0").Ordinal
	s := on(t, srv.Client(t), patient).Stock("s")
	before, began := hscans(t, admin), time.Now()
	for time.Since(began) < 2*time.Second {
		ok, err := home.Return(ctx, "0/0", ordinal)
		require.NoError(t, err)
		require.True(t, ok)
		ordinal = claimed(t, home, "0/0").Ordinal
		for range 10 {
			claimed(t, s, "crowd")
		}
	}
	each := limit/1000 + 1
	// each pause after one that was broken off is twice the last, from 20 ms to 10 s
	most := 10 + int(time.Since(began)/(10*time.Second))
	require.LessOrEqual(t, (hscans(t, admin)-before)/each, most)
}

// A server that cannot be asked is not a stock that is sold out.
func TestSoldOutIsNotSaidForLongerThanItIsTrusted(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	o := stock.Options{CallTimeout: 50 * time.Millisecond, SoldOutTrust: time.Second}
	opened(t, on(t, admin, exact), "s", 1)
	c := on(t, srv.Client(t), o)
	s := c.Stock("s")
	redistest.Eventually(t, 20*time.Second, "sold out", func() bool { g, err := s.Claim(ctx, "ann"); return err == nil && g.Won() })
	quiet(t, admin, func() { s.Claim(ctx, "bob") })
	srv.Stop(t)
	// well before what is known is forgotten because nobody asks, at ten times Trust
	redistest.Eventually(t, 6*time.Second, "no answer is no answer", func() bool {
		g, err := s.Claim(ctx, "bob")
		return err != nil && !g.Won()
	})
	for range 3 {
		_, err := s.Claim(ctx, "bob")
		require.Error(t, err, "and stays so")
	}
	srv.Resume(t)
	redistest.Eventually(t, 20*time.Second, "until it answers again", func() bool {
		g, err := s.Claim(ctx, "bob")
		return err == nil && g.Outcome == stock.SoldOut
	})
}

func TestAReturnIsSeenAtOnceByItsOwnProcess(t *testing.T) {
	t.Parallel()
	eachCache(t, func(t *testing.T, srv *redistest.Server, client func() rueidis.Client) {
		admin := srv.Client(t)
		s := opened(t, on(t, client(), patient), "s", 1)
		g := claimed(t, s, "u0")
		for i := range 10 {
			quiet(t, admin, func() { claimed(t, s, "late") })
			ok, err := s.Return(ctx, "u"+strconv.Itoa(i), g.Ordinal)
			require.NoError(t, err)
			require.True(t, ok)
			g = claimed(t, s, "u"+strconv.Itoa(i+1))
			require.Equal(t, stock.Granted, g.Outcome, "claim %d", i)
		}
		quiet(t, admin, func() { claimed(t, s, "late") })
		require.NoError(t, s.Resize(ctx, 2))
		require.Equal(t, stock.Granted, claimed(t, s, "late").Outcome)
		quiet(t, admin, func() { claimed(t, s, "later") })
		require.NoError(t, s.Close(ctx))
		require.Equal(t, stock.Ended, claimed(t, s, "later").Outcome)
	})
}

func TestTimeEndsSoldOut(t *testing.T) {
	t.Parallel()
	eachCache(t, func(t *testing.T, srv *redistest.Server, client func() rueidis.Client) {
		t.Parallel() // it mostly waits
		admin := srv.Client(t)
		c := on(t, client(), patient)
		s := opened(t, c, "held", 1)
		began := time.Now()
		r, err := s.Reserve(ctx, "hold", "ann", 1, 2*time.Second)
		require.NoError(t, err)
		require.True(t, r.Won())
		quiet(t, admin, func() { claimed(t, s, "bob") })
		redistest.Eventually(t, 20*time.Second, "the reservation's unit is sold", func() bool { return claimed(t, s, "bob").Won() })
		require.GreaterOrEqual(t, time.Since(began), 2*time.Second)

		s = c.Stock("short")
		_, err = s.Open(ctx, stock.Spec{Limit: 1, OpenFor: 2 * time.Second, Retain: time.Hour})
		require.NoError(t, err)
		claimed(t, s, "ann")
		quiet(t, admin, func() { claimed(t, s, "bob") })
		redistest.Eventually(t, 20*time.Second, "it has ended", func() bool { return claimed(t, s, "bob").Outcome == stock.Ended })
		require.Equal(t, stock.Replayed, claimed(t, s, "ann").Outcome)
	})
}

// A key that many track and many write makes the server send a message to each for every write: only the flag may be
// tracked, and only once there is one.
func TestOnlyTheFlagIsTracked(t *testing.T) {
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
	quiet(t, admin, func() { claimed(t, s, "late") })
	require.Equal(t, "1", tracked())
}

// Somebody else writes to the key that says "sold out".
func TestAFlagThatIsSomethingElseIsNoFlag(t *testing.T) {
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
