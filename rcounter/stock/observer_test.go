package stock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// seen keeps the events of a client.
type seen struct {
	mu     sync.Mutex
	events []errs.Event
}

func (s *seen) observe(ctx context.Context, e errs.Event) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	return ctx
}

// lines are the events since the last call.
func (s *seen) lines() (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s, %d, again %t, %v", e.Package, e.Kind, e.Name, e.Outcome, e.N,
			e.Again, e.Err))
	}
	s.events = nil
	return lines
}

func TestObserver_Orders_AreReportedByPackageStock(t *testing.T) {
	t.Parallel()
	var events seen
	c := on(t, redistest.Start(t).Client(t), stock.Options{CallTimeout: 10 * time.Second, Observer: events.observe})
	s := c.Sale("s")
	_, err := s.Buy(ctx, stock.Order{User: "ann"})
	require.ErrorIs(t, err, stock.ErrNoStock)
	require.NoError(t, s.Open(ctx, spec(3)))
	for range 2 {
		redistest.NoError(s.Buy(ctx, stock.Order{User: "ann"}))(t)
	}
	redistest.NoError(s.Reserve(ctx, stock.Order{ID: "order", Lines: []stock.Line{{N: 2}}}, time.Hour))(t)
	redistest.NoError(s.Buy(ctx, stock.Order{User: "bob"}))(t)
	redistest.NoError(s.Pay(ctx, "order"))(t)
	require.Equal(t, []string{
		`stock claimed s: , 0, again false, stock: no such sale: "rc:{s}:sale"`,
		"stock claimed s: sold, 1, again false, <nil>",
		"stock claimed s: sold, 1, again true, <nil>",
		"stock claimed s: reserved, 2, again false, <nil>",
		"stock claimed s: sold out, 0, again false, <nil>",
	}, events.lines())
	redistest.Eventually(t, 20*time.Second, "the process says that it is sold out", func() bool {
		a := redistest.NoError(s.Buy(ctx, stock.Order{Anyone: true}))(t)
		require.Equal(t, stock.SoldOut, a.Why)
		lines := events.lines()
		return lines[len(lines)-1] == "stock answered locally s: sold out, 0, again false, <nil>"
	})
}

func TestObserver_SharedCalls_AreReportedWithTheirRequests(t *testing.T) {
	t.Parallel()
	var events seen
	c := on(t, redistest.Start(t).Client(t), stock.Options{CallTimeout: 10 * time.Second, Observer: events.observe})
	s := opened(t, c, "s", spec(1000))
	shared := map[string]int64{}
	redistest.Eventually(t, 20*time.Second, "a call with several requests", func() bool {
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() { s.Buy(ctx, stock.Order{User: fmt.Sprint("user ", i)}) })
		}
		callers.Wait()
		events.mu.Lock()
		defer events.mu.Unlock()
		for _, e := range events.events {
			if e.Kind == errs.EventShared {
				shared[e.Name] = max(shared[e.Name], e.N)
			}
		}
		events.events = nil
		return shared["s"] > 1
	})
	require.Len(t, shared, 1)
}
