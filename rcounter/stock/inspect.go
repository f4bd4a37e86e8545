package stock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Phase is where a stock is in its life.
type Phase string

// The phases of a stock. Sold out is none of them: it is an open stock with nothing Remaining.
const (
	PhaseAbsent    Phase = "absent"    // it was never opened, its retention is over, or it was lost
	PhasePending   Phase = "pending"   // it was opened, and its start is ahead
	PhaseOpen      Phase = "open"      // it grants units while some remain
	PhaseEnded     Phase = "ended"     // its time is over
	PhaseClosed    Phase = "closed"    // EndSale ended it
	PhaseSuspended Phase = "suspended" // it grants nothing until Restore has run
	PhasePaused    Phase = "paused"    // it grants nothing until a Change with Resume
)

// phases are in the order of their numbers in scripts.
var phases = []Phase{PhaseAbsent, PhasePending, PhaseOpen, PhaseEnded, PhaseClosed, PhaseSuspended, PhasePaused}

// State is a stock as it was when the server answered.
type State struct {
	Phase     Phase
	Limit     int64
	Sold      int64 // how many units are sold
	Held      int64 // how many units reservations hold; one whose time is over counts until the next claim or Reap
	Remaining int64 // Limit - Sold - Held
	Seq       int64 // the last ordinal that was given out; it is above Sold by the number of units that were returned
	Epoch     int64 // the epoch that Open returned
	// Reservations is how many reservations hold the units in Held.
	Reservations int64
	// The times left until start, end and removal, on the server's clock; 0 when they are past.
	UntilStart, UntilEnd, UntilGone time.Duration
}

// Inspect reads the stock. If there is none, the State is zero, but for PhaseAbsent. If records or entries of the
// ledger are missing, the error is ErrCorrupt and the State is what the stock's own numbers say: PhaseAbsent if these
// were lost, and the records were not. One round trip, repeated until answered.
func (s *Stock) Inspect(ctx context.Context) (now State, err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return State{}, err
	}
	return s.status(ctx)
}

var statusScript = script.Load("status", files, "status").Reads()

// status runs status.lua.
func (s *Stock) status(ctx context.Context) (State, error) {
	v, err := s.ints(ctx, 13, statusScript)
	if err != nil {
		return State{}, err
	}
	if v[0] < 0 {
		return State{}, corrupt(s.keys[0], -1, 0)
	}
	st := State{Phase: session.Numbered(v[0], phases), Limit: v[1], Sold: v[2], Held: v[10],
		Remaining: v[1] - v[2] - v[10], Seq: v[3],
		Epoch: v[4], Reservations: v[11],
		UntilStart: script.Duration(max(0, v[5])), UntilEnd: script.Duration(max(0, v[6])),
		UntilGone: script.Duration(max(0, v[7]))}
	if recorded, found := v[8], v[9]; recorded != found {
		if v[12] == 1 {
			return st, ledgerMismatch(s.keys[5], recorded, found)
		}
		return st, corrupt(s.keys[0], recorded, found)
	}
	return st, nil
}
