package session

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// closeTime is for how long a Close waits whose ctx has no end. A hold that was never released, as after a return before its
// Unlock, would otherwise keep a deferred Close(context.Background()) waiting for ever.
const closeTime = 10 * time.Second

// Holder is the Of of a lease that may have been dropped: one that is not in use stays with the watchdog until its lease is
// over, but nobody will release it.
type Holder interface{ InUse() bool }

// Close refuses new calls and ends those that wait (ErrClosed), ends the contexts of all that is held with cause ErrClosed,
// and waits, until ctx ends, for the releases of what is held and not lost, for calls under way, and for the pending
// releases; for closeTime if ctx has no end. Then it stops renewing what is left and names it in its error. Later calls
// return nil at once.
//
// The order matters. Waiters end first: they would acquire what is released meanwhile. The engine renews until the last
// moment, because a hold whose Unlock is still to come must not be lost for our sake; and a release that fails becomes a
// pending one, so the retrier outlasts the holds.
func (s *Session) Close(ctx context.Context) error {
	drained, first := s.close()
	if !first {
		return nil
	}
	cancel := context.CancelFunc(func() {})
	if ctx.Done() == nil {
		ctx, cancel = context.WithTimeout(ctx, closeTime)
	}
	defer cancel()
	if s.Engine != nil {
		s.Queue.Close()
		s.Engine.EndAll(errs.ErrClosed)
	}
	s.cancel()
	defer s.background.Wait()
	if s.eviction != nil {
		defer func() {
			select {
			case <-s.eviction:
			case <-ctx.Done(): // it ends by itself (TestCloseWaitsForNoConnection)
			}
		}()
	}
	left := 0
	select {
	case <-drained:
	case <-ctx.Done():
		left = s.count()
	}
	if s.Engine == nil {
		if left > 0 {
			return s.Error(fmt.Errorf("close: %d tasks in the background still under way: %w", left, errs.Ended(ctx)))
		}
		return nil
	}
	names := s.Engine.Names(func(l *lease.Lease) bool {
		h, ok := l.Of.(Holder)
		return !ok || h.InUse()
	})
	pending := s.Retrier.Settle(ctx)
	s.Engine.Stop()
	s.Retrier.Stop()
	return s.Error(leftovers(ctx, names, pending))
}

// leftovers is the error of a Close whose ctx ended first: what is left to its lease, nil if nothing is. pending are the names
// of releases that were not confirmed.
func leftovers(ctx context.Context, names, pending []string) error {
	var problems []string
	if len(names) > 0 {
		problems = append(problems, fmt.Sprintf("%d still held, left to their leases: %s", len(names), shorten(names)))
	}
	if len(pending) > 0 {
		problems = append(problems, fmt.Sprintf("%d unconfirmed releases given up, left to their leases: %s", len(pending), shorten(pending)))
	}
	switch why := context.Cause(ctx); {
	case len(problems) == 0:
		return nil
	case why == nil:
		return fmt.Errorf("close: %s", strings.Join(problems, "; "))
	default:
		return fmt.Errorf("close: %s: %w", strings.Join(problems, "; "), why)
	}
}

// shorten keeps an error readable.
func shorten(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
