package stock

import (
	"cmp"
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
)

// Confirm sells the units of a reservation and returns them: Granted the first time, Replayed from then on. It works until the
// reservation's time is over, also if the stock does not sell any more. If it comes too late, it sells nothing, and the answer is
// Expired: ConfirmLate may still get the units. If the reservation was cancelled, it is Cancelled; if the sale was taken back by
// ReturnOnce, Returned. A stock that is Suspended confirms nothing: the outcome is Suspended. One round trip, repeated until
// answered.
//
// Errors: ErrNotFound if there is no reservation of that id, or none any more (Spec.Remember), or no stock; ErrMismatch if the id is
// that of a ClaimOnce; ErrInvalidName; ErrNotReplicated; and those of Claim.
func (s *Stock) Confirm(ctx context.Context, id string) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", id)); err != nil {
		return Grant{}, err
	}
	return s.granted(ctx, act{verb: actConfirm, id: id})
}

// ConfirmLate is Confirm for a payment that may have come too late. While the reservation is held it does what Confirm does. If its
// time is over, it takes its units again, as many as are left and its claimant may have: Granted, with Grant.N units, and
// Grant.Missing is how many of those that the reservation asked for it does not have and somebody should refund. From then on that
// is the answer (Replayed), also if more units are left later. One round trip, repeated until answered.
//
// To take units again is a new claim under the same id. It can be refused: SoldOut or UserLimit if not one unit is to be had,
// Ended, Suspended or Paused if the stock does not sell now. Then nothing has changed, and the call may be repeated. So a refusal is not the
// last word: a unit may come back, and another process that was told of the same payment gets it while this one refunds. Call Cancel
// and then ConfirmLate once more before money moves. Either it has units, by whoever was quicker, or it is Cancelled for good.
//
// A reservation that was cancelled stays so: the answer is Cancelled, and nothing is sold. Whoever cancelled it was told that the units
// went back, and may have refunded the payment. If its sale was taken back, the answer is Returned.
//
// Errors: those of Confirm. ErrNotFound also says that the reservation was forgotten (Spec.Remember after its end): then nobody
// knows how many units it had, and ClaimOnce under a new id is the way to get some.
func (s *Stock) ConfirmLate(ctx context.Context, id string) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", id)); err != nil {
		return Grant{}, err
	}
	return s.granted(ctx, act{verb: actLate, id: id})
}

// ConfirmPart sells the first keep units of a reservation and gives the rest back, in one step: the customer paid for so many of
// them. keep is at least 1, and at most what is held, else the error is ErrMismatch. Grant.N is keep, and Grant.Missing how many
// of the units that were asked for the reservation does not have. If it was confirmed before, the answer is what was confirmed
// then, however many that are, and nothing is given back: ReturnPart does. All else is as for Confirm.
//
// Errors: those of Confirm, and ErrInvalidOption for keep.
func (s *Stock) ConfirmPart(ctx context.Context, id string, keep int64) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", id), checkKeep(keep)); err != nil {
		return Grant{}, err
	}
	return s.granted(ctx, act{verb: actPart, id: id, n: keep})
}

// Extend has a reservation hold its units for ttl from now, by the server's clock: at least a millisecond, and never shorter than it
// would hold them anyway. It works until the reservation's time is over, also if the stock does not sell any more.
//
// Granted: the units are held until Grant.Until, by this call. Replayed: they are held for as long already, or for longer, as
// Grant.Until says, or they are sold, and the answer has the ordinals. Expired, Cancelled, Returned: it holds nothing any more, and
// nothing has changed. Suspended: not while Restore runs. One round trip, repeated until answered. Until the end of the call the
// hold may be longer than ttl, by a copy that the network delivers late, but never by more than the caller's patience.
//
// Errors: those of Confirm, and ErrInvalidOption for ttl.
func (s *Stock) Extend(ctx context.Context, id string, ttl time.Duration) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", id), checkTTL(ttl)); err != nil {
		return Grant{}, err
	}
	return s.granted(ctx, act{verb: actExtend, id: id, ttl: ttl})
}
