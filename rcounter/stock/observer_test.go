package stock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
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

func TestObserver_ClaimAnsweredLocally_IsToldSo(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var told seen
	o := patient
	o.Observer = func(_ context.Context, e redlatch.Event) context.Context {
		told.add("%s: %v, %v", e.Name, e.Outcome, e.Kind)
		return nil
	}
	c := on(t, srv.Client(t), o)
	s := opened(t, c, "s", 1)
	claimed(t, s, "ann")
	quiet(t, srv.Client(t), func() { loses(t, s) })
	told.take()
	loses(t, s)
	claimed(t, s, "ann")
	require.Equal(t, []string{"s: sold out, answered locally", "s: replayed, claimed"}, told.take())
}

func TestObserver_BackgroundFails_IsToldAndLoggedOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	log, text := rig.Logged()
	var told seen
	c := on(t, srv.Client(t),
		stock.Options{CallTimeout: 50 * time.Millisecond, Logger: log,
			Observer: func(_ context.Context, e redlatch.Event) context.Context {
				if e.Kind == redlatch.EventBackgroundFailed {
					told.add("%s: %v", e.Name, e.Err)
				}
				return nil
			}})
	opened(t, on(t, srv.Client(t), exact), "s", 10)
	s := c.Stock("s")
	redistest.Eventually(t, 20*time.Second, "it answers", func() bool { _, err := s.Inspect(ctx); return err == nil })
	reaping, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	srv.Stop(t)
	defer srv.Process.Signal(redistest.SigCont)
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
