package stock

import (
	"cmp"
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// Paid is how many units of a reservation were paid for, at least 1, if not all that it holds.
type Paid int64

// Confirm is the verb for a payment, in time or late: it sells the units of a reservation, and says how many of those
// that were paid for are to be refunded. One round trip, repeated until answered.
//
// While the reservation is held, its units are sold. With Paid, the first so many are, and the rest go back. If its
// time is over, it takes its units again, as a new claim under the same id: as many as are left and its claimant may
// have.
//
//   - Granted, by this call, or Replayed, by an earlier one: Grant.N units are sold.
//   - Expired: its time was over, and not one unit was to be had: all were taken, the claimant has as many as it may,
//     or the sale has ended.
//   - Cancelled: it was cancelled, or the stock does not know the id.
//   - Returned: its sale was taken back by Return.
//   - Suspended, Paused, NotStarted: the stock does not sell now. Nothing is decided. Call again.
//
// All but the last is final (Outcome.Final): every later Confirm of the id, by any process, has the same units, though
// more may be left by then, and a Reserve of the id gets none. Grant.Missing is how many units the payment was for that
// the reservation does not have: give the money for those back, once for each id. It is counted from Paid, or else from
// what was held. It is 0 if that is not known: the stock does not know the id, and Paid was not given.
//
// What is decided is remembered for as long as Spec.Remember says; what is sold, until the retention is over.
//
// Errors: ErrNotOpen if there is no stock: nothing is decided, and only the caller's own records can tell.
// ErrOutOfRange as for Cancel. ErrMismatch if the id is that of a Claim; ErrInvalidName; ErrInvalidOption for paid;
// ErrNotReplicated; and those of Claim.
func (s *Stock) Confirm(ctx context.Context, id string, paid ...Paid) (grant Grant, err error) {
	defer edge(&err)
	n, refused := onePaid(paid)
	if err := cmp.Or(s.usable(), keyname.Required("id", id), refused); err != nil {
		return Grant{}, err
	}
	g, err := s.granted(ctx, act{verb: actConfirm, id: id, n: n})
	return g.paid(n), err
}

// onePaid is how many units were paid for, 0 for all.
func onePaid(paid []Paid) (int64, error) {
	switch {
	case len(paid) == 0:
		return 0, nil
	case len(paid) > 1:
		return 0, errs.InvalidOption("paid", len(paid), "given once at most")
	}
	return int64(paid[0]), checkN("paid", int64(paid[0]))
}

// paid is the answer to a payment for n units, 0 for all that were held.
func (g Grant) paid(n int64) Grant {
	if n > 0 && g.Outcome.Final() {
		g.Missing = max(0, n-g.N)
	}
	return g
}

// Extend has a reservation hold its units for ttl from now, by the server's clock: at least a millisecond, and never
// shorter than it would hold them anyway. It works until the reservation's time is over, also if the stock does not
// sell any more.
//
// Granted: the units are held until Grant.Until, by this call. Replayed: they are held for as long already, or for
// longer, as Grant.Until says, or they are sold, and the answer has the ordinals. Expired, Cancelled, Returned: it
// holds nothing any more, and nothing has changed. Suspended: not while Restore runs. One round trip, repeated until
// answered. Until the end of the call the hold may be longer than ttl, by a copy that the network delivers late, but
// never by more than the caller's patience.
//
// Errors: ErrNotFound if there is no reservation of that id, or none any more (Spec.Remember); ErrNotOpen; ErrMismatch
// if the id is that of a Claim; ErrInvalidName; ErrInvalidOption for ttl; ErrNotReplicated; and those of Claim.
func (s *Stock) Extend(ctx context.Context, id string, ttl time.Duration) (grant Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", id), checkTTL(ttl)); err != nil {
		return Grant{}, err
	}
	return s.granted(ctx, act{verb: actExtend, id: id, ttl: ttl})
}
