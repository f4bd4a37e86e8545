package stock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// unanswered counts the attempts of untilAnswered that ended without an answer.
var unanswered atomic.Int64

// untilAnswered claims with a fresh deadline as often as it takes.
func untilAnswered(s *stock.Stock, claimant string, patience time.Duration) (stock.Grant, error) {
	for end := time.Now().Add(20 * time.Second); ; {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		g, err := s.Claim(ctx, claimant)
		cancel()
		if err == nil || time.Now().After(end) {
			return g, err
		}
		unanswered.Add(1)
	}
}

func claimAll(t *testing.T, stocks []*stock.Stock, users int, patience time.Duration) *ledger {
	l := newLedger()
	var wg sync.WaitGroup
	next := make(chan string, 3*users)
	for range 3 { // everybody asks three times, in no order, whatever the first answer was
		for _, i := range rand.Perm(users) {
			next <- "u" + strconv.Itoa(i)
		}
	}
	close(next)
	for i := range 32 {
		wg.Go(func() {
			for u := range next {
				g, err := untilAnswered(stocks[i%len(stocks)], u, patience)
				if err != nil {
					t.Error(err)
					return
				}
				l.record(u, g)
			}
		})
	}
	wg.Wait()
	return l
}

func TestRetriesOverAPausedServerGiveEveryUserOneUnit(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	const users, limit = 300, 200
	o := stock.Options{CallTimeout: 20 * time.Millisecond}
	stocks := []*stock.Stock{on(t, srv.Client(t), o).Stock("s"), on(t, srv.Client(t), o).Stock("s")}
	unhurried := on(t, control, patient)
	opened(t, unhurried, "s", limit)
	var l *ledger
	before := unanswered.Load()
	during(func() {
		must(t, control, "CLIENT", "PAUSE", "60")
		must(t, control, "PING") // answered when the pause is over
		for range 200 {          // and as many round trips without one
			must(t, control, "PING")
		}
	}, func() { l = claimAll(t, stocks, users, 20*time.Millisecond) })
	require.Greater(t, unanswered.Load(), before, "the pauses were felt")
	l.requireExactly(t, limit)
	st, err := unhurried.Stock("s").Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, limit, st.Sold)
	require.EqualValues(t, limit, st.Seq, "no unit without a user")
	require.EqualValues(t, limit, number(t, control, "HLEN", "rc:{s}:u"))
	requireEnds(t, control)
}

func TestRetriesOverKilledConnectionsGiveEveryUserOneUnit(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	const users, limit = 300, 200
	o := stock.Options{CallTimeout: 5 * time.Second}
	stocks := []*stock.Stock{on(t, srv.Client(t), o).Stock("s"), on(t, srv.Client(t), o).Stock("s")}
	opened(t, on(t, control, patient), "s", limit)
	var l *ledger
	during(func() {
		raw(control, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		for range 50 {
			raw(control, "PING")
		}
	}, func() { l = claimAll(t, stocks, users, 10*time.Second) })
	l.requireExactly(t, limit)
	st, err := stocks[0].Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, limit, st.Seq)
}

func TestClaimsSurviveALostScriptCache(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	const users, limit = 300, 200
	stocks := []*stock.Stock{opened(t, on(t, srv.Client(t), patient), "s", limit)}
	var l *ledger
	during(func() { must(t, control, "SCRIPT", "FLUSH") }, func() {
		l = claimAll(t, stocks, users, 10*time.Second)
	})
	l.requireExactly(t, limit)
}

func TestLostRepliesChangeNoAnswer(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		wire := newLossy(t, srv, func() bool { return rand.IntN(3) == 0 })
		s := on(t, wire, patient).Stock("s")
		calm := on(t, srv.Client(t), patient).Stock("s")
		epoch, err := s.Open(ctx, spec(20))
		require.NoError(t, err, "a resend knows its own opening")
		for i := range 30 {
			u := "u" + strconv.Itoa(i)
			g, err := s.Claim(ctx, u)
			require.NoError(t, err)
			require.Equal(t, epoch, g.Epoch)
			if i < 20 {
				require.Equal(t, stock.Grant{Outcome: stock.Granted, Ordinal: int64(i + 1), N: 1, Remaining: int64(19 - i),
					Epoch: epoch}, g, "a resend is the same claim")
			} else {
				require.Equal(t, stock.SoldOut, g.Outcome)
			}
		}
		for i := range 10 {
			ok, err := s.Return(ctx, stock.Units{Claimant: "u" + strconv.Itoa(i), Ordinal: int64(i + 1)})
			require.NoError(t, err)
			require.Positive(t, ok, "a resend is the same return")
		}
		require.NoError(t, s.EndSale(ctx))
		st, err := calm.Inspect(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 10, st.Sold)
		require.EqualValues(t, 20, st.Seq)
	})
}

