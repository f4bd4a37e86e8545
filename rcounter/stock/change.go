package stock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Change says what of a stock is to be changed. What is not set stays as it is.
type Change struct {
	// Limit is how many units there are, 1 to 2^53-1.
	Limit int64
	// PerUser is how many units a claimant may have, 1 to 2^53-1. A claimant that has more keeps them.
	PerUser int64
	// StartIn moves the start of the sale: it comes in so long from now, by the server's clock, 0 to 100 years; see In.
	// Until then a stock that sells already is answered NotStarted.
	StartIn *time.Duration
	// EndIn moves the end of the sale likewise. The retention begins at the new end and is as long as before. A sale that
	// has ended sells again if the new end is ahead; one that EndSale ended does not. A stock whose end comes before its
	// start sells nothing.
	EndIn *time.Duration
	// Pause has the stock grant nothing until a Change with Resume: a claim or a reservation that has no units yet is
	// answered Paused, by every process. All else goes on. What was granted is answered as before; reservations can be
	// confirmed in time, extended and cancelled, and expire at their time; units can be returned; the end comes when it
	// comes. It changes nothing in a stock that is paused or was ended.
	//
	// Paused is the seller's wish. Suspended is a doubt about the records, and Restore ends it: while it lasts nothing is
	// confirmed either. A stock may be both. Then it is answered as Suspended, and Restore leaves it paused.
	Pause bool
	// Resume ends a Pause: the stock grants again what it has, until its end, which did not move. It changes nothing in a
	// stock that is not paused.
	Resume bool
}

// In is d, for Change.
func In(d time.Duration) *time.Duration { return &d }

// args are the pairs that change.lua takes, if c can be done.
func (c Change) args() ([]string, error) {
	var args []string
	for _, n := range []struct {
		field, what string
		value       int64
	}{{"Limit", "limit", c.Limit}, {"PerUser", "per", c.PerUser}} {
		if n.value < 0 || n.value > maxLimit {
			return nil, errs.InvalidOption(n.field, n.value, fmt.Sprintf("between 1 and %d, or 0 to leave it", int64(maxLimit)))
		}
		if n.value > 0 {
			args = append(args, n.what, decimal(n.value))
		}
	}
	for _, d := range []struct {
		field, what string
		in          *time.Duration
	}{{"StartIn", "start", c.StartIn}, {"EndIn", "end", c.EndIn}} {
		if d.in == nil {
			continue
		}
		if *d.in < 0 || *d.in > maxLifetime {
			return nil, errs.InvalidOption(d.field, *d.in, fmt.Sprintf("between 0 and %v", maxLifetime))
		}
		args = append(args, d.what, script.Millis(*d.in))
	}
	switch {
	case c.Pause && c.Resume:
		return nil, errs.InvalidOption("Resume", true, "false with Pause")
	case c.Pause:
		args = append(args, "paused", "1")
	case c.Resume:
		args = append(args, "paused", "0")
	}
	if args == nil {
		return nil, errs.InvalidOption("change", "empty", "one that changes something")
	}
	return args, nil
}

// Change changes what Open has set, all of it in one step or nothing, at any time until the retention is over. If the
// limit is below what is sold and held, the error is ErrOutOfRange; if there is no stock, it is ErrNotOpen. After
// ErrUnknownOutcome all may be changed or nothing; Inspect tells. OpenOrJoin goes on comparing with what the stock was
// opened with.
//
// Two round trips, repeated until answered. A copy that the network delivers after the call has ended, by a
// RetryTimeout or more, changes nothing, and neither does one that comes after another change.
//
// Errors: ErrInvalidOption for c, and those above.
func (s *Stock) Change(ctx context.Context, c Change) (err error) {
	defer edge(&err)
	args, refused := c.args()
	if err := cmp.Or(s.usable(), refused); err != nil {
		return err
	}
	left, err := s.change(ctx, args)
	if err == nil && c.EndIn != nil {
		s.c.calls.RemoveAfter(left, s.reaping())
	}
	return err
}

var changeScript = script.Load("change", files, "change")

// change runs change.lua: first to ask for the revision, and again as long as other calls are quicker. It returns how
// long the stock will be there.
func (s *Stock) change(ctx context.Context, what []string) (time.Duration, error) {
	call := session.CallID()
	for revision := ""; ; {
		v, _, err := s.timely(ctx, 5, changeScript, func(notAfter string) []string {
			return append([]string{call, revision, notAfter}, what...)
		})
		if v == nil {
			return 0, err
		}
		if err := s.verdict(v); err != nil {
			return 0, err
		}
		s.processState().cache.forget()
		if v[2] == 1 {
			return script.Duration(v[4]), nil
		}
		revision = decimal(v[1])
	}
}
