package stock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// maxLedgerBatch is the largest batch that Ledger takes.
const maxLedgerBatch = 10_000

// Entry is a line of a stock's ledger: units that were sold or returned. It is also what Restore takes.
type Entry struct {
	// ID orders the entries of an opening as the server wrote them. An entry that comes again has the same ID; one about an
	// ordinal that was given out a second time, after a failover, has another.
	ID string
	// Back says that the units were returned.
	Back bool
	// Epoch is the opening. A database should keep what happened to a unit under the key (stock, Epoch, ordinal, Back). A
	// unit is sold once and returned at most once under one ordinal: when it is sold again, it has another.
	Epoch int64
	// Ordinal to Ordinal + N - 1 are the units.
	Ordinal, N int64
	// Claimant is the claimant that has, or had, the units; empty for ClaimAny.
	Claimant string
	// Request is the id of the ClaimOnce or of the reservation. For ClaimAny it is one that the library made; for Claim it
	// is empty.
	Request string
}

// Ledger hands the first entries of the ledger, at most max (1 to 10,000), to fn, and removes them once fn has returned nil.
// It returns how many entries it moved: 0 if the ledger is empty or the stock keeps none (Spec.Ledger). The error is fn's,
// unchanged, or the server's. Two round trips.
//
// fn may get an entry more than once: after an error, a crash, or a removal that failed, and from two callers that move at the
// same time. So a grant may come again after another caller has moved the return of its unit, and neither the number of times
// nor the order may matter to fn:
//
//   - In one transaction, committed before fn returns nil, insert a row for every unit under the primary key (stock, Epoch,
//     ordinal, Back), "on conflict do nothing".
//   - Delete no row. The units that are held are a view: the grants without a return.
//   - If a row is there already and is of another entry (ID, Claimant or Request), return an error: a failover has forgotten a
//     grant, and the ordinal was given out a second time. Then no entry of the batch is removed. Restore, from all rows, sets
//     the stock right; remove the wrong entry by hand (XDEL).
//
// docs/examples/ledger does all of this in SQL.
//
// A stock that was lost and opened again has another Epoch, and earlier units are returned under the new one. So before
// Restore copy their rows, and those of returns, from the old Epoch to the new one.
//
// If only one caller moves at a time, fn gets the entries in the order of the sales, and a return after its sale. An entry that
// is not moved before the stock's retention is over is gone. A shard counts its own ordinals; Sharded.Ordinal turns them into
// those of the whole stock.
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
	entries, err := s.entries(ctx, max)
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	if theirs = fn(ctx, entries); theirs != nil {
		return 0, theirs
	}
	ids := make([]string, len(entries))
	for i := range entries {
		ids[i] = entries[i].ID
	}
	_, err = s.c.calls.Do(ctx, script.Call{Script: xdelScript, Keys: s.keys[5:6], Command: func(b rueidis.Builder) rueidis.Completed {
		return b.Xdel().Key(s.keys[5]).Id(ids...).Build()
	}})
	if err != nil {
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
	xrangeScript = script.Plain("xrange")
	xdelScript   = script.Plain("xdel")
)

// entries reads the ledger's first entries.
func (s *Stock) entries(ctx context.Context, max int) ([]Entry, error) {
	m, err := s.c.calls.Do(ctx, script.Call{Script: xrangeScript, Keys: s.keys[5:6], Command: func(b rueidis.Builder) rueidis.Completed {
		return b.Xrange().Key(s.keys[5]).Start("-").End("+").Count(int64(max)).Build()
	}})
	if err != nil {
		return nil, err
	}
	list, err := m.AsXRange()
	if err != nil {
		return nil, malformed("xrange", s.keys[5])
	}
	entries := make([]Entry, len(list))
	for i, x := range list {
		e, err := entry(x)
		if err != nil {
			return nil, fmt.Errorf("%w: %q has entry %s: %w", ErrCorrupt, s.keys[5], x.ID, err)
		}
		entries[i] = e
	}
	return entries, nil
}

func entry(x rueidis.XRangeEntry) (Entry, error) {
	number := func(field string) (int64, error) { return strconv.ParseInt(x.FieldValues[field], 10, 64) }
	epoch, e1 := number("epoch")
	ordinal, e2 := number("ordinal")
	n, e3 := number("n")
	op := x.FieldValues["op"]
	if err := errors.Join(e1, e2, e3); err != nil {
		return Entry{}, err
	}
	if op != "grant" && op != "return" {
		return Entry{}, fmt.Errorf("op %.32q", op)
	}
	return Entry{ID: x.ID, Back: op == "return", Epoch: epoch, Ordinal: ordinal, N: n, Claimant: x.FieldValues["claimant"], Request: x.FieldValues["request"]}, nil
}
