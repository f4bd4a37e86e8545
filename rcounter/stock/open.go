package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

const (
	defaultRetain   = 24 * time.Hour
	defaultRemember = 3 * 24 * time.Hour
)

// Spec says what Open opens. The server counts durations on its own clock. Fractions of a millisecond are rounded up.
type Spec struct {
	// Limit is how many units there are of the item "", 1 to 2^53-1, and PerUser how many of them a user may have, by
	// default 1. For a sale of several items leave both 0 and set Items.
	Limit, PerUser int64
	Items          map[string]Item // up to 1024
	// StartIn is the time until the start: max(0, time.Until(t)) for an instant t. Defaults to 0: at once.
	StartIn time.Duration
	// OpenFor is the time from the start to the end, at least a millisecond. Required.
	OpenFor time.Duration
	// Retain is how long after the end the sale is there: until then what is sold is known, and the name cannot be opened
	// again. Defaults to 24 hours.
	Retain time.Duration
	// Remember is how long an order is known after it was lapsed or closed. Then the id is a new one. Banks repeat their
	// calls for days, and Remember should be longer; at least a minute, and at least two RetryTimeouts. Defaults to three
	// days, or to two RetryTimeouts if those are longer.
	Remember time.Duration
	// Ledger has everything that happens to units written into a stream: see Entry. Restore and KeepLedger need it.
	// Entries take memory until KeepLedger moves them into a database.
	Ledger bool
}

// Item is how many units there are of one item, and how many of them a user may have, by default 1.
type Item struct{ Limit, PerUser int64 }

// items are the items of a Spec, checked, with their defaults.
func (o *Spec) items() (map[string]Item, error) {
	items := maps.Clone(o.Items)
	if o.Limit != 0 || o.PerUser != 0 || len(items) == 0 {
		if len(items) > 0 {
			return nil, errs.InvalidOption("Limit", o.Limit, "0, as PerUser, with Items")
		}
		items = map[string]Item{"": {o.Limit, o.PerUser}}
	}
	if len(items) > maxItems {
		return nil, errs.InvalidOption("Items", len(items), fmt.Sprintf("at most %d", maxItems))
	}
	for name, item := range items {
		item.PerUser = cmp.Or(item.PerUser, 1)
		if item.Limit < 1 || item.Limit > maxUnits || item.PerUser < 1 || item.PerUser > maxUnits {
			return nil, errs.InvalidOption(fmt.Sprintf("Item %.64q", name), item,
				fmt.Sprintf("of a Limit between 1 and %d, and a PerUser between 1 and that, or 0 for 1", int64(maxUnits)))
		}
		if err := checkItem(name); err != nil {
			return nil, err
		}
		items[name] = item
	}
	return items, nil
}

// check checks the times of a Spec, and fills in their defaults.
func (o *Spec) check(bound time.Duration) error {
	least := max(time.Minute, 2*bound)
	err := session.Check(
		session.Duration{Name: "Retain", Value: &o.Retain, Least: time.Millisecond, Most: maxLifetime,
			Default: defaultRetain},
		session.Duration{Name: "Remember", Value: &o.Remember, Least: least, Most: maxLifetime,
			Default: max(defaultRemember, least)},
	)
	switch {
	case err != nil:
		return err
	case o.StartIn < 0 || o.StartIn > maxLifetime:
		return errs.InvalidOption("StartIn", o.StartIn, fmt.Sprintf("between 0 and %v", maxLifetime))
	case o.OpenFor < time.Millisecond || o.OpenFor > maxLifetime:
		return errs.InvalidOption("OpenFor", o.OpenFor, fmt.Sprintf("between 1ms and %v", maxLifetime))
	}
	// two of the three cannot overflow, and neither can that sum, found too long, be added to
	if sum := o.StartIn + o.OpenFor; sum > maxLifetime || sum+o.Retain > maxLifetime {
		return errs.InvalidOption("StartIn + OpenFor + Retain", fmt.Sprintf("%v + %v + %v", o.StartIn, o.OpenFor, o.Retain),
			fmt.Sprintf("at most %v", maxLifetime))
	}
	return nil
}

// flag is how scripts write a bool.
func flag(is bool) string {
	if is {
		return "1"
	}
	return "0"
}

// text is all that a sale was opened with but the start: two calls of Open contradict each other if it differs.
func (o *Spec) text(items map[string]Item) string {
	whole := func(d time.Duration) time.Duration { return script.Duration(millis(d)) }
	text := []string{fmt.Sprint("OpenFor ", whole(o.OpenFor)), fmt.Sprint("Retain ", whole(o.Retain)),
		fmt.Sprint("Remember ", whole(o.Remember)), fmt.Sprint("Ledger ", o.Ledger)}
	for _, name := range slices.Sorted(maps.Keys(items)) {
		text = append(text, fmt.Sprintf("item %q %d, %d a user", name, items[name].Limit, items[name].PerUser))
	}
	return strings.Join(text, "; ")
}

