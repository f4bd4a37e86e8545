package stock

import (
	"cmp"
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// minReservation is the shortest time a reservation may be made for.
const minReservation = time.Millisecond

// Reserve holds n units for claimant, all or none, until Confirm sells them, Cancel gives them back, or ttl (at least a
// millisecond) is over by the server's clock. Then they go back by themselves, once. id is the caller's own, a new one for each
// reservation, and not that of a ClaimOnce. One round trip, repeated until answered.
//
// Grant.Until says when the units go back. The same call again is Replayed and prolongs nothing; if the reservation was
// confirmed, that answer has the ordinals. If fewer than n units are left, the answer is SoldOut, and Remaining says how many are.
// If claimant may not have n more, it is UserLimit. An id whose reservation is over is an error: ErrReservationExpired,
// ErrReservationCancelled (also if Cancel came before this call), ErrReservationReturned. It is remembered for as long as
// Spec.Remember says; then the id is a new one.
//
// Other errors: ErrInvalidName for id or claimant, ErrInvalidOption for n or ttl, ErrMismatch, ErrNotReplicated, and
// those of Claim.
func (s *Stock) Reserve(ctx context.Context, id, claimant string, n int64, ttl time.Duration) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), checkRequest(id, claimant, n), checkTTL(ttl, minReservation)); err != nil {
		return Grant{}, err
	}
	return s.obtain(ctx, s.shared().cache.request(ctx, id), func() (Grant, error) {
		return s.granted(ctx, act{verb: actReserve, id: id, claimant: claimant, n: n, ttl: ttl})
	})
}

// Confirm sells the units of a reservation and returns them: Granted the first time, Replayed from then on. It works until the
// reservation's time is over, also if the stock does not sell any more. A stock that is Suspended confirms nothing: the outcome is
// Suspended. ReturnOnce takes the sale back. One round trip, repeated until answered.
//
// If Confirm comes too late, it sells nothing and returns ErrReservationExpired. Other errors: ErrReservationCancelled,
// ErrReservationReturned, ErrNotFound, ErrMismatch and those of Claim.
func (s *Stock) Confirm(ctx context.Context, id string) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", id)); err != nil {
		return Grant{}, err
	}
	return s.granted(ctx, act{verb: actConfirm, id: id})
}

// Cancel gives back the units of a reservation, and reports whether this call did so. It is false if the reservation's time was
// over, or it was confirmed (and stays so) or cancelled before. It is also false if there was no such reservation; then a
// later Reserve of that id returns ErrReservationCancelled, for as long as Spec.Remember says. One round trip, repeated until answered.
func (s *Stock) Cancel(ctx context.Context, id string) (_ bool, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", id)); err != nil {
		return false, err
	}
	return s.undo(ctx, act{verb: actCancel, id: id})
}

// Reap ends the reservations whose time is over, and returns how many it has ended. Claims and reservations do the same first, so a
// stock that sells does not need Reap. If no claims come, Inspect counts such units as held until a Reap. See KeepReaped.
func (s *Stock) Reap(ctx context.Context) (ended int64, err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return 0, err
	}
	for {
		n, err := s.reap(ctx)
		ended += n
		if err != nil || n < reapBatch {
			return ended, err
		}
	}
}

// KeepReaped runs Reap at the interval every, at least a millisecond, until ctx ends. It returns ctx's error, or an error that
// asking again does not cure, such as ErrClosed or ErrCorrupt. After other errors it goes on. Any number of processes may keep one
// stock reaped.
func (s *Stock) KeepReaped(ctx context.Context, every time.Duration) error {
	if every < time.Millisecond {
		return edged(errs.InvalidOption("every", every, "at least 1ms"))
	}
	t := time.NewTicker(every)
	defer t.Stop()
	failing := false
	for {
		_, err := s.Reap(ctx)
		if ctx.Err() == nil && lasting(err) {
			return err
		}
		s.c.bears(ctx, notReaped, s.name, err, &failing)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// reapBatch is how many reservations one script ends. Each takes the server about 2 us.
const reapBatch = 128

var reapScript = script.Load("reap", files, "reap")

// reaping is reap.lua.
func (s *Stock) reaping() script.Call { return s.call(reapScript, decimal(reapBatch)) }

// reap runs it.
func (s *Stock) reap(ctx context.Context) (ended int64, err error) {
	v, err := s.reply(ctx, 3, s.reaping())
	if err == nil {
		err = s.verdict(v)
	}
	if err != nil {
		return 0, err
	}
	if v[1] > 0 {
		s.shared().cache.forget()
	}
	return v[1], nil
}

// removeAfter has the remaining keys of the stock removed when the retention in o is over.
func (s *Stock) removeAfter(o Spec) { s.c.calls.RemoveAfter(o.StartIn+o.OpenFor+o.Retain, s.reaping()) }
