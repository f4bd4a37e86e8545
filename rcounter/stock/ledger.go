package stock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// maxLedgerBatch is the largest batch that Ledger takes.
const maxLedgerBatch = 10_000

// Kind says what an entry of a ledger tells of.
type Kind string

// The kinds of entries. Those of reservations that are held have no ordinals yet.
const (
	KindHeld      Kind = "held"      // N units are held by a reservation
	KindExtended  Kind = "extended"  // the time of a reservation of N units was put off
	KindExpired   Kind = "expired"   // the time of a reservation was over, and N units went back
	KindCancelled Kind = "cancelled" // a reservation was cancelled, or confirmed in part, and N units went back
	KindGrant     Kind = "grant"     // units are sold: claimed, or their reservation was confirmed
	KindLate      Kind = "late"      // units are sold, by ConfirmLate after the time of the reservation
	KindReturn    Kind = "return"    // sold units came back: all of a grant, or a part of it
)

func (k Kind) known() bool {
	switch k {
	case KindHeld, KindExtended, KindExpired, KindCancelled, KindGrant, KindLate, KindReturn:
		return true
	}
	return false
}

// Entry is a line of a stock's ledger: something that happened to units. It is also what Restore takes.
type Entry struct {
	// Serial numbers the entries of an opening: 1, 2, 3 and so on, in the order in which the server wrote them, without a hole.
	// (Epoch, Serial) is the key of an entry: one that comes again has the same. Two different entries with one key come from a
	// failover to a replica that had not heard of the first.
	Serial int64
	// Kind is what happened. Where Restore takes an Entry, "" means KindGrant.
	Kind Kind
	// Epoch is the opening.
	Epoch int64
	// Ordinal to Ordinal + N - 1 are the units. Ordinal is 0 where units have none: they are held, or were only held. A unit is
	// sold once and returned at most once under one ordinal: when it is sold again, it has another.
	Ordinal, N int64
	// Claimant is the claimant that has, or had, the units; empty for ClaimAny.
	Claimant string
	// Request is the id of the ClaimOnce or of the reservation. For ClaimAny it is one that the library made; for Claim it
	// is empty.
	Request string
	// At is when it happened, by the server's clock.
	At time.Time
}

// Ledger hands the first entries of the ledger, at most max (1 to 10,000), to fn, and removes them once fn has returned nil.
// It returns how many entries fn took: 0 if the ledger is empty or the stock keeps none (Spec.Ledger). fn gets the entries in the
// order of their serials, without a hole. Two round trips.
//
// The error is fn's, unchanged; ErrCorrupt if entries were lost, or somebody removed them, which names the ledger's key, how many
// should be there and how many are (every verb of the stock says so, and nothing is sold until Restore has run); or the server's.
//
// Several callers may move a ledger at the same time. fn may get an entry more than once: after an error, a crash, or a removal that
// failed, and by another caller. So a caller that was slow may bring entries after those that followed them, and neither the number
// of times nor the order may matter to fn. Package github.com/redlatch/redlatch/contrib/ledger is such a fn for SQL databases:
//
//   - In one transaction, committed before fn returns nil, insert every entry under the primary key (stock, Epoch, Serial), and
//     refuse what does not follow the entries that are there: the database then has a history without a hole.
//   - Delete no row. The units that are held are a view: the grants without what was returned.
//   - If a row is there already and is of another entry, return an error: a failover has forgotten an entry, and its number was
//     given a second time. Then nothing of the batch is removed. Restore, from all rows, sets the stock right.
//
// An entry is removed only if it is still the one that fn got, whatever a failover did meanwhile. With Options.MinReplicas fn gets only
// what so many replicas have, and ErrNotReplicated says that they did not confirm it in time: try again. Without it, a failover may
// forget what a database has.
//
// A stock that was lost and opened again has another Epoch, and earlier units are returned under the new one. So before
// Restore copy their rows from the old Epoch to the new one.
//
// Nothing bounds a ledger that nobody moves: it grows by about 55 bytes and the names of each entry until the stock's retention is over, and
// what is not moved then is gone. A shard counts its own ordinals and serials; Sharded.Ordinal turns the ordinals into those of the
// whole stock.
func (s *Stock) Ledger(ctx context.Context, max int, fn func(ctx context.Context, entries []Entry) error) (moved int, err error) {
	var theirs error
	defer func() {
		if theirs == nil {
			edge(&err)
		}
	}()
	if err := s.c.calls.Usable(s.refused); err != nil {
		return 0, err
	}
	if max < 1 || max > maxLedgerBatch {
		return 0, errs.InvalidOption("max", max, fmt.Sprintf("between 1 and %d", maxLedgerBatch))
	}
	if fn == nil {
		return 0, errs.InvalidOption("fn", "nil", "a function")
	}
	list, err := s.ledger(ctx, max)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	entries := make([]Entry, len(list))
	for i, x := range list {
		if entries[i], err = entry(x); err != nil {
			return 0, fmt.Errorf("%w: %q has entry %s: %w", ErrCorrupt, s.keys[5], x.ID, err)
		}
		if i > 0 && entries[i].Serial != entries[i-1].Serial+1 {
			return 0, fmt.Errorf("%w: %q has entry %s after %s", ErrCorrupt, s.keys[5], x.ID, list[i-1].ID)
		}
	}
	if theirs = fn(ctx, entries); theirs != nil {
		return 0, theirs
	}
	last := list[len(list)-1]
	args := []string{last.ID}
	for _, field := range entryFields {
		args = append(args, last.FieldValues[field])
	}
	if _, err := s.run(ctx, 3, movedScript, args...); err != nil {
		return 0, err
	}
	return len(entries), nil
}

