package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/ledger"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Book is a database that has the ledger of one sale. That of contrib/ledger is one, for SQL databases.
type Book interface {
	// Opened is the epoch of the opening whose entries the book takes; 0: it knows none.
	Opened(ctx context.Context) (epoch int64, err error)
	// Move writes entries that follow those that the book has, in one transaction; entries that it has change nothing. If
	// the book has other entries under their serials, or takes those of another opening, it writes nothing, and the error
	// is redlatch.ErrMismatch.
	Move(ctx context.Context, entries []Entry) error
	// Continue has Move refuse entries of the opening from, from now on, and take those of to. Open calls it with a from
	// of 0, for a book that knows no opening. The result is the last serial of the book, or 0. If Opened is not from any
	// more, because another process was quicker, Continue changes nothing, and the error is redlatch.ErrMismatch.
	Continue(ctx context.Context, from, to int64) (last int64, err error)
	// Entries are all of the sale, by serial.
	Entries(ctx context.Context) iter.Seq2[Entry, error]
	// Order are those of one order, by serial.
	Order(ctx context.Context, id string) ([]Entry, error)
}

var (
	restoreScript = script.Load("restore", files, "restore")
	xrangeScript  = script.Plain("xrange")
)

const (
	drainPage = 1000 // entries in one request
	putPage   = 1000 // arguments in one request: it takes the server 1 to 3 ms
)

// Restore makes the sale anew from its book, Options.Books, whether the server lost all, a part, or the last seconds.
// Restore may be broken off anywhere and run again, by any process. From its begin until it is through, every verb
// returns ErrLater. spec is for a sale of which the server has nothing: StartIn and OpenFor then count from now. Limits
// grow as far as more units are sold and reserved.
//
// lost are entries that the server had written after a failover over numbers that the book has for others. The sale
// does not know these orders any more.
//
// Errors: ErrInvalidOption without a book; redlatch.ErrCorrupt if the book lacks entries that Ledger has handed out;
// ErrNoStock if the server lost meanwhile what Restore had written: run it again; ErrLater if another Restore began;
// the book's, unchanged.
func (s *Sale) Restore(ctx context.Context, spec Spec) (lost []Entry, err error) {
	defer edge(&err)
	items, refused := spec.items()
	r := &restorer{s: s, book: s.c.book(s.name), round: session.CallID()}
	switch {
	case r.book == nil:
		refused = errs.InvalidOption("Books", "nil", "set to a function that returns the book of the sale, for Restore")
	case !spec.Ledger:
		refused = errs.InvalidOption("Ledger", false, "true for Restore")
	}
	if err := s.c.calls.Usable(s.refused, refused, spec.check(s.c.calls.Bound())); err != nil {
		return nil, err
	}
	defer s.processState().cache.forget()
	// Before suspend: if another Restore begins after this one and is quicker, Continue is refused.
	if r.from, err = r.book.Opened(ctx); err != nil {
		return nil, err
	}
	if err := r.suspend(ctx, spec, items); err != nil {
		return nil, err
	}
	doubtful, err := r.drain(ctx)
	if err != nil {
		return nil, err
	}
	r.epoch = max(r.epoch, r.from+1) // the server's clock may have gone back
	if r.last, err = r.book.Continue(ctx, r.from, r.epoch); err != nil {
		if errors.Is(err, errs.ErrMismatch) {
			err = fmt.Errorf("%w: another Restore of %q began later: %w", ErrLater, s.name, err)
		}
		return nil, err
	}
	f, lost, err := r.readBook(ctx, doubtful)
	if err != nil {
		return nil, err
	}
	return lost, r.put(ctx, f)
}

// restorer is one round of Restore.
type restorer struct {
	s     *Sale
	book  Book
	round string
	from  int64 // the opening whose entries the book takes
	epoch int64 // the new one
	last  int64 // the last serial of the book
}

// step runs a step of restore.lua.
func (r *restorer) step(ctx context.Context, step string, args ...string) (reply, error) {
	all, answered, err := r.s.run(ctx, r.s.c.calls.Confirmed(script.Call{Script: restoreScript, Keys: r.s.keys,
		Args: append([]string{step, r.round}, args...)}))
	if !answered || err != nil {
		return reply{}, err
	}
	if all.head[0] == codeTooLate {
		return all, nil
	}
	return all, r.s.verdict(all.head)
}

