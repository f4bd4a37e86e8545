package stock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/ledger"
	"github.com/redlatch/redlatch/internal/script"
)

// Kind says what an entry of a ledger tells of.
type Kind string

// The kinds of entries. Those of reservations that are held have no ordinals yet.
const (
	KindHeld      Kind = "held"      // N units are held by a reservation
	KindExtended  Kind = "extended"  // the time of a reservation of N units was put off
	KindExpired   Kind = "expired"   // the time of a reservation was over, and N units went back
	KindCancelled Kind = "cancelled" // a reservation was cancelled, or confirmed in part, and N units went back
	KindGrant     Kind = "grant"     // units are sold: claimed, or their reservation was confirmed
	KindLate      Kind = "late"      // units are sold, by a Confirm after the time of the reservation
	KindReturn    Kind = "return"    // sold units came back: all of a grant, or a part of it
	// KindNothing: it is decided that the id gets no units. Its reservation of N units was over, and confirmed in vain or
	// cancelled; or nothing was known of it (N is 0) when it was confirmed or cancelled. No units move by it.
	KindNothing Kind = "nothing"
)

func (k Kind) known() bool {
	switch k {
	case KindHeld, KindExtended, KindExpired, KindCancelled, KindGrant, KindLate, KindReturn, KindNothing:
		return true
	}
	return false
}

// Entry is a line of a stock's ledger: something that happened to units. It is also what Restore takes.
type Entry struct {
	// Serial numbers the entries of an opening: 1, 2, 3 and so on, in the order in which the server wrote them, without a
	// hole. (Epoch, Serial) is the key of an entry: one that comes again has the same. Two different entries with one key
	// come from a failover to a replica that had not heard of the first.
	Serial int64
	// Kind is what happened. Where Restore takes an Entry, "" means KindGrant.
	Kind Kind
	// Epoch is the opening.
	Epoch int64
	// Ordinal to Ordinal + N - 1 are the units. Ordinal is 0 where units have none: they are held, or were only held. A
	// unit is sold once and returned at most once under one ordinal: when it is sold again, it has another.
	Ordinal, N int64
	// Claimant is the claimant that has, or had, the units; empty for ClaimAny.
	Claimant string
	// Request is the id of the request or reservation. For ClaimAny it is one that the library made; for Claim it
	// is empty.
	Request string
	// At is when it happened, by the server's clock.
	At time.Time
}

// Ledger hands the first entries of the ledger, at most n (1 to 10,000), to fn, and removes them once fn has returned
// nil. It returns how many entries fn took: 0 if the ledger is empty or the stock keeps none (Spec.Ledger). fn gets the
// entries in the order of their serials, without a hole. Two round trips.
//
// The error is fn's, unchanged; ErrCorrupt if entries were lost, or removed by hand, which names the ledger's
// key, how many should be there and how many are (every verb of the stock says so, and nothing is sold until Restore
// has run); or the server's.
//
// Several callers may move a ledger at the same time. fn may get an entry more than once: after an error, a crash, or a
// removal that failed, and by another caller. So a caller that was slow may bring entries after those that followed
// them, and neither the number of times nor the order may matter to fn. Package
// github.com/redlatch/redlatch/contrib/ledger is such a fn for SQL databases:
//
//   - In one transaction, committed before fn returns nil, insert every entry under the primary key (stock, Epoch,
//     Serial), and refuse what does not follow the entries that are there: the database then has a history without a
//     hole.
//   - Delete no row. The units that are held are a view: the grants without what was returned.
//   - If a row is there already and is of another entry, return an error: a failover has forgotten an entry, and its
//     number was given a second time. Then nothing of the batch is removed. Restore, from all rows, sets the stock
//     right.
//
// An entry is removed only if it is still the one that fn got, whatever a failover did meanwhile. With
// Options.MinReplicas fn gets only what so many replicas have, and ErrNotReplicated says that they did not confirm it
// in time: try again. Without it, a failover may forget what a database has.
//
// A stock that was lost and opened again has another Epoch, and earlier units are returned under the new one. So before
// Restore copy their rows from the old Epoch to the new one.
//
// Nothing bounds a ledger without a mover: it grows by about 55 bytes and the names of each entry until the stock's
// retention is over, and what is not moved then is gone.
func (s *Stock) Ledger(ctx context.Context, n int,
	fn func(ctx context.Context, entries []Entry) error) (moved int, err error) {
	return s.ledger().Move(ctx, n, fn)
}

// KeepLedger runs Ledger until ctx ends: at once again while there are entries, and at the interval every while there
// are none. It returns ctx's error, fn's, or an error that asking again does not cure, such as ErrClosed and
// ErrWrongType. After other errors of the server, and after ErrNotReplicated, it goes on.
func (s *Stock) KeepLedger(ctx context.Context, every time.Duration, n int,
	fn func(ctx context.Context, entries []Entry) error) error {
	return s.ledger().Keep(ctx, every, n, fn)
}

// lasting reports whether err is one that asking again does not cure.
func lasting(err error) bool {
	return err != nil && !script.NotAnswered(err) && !errors.Is(err, ErrRestoring)
}

var (
	ledgerScript = script.Load("ledger", files, "ledger")
	movedScript  = script.Load("moved", files, "moved")
)

func (s *Stock) ledger() *ledger.Book[Entry] {
	b := &ledger.Book[Entry]{Calls: s.c.calls, Refused: s.refused, Fields: entryFields, Call: s.call, Read: ledgerScript,
		Moved:   movedScript,
		Verdict: s.verdict, Entry: entry, Edge: edged,
		Bears: func(ctx context.Context, err error, failing *bool) { s.c.bears(ctx, notMoved, s.name, err, failing) }}
	if s.refused == nil { // otherwise there are no keys
		b.Key = s.keys[5]
	}
	return b
}

// entryFields are the fields of an entry on the server, in their order: see stock.lua.
var entryFields = []string{"k", "e", "o", "n", "c", "r", "at"}

func entry(l *ledger.Line) (Entry, error) {
	e := Entry{Serial: l.Serial, Kind: Kind(l.Text["k"]), Epoch: l.Number("e"), Ordinal: l.Number("o"), N: l.Number("n"),
		Claimant: l.Text["c"], Request: l.Text["r"], At: l.Time("at")}
	if !e.Kind.known() {
		return Entry{}, fmt.Errorf("kind %.32q", l.Text["k"])
	}
	return e, nil
}
