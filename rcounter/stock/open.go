package stock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

const (
	// maxLimit is the largest limit of a stock: 2^53-1, to which the server's Lua counts exactly.
	maxLimit = 1<<53 - 1
	// defaultRetain is the default of Spec.Retain.
	defaultRetain = 24 * time.Hour
	// defaultRemember is the default of Spec.Remember.
	defaultRemember = 3 * 24 * time.Hour
	// maxLifetime is the longest time from Open to the removal of the stock.
	maxLifetime = 100 * 365 * 24 * time.Hour
)

// Spec says what Open opens. The server counts durations on its own clock from the moment it runs Open, so the clocks
// of the callers do not matter. Fractions of a millisecond are rounded up.
type Spec struct {
	// Limit is how many units there are, 1 to 2^53-1. Required.
	Limit int64
	// PerUser is how many units a claimant may have, 1 to 2^53-1: one by Claim alone, the others by requests and
	// reservations. Units without a claimant do not count. Defaults to 1.
	PerUser int64
	// StartIn is the time until claims are granted: max(0, time.Until(t)) for an instant t. Defaults to 0: at once.
	StartIn time.Duration
	// OpenFor is the time from the start to the end, at least a millisecond. Required.
	OpenFor time.Duration
	// Retain is how long after the end the answers stay, at least a millisecond. Until then a claimant's Claim gets the
	// same answer, and the name cannot be opened again. It should be longer than any caller retries: a request that meets
	// the next opening is a request of that opening. Defaults to 24 hours.
	Retain time.Duration
	// Remember is how long a reservation or request is remembered after it has ended: it was cancelled, its time was over,
	// or its units were returned. While it is held or sold, and so long after that, its id gets the same answer; later the
	// server has forgotten it and the id is a new one. Otherwise every reservation that was never paid for would take
	// memory until the retention is over. It should be longer than any caller repeats a call; at least a minute, and at
	// least twice the longest call of this client (two RetryTimeouts). Defaults to three days, because payment providers
	// repeat their webhooks for days, or to that if that is longer. A reservation that has ended takes some 200 bytes of
	// the server until it is forgotten. What is remembered goes with the stock, when Retain is over.
	Remember time.Duration
	// Ledger has everything that happens to units written into a stream, by the script that does it: see Entry.
	// Stock.Ledger moves it from there into a database. It takes memory until it is moved, or the retention is over.
	// Defaults to no ledger.
	Ledger bool
	// Suspended opens a stock that grants nothing (Suspended) until Restore has run: open it so after a stock was lost.
	// Defaults to a stock that grants.
	Suspended bool
	// Opened, if set, is asked whether this sale was ever opened, where the server has no stock of this name: by the
	// caller's own records, such as Mover.Opened of contrib/ledger. If it was, the stock was lost with its winners, and is
	// not opened: ErrCorrupt. Open it without Opened then, Suspended, and Restore it. An error of Opened is returned, and
	// nothing is opened. Defaults to none: a stock that was lost looks like one that never was.
	Opened func(ctx context.Context) (bool, error)
}

func (o *Spec) check() error {
	switch {
	case o.Limit < 1 || o.Limit > maxLimit:
		return errs.InvalidOption("Limit", o.Limit, fmt.Sprintf("between 1 and %d", int64(maxLimit)))
	case o.PerUser < 0 || o.PerUser > maxLimit:
		return errs.InvalidOption("PerUser", o.PerUser,
			fmt.Sprintf("between 1 and %d, or 0 for the default", int64(maxLimit)))
	case o.StartIn < 0 || o.StartIn > maxLifetime:
		return errs.InvalidOption("StartIn", o.StartIn, fmt.Sprintf("between 0 and %v", maxLifetime))
	case o.OpenFor < time.Millisecond || o.OpenFor > maxLifetime:
		return errs.InvalidOption("OpenFor", o.OpenFor, fmt.Sprintf("between 1ms and %v", maxLifetime))
	case o.Remember < 0 || o.Remember > 0 && o.Remember < time.Minute || o.Remember > maxLifetime:
		return errs.InvalidOption("Remember", o.Remember, fmt.Sprintf("between 1m and %v, or 0 for the default", maxLifetime))
	case o.Retain < 0 || o.Retain > 0 && o.Retain < time.Millisecond || o.Retain > maxLifetime:
		return errs.InvalidOption("Retain", o.Retain, fmt.Sprintf("between 1ms and %v, or 0 for the default", maxLifetime))
	}
	if o.PerUser == 0 {
		o.PerUser = 1
	}
	if o.Retain == 0 {
		o.Retain = defaultRetain
	}
	// two of the three cannot overflow, and neither can that sum, found too long, be added to
	if sum := o.StartIn + o.OpenFor; sum > maxLifetime || sum+o.Retain > maxLifetime {
		return errs.InvalidOption("StartIn + OpenFor + Retain", fmt.Sprintf("%v + %v + %v", o.StartIn, o.OpenFor, o.Retain),
			fmt.Sprintf("at most %v", maxLifetime))
	}
	return nil
}