var openScript = script.Load("open", files, "open")

// Open opens the sale, or joins the one that stands. So every process of a program can call it when it starts.
//
// A sale that stands must have been opened with the same Spec, or the error is ErrMismatch, which names the first
// difference. StartIn is not compared, because it counts from another moment for every caller, and neither is what
// Change and EndSale have changed since.
//
// A sale that the server has lost looks like one that never was, and the first process that starts after such a loss
// would sell every unit a second time. So set Options.Books: Open tells the book of the opening before it returns, if
// Spec.Ledger is set. If the server has no sale of which the book knows, the error is ErrNoStock, and Restore mends it.
// If the server has another opening than the book, the error is ErrMismatch: pause the sale, and run Restore. So a name
// with a book has one sale, and the next sale has another name.
//
// ErrNoStock is also the error if a part of a sale is there. Two round trips, repeated until answered. A copy that the
// network delivers late opens nothing.
func (s *Sale) Open(ctx context.Context, spec Spec) (err error) {
	defer edge(&err)
	items, refused := spec.items()
	if err := s.c.calls.Usable(s.refused, refused, spec.check(s.c.calls.Bound())); err != nil {
		return err
	}
	wants := spec.text(items)
	args := []string{"0", script.Millis(spec.StartIn), script.Millis(spec.OpenFor), script.Millis(spec.Retain),
		script.Millis(spec.Remember), flag(spec.Ledger), wants}
	for _, name := range slices.Sorted(maps.Keys(items)) {
		args = append(args, name, decimal(items[name].Limit), decimal(items[name].PerUser))
	}
	wasOpened, book, other := false, s.c.book(s.name), int64(0)
	for {
		r, answered, err := s.run(ctx, s.call(openScript, slices.Clone(args)...))
		switch {
		case !answered:
			return err
		case r.head[0] != codeTooLate:
			if err := s.joined(r, wants, spec); err != nil || book == nil || !spec.Ledger {
				return err
			}
			known, err := tellBook(ctx, book, r.head[1])
			switch {
			case err != nil || known == r.head[1]:
				return err
			case known == other:
				return fmt.Errorf("%w: %q is the opening %d, and its book has the opening %d", errs.ErrMismatch, s.name,
					r.head[1], known)
			}
			other = known // a Restore may have come after the server's answer: ask the server once more
		case wasOpened:
			return fmt.Errorf("%w: %w: %q was open before, and the server has lost it", ErrNoStock, errs.ErrCorrupt, s.name)
		case args[0] == "0" && book != nil:
			// A has asked the server and finds no sale. B opens it and tells the database. Now A asks the database, and the
			// sale is not lost: so the server is asked once more.
			epoch, err := book.Opened(ctx)
			if err != nil {
				return err
			}
			wasOpened = epoch > 0
		}
		if !wasOpened {
			args[0] = script.NotAfter(r.head[1], s.c.calls.Wanted(ctx))
		}
	}
}

// tellBook tells a book that knows no opening of this one. known is the opening that the book has then.
//
//	A                                the server          B
//	opens it, epoch 1
//	                                 loses everything
//	                                                     the book knows none: opens it, epoch 2; the book has 2
//	the book has 2: ErrMismatch
//
// A has sold nothing, because its Open has not returned.
func tellBook(ctx context.Context, book Book, epoch int64) (known int64, err error) {
	if known, err = book.Opened(ctx); err != nil || known != 0 {
		return known, err
	}
	if _, err = book.Continue(ctx, 0, epoch); !errors.Is(err, errs.ErrMismatch) {
		return epoch, err
	}
	return book.Opened(ctx) // another process was quicker
}

// joined is the answer of open.lua about a sale that stands.
func (s *Sale) joined(r reply, wants string, spec Spec) error {
	if err := s.verdict(r.head); err != nil {
		return err
	}
	if len(r.rest) != 1 {
		return malformed("open", s.keys[0])
	}
	stands, err := r.rest[0].ToString()
	if err != nil {
		return malformed("open", s.keys[0])
	}
	s.processState().cache.forget()
	if stands != wants {
		has, want := strings.Split(stands, "; "), strings.Split(wants, "; ")
		i := 0
		for i < len(has)-1 && i < len(want)-1 && has[i] == want[i] {
			i++
		}
		return fmt.Errorf("%w: %q was opened with %s, not %s", errs.ErrMismatch, s.name, has[i], want[i])
	}
	s.removeAfter(spec.StartIn + spec.OpenFor + spec.Retain)
	return nil
}

// removeAfter has the remaining keys of the sale removed when its retention is over. Before that, keys that have lost
// their end get it back, or they would stay: see mend_ends in sale.lua.
func (s *Sale) removeAfter(retention time.Duration) {
	for _, after := range []time.Duration{retention - retention/10, retention} {
		s.c.calls.RemoveAfter(after, s.call(inspectScript))
	}
}