// suspend begins the round. The request names the round before, and a time, so that a late copy suspends nothing.
func (r *restorer) suspend(ctx context.Context, spec Spec, items map[string]Item) error {
	asked, err := r.step(ctx, "suspend", "", "0")
	if err != nil {
		return err
	}
	if asked.head[0] != codeTooLate || len(asked.rest) != 1 {
		return malformed("restore", r.s.keys[0])
	}
	before, err := asked.rest[0].ToString()
	if err != nil {
		return malformed("restore", r.s.keys[0])
	}
	now := asked.head[1]
	start := now + spec.StartIn.Milliseconds()
	end := start + millis(spec.OpenFor)
	fields := []string{"state", "1", "start", decimal(start), "end", decimal(end), "gone",
		decimal(end + millis(spec.Retain)),
		"epoch", "0", "remember", script.Millis(spec.Remember), "ledger", "1", "spec", spec.text(items), "revision",
		decimal(now * 1000), "serial", "0", "moved", "0", "fields", "0", "counted", "0", "reservations", "0", "own", "0"}
	for name, item := range items {
		fields = append(fields, "limit:"+name, decimal(item.Limit), "per:"+name, decimal(item.PerUser), "sold:"+name, "0",
			"reserved:"+name, "0", "seq:"+name, "0")
	}
	until := script.NotAfter(now, r.s.c.calls.Wanted(ctx))
	began, err := r.step(ctx, "suspend", append([]string{before, until}, fields...)...)
	if err == nil && began.head[0] == codeTooLate {
		err = r.s.tooLate()
	}
	r.epoch = max(began.head[2], began.head[1]+1)
	return err
}

func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// drain hands what the stream has to the book. From the first entries on that the book refuses, doubtful are those
// left.
func (r *restorer) drain(ctx context.Context) (doubtful []Entry, err error) {
	key := r.s.keys[4]
	for from := "-"; ; {
		first := from
		m, err := r.s.c.calls.Do(ctx, script.Call{Script: xrangeScript, Keys: r.s.keys[4:5],
			Command: func(b rueidis.Builder) rueidis.Completed {
				return b.Xrange().Key(key).Start(first).End("+").Count(drainPage).Build()
			}})
		if err != nil {
			return nil, err
		}
		list, err := m.AsXRange()
		if err != nil {
			return nil, malformed("xrange", key)
		}
		if len(list) == 0 {
			return doubtful, nil
		}
		entries := make([]Entry, len(list))
		for i, x := range list {
			if entries[i], _, err = ledger.Decode(x, entry); err != nil {
				return nil, fmt.Errorf("%w: %q has entry %s: %w", errs.ErrCorrupt, key, x.ID, err)
			}
		}
		if doubtful == nil {
			err = r.book.Move(ctx, entries)
			r.from = cmp.Or(r.from, entries[0].Epoch) // it knew none
		}
		switch {
		case doubtful != nil || errors.Is(err, errs.ErrMismatch):
			doubtful = append(doubtful, entries...)
		case err != nil:
			return nil, err
		}
		from = "(" + list[len(list)-1].ID
	}
}

// readBook reads all entries of the book. lost are the doubtful ones that it does not have.
func (r *restorer) readBook(ctx context.Context, doubtful []Entry) (f *fold, lost []Entry, err error) {
	f = newFold()
	isLost := map[int64]Entry{}
	for _, e := range doubtful {
		isLost[e.Serial] = e
	}
	serial := int64(0)
	for e, err := range r.book.Entries(ctx) {
		if err != nil {
			return nil, nil, err
		}
		if serial++; e.Serial != serial {
			return nil, nil, fmt.Errorf("%w: the book of %q has the serial %d after %d", errs.ErrCorrupt, r.s.name, e.Serial,
				serial-1)
		}
		if serial > r.last {
			break
		}
		f.add(e)
		if other, ok := isLost[serial]; ok && e.equal(other) {
			delete(isLost, serial)
		}
	}
	return f, slices.SortedFunc(maps.Values(isLost), func(a, b Entry) int { return cmp.Compare(a.Serial, b.Serial) }), nil
}

// equal reports whether two entries are one: a database may give times another location.
func (e Entry) equal(other Entry) bool {
	same := e.At.Equal(other.At) && e.Until.Equal(other.Until)
	e.At, e.Until = other.At, other.Until
	return same && e == other
}

