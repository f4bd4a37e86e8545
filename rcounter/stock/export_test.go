package stock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Deed is an act of a call of several.
type Deed struct {
	Verb, ID, User string // Verb is a letter of act.lua
	Lines          []Line
	UpTo           bool
	TTL            time.Duration
	First, N       int64
}

// Deeds makes one call of several acts, and returns the answers and errors of each.
func (s *Sale) Deeds(ctx context.Context, deeds ...Deed) (answers []Answer, errs []error, err error) {
	acts := make([]act, len(deeds))
	for i, d := range deeds {
		o := Order{ID: d.ID, User: d.User, Lines: d.Lines, UpTo: d.UpTo}
		acts[i] = o.act(d.Verb, d.TTL)
		acts[i].first, acts[i].n, acts[i].forbids = d.First, d.N, true
	}
	all, err := s.act(ctx, acts, nil)
	if err != nil {
		return nil, nil, err
	}
	for i, d := range deeds {
		a, err := s.answered(d.ID, d.Lines, all[i], nil)
		answers, errs = append(answers, a), append(errs, err)
	}
	return answers, errs, nil
}

// Fold is what entries make of a sale: the records of its orders that are not forgotten at now, and its items.
func Fold(entries []Entry, now, remember time.Time) (orders map[string]string, items map[string]itemStand) {
	f := newFold()
	for _, e := range entries {
		f.add(e)
	}
	t := f.tables(now.UnixMilli(), now.Sub(remember).Milliseconds())
	orders, items = map[string]string{}, map[string]itemStand{}
	for i := 0; i < len(t.orders); i += 2 {
		orders[t.orders[i]] = t.orders[i+1]
	}
	for name, item := range f.items {
		items[name] = *item
	}
	return orders, items
}

// ItemStand is the type of Stand.Items.
type ItemStand = itemStand

// Keys are the keys of a sale.
func (s *Sale) Keys() []string { return s.keys }

// KnowsSoldOut reports whether this process would answer for the server that nothing of an item is left.
func (s *Sale) KnowsSoldOut(item string) bool {
	return s.processState().cache.of(item).there.Load() > s.c.calls.Now()
}

// Source is the text of a script as it is sent.
func Source(file string) string {
	text, err := script.Compose(files, file)
	if err != nil {
		panic(err)
	}
	return text
}
