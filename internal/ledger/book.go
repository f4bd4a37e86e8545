package ledger

// This file is for package stock as it was before sales, and goes with it.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Book is the ledger of one object. Its entries are decoded as E.
type Book[E any] struct {
	Calls   *session.Session
	Refused error    // why nothing can be asked, or nil
	Key     string   // the stream
	Fields  []string // of an entry, in their order
	Call    func(sc *script.Script, args ...string) script.Call
	Read    *script.Script // of n and Session.Mark: {{0, 0, 0}, entries}, or {{…}, {}} with what Verdict understands
	Moved   *script.Script // {0, n, 0}: n entries were removed
	Verdict func(v []int64) error
	Entry   func(*Line) (E, error)
	// hears of every error after which Keep goes on, and of nil
	Bears func(ctx context.Context, err error, failing *bool)
	Edge  func(error) error // gives an error the name of the package
}

// Move hands the first entries, at most n, to fn, and removes them once fn has returned nil. The error is fn's,
// unchanged, or one of its own.
func (b *Book[E]) Move(ctx context.Context, n int,
	fn func(ctx context.Context, entries []E) error) (moved int, err error) {
	var theirs error
	defer func() {
		if theirs == nil {
			err = b.Edge(err)
		}
	}()
	if err := b.Calls.Usable(b.Refused); err != nil {
		return 0, err
	}
	if n < 1 || n > MaxBatch {
		return 0, errs.InvalidOption("n", n, fmt.Sprintf("between 1 and %d", MaxBatch))
	}
	if fn == nil {
		return 0, errs.InvalidOption("fn", "nil", "a function")
	}
	list, err := b.read(ctx, n)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	entries, err := b.decode(list)
	if err != nil {
		return 0, err
	}
	if theirs = fn(ctx, entries); theirs != nil {
		return 0, theirs
	}
	if err := b.remove(ctx, list[len(list)-1]); err != nil {
		return 0, err
	}
	return len(entries), nil
}

// Keep runs Move until ctx ends: at once again while there are entries, and at the interval every while there are none.
// It returns ctx's error, fn's, or an error that asking again does not cure.
func (b *Book[E]) Keep(ctx context.Context, every time.Duration, n int,
	fn func(ctx context.Context, entries []E) error) error {
	if every < time.Millisecond {
		return b.Edge(errs.InvalidOption("every", every, "at least 1ms"))
	}
	if fn == nil {
		return b.Edge(errs.InvalidOption("fn", "nil", "a function"))
	}
	var refused error
	failing := false
	for {
		moved, err := b.Move(ctx, n, func(ctx context.Context, entries []E) error {
			refused = fn(ctx, entries)
			return refused
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case refused != nil:
			return refused
		case err != nil && !script.NotAnswered(err) && !errors.Is(err, errs.ErrNotReplicated):
			return err
		}
		b.Bears(ctx, err, &failing)
		if moved > 0 {
			continue
		}
		if !script.Pause(ctx, every) {
			return context.Cause(ctx)
		}
	}
}

func (b *Book[E]) decode(list []rueidis.XRangeEntry) ([]E, error) {
	entries := make([]E, len(list))
	last := int64(0)
	for i, x := range list {
		e, serial, err := Decode(x, b.Entry)
		if err != nil {
			return nil, fmt.Errorf("%w: %q has entry %s: %w", errs.ErrCorrupt, b.Key, x.ID, err)
		}
		if i > 0 && serial != last+1 {
			return nil, fmt.Errorf("%w: %q has entry %s after %s", errs.ErrCorrupt, b.Key, x.ID, list[i-1].ID)
		}
		entries[i], last = e, serial
	}
	return entries, nil
}

// malformed is the error of a reply that no script of ours gives.
func (b *Book[E]) malformed() error { return fmt.Errorf("unexpected reply to ledger on %q", b.Key) }

// read reads the first entries. If replicas are to confirm what happens, they have these entries: a failover would
// forget the others, and give their numbers to other entries, when a database has them already.
func (b *Book[E]) read(ctx context.Context, n int) ([]rueidis.XRangeEntry, error) {
	m, unconfirmed := b.Calls.Do(ctx, b.Calls.Confirmed(b.Call(b.Read, strconv.Itoa(n), b.Calls.Mark())))
	if unconfirmed != nil && !script.IsUnreplicated(unconfirmed) {
		return nil, unconfirmed
	}
	parts, err := m.ToArray()
	if err != nil || len(parts) != 2 {
		return nil, b.malformed()
	}
	v, err := parts[0].AsIntSlice()
	if err != nil || len(v) != 3 {
		return nil, b.malformed()
	}
	if err := b.Verdict(v); err != nil {
		return nil, err
	}
	list, err := parts[1].AsXRange()
	switch {
	case err != nil:
		return nil, b.malformed()
	case len(list) > 0 && unconfirmed != nil:
		return nil, unconfirmed
	}
	return list, nil
}

// remove removes the entries up to last, if that is still the one that was read.
func (b *Book[E]) remove(ctx context.Context, last rueidis.XRangeEntry) error {
	args := []string{last.ID}
	for _, field := range b.Fields {
		args = append(args, last.FieldValues[field])
	}
	m, err := b.Calls.Do(ctx, b.Call(b.Moved, args...))
	if err != nil {
		return err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) < 3 {
		return b.malformed()
	}
	return b.Verdict(v)
}