// tables are what Restore puts.
type tables struct {
	orders, reservations []string // pairs
	endings              []string
	own, counted         bool
}

// tables are what the scripts would have at now, the server's ms, if all that the book tells of had happened to them.
func (f *fold) tables(now, remember int64) (t tables) {
	counts := map[string]int64{}
	ids := slices.SortedFunc(maps.Keys(f.orders), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.orders[a].ended, f.orders[b].ended), cmp.Compare(a, b))
	})
	for _, id := range ids {
		o := f.orders[id]
		if o.ended > 0 && now > o.ended+remember {
			continue // forgotten
		}
		t.orders = append(t.orders, id, o.text(id))
		t.own = t.own || id == o.user
		if o.ended > 0 {
			t.endings = append(t.endings, decimal(o.ended+remember)+";"+string(o.state)+";"+id)
		}
		if o.state == 'R' {
			t.reservations = append(t.reservations, decimal(o.deadline), id)
		}
		if o.user == "" || id == o.user || o.ended > 0 {
			continue
		}
		for _, l := range o.lines {
			counts["\x00"+l.Item+","+o.user] += l.N
		}
	}
	for field, n := range counts {
		if n > 0 {
			t.orders = append(t.orders, field, decimal(n))
			t.counted = true
		}
	}
	return t
}

// put writes the tables, and has them take the place of the old ones.
func (r *restorer) put(ctx context.Context, f *fold) error {
	is, now, err := r.s.inspect(ctx)
	if err != nil {
		return err
	}
	if moved := is.number("moved"); moved > r.last {
		return fmt.Errorf("%w: the book of %q ends with entry %d, but movers received %d", errs.ErrCorrupt, r.s.name,
			r.last, moved)
	}
	t := f.tables(now, is.number("remember"))
	for table, pairs := range map[string][]string{"orders": t.orders, "reservations": t.reservations} {
		for part := range slices.Chunk(pairs, putPage) {
			if _, err := r.step(ctx, "put", append([]string{table}, part...)...); err != nil {
				return err
			}
		}
	}
	before := 0
	for part := range slices.Chunk(t.endings, putPage) {
		if _, err := r.step(ctx, "put", append([]string{"endings", strconv.Itoa(before)}, part...)...); err != nil {
			return err
		}
		before += len(part)
	}
	args := []string{strconv.Itoa(len(t.orders) / 2), strconv.Itoa(len(t.reservations) / 2), strconv.Itoa(len(t.endings)),
		"epoch", decimal(r.epoch), "serial", decimal(r.last), "moved", decimal(r.last), "own", flag(t.own), "counted",
		flag(t.counted), "revision", decimal(r.epoch), "ledger", "1"}
	for name, item := range f.items {
		if is["limit:"+name] == "" {
			return fmt.Errorf("%w: the book of %q has the item %.64q, but the Spec does not", errs.ErrMismatch, r.s.name, name)
		}
		args = append(args, "limit:"+name, decimal(max(is.number("limit:"+name), item.Sold+item.Reserved)))
	}
	for _, name := range slices.Sorted(maps.Keys(is.stand(now).Items)) {
		item := f.item(name)
		args = append(args, "sold:"+name, decimal(item.Sold), "reserved:"+name, decimal(item.Reserved), "seq:"+name,
			decimal(item.Seq))
	}
	if _, err = r.step(ctx, "resume", args...); err == nil {
		err = r.isOfBook(ctx)
	}
	if err == nil {
		r.s.removeAfter(script.Duration(is.number("gone") - now))
	}
	return err
}

// isOfBook returns ErrLater if the book takes another opening than the one that was resumed. Its movers would be
// refused.
//
//	this Restore                 another Restore              the server
//	suspend, Continue to 1
//	                             suspend, Continue to 2
//	                                                          a failover forgets the second suspend
//	resume 1
//	the book takes 2: ErrLater                                sells; the next Restore mends it
func (r *restorer) isOfBook(ctx context.Context) error {
	epoch, err := r.book.Opened(ctx)
	if err == nil && epoch != r.epoch {
		err = fmt.Errorf("%w: another Restore of %q was in progress: run it again", ErrLater, r.s.name)
	}
	return err
}
