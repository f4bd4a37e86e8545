package stock

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// ints runs one of the stock's scripts, which all may run twice, and decodes its reply of at least n integers.
func (s *Stock) ints(ctx context.Context, n int, sc *script.Script, args ...string) ([]int64, error) {
	return s.reply(ctx, n, s.call(sc, args...))
}

// run is ints for a script whose reply begins with how it ended. If that is an error, run returns the reply too.
func (s *Stock) run(ctx context.Context, n int, sc *script.Script, args ...string) (v []int64, err error) {
	if v, err = s.ints(ctx, n, sc, args...); err == nil {
		err = s.verdict(v)
	}
	return v, err
}

// grant runs a script that grants units under id, as the call with the id in call, and decodes its reply: {0, epoch,
// remaining, outcome, ordinal, n}, and for units that are only held, in how many ms they go back.
func (s *Stock) grant(ctx context.Context, sc *script.Script, call, id string, args ...string) (Grant, error) {
	sent := time.Now()
	v, unconfirmed := s.sure(ctx, 6, sc, append([]string{call, s.c.calls.Mark()}, args...)...)
	if v == nil {
		return Grant{}, unconfirmed
	}
	g := Grant{Outcome: outcome(v[3]), Ordinal: v[4], N: v[5], Remaining: v[2], Epoch: v[1]}
	switch {
	case !g.Won():
		return g, nil // nothing was granted that a replica could forget
	case unconfirmed != nil:
		return Grant{}, unconfirmed
	case len(v) > 6:
		g.Until = sent.Add(script.Duration(v[6]))
	}
	g.Request = id
	return g, nil
}

// sure is run for a script that grants: what it writes is confirmed by Options.MinReplicas. With ErrNotReplicated the
// reply is there too.
func (s *Stock) sure(ctx context.Context, n int, sc *script.Script, args ...string) ([]int64, error) {
	v, unconfirmed := s.confirmed(ctx, n, sc, args...)
	if v == nil {
		return nil, unconfirmed
	}
	if err := s.verdict(v); err != nil {
		return nil, err
	}
	return v, unconfirmed
}

// confirmed is ints for a script that writes what replicas are to confirm.
func (s *Stock) confirmed(ctx context.Context, n int, sc *script.Script, args ...string) ([]int64, error) {
	return s.reply(ctx, n, s.c.calls.Confirmed(s.call(sc, args...)))
}

func (s *Stock) reply(ctx context.Context, n int, call script.Call) ([]int64, error) {
	for again := false; ; again = true {
		m, unconfirmed := s.c.calls.Do(ctx, call)
		if unconfirmed != nil && !script.IsUnreplicated(unconfirmed) {
			if again { // a copy of an earlier try may be under way
				unconfirmed = script.Unsure(unconfirmed)
			}
			return nil, unconfirmed
		}
		v, err := m.AsIntSlice()
		if err != nil || len(v) < 3 || len(v) < n && v[0] >= 0 { // what is wrong is said in three
			return nil, malformed("a stock's script", s.keys[0])
		}
		switch {
		case v[0] == stockMore:
			continue
		case unconfirmed != nil:
			return v, unconfirmed
		}
		return v, nil
	}
}

// What the stock's scripts answer in front.
const (
	stockOK        = 0
	stockCorrupt   = -1  // followed by the records said and found, or by -1
	stockUsedUp    = -2  // the last ordinal a double can count to is out
	stockMismatch  = -3  // the id is that of something else
	stockParts     = -4  // too many parts of one grant were returned one by one
	stockTooSmall  = -5  // followed by how many are sold and held
	stockNone      = -6  // no stock
	stockUnknown   = -7  // no such reservation
	stockLedger    = -13 // followed by how many entries the ledger should have, and has
	stockMore      = -12 // more holds are over than the script has ended: the call is made again (11 is in restore.go)
	stockForbids   = -9  // more unknown ids are forbidden than may be
	stockRestoring = -10 // Restore goes on, or another round of it; or the record may be lost, and Restore has not begun
)

// verdict turns the front of a script's reply into an error.
func (s *Stock) verdict(v []int64) error {
	switch v[0] {
	case stockOK:
		return nil
	case stockCorrupt:
		return corrupt(s.keys[0], v[1], v[2])
	case stockRestoring:
		return fmt.Errorf("%w: %q", ErrRestoring, s.keys[0])
	case stockLedger:
		return ledgerMismatch(s.keys[5], v[1], v[2])
	case stockUsedUp:
		return fmt.Errorf("%w: %q has given out ordinal %d", errs.ErrOverflow, s.keys[0], int64(maxLimit))
	case stockMismatch:
		return fmt.Errorf("%w: on %q", errs.ErrMismatch, s.keys[0])
	case stockParts:
		return fmt.Errorf("%w: %q keeps no more than 1024 returned parts of one grant", errs.ErrOutOfRange, s.keys[0])
	case stockForbids:
		return fmt.Errorf("%w: %q remembers a million ids that it does not know", errs.ErrOutOfRange, s.keys[0])
	case stockTooSmall:
		return fmt.Errorf("%w: %q has %d units sold and held", errs.ErrOutOfRange, s.keys[0], v[1])
	case stockNone:
		return fmt.Errorf("%w %q", ErrNotOpen, s.keys[0])
	case stockUnknown:
		return fmt.Errorf("%w: on %q", ErrNotFound, s.keys[0])
	}
	return malformed("a stock's script", s.keys[0])
}
