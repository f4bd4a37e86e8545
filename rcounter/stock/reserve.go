package stock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// minReservation is the shortest time a reservation may be made for.
const minReservation = time.Millisecond

// Reservation is the answer to Reserve. It is a value: Confirm and Cancel are the stock's, by its ID, from any process.
type Reservation struct {
	ID string
	// Outcome is Granted if this call made the reservation, Replayed if an earlier one did; otherwise why there is none.
	Outcome Outcome
	// N is how many units are held, or sold if it is confirmed; 0 if not Won.
	N int64
	// Ordinal is the first unit's if the reservation is confirmed, 0 before: units are numbered when they are sold.
	Ordinal int64
	// Remaining is how many units were left, neither sold nor held, when the server answered.
	Remaining int64
	// Epoch is the opening that answered; 0 if NotOpen.
	Epoch int64
	// Until is, on this machine's monotonic clock, when the units go back unless confirmed before, if not a moment
	// later: it is counted from before the request was sent. The server's clock decides. Zero if not Won.
	Until time.Time
}

// Won reports whether the units are held for, or sold to, the claimant: Granted or Replayed.
func (r Reservation) Won() bool { return r.Outcome == Granted || r.Outcome == Replayed }

// Reserve holds n units for claimant, all or none, until Confirm sells them, Cancel gives them back, or ttl is over by
// the server's clock; then they go back by themselves, once. id is the caller's own, one for a reservation, and must
// not be that of a ClaimOnce. One round trip, repeated until answered.
//
// The same call again answers Replayed and prolongs nothing. Fewer than n left is SoldOut, with what is left in
// Remaining; more than claimant may have is UserLimit. Not an outcome but an error: what has become of the id already,
// ErrReservationExpired, ErrReservationCancelled (also if Cancel came before this call did), ErrReservationReturned.
//
// Other errors: ErrInvalidName for id or claimant, ErrInvalidOption for n or ttl, ErrMismatch, ErrNotReplicated, and those of Claim.
func (s *Stock) Reserve(ctx context.Context, id, claimant string, n int64, ttl time.Duration) (_ *Reservation, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return nil, err
	}
	if err := keyname.Required("id", id); err != nil {
		return nil, err
	}
	if err := keyname.Required("claimant", claimant); err != nil {
		return nil, err
	}
	if err := checkN(n); err != nil {
		return nil, err
	}
	if ttl < minReservation || ttl > maxLifetime {
		return nil, errs.InvalidOption("ttl", ttl, fmt.Sprintf("between %v and %v", minReservation, maxLifetime))
	}
	d := s.shared()
	if g, ok := d.cache.request(ctx, id); ok {
		s.c.answered(ctx, s.name, g.Outcome)
		return &Reservation{ID: id, Outcome: g.Outcome, Epoch: g.Epoch}, nil
	}
	began := s.c.began()
	r, err := s.reserve(ctx, session.CallID(), id, claimant, n, ttl)
	if err != nil {
		s.c.claimed(ctx, s.name, began, 0, 0, err)
		return nil, err
	}
	if r.Remaining == 0 {
		d.cache.heard(r.Outcome)
	}
	s.c.claimed(ctx, s.name, began, r.Outcome, r.N, nil)
	return r, nil
}

// Confirm sells what the reservation holds, and answers with the units: Granted the first time, Replayed from then on.
// It works until the reservation's time is over, whether the stock still sells or not. One round trip, repeated until
// answered. ReturnOnce takes the sale back.
//
// A late one is ErrReservationExpired, and nothing is sold. ErrReservationCancelled, ErrReservationReturned,
// ErrNoReservation, ErrMismatch and the errors of Claim.
func (s *Stock) Confirm(ctx context.Context, id string) (_ Grant, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return Grant{}, err
	}
	if err := keyname.Required("id", id); err != nil {
		return Grant{}, err
	}
	return s.confirm(ctx, session.CallID(), id)
}

// Cancel gives back what the reservation holds, and reports whether this call did so. False: its time was over, it was
// confirmed (and stays so) or cancelled before; or it had not been made, and now never will be: a Reserve of that id
// which arrives later is ErrReservationCancelled. One round trip, repeated until answered.
func (s *Stock) Cancel(ctx context.Context, id string) (_ bool, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return false, err
	}
	if err := keyname.Required("id", id); err != nil {
		return false, err
	}
	return s.cancel(ctx, session.CallID(), id)
}

// Reap ends the reservations whose time is over, and returns how many those were. Claims and reservations that need
// units do the same first, so a stock that sells has no need of it; where nobody comes, Status and the ledger's
// readers see the units back only after it. See KeepReaped.
func (s *Stock) Reap(ctx context.Context) (ended int64, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return 0, err
	}
	for {
		n, err := s.reap(ctx, reapBatch)
		ended += n
		if err != nil || n < reapBatch {
			return ended, err
		}
	}
}

// KeepReaped runs Reap every so often until ctx ends, and returns ctx's error, or ErrClosed, or ErrCorrupt, at which
// it ends too; other errors it bears. Any number of processes may do so for one stock.
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

// reapBatch is how many reservations one script ends: about 128 x 2 us of the server's time.
const reapBatch = 128

var (
	reserveScript = script.Load("reserve", files, "reserve")
	confirmScript = script.Load("confirm", files, "confirm")
	cancelScript  = script.Load("cancel", files, "cancel")
	reapScript    = script.Load("reap", files, "reap")
)

// reserve runs reserve.lua.
func (s *Stock) reserve(ctx context.Context, call, id, claimant string, n int64, ttl time.Duration) (*Reservation, error) {
	sent := time.Now()
	v, unconfirmed := s.sure(ctx, 6, reserveScript, call, s.c.calls.Mark(), id, claimant, strconv.FormatInt(n, 10), script.Millis(ttl))
	if v == nil {
		return nil, unconfirmed
	}
	if err := s.verdict(v); err != nil {
		return nil, err
	}
	r := &Reservation{ID: id, Outcome: Outcome(v[3]), Ordinal: v[4], Remaining: v[2], Epoch: v[1]}
	if r.Won() {
		if unconfirmed != nil {
			return nil, unconfirmed
		}
		r.N, r.Until = n, sent.Add(script.Duration(v[5]))
	}
	return r, nil
}

// confirm runs confirm.lua.
func (s *Stock) confirm(ctx context.Context, call, id string) (Grant, error) {
	v, unconfirmed := s.sure(ctx, 6, confirmScript, call, s.c.calls.Mark(), id)
	if v != nil && (v[0] == stockNone || v[0] == stockOK && v[3] == int64(NotOpen)) {
		return Grant{}, fmt.Errorf("%w: %.64q on %q", ErrNoReservation, id, s.keys[0])
	}
	return s.granted("confirm", id, v, unconfirmed)
}

// cancel runs cancel.lua.
func (s *Stock) cancel(ctx context.Context, call, id string) (bool, error) {
	v, err := s.ints(ctx, 3, cancelScript, call, id)
	if err != nil {
		return false, err
	}
	if v[0] == stockOK && v[2] == 1 {
		s.shared().cache.forgetIDs()
	} else {
		s.shared().cache.forget()
	}
	return v[0] == stockOK && v[1] == 1, s.verdict(v)
}

// reap runs reap.lua.
func (s *Stock) reap(ctx context.Context, most int64) (ended int64, err error) {
	v, err := s.ints(ctx, 3, reapScript, strconv.FormatInt(most, 10))
	if err != nil {
		return 0, err
	}
	if err := s.verdict(v); err != nil {
		return 0, err
	}
	if v[1] > 0 {
		s.shared().cache.forget()
	}
	return v[1], nil
}
