package rcounter

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// MaxClaimantLen is the longest claimant accepted, in bytes, which must be UTF-8 without a NUL byte; and so for ids and keys of limits.
const MaxClaimantLen = 1024

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

	known atomic.Pointer[desk]
}

// Stock describes the stock called name. Nothing is sent. A name that cannot be used, braces included, makes every
// verb of the result fail with ErrInvalidName.
func (c *Client) Stock(name string) *Stock {
	s := &Stock{c: c, name: name}
	var key string
	if key, s.refused = c.tagged(name, "a stock"); s.refused == nil {
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

//go:embed ends.lua
var endsSource string

//go:embed stock.lua
var preludeSource string

// stockScript is a script that begins with ends.lua and stock.lua.
func stockScript(name, source string) *script.Script {
	return script.New(name, endsSource+preludeSource+source)
}

// call is one of the stock's scripts with its arguments.
func (s *Stock) call(sc *script.Script, args ...string) script.Call {
	return script.Call{Script: sc, Keys: s.keys, Args: args}
}

// ints runs one of the stock's scripts, which all may run twice, and decodes its reply of at least n integers.
func (s *Stock) ints(ctx context.Context, n int, sc *script.Script, args ...string) ([]int64, error) {
	return s.reply(ctx, n, s.call(sc, args...))
}

// sure is ints for a script that grants: the grant is confirmed by Options.MinReplicas. With ErrUnconfirmed the reply
// is there too.
func (s *Stock) sure(ctx context.Context, n int, sc *script.Script, args ...string) ([]int64, error) {
	call := s.call(sc, args...)
	call.Replicas, call.ReplicasWait = s.c.replicas, s.c.replicasWait
	return s.reply(ctx, n, call)
}

func (s *Stock) reply(ctx context.Context, n int, call script.Call) ([]int64, error) {
	for again := false; ; again = true {
		m, unconfirmed := s.c.do(ctx, call)
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
			return v, fmt.Errorf("%w: %w", ErrUnconfirmed, unconfirmed)
		}
		return v, nil
	}
}

// mark is the argument of a script that says whether its grants are to be confirmed.
func (c *Client) mark() string {
	if c.replicas > 0 {
		return "1"
	}
	return "0"
}

// checkClaimant is the check of a claimant before anything is sent.
func checkClaimant(claimant string) error {
	if claimant == "" {
		return fmt.Errorf("%w: the claimant is empty", ErrInvalidName)
	}
	return checkText("claimant", claimant)
}

// checkText is the check of any text that becomes part of a key or a record: what no database and no JSON could hold
// as it is does not go into Redis either. PostgreSQL refuses a NUL byte, so one such entry would block a ledger for good.
func checkText(what, text string) error {
	switch {
	case len(text) > MaxClaimantLen:
		return fmt.Errorf("%w: %s %.32q… has %d bytes, more than %d", ErrInvalidName, what, text, len(text), MaxClaimantLen)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: %s %.64q is not valid UTF-8", ErrInvalidName, what, text)
	case strings.IndexByte(text, 0) >= 0:
		return fmt.Errorf("%w: %s %.64q has a NUL byte", ErrInvalidName, what, text)
	}
	return nil
}

// callID names one call, so that a script which meets it a second time knows its own work. 48 random bits: it is
// only ever compared with the few that the same claimant, or the same name, has used.
func callID() string {
	var b [6]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// recordID names a record that nobody asks for by another name: 96 random bits, since all those of an opening must
// differ.
func recordID() string {
	var b [12]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// What the stock's scripts answer in front.
const (
	stockOK        = 0
	stockCorrupt   = -1 // followed by the records said and found, or by -1
	stockUsedUp    = -2 // the last ordinal a double can count to is out
	stockMismatch  = -3 // the id is that of something else
	stockParts     = -4 // too many parts of one grant were returned one by one
	stockTooSmall  = -5 // followed by how many are sold and held
	stockNone      = -6 // no stock, or no such reservation
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
		return fmt.Errorf("%w: %q has given out ordinal %d", ErrOverflow, s.keys[0], MaxLimit)
	case stockMismatch:
		return fmt.Errorf("%w: on %q", ErrMismatch, s.keys[0])
	case stockParts:
		return fmt.Errorf("%w: %q keeps no more than 1024 returned parts of one grant", ErrOutOfRange, s.keys[0])
	case stockTooSmall:
		return fmt.Errorf("%w: %q has %d units sold and held", ErrOutOfRange, s.keys[0], v[1])
	case stockExpired:
		return fmt.Errorf("%w: on %q", ErrReservationExpired, s.keys[0])
	case stockCancelled:
		return fmt.Errorf("%w: on %q", ErrReservationCancelled, s.keys[0])
	case stockReturned:
		return fmt.Errorf("%w: on %q", ErrReservationReturned, s.keys[0])
	}
	return malformed("a stock's script", s.keys[0])
}
