package stock

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

// Stand is what Inspect reads.
type Stand struct {
	// Phase is "pending", "open", "paused", "ended" or "suspended".
	Phase string
	// Items have what Open and Change have set, the units that are sold and reserved, and the last ordinal that was given.
	Items map[string]struct{ Limit, PerUser, Sold, Reserved, Seq int64 }
	// Reservations are orders that are reserved, Unmoved entries that no database has.
	Reservations, Unmoved           int64
	Epoch                           int64
	UntilStart, UntilEnd, UntilGone time.Duration
}

// itemStand is what there is of one item, as Stand.Items have it.
type itemStand = struct{ Limit, PerUser, Sold, Reserved, Seq int64 }

var inspectScript = script.Load("inspect", files, "inspect").Reads() // for its caller

// Inspect reads the sale. Reservations whose time is over are ended first. Errors: ErrNoStock, and those of the server.
func (s *Sale) Inspect(ctx context.Context) (stand Stand, err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return Stand{}, err
	}
	fields, now, err := s.inspect(ctx)
	if err != nil {
		return Stand{}, err
	}
	return fields.stand(now), nil
}

// saleFields are the fields of the hash of a sale.
type saleFields map[string]string

func (f saleFields) number(name string) int64 {
	n, _ := strconv.ParseInt(f[name], 10, 64) // the script has seen that it is one
	return n
}

// inspect runs inspect.lua. now is the server's ms.
func (s *Sale) inspect(ctx context.Context) (f saleFields, now int64, err error) {
	r, err := s.ask(ctx, inspectScript)
	if err != nil {
		return nil, 0, err
	}
	if len(r.rest)%2 != 0 {
		return nil, 0, malformed("inspect", s.keys[0])
	}
	f = saleFields{}
	for i := 0; i < len(r.rest); i += 2 {
		field, err1 := r.rest[i].ToString()
		value, err2 := r.rest[i+1].ToString()
		if err1 != nil || err2 != nil {
			return nil, 0, malformed("inspect", s.keys[0])
		}
		f[field] = value
	}
	return f, r.head[2], nil
}

func (f saleFields) stand(now int64) Stand {
	until := func(field string) time.Duration { return script.Duration(max(0, f.number(field)-now)) }
	st := Stand{Items: map[string]itemStand{}, Reservations: f.number("reservations"), Epoch: f.number("epoch"),
		Unmoved: f.number("serial") - f.number("moved"), UntilStart: until("start"), UntilEnd: until("end"),
		UntilGone: until("gone")}
	switch state := f.number("state"); {
	case state == 3:
		st.Phase = "suspended"
	case state == 2 || st.UntilEnd == 0:
		st.Phase = "ended"
	case state == 4:
		st.Phase = "paused"
	case st.UntilStart > 0:
		st.Phase = "pending"
	default:
		st.Phase = "open"
	}
	for field := range f {
		if name, ok := strings.CutPrefix(field, "limit:"); ok {
			st.Items[name] = itemStand{f.number(field), f.number("per:" + name), f.number("sold:" + name),
				f.number("reserved:" + name), f.number("seq:" + name)}
		}
	}
	return st
}

var hscanScript = script.Plain("hscan")

// Holders yields every order that has units, in no order. Holders reads the server in parts: an order that is made or
// ended meanwhile may be missing, and an order may come twice. An order of Anyone comes with the id that Buy gave, or
// with one for each range of it that is still sold.
func (s *Sale) Holders(ctx context.Context) iter.Seq2[Answer, error] {
	return func(yield func(Answer, error) bool) {
		err := s.holders(ctx, func(a Answer) bool { return yield(a, nil) })
		if err != nil {
			yield(Answer{}, edged(err))
		}
	}
}

// holders calls each for every order that has units, until it returns false.
func (s *Sale) holders(ctx context.Context, each func(Answer) bool) error {
	if err := s.usable(); err != nil {
		return err
	}
	at, err := s.whole(ctx)
	if err != nil {
		return err
	}
	key := s.keys[1]
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		from := cursor
		m, err := s.c.calls.Do(ctx, script.Call{Script: hscanScript, Keys: s.keys[1:2],
			Command: func(b rueidis.Builder) rueidis.Completed {
				return b.Hscan().Key(key).Cursor(from).Count(1000).Build()
			}})
		if err != nil {
			return err
		}
		e, err := m.AsScanEntry()
		if err != nil {
			return malformed("hscan", key)
		}
		cursor = e.Cursor
		for i := 0; i+1 < len(e.Elements); i += 2 {
			more, err := s.holder(e.Elements[i], e.Elements[i+1], at, each)
			if err != nil || !more {
				return err
			}
		}
	}
	after, err := s.whole(ctx)
	if err == nil && after.epoch != at.epoch { // what was read may be a part
		err = fmt.Errorf("%w: %q was opened anew meanwhile", ErrNoStock, s.keys[0])
	}
	return err
}

// whole asks for a sale that lacks nothing and is not suspended.
func (s *Sale) whole(ctx context.Context) (at moment, err error) {
	at.sent = time.Now()
	f, now, err := s.inspect(ctx)
	if err == nil && f["state"] == "3" {
		err = s.verdict([3]int64{codeSuspended})
	}
	at.epoch, at.now = f.number("epoch"), now
	return at, err
}

// holder calls each for the order of one field, if it has units, and reports whether to go on.
func (s *Sale) holder(id, text string, at moment, each func(Answer) bool) (more bool, err error) {
	if strings.HasPrefix(id, "\x00") { // a count
		return true, nil
	}
	a, ok := parseRecord(id, text, &at)
	if !ok {
		return false, s.verdict([3]int64{codeCorrupt, -1})
	}
	if !a.Won() {
		return true, nil
	}
	a.Again = true
	if !strings.HasPrefix(id, anyonePrefix) {
		return each(a), nil
	}
	for _, l := range a.Lines {
		if l.N == 0 {
			continue
		}
		one := a
		one.ID, one.Lines = part{id, l.Ordinal, l.N}.id(), []Line{l}
		if !each(one) {
			return false, nil
		}
	}
	return true, nil
}
