// Package ledger reads the ledgers that sales and red packets keep on the server, hands the entries out, and removes
// the entries that were taken. The scripts of sales and red packets write them.
//
// A ledger is a stream. The first entry has the id 1-0, the next 2-0. The hash of the object has the fields ledger (1:
// it keeps one), serial (the number of the last entry) and moved (how many entries were removed). So the stream has
// serial - moved entries, and any other number means that entries are lost.
package ledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// MaxBatch is the largest batch that Move takes.
const MaxBatch = 10_000

// Ledger is the ledger of one object. Its entries are decoded as E.
type Ledger[E any] struct {
	Calls   *session.Session
	Refused error    // why nothing can be asked, or nil
	Keys    []string // the hash of the object, and the stream
	Fields  []string // of an entry, in their order
	Entry   func(*Line) (E, error)
	Verdict func(head [3]int64) error       // turns the front of a reply of read.lua into an error
	Before  func(ctx context.Context) error // if set, runs before each reading
	Failed  func(ctx context.Context, err error)
	Edge    func(error) error // gives an error the name of the package
}

// Line is an entry as the server has it.
type Line struct {
	Serial int64
	Text   map[string]string
	wrong  error
}

// Number is the field called name, a whole number.
func (l *Line) Number(name string) int64 { return l.number(l.Text[name]) }

func (l *Line) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	l.wrong = errors.Join(l.wrong, err)
	return n
}

// Time is the field called name, the server's us.
func (l *Line) Time(name string) time.Time {
	us := l.Number(name)
	return time.Unix(us/1e6, us%1e6*1e3).UTC()
}

// Decode is the entry x, and its serial.
func Decode[E any](x rueidis.XRangeEntry, entry func(*Line) (E, error)) (e E, serial int64, err error) {
	id, _, _ := strings.Cut(x.ID, "-")
	l := &Line{Text: x.FieldValues}
	l.Serial = l.number(id)
	e, err = entry(l)
	return e, l.Serial, errors.Join(l.wrong, err)
}

// Move hands the first entries, at most n, to fn, and removes them once fn has returned nil. The error is fn's,
// unchanged, or one of the package's own.
func (l *Ledger[E]) Move(ctx context.Context, n int,
	fn func(ctx context.Context, entries []E) error) (moved int, err error) {
	moved, theirs, err := l.move(ctx, n, fn)
	if theirs != nil {
		return 0, theirs
	}
	return moved, l.Edge(err)
}

// Keep runs Move until ctx ends: at once again while there are entries, and at the interval every while there are none.
// The result is ctx's error, fn's, or an error that asking again does not cure. Failed is called with the first of
// several other errors in a row.
func (l *Ledger[E]) Keep(ctx context.Context, every time.Duration, n int,
	fn func(ctx context.Context, entries []E) error) error {
	if every < time.Millisecond {
		return l.Edge(errs.InvalidOption("every", every, "at least 1ms"))
	}
	for failing := false; ; {
		moved, theirs, err := l.move(ctx, n, fn)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case theirs != nil:
			return theirs
		case err != nil && !errs.Retryable(err):
			return l.Edge(err)
		case err != nil && !failing:
			l.Failed(ctx, err)
		}
		failing = err != nil
		if moved == 0 && !script.Pause(ctx, every) {
			return context.Cause(ctx)
		}
	}
}

// move is Move; theirs is fn's error.
func (l *Ledger[E]) move(ctx context.Context, n int,
	fn func(ctx context.Context, entries []E) error) (moved int, theirs, err error) {
	if err := l.Calls.Usable(l.Refused); err != nil {
		return 0, nil, err
	}
	if n < 1 || n > MaxBatch {
		return 0, nil, errs.InvalidOption("n", n, fmt.Sprintf("between 1 and %d", MaxBatch))
	}
	if fn == nil {
		return 0, nil, errs.InvalidOption("fn", "nil", "a function")
	}
	if l.Before != nil {
		if err := l.Before(ctx); err != nil {
			return 0, nil, err
		}
	}
	list, err := l.read(ctx, n)
	if err != nil || len(list) == 0 {
		return 0, nil, err
	}
	entries, err := l.decode(list)
	if err != nil {
		return 0, nil, err
	}
	if theirs := fn(ctx, entries); theirs != nil {
		return 0, theirs, nil
	}
	if err := l.remove(ctx, list[len(list)-1]); err != nil {
		return 0, nil, err
	}
	return len(entries), nil, nil
}

func (l *Ledger[E]) decode(list []rueidis.XRangeEntry) ([]E, error) {
	entries := make([]E, len(list))
	last := int64(0)
	for i, x := range list {
		e, serial, err := Decode(x, l.Entry)
		if err != nil {
			return nil, fmt.Errorf("%w: %q has entry %s: %w", errs.ErrCorrupt, l.Keys[1], x.ID, err)
		}
		if i > 0 && serial != last+1 {
			return nil, fmt.Errorf("%w: %q has entry %s after %s", errs.ErrCorrupt, l.Keys[1], x.ID, list[i-1].ID)
		}
		entries[i], last = e, serial
	}
	return entries, nil
}

//go:embed lua
var files embed.FS

var (
	readScript  = script.Load("ledger", files, "read")
	movedScript = script.Load("moved", files, "moved")
)

// read reads the first entries. If replicas are to confirm what happens, they have these entries: a failover would
// forget the others, and give their numbers to other entries, when a database has them already.
func (l *Ledger[E]) read(ctx context.Context, n int) ([]rueidis.XRangeEntry, error) {
	m, unconfirmed := l.Calls.Do(ctx, l.Calls.Confirmed(script.Call{Script: readScript, Keys: l.Keys,
		Args: []string{strconv.Itoa(n), l.Calls.Mark()}}))
	if unconfirmed != nil && !script.IsUnreplicated(unconfirmed) {
		return nil, unconfirmed
	}
	malformed := fmt.Errorf("unexpected reply to ledger on %q", l.Keys[1])
	parts, err := m.ToArray()
	if err != nil || len(parts) != 2 {
		return nil, malformed
	}
	head, err := parts[0].AsIntSlice()
	if err != nil || len(head) != 3 {
		return nil, malformed
	}
	if err := l.Verdict([3]int64(head)); err != nil {
		return nil, err
	}
	list, err := parts[1].AsXRange()
	switch {
	case err != nil:
		return nil, malformed
	case len(list) > 0 && unconfirmed != nil:
		return nil, unconfirmed
	}
	return list, nil
}

// remove removes the entries up to last, if that is still the entry that was read.
func (l *Ledger[E]) remove(ctx context.Context, last rueidis.XRangeEntry) error {
	args := []string{last.ID}
	for _, field := range l.Fields {
		args = append(args, last.FieldValues[field])
	}
	_, err := l.Calls.Do(ctx, script.Call{Script: movedScript, Keys: l.Keys, Args: args})
	return err
}
