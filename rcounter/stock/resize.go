package stock

import (
	"context"
	"fmt"

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
	if err := s.c.calls.Usable(s.alone()); err != nil {
		return err
	}
	if limit < 1 || limit > maxLimit {
		return errs.InvalidOption("limit", limit, fmt.Sprintf("between 1 and %d", int64(maxLimit)))
	}
	return s.resize(ctx, session.CallID(), limit)
}

var resizeScript = script.Load("resize", files, "resize")

// resize runs resize.lua: first to ask for the revision, and again as long as other calls are quicker.
func (s *Stock) resize(ctx context.Context, call string, limit int64) error {
	for revision := ""; ; {
		v, err := s.run(ctx, 3, resizeScript, call, decimal(limit), revision)
		if v != nil && v[0] == stockNone {
			return fmt.Errorf("%w: %q", ErrNotOpen, s.keys[0])
		}
		if err != nil {
			return err
		}
		s.shared().cache.forget()
		if v[2] == 1 {
			return nil
		}
		revision = decimal(v[1])
	}
}
