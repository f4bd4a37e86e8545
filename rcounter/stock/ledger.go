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

// Entry is a line of a stock's ledger: units sold, or given back; and what Restore takes back in.
type Entry struct {
	// ID orders the entries of an opening, as the server wrote them, and tells an entry that comes again (the same) from
	// one about an ordinal that a failover gave out a second time (another).
	ID string
	// Back says that the units were returned.
	Back bool
	// Epoch is the opening. (stock, Epoch, ordinal, Back) is the key under which a database should keep what happened to a
	// unit: it was sold once, and returned at most once, since a unit that was returned and sold again has another ordinal.
	Epoch int64
	// Ordinal to Ordinal + N - 1 are the units.
	Ordinal, N int64
	// Claimant is who has them; empty for ClaimAny.
	Claimant string
	// Request is the id of ClaimOnce or of the reservation, for ClaimAny one that the library made; empty for Claim.
	Request string
}

// Ledger hands the ledger's first entries, at most max, to fn, and removes them once fn has returned nil. It returns
// how many that were: 0 when the ledger is empty, or there is none (Spec.Ledger). Two round trips.
//
// Every entry is handed over until an fn with it has returned nil and its removal was confirmed: again after an error,
// a crash, or a removal that failed, and by two callers at once if two call. So a grant may come again after the return of its
// unit was moved by another, and fn must be such that neither the number of times nor the order matters: in one transaction,
// which is committed before fn returns nil, insert a row for every unit under the primary key (stock, Epoch, ordinal, Back),
// "on conflict do nothing". Delete none: who has a unit is a view, the rows of grants without one of a return. Where a row
// is there already and is of another entry (ID, Claimant or Request), return an error: a failover has forgotten it
// and the ordinal was given out a second time. Then nothing of the batch is removed; Restore, from all rows, sets the stock
// right, and the entry that was wrong is removed by hand (XDEL). docs/examples/ledger does all that, in SQL.
//
// A stock that was lost and opened again, to be restored, has another Epoch. Units of before are returned under the new one: before
// Restore, copy their rows, those of returns too, from the old Epoch to the new one.
//
// One who moves alone gets the entries in the order of the sales, a return after its sale. What is not moved when the
// stock's retention is over is gone. A shard's ordinals are its own: Sharded.Ordinal makes the key one of the whole.
//
// The error is fn's, as it is, or the server's.
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

// KeepLedger runs Ledger until ctx ends, one batch after the other while there are entries and every so often when
// there are none, and returns ctx's error, fn's, or ErrClosed or ErrWrongType; other errors of the server's it bears.
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

// lasting reports whether err is one that asking again does not mend.
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