// KeepLedger runs Ledger until ctx ends: at once again while there are entries, and at the interval every while there are none.
// It returns ctx's error, fn's, or an error that asking again does not cure, such as ErrClosed and ErrWrongType. After other
// errors of the server it goes on.
func (s *Stock) KeepLedger(ctx context.Context, every time.Duration, max int, fn func(ctx context.Context, entries []Entry) error) error {
	if every < time.Millisecond {
		return edged(errs.InvalidOption("every", every, "at least 1ms"))
	}
	if fn == nil {
		return edged(errs.InvalidOption("fn", "nil", "a function"))
	}
	var refused error
	failing := false
	for {
		n, err := s.Ledger(ctx, max, func(ctx context.Context, entries []Entry) error {
			refused = fn(ctx, entries)
			return refused
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case refused != nil:
			return refused
		case lasting(err):
			return err
		}
		s.c.bears(ctx, notMoved, s.name, err, &failing)
		if n > 0 {
			continue
		}
		if !script.Pause(ctx, every) {
			return context.Cause(ctx)
		}
	}
}

// lasting reports whether err is one that asking again does not cure.
func lasting(err error) bool { return err != nil && !script.Retryable(err) }

var (
	ledgerScript = script.Load("ledger", files, "ledger")
	movedScript  = script.Load("moved", files, "moved")
)

// ledger reads the ledger's first entries. If replicas are to confirm what the stock sells, they have these entries: a failover would
// forget the others, and give their numbers to other entries, when a database has them already.
func (s *Stock) ledger(ctx context.Context, max int) ([]rueidis.XRangeEntry, error) {
	m, unconfirmed := s.c.calls.Do(ctx, s.c.calls.Confirmed(s.call(ledgerScript, decimal(int64(max)), s.c.calls.Mark())))
	if unconfirmed != nil && !errors.Is(unconfirmed, errs.ErrNotReplicated) {
		return nil, unconfirmed
	}
	bad := malformed("ledger", s.keys[5])
	parts, err := m.ToArray()
	if err != nil || len(parts) != 2 {
		return nil, bad
	}
	v, err := parts[0].AsIntSlice()
	if err != nil || len(v) != 3 {
		return nil, bad
	}
	if err := s.verdict(v); err != nil {
		return nil, err
	}
	list, err := parts[1].AsXRange()
	switch {
	case err != nil:
		return nil, bad
	case len(list) > 0 && unconfirmed != nil:
		return nil, unconfirmed
	}
	return list, nil
}

// entryFields are the fields of an entry on the server, in their order: see stock.lua.
var entryFields = []string{"k", "e", "o", "n", "c", "r", "at"}

func entry(x rueidis.XRangeEntry) (Entry, error) {
	var wrong error
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		wrong = errors.Join(wrong, err)
		return n
	}
	serial, _, _ := strings.Cut(x.ID, "-")
	f := x.FieldValues
	e := Entry{Serial: number(serial), Kind: Kind(f["k"]), Epoch: number(f["e"]), Ordinal: number(f["o"]), N: number(f["n"]), Claimant: f["c"], Request: f["r"]}
	us := number(f["at"])
	e.At = time.Unix(us/1e6, us%1e6*1e3).UTC()
	if !e.Kind.known() {
		return Entry{}, errors.Join(wrong, fmt.Errorf("kind %.32q", f["k"]))
	}
	return e, wrong
}
