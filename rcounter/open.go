package rcounter

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	// MaxLimit is the largest limit of a stock: 2^53-1, to which the server's Lua counts exactly.
	MaxLimit = 1<<53 - 1
	// DefaultRetain is the default of OpenSpec.Retain.
	DefaultRetain = 24 * time.Hour
	// MaxLifetime is the longest time from Open to the removal of the stock.
	MaxLifetime = 100 * 365 * 24 * time.Hour
)

// OpenSpec is what a stock is opened with. Durations are counted on the server's clock from the moment it runs Open,
// so the clocks of the callers do not matter; fractions of a millisecond are rounded up.
type OpenSpec struct {
	// Limit is how many units there are, 1 to MaxLimit. Required.
	Limit int64
	// PerUser is how many units a claimant may have, 1 to MaxLimit: one by Claim, the rest by ClaimOnce and
	// reservations; units without a claimant do not count. Defaults to 1.
	PerUser int64
	// StartIn is the time until claims are granted: max(0, time.Until(t)) for an instant t. Defaults to 0: at once.
	StartIn time.Duration
	// OpenFor is the time from the start to the end, at least a millisecond. Required.
	OpenFor time.Duration
	// Retain is how long after the end the answers stay, at least a millisecond. Until then a claimant's Claim gives
	// the same answer, and the name cannot be opened again. It should be longer than anybody retries, since a request
	// so late that it meets the next opening is one of that opening. Defaults to DefaultRetain.
	Retain time.Duration
	// Ledger has every grant and every return written into a stream, in the script that makes it, from where
	// Stock.Ledger moves them into a database. Defaults to none.
	Ledger bool
	// Suspended opens a stock that grants nothing (Suspended) until Restore has been through: what to do after a stock
	// was lost. Defaults to one that grants.
	Suspended bool
}

func (o *OpenSpec) check() error {
	switch {
	case o.Limit < 1 || o.Limit > MaxLimit:
		return errs.InvalidOption("Limit", o.Limit, fmt.Sprintf("between 1 and %d", int64(MaxLimit)))
	case o.PerUser < 0 || o.PerUser > MaxLimit:
		return errs.InvalidOption("PerUser", o.PerUser, fmt.Sprintf("between 1 and %d, or 0 for the default", int64(MaxLimit)))
	case o.StartIn < 0 || o.StartIn > MaxLifetime:
		return errs.InvalidOption("StartIn", o.StartIn, fmt.Sprintf("between 0 and %v", MaxLifetime))
	case o.OpenFor < time.Millisecond || o.OpenFor > MaxLifetime:
		return errs.InvalidOption("OpenFor", o.OpenFor, fmt.Sprintf("between 1ms and %v", MaxLifetime))
	case o.Retain < 0 || o.Retain > 0 && o.Retain < time.Millisecond || o.Retain > MaxLifetime:
		return errs.InvalidOption("Retain", o.Retain, fmt.Sprintf("between 1ms and %v, or 0 for the default", MaxLifetime))
	}
	if o.PerUser == 0 {
		o.PerUser = 1
	}
	if o.Retain == 0 {
		o.Retain = DefaultRetain
	}
	// two of the three cannot overflow, and neither can that sum, found too long, be added to
	if sum := o.StartIn + o.OpenFor; sum > MaxLifetime || sum+o.Retain > MaxLifetime {
		return errs.InvalidOption("StartIn + OpenFor + Retain", fmt.Sprintf("%v + %v + %v", o.StartIn, o.OpenFor, o.Retain), fmt.Sprintf("at most %v", MaxLifetime))
	}
	return nil
}

// Open creates the stock, and returns the epoch by which its grants can be told from those of an earlier or later
// opening of the name. It never overwrites: while a stock of that name exists, sold out, ended or closed included,
// until its retention is over, another Open is ErrAlreadyOpen, an *AlreadyOpenError, and changes nothing.
//
// Two round trips, repeated until answered; a copy that the network delivers when the call has ended, by five call
// timeouts or more, opens nothing. After ErrUnknownOutcome the stock may be open, which the next Open will say. A stock
// that has lost all its keys looks like one that never was, and is opened: call Open from one place, once, and after such
// a loss with OpenSpec.Suspended. ErrCorrupt: claimants' records of a stock that is lost are there; they must be removed by hand first, since
// their claimants have units.
func (s *Stock) Open(ctx context.Context, o OpenSpec) (epoch int64, err error) {
	defer edge(&err)
	if err := s.c.usable(s.alone()); err != nil {
		return 0, err
	}
	if err := o.check(); err != nil {
		return 0, err
	}
	r, err := s.open(ctx, callID(), o)
	if err != nil {
		return 0, err
	}
	if !r.opened {
		return 0, &AlreadyOpenError{Key: s.keys[0], Epoch: r.epoch}
	}
	return r.epoch, nil
}

//go:embed open.lua
var openSource string

var openScript = stockScript("open", openSource)

type openReply struct {
	epoch  int64
	opened bool // by this call
}

// open runs open.lua.
func (s *Stock) open(ctx context.Context, id string, o OpenSpec) (openReply, error) {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	ledger, state := "0", "1"
	if o.Ledger {
		ledger = "1"
	}
	if o.Suspended {
		state = "3"
	}
	for until := ""; ; {
		v, err := s.ints(ctx, 3, openScript, id, n(o.Limit), n(o.PerUser), n(millis(o.StartIn)), n(millis(o.OpenFor)), n(millis(o.Retain)), ledger, state, until)
		if err != nil {
			return openReply{}, err
		}
		if v[0] == stockChanged {
			until = n(v[1] + millis(s.c.wait(ctx)))
			continue
		}
		if err := s.verdict(v); err != nil {
			return openReply{}, err
		}
		s.desk().memory.forget()
		if v[2] == 1 {
			s.c.removeAfter(o.StartIn+o.OpenFor+o.Retain, s.call(reapScript, strconv.Itoa(reapBatch)))
		}
		return openReply{epoch: v[1], opened: v[2] == 1}, nil
	}
}

// removeAfter has what is left of an object removed some time after its retention, which is as long as that from now, is
// over: see ends.lua. call is of a script that does so when it finds the object over, and otherwise no harm. If this process
// is gone by then, or its client, whoever else calls does it.
func (c *Client) removeAfter(d time.Duration, call script.Call) {
	client := weak.Make(c)
	time.AfterFunc(d+d/1000+time.Second, func() { // two clocks may run apart
		c := client.Value()
		if c == nil || c.closed.Load() {
			return
		}
		c.tasks.spawn(func() { c.do(context.Background(), call) }) // if that fails, they expire
	})
}
