package stock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Stock is a number of units of which each claimant gets at most one: first N win. Every unit has an ordinal, every
// answer is kept, and asking again gives the same one. It is an immutable description, safe for concurrent use, and
// costs nothing until used.
//
// All that decides is on the server, in one script: the claimant's record first, then the window in the server's own
// time, then what is left. A claim can therefore be repeated by anybody, at any time, until the records' retention is
// over, and the winner of the last unit who never saw the answer still wins when told "sold out" would be wrong.
//
// A stock that is not there grants nothing: only Open creates one. A stock that has lost records grants nothing and
// says ErrCorrupt. Not promised: that a grant acknowledged by a primary survives its failover to a replica that had
// not received it, and that the window keeps to the sale's time when the server's clock is stepped. A unique index
// over (sale, claimant) and (sale, ordinal) where the orders are kept is the last guard.
type Stock struct {
	c       *Client
	name    string
	keys    []string // what stock.lua names: stock, claimants, records, holds, flag, ledger
	refused error    // what is wrong with the name
	part    bool     // it is a shard

	known atomic.Pointer[shared]
}

// Stock describes the stock called name. Nothing is sent. A name that cannot be used, braces included, makes every
// verb of the result fail with ErrInvalidName.
func (c *Client) Stock(name string) *Stock {
	s := &Stock{c: c, name: name}
	key, refused := keyname.Braced(c.calls.KeyPrefix, name, "a stock")
	if s.refused = edged(refused); refused == nil {
		s.keys = []string{key, key + ":u", key + ":r", key + ":h", key + ":o", key + ":l"}
	}
	return s
}

// alone is refused, and for a shard that it is one: what gives a stock another limit, or makes it, belongs to the whole.
func (s *Stock) alone() error {
	if s.refused == nil && s.part {
		return errs.InvalidOption("stock", fmt.Sprintf("%.64q", s.name), "no shard: it is opened with the others, and neither resized nor restored")
	}
	return s.refused
}

// call is one of the stock's scripts with its arguments.
func (s *Stock) call(sc *script.Script, args ...string) script.Call {
	return script.Call{Script: sc, Keys: s.keys, Args: args}
}

// usable is the reason if no verb of s can run.
func (s *Stock) usable() error { return s.c.calls.Usable(s.refused) }

func decimal(v int64) string { return strconv.FormatInt(v, 10) }

// ints runs one of the stock's scripts, which all may run twice, and decodes its reply of at least n integers.
func (s *Stock) ints(ctx context.Context, n int, sc *script.Script, args ...string) ([]int64, error) {
	return s.reply(ctx, n, s.call(sc, args...))
}

// run is ints for a script whose reply begins with how it ended. With an error that the reply says, it is there too.
func (s *Stock) run(ctx context.Context, n int, sc *script.Script, args ...string) (v []int64, err error) {
	if v, err = s.ints(ctx, n, sc, args...); err == nil {
		err = s.verdict(v)
	}
	return v, err
}

// grant runs a script that grants units under an id, as the call named, and decodes its reply: {0, epoch, remaining,
// outcome, ordinal, n}, and for units that are only held in how many ms they go back.
func (s *Stock) grant(ctx context.Context, sc *script.Script, call, id string, args ...string) (Grant, error) {
	sent := time.Now()
	v, unconfirmed := s.sure(ctx, 6, sc, append([]string{call, s.c.calls.Mark()}, args...)...)
	if v == nil {
		return Grant{}, unconfirmed
	}
	if err := s.verdict(v); err != nil {
		return Grant{}, err
	}
	g := Grant{Outcome: Outcome(v[3]), Ordinal: v[4], N: v[5], Remaining: v[2], Epoch: v[1]}
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

// sure is ints for a script that grants: the grant is confirmed by Options.MinReplicas. With ErrNotReplicated the reply
// is there too.
func (s *Stock) sure(ctx context.Context, n int, sc *script.Script, args ...string) ([]int64, error) {
	return s.reply(ctx, n, s.c.calls.Confirmed(s.call(sc, args...)))
}

func (s *Stock) reply(ctx context.Context, n int, call script.Call) ([]int64, error) {
	for again := false; ; again = true {
		m, unconfirmed := s.c.calls.Do(ctx, call)
		if unconfirmed != nil && !errors.Is(unconfirmed, errs.ErrNotReplicated) {
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
	stockCorrupt   = -1 // followed by the records said and found, or by -1
	stockUsedUp    = -2 // the last ordinal a double can count to is out
	stockMismatch  = -3 // the id is that of something else
	stockParts     = -4 // too many parts of one grant were returned one by one
	stockTooSmall  = -5 // followed by how many are sold and held
	stockNone      = -6 // no stock, or no such reservation or block
	stockExpired   = -7
	stockCancelled = -8
	stockReturned  = -9
	stockMore      = -12 // holds are over that the call has not come to: it is made again (10 and 11 are restore.lua's)
)

// verdict turns the front of a script's reply into an error.
func (s *Stock) verdict(v []int64) error {
	switch v[0] {
	case stockOK:
		return nil
	case stockCorrupt:
		return corrupt(s.keys[0], v[1], v[2])
	case stockUsedUp:
		return fmt.Errorf("%w: %q has given out ordinal %d", ErrOverflow, s.keys[0], maxLimit)
	case stockMismatch:
		return fmt.Errorf("%w: on %q", ErrMismatch, s.keys[0])
	case stockParts:
		return fmt.Errorf("%w: %q keeps no more than 1024 returned parts of one grant", ErrOutOfRange, s.keys[0])
	case stockTooSmall:
		return fmt.Errorf("%w: %q has %d units sold and held", ErrOutOfRange, s.keys[0], v[1])
	case stockNone:
		return fmt.Errorf("%w: on %q", ErrNotFound, s.keys[0])
	case stockExpired:
		return fmt.Errorf("%w: on %q", ErrReservationExpired, s.keys[0])
	case stockCancelled:
		return fmt.Errorf("%w: on %q", ErrReservationCancelled, s.keys[0])
	case stockReturned:
		return fmt.Errorf("%w: on %q", ErrReservationReturned, s.keys[0])
	}
	return malformed("a stock's script", s.keys[0])
}
