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

// Reserve holds the units of r for claimant until Confirm sells them, Cancel gives them back, or ttl (at least a
// millisecond) is over by the server's clock. Then they go back by themselves, once. The id is a new one for each
// reservation, and not that of a Claim. One round trip, repeated until answered.
//
// Grant.Until says when the units go back. The same call again is Replayed and prolongs nothing; if the reservation was
// confirmed, that answer has the ordinals. If fewer than N units are left, the answer is SoldOut, and Remaining says
// how many are. If claimant may not have N more (Spec.PerUser), it is UserLimit. If the reservation is over, it is
// Expired, Cancelled (also if Cancel or Confirm came before this call) or Returned, for as long as Spec.Remember says;
// then the id is a new one.
//
// Errors: ErrInvalidName for id or claimant, ErrInvalidOption for N or ttl, ErrMismatch, ErrNotReplicated, and
// those of Claim.
func (s *Stock) Reserve(ctx context.Context, claimant string, r Request, ttl time.Duration) (grant Grant, err error) {
	defer edge(&err)
	a := r.act(claimant, actReserve, actReserveUpTo)
	a.ttl = ttl
	if err := cmp.Or(s.usable(), checkRequest(a.id, a.claimant, a.n), checkTTL(a.ttl)); err != nil {
		return Grant{}, err
	}
	return s.obtain(ctx, isFresh(ctx), func(ctx context.Context) (Grant, error) { return s.granted(ctx, a) })
}

// Cancel gives back the units of a reservation, and reports whether this call did so. It is false if the reservation
// was confirmed (and stays so) or cancelled before. It is also false if its time was over, or there was no such
// reservation; then no later Confirm or Reserve of that id gets units, for as long as Spec.Remember says. One round
// trip, repeated until answered.
//
// Errors: ErrNotOpen if there is no stock, and ErrRestoring if it is suspended and does not know the id: then nothing
// is cancelled and no id is forbidden. ErrOutOfRange if a million ids of no reservation are remembered already, some
// 200 bytes each: where anybody may name ids, call Lookup first, and cancel only what is there. ErrMismatch if the id
// is that of a Claim; ErrInvalidName; ErrNotReplicated; and those of Claim.
func (s *Stock) Cancel(ctx context.Context, id string) (done bool, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", id)); err != nil {
		return false, err
	}
	n, err := s.undo(ctx, act{verb: actCancel, id: id})
	return n > 0, err
}

// Reap ends the reservations whose time is over, and returns how many it has ended. Claims and reservations do the same
// first, so a stock that sells does not need Reap. If no claims come, Inspect counts such units as held until a Reap.
// See KeepReaped.
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

// KeepReaped runs Reap at the interval every, at least a millisecond, until ctx ends. It returns ctx's error, or an
// error that asking again does not cure, such as ErrClosed or ErrCorrupt. After other errors it goes on. Any number of
// processes may keep one stock reaped.
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
		s.processState().cache.forget()
	}
	return v[1], nil
}

// removeAfter has the remaining keys of the stock removed when the retention in o is over.
func (s *Stock) removeAfter(o Spec) { s.c.calls.RemoveAfter(o.StartIn+o.OpenFor+o.Retain, s.reaping()) }
