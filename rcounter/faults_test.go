package rcounter_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

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
				require.ErrorIs(t, err, errs.ErrUnknownOutcome, verb.name)
				require.ErrorContains(t, err, strconv.Quote(what), verb.name)
				require.Equal(t, verb.after, text(t, raw, "GET", what), "%s ran once", verb.name)
			}
			losing.Store(true)
			if what == "bounded" {
				require.ErrorIs(t, k.Set(ctx, 20), errs.ErrUnknownOutcome)
				_, err := k.CompareAndSet(ctx, 20, 30)
				require.ErrorIs(t, err, errs.ErrUnknownOutcome)
				require.Equal(t, "30", text(t, raw, "GET", what))
			}
		}
	})
}

func TestCountersSurviveALostScriptCache(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	k := on(t, srv.Client(t), patient).Counter("k", rcounter.CounterOptions{Max: bound(1 << 40)})
	for range 100 {
		must(t, control, "SCRIPT", "FLUSH")
		_, err := k.Incr(ctx)
		require.NoError(t, err)
	}
	v, err := k.Get(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 100, v)
}

func TestAStoppedServerMakesIncrUnknown(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	k := on(t, srv.Client(t), rcounter.Options{}).Counter("k", rcounter.CounterOptions{})
	_, err := k.Incr(ctx)
	require.NoError(t, err)

	srv.Stop(t)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = k.Incr(short)
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	srv.Resume(t)

	redistest.Eventually(t, 10*time.Second, "what was sent before the stop is run after it", func() bool {
		v, err := k.Get(ctx)
		return err == nil && v == 2
	})
}

func TestAGetWithoutADeadlineEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), rcounter.Options{CallTimeout: 20 * time.Millisecond})
	srv.Stop(t)
	_, err := c.Counter("k", rcounter.CounterOptions{}).Get(context.Background())
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	srv.Resume(t)
}

func TestUnavailableMeansThatIncrDidNotRun(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), rcounter.Options{CallTimeout: 50 * time.Millisecond})
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := c.Counter("k", rcounter.CounterOptions{}).Incr(ended)
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, srv.Process.Kill())
	redistest.Eventually(t, 10*time.Second, "a server that is not there is ErrUnavailable", func() bool {
		_, err := c.Counter("k", rcounter.CounterOptions{}).Incr(ctx)
		require.Error(t, err)
		return errors.Is(err, errs.ErrUnavailable)
	})
}

func TestAFullServerCountsNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	control := srv.Client(t)
	k := on(t, srv.Client(t), patient).Counter("k", rcounter.CounterOptions{Initial: 3, Min: bound(0), TTL: time.Hour})
	must(t, control, "CONFIG", "SET", "maxmemory", "1")
	// refused again and again until ctx ends; if it ends while an answer is awaited, that is all that is known
	redistest.Eventually(t, 10*time.Second, "Decr is ErrUnavailable", func() bool {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := k.Decr(short)
		require.Error(t, err)
		return errors.Is(err, errs.ErrUnavailable)
	})
	require.Equal(t, "(nil)", text(t, control, "GET", "k"))
}

// The verbs' costs, in commands: what doc.go says.
func TestEveryVerbIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Start(t).Client(t)}
	c := on(t, wire, patient)
	verbs := counterVerbs(c.Counter("k", rcounter.CounterOptions{Max: bound(100)}))
	for name, verb := range counterVerbs(c.Counter("p", rcounter.CounterOptions{})) {
		verbs["plain "+name] = verb
	}
	delete(verbs, "Cached") // not by these means; see TestCachedTakesNoRoundTripWhileNothingChanges
	delete(verbs, "plain Cached")
	for name, verb := range verbs {
		require.NoError(t, verb(), name) // loads the script
	}
	for name, verb := range verbs {
		wire.Sent.Store(0)
		require.NoError(t, verb(), name)
		require.EqualValues(t, 1, wire.Sent.Load(), name)
	}
}
