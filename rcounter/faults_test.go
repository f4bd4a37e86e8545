package rcounter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

// unanswered counts the attempts of untilAnswered that ended without an answer.
var unanswered atomic.Int64

// untilAnswered claims with a fresh deadline as often as it takes.
func untilAnswered(s *rcounter.Stock, claimant string, patience time.Duration) (rcounter.Grant, error) {
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

// during runs disturb over and over until everybody in work is done.
func during(disturb func(), work func()) {
	done := make(chan struct{})
	go func() { work(); close(done) }()
	for {
		select {
		case <-done:
			return
		default:
			disturb()
		}
	}
}

func claimAll(t *testing.T, stocks []*rcounter.Stock, users int, patience time.Duration) *ledger {
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
	o := rcounter.Options{CallTimeout: 20 * time.Millisecond}
	stocks := []*rcounter.Stock{on(t, srv.Client(t), o).Stock("s"), on(t, srv.Client(t), o).Stock("s")}
	opened(t, on(t, control, patient), "s", limit)
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
	st, err := stocks[0].Status(ctx)
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
	o := rcounter.Options{CallTimeout: 5 * time.Second}
	stocks := []*rcounter.Stock{on(t, srv.Client(t), o).Stock("s"), on(t, srv.Client(t), o).Stock("s")}
	opened(t, on(t, control, patient), "s", limit)
	var l *ledger
	during(func() {
		raw(control, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		for range 50 {
			raw(control, "PING")
		}
	}, func() { l = claimAll(t, stocks, users, 10*time.Second) })
	l.requireExactly(t, limit)
	st, err := stocks[0].Status(ctx)
	require.NoError(t, err)
	require.EqualValues(t, limit, st.Seq)
}

func TestClaimsSurviveALostScriptCache(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	const users, limit = 300, 200
	stocks := []*rcounter.Stock{opened(t, on(t, srv.Client(t), patient), "s", limit)}
	k := on(t, srv.Client(t), patient).Counter("k", rcounter.CounterOptions{Max: bound(1 << 40)})
	var l *ledger
	during(func() { must(t, control, "SCRIPT", "FLUSH") }, func() {
		l = claimAll(t, stocks, users, 10*time.Second)
		for range 100 {
			_, err := k.Incr(ctx)
			require.NoError(t, err)
		}
	})
	l.requireExactly(t, limit)
	v, err := k.Get(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 100, v)
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
				require.Equal(t, rcounter.Grant{Outcome: rcounter.Granted, Ordinal: int64(i + 1), N: 1, Remaining: int64(19 - i), Epoch: epoch}, g, "a resend is the same claim")
			} else {
				require.Equal(t, rcounter.SoldOut, g.Outcome)
			}
		}
		for i := range 10 {
			ok, err := s.Return(ctx, "u"+strconv.Itoa(i), int64(i+1))
			require.NoError(t, err)
			require.True(t, ok, "a resend is the same return")
		}
		require.NoError(t, s.Close(ctx))
		st, err := calm.Status(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 10, st.Sold)
		require.EqualValues(t, 20, st.Seq)
	})
}

func TestALostReplyOfAPlainVerbIsUnknownAndNotSentAgain(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		var losing atomic.Bool
		wire := newLossy(t, srv, losing.Load)
		c := on(t, wire, patient)
		for what, o := range map[string]rcounter.CounterOptions{"plain": {}, "bounded": {Max: bound(100), TTL: time.Hour}} {
			k := c.Counter(what, o)
			losing.Store(false)
			_, err := k.Get(ctx) // connected
			require.NoError(t, err)
			if what == "bounded" { // or the lost reply would be NOSCRIPT, after which nothing has run
				for _, warm := range []func() error{
					func() error { _, err := k.Add(ctx, 0); return err },
					func() error { return k.Set(ctx, 0) },
					func() error { _, err := k.CompareAndSet(ctx, 0, 0); return err },
				} {
					require.NoError(t, warm())
				}
			}
			for _, verb := range []struct {
				name  string
				call  func() error
				after string
			}{
				{"Incr", func() error { _, err := k.Incr(ctx); return err }, "1"},
				{"Add", func() error { _, err := k.Add(ctx, 10); return err }, "11"},
				{"Decr", func() error { _, err := k.Decr(ctx); return err }, "10"},
			} {
				losing.Store(true)
				err := verb.call()
				require.ErrorIs(t, err, rcounter.ErrUnknownOutcome, verb.name)
				require.ErrorContains(t, err, strconv.Quote(what), verb.name)
				require.Equal(t, verb.after, text(t, raw, "GET", what), "%s ran once", verb.name)
			}
			losing.Store(true)
			if what == "bounded" {
				require.ErrorIs(t, k.Set(ctx, 20), rcounter.ErrUnknownOutcome)
				_, err := k.CompareAndSet(ctx, 20, 30)
				require.ErrorIs(t, err, rcounter.ErrUnknownOutcome)
				require.Equal(t, "30", text(t, raw, "GET", what))
			}
		}
	})
}

