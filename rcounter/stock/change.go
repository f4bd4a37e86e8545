package stock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Resize gives the stock another limit, 1 to 2^53-1, at any time until its retention is over. If the limit is below what is sold
// and held, the error is ErrOutOfRange; if there is no stock, it is ErrNotOpen. Nothing is changed then. After ErrUnknownOutcome
// the limit may be the new one; Inspect tells.
//
// Two round trips, repeated until answered. A copy that the network delivers late changes nothing.
func (s *Stock) Resize(ctx context.Context, limit int64) (err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return err
	}
	if limit < 1 || limit > maxLimit {
		return errs.InvalidOption("limit", limit, fmt.Sprintf("between 1 and %d", int64(maxLimit)))
	}
	_, err = s.change(ctx, "limit", limit)
	return err
}

// Pause has the stock grant nothing until Resume: a claim or a reservation that has no units yet is answered Paused, by every process.
// All else goes on. What was granted is answered as before; reservations can be confirmed, extended and cancelled, and expire at
// their time; units can be returned; the end comes when it comes. Confirm takes no units again meanwhile.
//
// Paused is the seller's wish, and Resume ends it. Suspended is a doubt about the records, and Restore ends it: while it lasts
// nothing is confirmed either. A stock may be both. Then it is answered as Suspended, and Restore leaves it paused.
//
// It is no error if the stock is paused already, or was closed, which it stays. If there is no stock, the error is ErrNotOpen. Two
// round trips, repeated until answered. A copy that the network delivers late changes nothing. After ErrUnknownOutcome the stock may
// be paused; Inspect tells.
func (s *Stock) Pause(ctx context.Context) (err error) {
	defer edge(&err)
	return s.pause(ctx, "pause")
}

// Resume ends a Pause: the stock grants again what it has, until its end, which did not move. It is no error if the stock is not
// paused. All else is as for Pause.
func (s *Stock) Resume(ctx context.Context) (err error) {
	defer edge(&err)
	return s.pause(ctx, "resume")
}

func (s *Stock) pause(ctx context.Context, what string) error {
	if err := s.usable(); err != nil {
		return err
	}
	_, err := s.change(ctx, what, 0)
	return err
}

// SetEnd moves the end of the sale: it comes in so long from now, by the server's clock, 0 to 100 years. The retention begins at the
// new end and is as long as before. It works until the retention is over. So a sale that has ended sells again if the new end is
// ahead; one that was closed does not. A stock whose end comes before its start sells nothing.
//
// If there is no stock, the error is ErrNotOpen. Two round trips, repeated until answered. A copy that the network delivers after the
// call has ended, by a RetryTimeout or more, changes nothing, and neither does one that comes after another change. After
// ErrUnknownOutcome the end may have moved; Inspect tells.
func (s *Stock) SetEnd(ctx context.Context, in time.Duration) (err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return err
	}
	if in < 0 || in > maxLifetime {
		return errs.InvalidOption("in", in, fmt.Sprintf("between 0 and %v", maxLifetime))
	}
	left, err := s.change(ctx, "end", int64((in+time.Millisecond-1)/time.Millisecond))
	if err == nil {
		s.c.calls.RemoveAfter(left, s.reaping())
	}
	return err
}

var changeScript = script.Load("change", files, "change")

// change runs change.lua: first to ask for the revision, and again as long as other calls are quicker. It returns how long the stock
// will be there.
func (s *Stock) change(ctx context.Context, what string, value int64) (time.Duration, error) {
	call := session.CallID()
	for revision := ""; ; {
		v, _, err := s.timely(ctx, 5, changeScript, func(notAfter string) []string {
			return []string{call, revision, notAfter, what, decimal(value)}
		})
		if v == nil {
			return 0, err
		}
		if v[0] == stockNone {
			return 0, fmt.Errorf("%w: %q", ErrNotOpen, s.keys[0])
		}
		if err := s.verdict(v); err != nil {
			return 0, err
		}
		s.shared().cache.forget()
		if v[2] == 1 {
			return script.Duration(v[4]), nil
		}
		revision = decimal(v[1])
	}
}