func TestAStoppedServerMakesAClaimUnknown(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), stock.Options{})
	s := opened(t, c, "s", 5)
	_, err := s.Inspect(ctx)
	require.NoError(t, err)

	srv.Stop(t)
	hurried, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	g, err := s.Claim(hurried, "ann")
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	require.False(t, g.Won())
	srv.Resume(t)

	g, err = untilAnswered(s, "ann", 5*time.Second)
	require.NoError(t, err)
	require.True(t, g.Won())
	require.EqualValues(t, 1, g.Ordinal)
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, st.Sold, "one unit, however often it was asked for")
}

func TestACallWithoutADeadlineEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), stock.Options{CallTimeout: 20 * time.Millisecond})
	opened(t, on(t, srv.Client(t), patient), "s", 5)
	srv.Stop(t)
	started := time.Now()
	_, err := c.Stock("s").Claim(context.Background(), "ann")
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	require.GreaterOrEqual(t, time.Since(started), 80*time.Millisecond, "it is asked more than once")
	srv.Resume(t)
}

func TestUnavailableMeansNothingRan(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), stock.Options{CallTimeout: 50 * time.Millisecond})
	s := opened(t, on(t, srv.Client(t), patient), "s", 5)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for name, verb := range map[string]func() error{
		"Claim": func() error { _, err := c.Stock("s").Claim(ended, "ann"); return err },
	} {
		err := verb()
		require.ErrorIs(t, err, errs.ErrUnavailable, name)
		require.ErrorIs(t, err, context.Canceled, name)
	}
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.Zero(t, st.Sold)

	require.NoError(t, srv.Process.Kill())
	redistest.Eventually(t, 10*time.Second, "a server that is not there is ErrUnavailable", func() bool {
		_, err := c.Stock("s").Claim(ctx, "ann")
		require.Error(t, err)
		return errors.Is(err, errs.ErrUnavailable)
	})
}

func TestAFullServerGrantsNothingAndChangesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	c := on(t, srv.Client(t), patient)
	s := opened(t, c, "s", 5)
	_, err := s.Claim(ctx, "ann")
	require.NoError(t, err)
	before := counts(t, control)
	must(t, control, "CONFIG", "SET", "maxmemory", "1")
	for what, verb := range map[string]func(context.Context) error{
		"Claim": func(ctx context.Context) error { _, err := s.Claim(ctx, "bob"); return err },
	} {
		// refused again and again until ctx ends; if it ends while an answer is awaited, that is all that is known
		redistest.Eventually(t, 10*time.Second, what+" is ErrUnavailable", func() bool {
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			err := verb(short)
			require.Error(t, err, what)
			return errors.Is(err, errs.ErrUnavailable)
		})
	}
	g, err := s.Claim(ctx, "ann")
	require.NoError(t, err, "what writes nothing is answered")
	require.Equal(t, stock.Replayed, g.Outcome)
	require.Equal(t, before, counts(t, control))
	must(t, control, "CONFIG", "SET", "maxmemory", "0")
	g, err = s.Claim(ctx, "bob")
	require.NoError(t, err)
	require.EqualValues(t, 2, g.Ordinal)
}

// The verbs' costs, in commands: what doc.go says.
func TestEveryVerbIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Start(t).Client(t)}
	c := on(t, wire, exact)
	s := opened(t, c, "s", 5)
	all := func() map[string]func() error {
		verbs := stockVerbs(s)
		// opens; ask first; closes, which changes what the others do
		for _, more := range []string{"Open", "OpenOrJoin", "Resize", "Pause", "Resume", "SetEnd", "Units", "Holders",
			"Ledger", "Restore", "EndSale"} {
			delete(verbs, more)
		}
		return verbs
	}()
	for name, verb := range all {
		require.NoError(t, verb(), name) // loads the script
	}
	for name, verb := range all {
		wire.Sent.Store(0)
		require.NoError(t, verb(), name)
		require.EqualValues(t, 1, wire.Sent.Load(), name)
	}
	require.NoError(t, raw(wire.Client, "FLUSHALL").Error())
	wire.Sent.Store(0)
	_, err := s.Open(ctx, spec(1))
	require.NoError(t, err)
	require.EqualValues(t, 2, wire.Sent.Load(), "Open")
	for name, want := range map[string]int64{"Resize": 2, "Pause": 2, "Resume": 2, "SetEnd": 2, "Ledger": 1,
		"EndSale": 2} {
		verb := stockVerbs(s)[name]
		wire.Sent.Store(0)
		require.NoError(t, verb(), name)
		if wire.Sent.Load() > want { // its script had to be loaded
			want++
		}
		require.EqualValues(t, want, wire.Sent.Load(), name)
	}
}
