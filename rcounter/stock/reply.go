package stock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// reply is what a script replies: three integers, and what follows them.
type reply struct {
	head [3]int64
	rest []rueidis.RedisMessage
}

// The first numbers of replies, and the codes of acts: see act.lua and change.lua.
const (
	codeOK        = 0
	codeSoldOut   = 3
	codeNotYet    = 5
	codeEnded     = 6
	codeUserLimit = 7
	codePaused    = 12

	codeCorrupt   = -1
	codeUsedUp    = -2
	codeMismatch  = -3
	codeTooSmall  = -5 // followed by how many units are sold and reserved
	codeNone      = -6
	codeNoItem    = -7
	codeUnknown   = -9
	codeSuspended = -10
	codeTooLate   = -11 // followed by the server's ms
	codeMore      = -12 // reservations are over, more than the script has ended: the call is made again
	codeLedger    = -13 // followed by how many entries there should be, and are
)

// run runs one of the sale's scripts, which all may run twice, and returns the reply; an error is that of a call that
// was not answered. With ErrNotReplicated the reply is there too.
func (s *Sale) run(ctx context.Context, call script.Call) (r reply, answered bool, err error) {
	for again := false; ; again = true {
		m, unconfirmed := s.c.calls.Do(ctx, call)
		if unconfirmed != nil && !script.IsUnreplicated(unconfirmed) {
			if again { // a copy of an earlier try may be under way
				unconfirmed = script.Unsure(unconfirmed)
			}
			return reply{}, false, unconfirmed
		}
		r, ok := decodeReply(m)
		if !ok {
			return reply{}, false, malformed("a sale's script", s.keys[0])
		}
		if r.head[0] != codeMore {
			return r, true, unconfirmed
		}
	}
}

func decodeReply(m rueidis.RedisMessage) (r reply, ok bool) {
	all, err := m.ToArray()
	if err != nil || len(all) < len(r.head) {
		return r, false
	}
	for i := range r.head {
		if r.head[i], err = all[i].AsInt64(); err != nil {
			return r, false
		}
	}
	r.rest = all[len(r.head):]
	return r, true
}

// ask is run for a script whose answers need no replica. The reply begins with codeOK.
func (s *Sale) ask(ctx context.Context, sc *script.Script, args ...string) (reply, error) {
	r, _, err := s.run(ctx, s.call(sc, args...))
	if err == nil {
		err = s.verdict(r.head)
	}
	return r, err
}

// verdict turns the front of a reply, or the code of an act, into an error.
func (s *Sale) verdict(head [3]int64) error {
	key := s.keys[0]
	switch head[0] {
	case codeOK:
		return nil
	case codeCorrupt:
		if head[1] < 0 || head[2] < 0 {
			return fmt.Errorf("%w: %w: %q has numbers or records that are impossible", ErrNoStock, errs.ErrCorrupt, key)
		}
		return fmt.Errorf("%w: %w: %q should have %d records, and has %d", ErrNoStock, errs.ErrCorrupt, key, head[1],
			head[2])
	case codeLedger:
		return fmt.Errorf("%w: %w: the ledger %q should have %d entries, and has %d", ErrNoStock, errs.ErrCorrupt, s.keys[4],
			head[1], head[2])
	case codeNone:
		return fmt.Errorf("%w: %q", ErrNoStock, key)
	case codeSuspended:
		return fmt.Errorf("%w: %q is suspended", ErrLater, key)
	case codePaused:
		return fmt.Errorf("%w: %q is paused", ErrLater, key)
	case codeNotYet:
		return fmt.Errorf("%w: %q has not started", ErrLater, key)
	case codeUsedUp:
		return fmt.Errorf("%w: %q has given out ordinal %d", errs.ErrOverflow, key, int64(maxUnits))
	case codeMismatch:
		return fmt.Errorf("%w: on %q", errs.ErrMismatch, key)
	case codeNoItem:
		return fmt.Errorf("%w: %q has no such item", errs.ErrInvalidName, key)
	case codeTooSmall:
		return fmt.Errorf("%w: %q has %d units sold and reserved", errs.ErrOutOfRange, key, head[1])
	case codeTooLate:
		return s.tooLate()
	}
	return malformed("a sale's script", key)
}

func (s *Sale) tooLate() error {
	return fmt.Errorf("%w: %q: the request reached the server too late, and an earlier copy may have run",
		errs.ErrUnknownOutcome, s.keys[0])
}

// timely makes a call that names the instant, in the server's time, at which its caller's patience ends: the time that
// the server said in its last reply, and what has passed since. A client that has heard nothing yet asks for the time
// first, by the same script. In a reply that begins with codeOK the third number is the server's time. With
// ErrNotReplicated the reply is there too.
func (s *Sale) timely(ctx context.Context, sc *script.Script,
	args func(notAfter string) []string) (r reply, sent time.Time, err error) {
	clock, key := s.c.calls.Runner.Clock, s.keys[0]
	until := time.Now().Add(s.c.calls.Wanted(ctx))
	for again := false; ; again = true {
		if again { // the first call needs no context of its own
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(ctx, until, session.ErrPatience)
			defer cancel()
		}
		sent = time.Now()
		r, answered, err := s.run(ctx, s.c.calls.Confirmed(s.call(sc, args(decimal(clock.At(key, until)))...)))
		received := time.Now()
		switch {
		case !answered:
			return reply{}, sent, err
		case r.head[0] == codeOK:
			clock.Learn(key, r.head[2], sent, received)
			return r, sent, err
		case r.head[0] != codeTooLate:
			return reply{}, sent, s.verdict(r.head)
		}
		clock.Relearn(key, r.head[1], sent, received) // too late, or it only asked
		if received.After(until) {
			return reply{}, sent, s.tooLate()
		}
	}
}