// Open creates the stock and returns its epoch, which tells its grants from those of an earlier or later opening of the
// name. It never overwrites. Until the retention of a stock of that name is over, whether that stock sells, is sold
// out, has ended or was closed, Open changes nothing and returns ErrAlreadyOpen with the epoch of that stock.
//
// A stock that has lost all its keys looks like one that never was, and Open opens it. So call Open from one place,
// once, and after such a loss with Spec.Suspended; or set Spec.Opened.
//
// Other errors: ErrCorrupt if Spec.Opened says that it was open before, or if the records of a lost stock are there;
// their claimants have units, so these keys must be removed by hand first. After ErrUnknownOutcome the stock may be
// open; the next Open tells.
//
// Two round trips, repeated until answered. A copy that the network delivers after the call has ended, by a
// RetryTimeout or more, opens nothing.
func (s *Stock) Open(ctx context.Context, o Spec) (epoch int64, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused, o.check()); err != nil {
		return 0, err
	}
	r, err := s.openChecked(ctx, o)
	if err != nil {
		return 0, err
	}
	if !r.opened {
		return r.epoch, fmt.Errorf("%w: %q, epoch %d", errs.ErrAlreadyOpen, s.name, r.epoch)
	}
	return r.epoch, nil
}

// OpenOrJoin opens the stock, or joins the one that stands, and returns what stands then: as Inspect does, however much
// was sold. So every process of a program can call it when it starts.
//
// A stock that stands must have been opened with the same Limit, PerUser, OpenFor, Retain, Ledger and Remember.
// Otherwise the error is ErrMismatch, whose text names the first that differs and both values, and nothing has changed.
// What Change and EndSale have changed since is not a contradiction, and neither are StartIn, which counts from another
// moment for every caller, and Suspended.
//
// All else is as for Open, also what is said of a stock that has lost all its keys: the first process that starts after
// such a loss would sell every unit a second time. So set Spec.Opened. Other errors: those of Open but ErrAlreadyOpen,
// and those of Inspect, with which the stock stands. One more round trip than Open.
func (s *Stock) OpenOrJoin(ctx context.Context, o Spec) (now State, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused, o.check()); err != nil {
		return State{}, err
	}
	r, err := s.openChecked(ctx, o)
	if err != nil {
		return State{}, err
	}
	if err := s.contradiction(r.spec, r.stands); err != nil {
		return State{}, err
	}
	return s.status(ctx)
}

// contradiction says in what an opening differs from what Open was called with before; nil if in nothing.
func (s *Stock) contradiction(o Spec, stands []int64) error {
	ms := func(d time.Duration) time.Duration { return d + (time.Millisecond-d%time.Millisecond)%time.Millisecond }
	if len(stands) < 6 {
		return nil
	}
	for _, f := range []struct {
		name        string
		want, stand any
	}{
		{"Limit", o.Limit, stands[0]},
		{"PerUser", o.PerUser, stands[1]},
		{"OpenFor", ms(o.OpenFor), script.Duration(stands[2])},
		{"Retain", ms(o.Retain), script.Duration(stands[3])},
		{"Ledger", o.Ledger, stands[4] == 1},
		{"Remember", ms(o.Remember), script.Duration(stands[5])},
	} {
		if f.want != f.stand {
			return fmt.Errorf("%w: %q was opened with %s %v, not %v", errs.ErrMismatch, s.name, f.name, f.stand, f.want)
		}
	}
	return nil
}

// openChecked opens the stock with a Spec that was checked but for Remember, whose bound and default are the client's.
func (s *Stock) openChecked(ctx context.Context, o Spec) (openReply, error) {
	if least := 2 * s.c.calls.Bound(); o.Remember == 0 {
		o.Remember = max(defaultRemember, least)
	} else if o.Remember < least {
		return openReply{}, errs.InvalidOption("Remember", o.Remember,
			fmt.Sprintf("at least %v, twice the longest call", least))
	}
	r, err := s.open(ctx, session.CallID(), o)
	r.spec = o
	return r, err
}

var openScript = script.Load("open", files, "open")

type openReply struct {
	epoch  int64
	opened bool // by this call
	spec   Spec
	stands []int64 // of a stock that another call has opened: see open.lua
}

// open runs open.lua.
func (s *Stock) open(ctx context.Context, id string, o Spec) (openReply, error) {
	state, keeps := "1", "0"
	if o.Suspended {
		state = "3"
	}
	if o.Ledger {
		keeps = "1"
	}
	before := false // o.Opened says so, and the server is asked once more
	for until := ""; ; {
		v, err := s.ints(ctx, 3, openScript, id, decimal(o.Limit), decimal(o.PerUser), script.Millis(o.StartIn),
			script.Millis(o.OpenFor), script.Millis(o.Retain), keeps, state, script.Millis(o.Remember), until)
		if err != nil {
			return openReply{}, err
		}
		if v[0] == stockChanged {
			if before {
				return openReply{}, fmt.Errorf("%w: %q was open before, and the server has lost it", errs.ErrCorrupt, s.name)
			}
			if until == "" && o.Opened != nil {
				// A has asked the server and finds no stock. B opens it and tells the database. Now A asks the database, and the
				// stock is not lost (TestOpenOrJoin_OpenedMeanwhile_Joins).
				if before, err = o.Opened(ctx); err != nil {
					return openReply{}, err
				} else if before {
					continue
				}
			}
			until = script.NotAfter(v[1], s.c.calls.Wanted(ctx))
			continue
		}
		return s.opened(v, o)
	}
}

// opened is the answer of open.lua that there is a stock, or that its keys are wrong.
func (s *Stock) opened(v []int64, o Spec) (openReply, error) {
	if err := s.verdict(v); err != nil {
		return openReply{}, err
	}
	s.processState().cache.forget()
	if v[2] == 1 {
		s.removeAfter(o)
	}
	return openReply{epoch: v[1], opened: v[2] == 1, stands: v[3:]}, nil
}