func TestAStoppedServerMakesIncrUnknown(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), rcounter.Options{})
	k := c.Counter("k", rcounter.CounterOptions{})
	s := opened(t, c, "s", 5)
	_, err := k.Incr(ctx)
	require.NoError(t, err)

	require.NoError(t, srv.Process.Signal(syscall.SIGSTOP))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = k.Incr(short)
	require.ErrorIs(t, err, rcounter.ErrUnknownOutcome)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	hurried, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	g, err := s.Claim(hurried, "ann")
	require.ErrorIs(t, err, rcounter.ErrUnknownOutcome)
	require.False(t, g.Won())
	require.NoError(t, srv.Process.Signal(syscall.SIGCONT))

	redistest.Eventually(t, 10*time.Second, "what was sent before the stop is run after it", func() bool {
		v, err := k.Get(ctx)
		return err == nil && v == 2
	})
	g, err = untilAnswered(s, "ann", 5*time.Second)
	require.NoError(t, err)
	require.True(t, g.Won())
	require.EqualValues(t, 1, g.Ordinal)
	st, err := s.Status(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, st.Sold, "one unit, however often it was asked for")
}

func TestACallWithoutADeadlineEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), rcounter.Options{CallTimeout: 20 * time.Millisecond})
	opened(t, on(t, srv.Client(t), patient), "s", 5)
	require.NoError(t, srv.Process.Signal(syscall.SIGSTOP))
	started := time.Now()
	_, err := c.Stock("s").Claim(context.Background(), "ann")
	require.ErrorIs(t, err, rcounter.ErrUnknownOutcome)
	require.GreaterOrEqual(t, time.Since(started), 80*time.Millisecond, "it is asked more than once")
	_, err = c.Counter("k", rcounter.CounterOptions{}).Get(context.Background())
	require.ErrorIs(t, err, rcounter.ErrUnknownOutcome)
	require.NoError(t, srv.Process.Signal(syscall.SIGCONT))
}

func TestUnavailableMeansNothingRan(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), rcounter.Options{CallTimeout: 50 * time.Millisecond})
	s := opened(t, on(t, srv.Client(t), patient), "s", 5)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for name, verb := range map[string]func() error{
		"Incr":  func() error { _, err := c.Counter("k", rcounter.CounterOptions{}).Incr(ended); return err },
		"Claim": func() error { _, err := c.Stock("s").Claim(ended, "ann"); return err },
	} {
		err := verb()
		require.ErrorIs(t, err, rcounter.ErrUnavailable, name)
		require.ErrorIs(t, err, context.Canceled, name)
	}
	st, err := s.Status(ctx)
	require.NoError(t, err)
	require.Zero(t, st.Sold)

	require.NoError(t, srv.Process.Kill())
	redistest.Eventually(t, 10*time.Second, "a server that is not there is ErrUnavailable", func() bool {
		_, err := c.Counter("k", rcounter.CounterOptions{}).Incr(ctx)
		require.Error(t, err)
		return errors.Is(err, rcounter.ErrUnavailable)
	})
}

func TestAFullServerGrantsNothingAndChangesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	c := on(t, srv.Client(t), patient)
	s := opened(t, c, "s", 5)
	k := c.Counter("k", rcounter.CounterOptions{Initial: 3, Min: bound(0), TTL: time.Hour})
	_, err := s.Claim(ctx, "ann")
	require.NoError(t, err)
	before := counts(t, control)
	must(t, control, "CONFIG", "SET", "maxmemory", "1")
	for what, verb := range map[string]func(context.Context) error{
		"Claim": func(ctx context.Context) error { _, err := s.Claim(ctx, "bob"); return err },
		"Decr":  func(ctx context.Context) error { _, err := k.Decr(ctx); return err },
	} {
		// refused again and again until ctx ends; if it ends while an answer is awaited, that is all that is known
		redistest.Eventually(t, 10*time.Second, what+" is ErrUnavailable", func() bool {
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			err := verb(short)
			require.Error(t, err, what)
			return errors.Is(err, rcounter.ErrUnavailable)
		})
	}
	g, err := s.Claim(ctx, "ann")
	require.NoError(t, err, "what writes nothing is answered")
	require.Equal(t, rcounter.Replayed, g.Outcome)
	require.Equal(t, before, counts(t, control))
	require.Equal(t, "(nil)", text(t, control, "GET", "k"))
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
	k := c.Counter("k", rcounter.CounterOptions{Max: bound(100)})
	all := func() map[string]func() error {
		verbs := stockVerbs(s)
		for _, more := range []string{"Open", "Resize", "Ledger", "Restore", "Close"} { // opens; ask first; closes, which changes what the others do
			delete(verbs, more)
		}
		for name, verb := range counterVerbs(k) {
			verbs["Counter."+name] = verb
		}
		for name, verb := range counterVerbs(c.Counter("p", rcounter.CounterOptions{})) {
			verbs["plain Counter."+name] = verb
		}
		delete(verbs, "Counter.Cached") // not by these means; see TestCachedTakesNoRoundTripWhileNothingChanges
		delete(verbs, "plain Counter.Cached")
		return verbs
	}()
	for name, verb := range all {
		require.NoError(t, verb(), name) // loads the script
	}
	for name, verb := range all {
		wire.sent.Store(0)
		require.NoError(t, verb(), name)
		require.EqualValues(t, 1, wire.sent.Load(), name)
	}
	require.NoError(t, raw(wire.Client, "FLUSHALL").Error())
	wire.sent.Store(0)
	_, err := s.Open(ctx, spec(1))
	require.NoError(t, err)
	require.EqualValues(t, 2, wire.sent.Load(), "Open")
	for name, want := range map[string]int64{"Resize": 2, "Ledger": 1, "Close": 2} {
		verb := stockVerbs(s)[name]
		wire.sent.Store(0)
		require.NoError(t, verb(), name)
		if name != "Ledger" && wire.sent.Load() > want { // its script had to be loaded
			want++
		}
		require.EqualValues(t, want, wire.sent.Load(), name)
	}
}
