package session

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// closeTime is how long Close waits if its ctx has no end. Otherwise a hold that is never released, for example because
// a function returned before its Unlock, would block a deferred Close(context.Background()) forever.
const closeTime = 10 * time.Second

// Close refuses new calls, and ends waiting calls with ErrClosed. The contexts of all holds end with cause ErrClosed.
// Then Close waits until ctx ends (for closeTime if ctx has no end): for the releases of holds that are not lost, for
// calls under way, and for the pending releases. Then it stops renewing the holds that are left, and names them in its
// error. Later calls wait for the first until their own ctx ends, and return its result.
//
// The order matters. Waiters end first, because they would acquire what is released meanwhile. The engine renews until
// the last moment, because Close must not cost a hold whose Unlock is still to come. A release that fails becomes a
// pending one, so the retrier runs longer than the holds.
func (s *Session) Close(ctx context.Context) error {
	return s.Error(s.background.closing.Close(ctx, s.closeOnce))
}

// closeOnce is the first Close.
func (s *Session) closeOnce(ctx context.Context) error {
	drained := s.close()
	cancel := context.CancelFunc(func() {})
	if ctx.Done() == nil {
		ctx, cancel = context.WithTimeout(ctx, closeTime)
	}
	defer cancel()
	if s.Engine != nil {
		s.Waiters.Close()
		s.Engine.EndAll(errs.ErrClosed)
	}
	s.background.cancel()
	defer s.background.running.Wait()
	if s.Engine != nil && s.Engine.Unrenewed() {
		// A hold that is never renewed may have been left to its lease on purpose, and then has no handle. Only the collector
		// finds that out, which in a short or an idle process has not run since
		// (TestClose_PermitsLeftToTheirLease_DoesNotWait).
		s.background.running.Go(runtime.GC)
	}
	if s.background.evictionChecked != nil {
		defer func() {
			select {
			case <-s.background.evictionChecked:
			case <-ctx.Done(): // the check ends by itself (TestClose_ConnectionBeingMade_IsNotWaitedFor)
			}
		}()
	}
	left := 0
	select {
	case <-drained:
	case <-ctx.Done():
		left = s.Count()
	}
	if s.Engine == nil {
		if left > 0 {
			return fmt.Errorf("close: %d tasks in the background still under way: %w", left, errs.Ended(ctx))
		}
		return nil
	}
	names := s.Engine.Names()
	pending := s.Retrier.Drain(ctx)
	s.Engine.Stop()
	s.Retrier.Stop()
	return leftovers(ctx, names, pending)
}

// leftovers is the error of a Close whose ctx ended first, with the names of the holds that are left to their leases.
// It is nil if nothing is left. pending are the names of releases that were not confirmed.
func leftovers(ctx context.Context, names, pending []string) error {
	var problems []string
	if len(names) > 0 {
		problems = append(problems, fmt.Sprintf("%d still held, left to their leases: %s", len(names), shorten(names)))
	}
	if len(pending) > 0 {
		problems = append(problems,
			fmt.Sprintf("%d unconfirmed releases given up, left to their leases: %s", len(pending), shorten(pending)))
	}
	switch reason := context.Cause(ctx); {
	case len(problems) == 0:
		return nil
	case reason == nil:
		return fmt.Errorf("close: %s", strings.Join(problems, "; "))
	default:
		return fmt.Errorf("close: %s: %w", strings.Join(problems, "; "), reason)
	}
}

// shorten joins names, at most 20 of them, so that an error stays readable.
func shorten(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
