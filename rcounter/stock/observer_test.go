package stock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// seen notes what an observer is told.
type seen struct {
	mu    sync.Mutex
	lines []string
}

func (s *seen) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *seen) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func TestAnObserverIsToldOfEveryClaimOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	var told seen
	o := patient
	o.KeyPrefix = "shop:"
	o.Observer = func(_ context.Context, e stock.Event) {
		switch e.Kind {
		case stock.EventClaimed:
			require.Positive(t, e.Took)
			told.add("%s: %v, %d, %v", e.Name, e.Outcome, e.N, e.Err)
		default:
			told.add("%s: %v, %v", e.Name, e.Outcome, e.Kind)
		}
	}
	c := on(t, srv.Client(t), o)
	s := c.Stock("s")
	_, err := s.Open(ctx, stock.Spec{Limit: 9, PerUser: 5, OpenFor: time.Hour})
	require.NoError(t, err)
	claimed(t, s, "ann")
	claimed(t, s, "ann")
	_, err = s.Claim(ctx, "bob", stock.Request{ID: "r", N: 2})
	require.NoError(t, err)
	_, err = s.ClaimAny(ctx, 1)
	require.NoError(t, err)
	_, err = s.Reserve(ctx, "bob", stock.Request{ID: "h", N: 2}, time.Hour)
	require.NoError(t, err)
	_, err = s.ClaimAny(ctx, 2)
	require.NoError(t, err)
	_, err = s.Reserve(ctx, "cid", stock.Request{ID: "more", N: 2}, time.Hour)
	require.NoError(t, err)
	_, err = s.Claim(ctx, "cid", stock.Request{ID: "r", N: 2})
	require.ErrorIs(t, err, errs.ErrMismatch)
	_, err = s.Claim(ctx, "") // refused, and not a claim
	require.Error(t, err)
	require.Equal(t, []string{"s: granted, 1, <nil>", "s: replayed, 1, <nil>", "s: granted, 2, <nil>",
		"s: granted, 1, <nil>", "s: granted, 2, <nil>",
		"s: granted, 2, <nil>", "s: sold out, 0, <nil>",
		`s: , 0, stock: id used before with other arguments: on "rc:{shop:s}"`}, told.take())
	claimed(t, s, "last")
	quiet(t, admin, func() { loses(t, s) })
	told.take()
	loses(t, s)
	claimed(t, s, "ann")
	require.Equal(t, []string{"s: sold out, answered locally", "s: replayed, 1, <nil>"}, told.take())
}

func TestAnObserverThatPanicsIsLoggedAndChangesNothing(t *testing.T) {
	t.Parallel()
	log, text := rig.Logged()
	o := patient
	o.Logger = log
	o.Observer = func(context.Context, stock.Event) { panic("ouch") }
	s := opened(t, on(t, redistest.Embedded(t).Client(t), o), "s", 1)
	require.True(t, claimed(t, s, "ann").Won())
	require.Contains(t, text(), "ouch")
}

func TestWhatFailsInTheBackgroundIsToldAndLoggedOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	log, text := rig.Logged()
	var told seen
	c := on(t, srv.Client(t),
		stock.Options{CallTimeout: 50 * time.Millisecond, Logger: log, Observer: func(_ context.Context, e stock.Event) {
			if e.Kind == stock.EventBackgroundFailed {
				told.add("%s: %v", e.Name, e.Err)
			}
		}})
	opened(t, on(t, srv.Client(t), exact), "s", 10)
	s := c.Stock("s")
	redistest.Eventually(t, 20*time.Second, "it answers", func() bool { _, err := s.Inspect(ctx); return err == nil })
	reaping, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	srv.Stop(t)
	defer srv.Process.Signal(syscall.SIGCONT)
	wg.Go(func() { s.KeepReaped(reaping, time.Millisecond) })
	for unknown := 0; unknown < 3; {
		brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, err := s.ClaimAny(brief, 1)
		cancel()
		require.Error(t, err)
		if errors.Is(err, errs.ErrUnknownOutcome) { // and not over before it was sent
			unknown++
		}
	}
	var all []string
	redistest.Eventually(t, 30*time.Second, "told of all", func() bool {
		all = append(all, told.take()...)
		return len(all) >= 3+2
	})
	stop()
	wg.Wait()
	for _, line := range all {
		require.True(t, strings.HasPrefix(line, "s: stock: outcome unknown: "), line)
	}
	require.Less(t, strings.Count(text(), "could not be returned"), 3, text())
	require.Contains(t, text(), "could not be returned")
	require.Equal(t, 1, strings.Count(text(), "could not be reaped"), text())
	require.Contains(t, text(), "name=s")
}

func TestAnEvictingServerIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	clients := rig.Evicting(t)
	for first, call := range map[string]func(c *stock.Client) error{
		"Open":  func(c *stock.Client) error { _, err := c.Stock(rand.Text()).Open(ctx, spec(1)); return err },
		"Claim": func(c *stock.Client) error { _, err := c.Stock("none").Claim(ctx, "ann"); return err },
	} {
		for client, at := range clients {
			log, text := rig.Logged()
			c := on(t, at, stock.Options{CallTimeout: patient.CallTimeout, Logger: log})
			for range 3 {
				require.NoError(t, call(c), "%s: %s", first, client)
			}
			rig.Warned(t, client, text, func() error { return c.Close(ctx) })
		}
	}
}
