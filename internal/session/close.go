package session

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// closeTime is how long Close waits if its ctx has no end. Otherwise a hold that is never released, for example because
// a function returned before its Unlock, would block a deferred Close(context.Background()) forever.
const closeTime = 10 * time.Second

// Holds are what a client keeps until Close: holds, and calls that wait for them.
type Holds interface {
	// End ends the waiting calls and the contexts of the holds. New calls are refused by then.
	End()
	// Stop waits for pending releases until ctx ends, and stops the renewals. Its error names what is left. All calls and
	// holds have left by then, or ctx has ended.
	Stop(ctx context.Context) error
}

// Keep makes Close end holds. It is called once, before the first call.
func (s *Session) Keep(holds Holds) { s.holds = holds }

// Close refuses new calls, and ends waiting calls with ErrClosed. The contexts of all holds end with cause ErrClosed.
// Then Close waits until ctx ends (for closeTime if ctx has no end): for the releases of holds that are not lost, for
// calls under way, and for the pending releases. Then it stops renewing the holds that are left, and names them in its
// error. Later calls wait for the first until their own ctx ends, and return its result.
//
// The order matters. Waiters end first, because they would acquire what is released meanwhile. The engine renews until
// the last moment, because Close must not cost a hold whose Unlock is still to come. A release that fails becomes a
// pending one, so the retrier runs longer than the holds.
func (s *Session) Close(ctx context.Context) error {
	return s.Error(s.closing.Close(ctx, s.closeOnce))
}

// closeOnce is the first Close.
func (s *Session) closeOnce(ctx context.Context) error {
	drained := s.close()
	cancel := context.CancelFunc(func() {})
	if ctx.Done() == nil {
		ctx, cancel = context.WithTimeout(ctx, closeTime)
	}
	defer cancel()
	if s.holds != nil {
		s.holds.End()
	}
	s.cancel()
	defer s.running.Wait()
	if s.evictionChecked != nil {
		defer func() {
			select {
			case <-s.evictionChecked:
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
	if s.holds != nil {
		return s.holds.Stop(ctx)
	}
	if left > 0 {
		return fmt.Errorf("close: %d tasks in the background still under way: %w", left, errs.Ended(ctx))
	}
	return nil
}
