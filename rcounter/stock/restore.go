package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Restored is what Restore has done.
type Restored struct {
	// Added is how many units of the winners the stock did not have as theirs.
	Added int64
	// Displaced are the units that Restore has taken from the claimants named here. Either the winners name another
	// claimant for them: a failover forgot that grant, and the stock granted the ordinal again. Or an entry of KindReturn
	// returned them: a failover forgot the return. The next claim of such a claimant may get another unit.
	Displaced []Entry
	// Unaccounted is how many units the stock counts as sold though neither its records nor the winners name a holder.
	// They stay sold. A larger limit (Change) makes up for them.
	Unaccounted int64
}

// Restore repairs a stock from the caller's own records: after a failover that lost grants, after ErrCorrupt, and after
// the stock was lost and opened again with Spec.Suspended. It suspends the stock, writes a record for every winner that
// the stock does not know, raises the number of units sold and the last ordinal, and lets the stock sell on. A stock
// that is closed, before Restore or while it runs, stays closed. A Change while it runs stands.
//
// winners are the units that are held, each once, as the entries of the ledger or unit by unit: Ordinal, N (0 means 1),
// Claimant and, if there was one, Request. Where the winners and the stock differ, the winners are right, except that a
// unit returned here stays returned. If there are more winners than units, the limit is raised to their number, and
// nothing is left to sell.
//
// The winners may be behind the stock, and if nothing was lost, no claimant's units change. That is certain with a
// ledger (Spec.Ledger). Without one the stock knows the last unit that each claimant has returned, and the requests
// that were returned within Spec.Remember: if the winners name a unit that was returned before that, its claimant gets
// it back.
//
// An entry of KindReturn says that its units were sold and returned. Restore takes them from the claimant that has them
// here, and their ordinals are not given out again. Without such entries a stock that a failover set back may give out
// an ordinal of which the database has a row. An entry of KindNothing says that its id gets no units: Restore makes the
// server answer so again until the retention is over, if no winner has the id and the stock has no units for it here.
// The entries of other kinds only tell their serials.
//
// The ledger then tells the database of the winners what that does not know: its next entry has the serial after the
// highest one among winners of this Epoch, or after the last that was moved. So pass the last entry that the database
// has, whatever its kind, and let no mover run meanwhile. Entries that were lost from it are written again,
// as far as they tell of units that are sold or came back; of what was only held, expired or cancelled they do not
// tell. Those of units that the winners give to another claimant go.
//
// If Restore fails, the stock stays suspended, and Restore can be called again. (If it fails before it asks winners for
// anything, the stock may sell on. If that error is ErrUnknownOutcome, the stock may be suspended up to a RetryTimeout
// later.) Errors: that of winners, unchanged; ErrCorrupt if two winners have one ordinal, or a record on the server is
// none; ErrNotOpen; ErrInvalidOption for an entry that cannot be; ErrRestoring; ErrWrongType; ErrUnavailable;
// ErrUnknownOutcome.
//
// While it runs, claims are answered Suspended, and units can be returned. If something changes while Restore reads the
// records, it reads them once more, and from then on the calls of others are ErrRestoring until it has ended, so that
// it ends however many units come back.
//
// Restore keeps all records in memory and makes one round trip for 128 changes, each of which has a RetryTimeout.
// Copies of its requests that the network delivers late change nothing.
func (s *Stock) Restore(ctx context.Context, winners iter.Seq2[Entry, error]) (restored Restored, err error) {
	r := &restorer{s: s, call: session.CallID(), added: map[string]int64{}, displaced: map[string]Entry{},
		freed: map[string]freed{}}
	defer func() {
		if r.theirs == nil {
			edge(&err)
		}
	}()
	if err := s.usable(); err != nil {
		return Restored{}, err
	}
	if winners == nil {
		return Restored{}, errs.InvalidOption("winners", "nil", "a sequence")
	}
	if err := r.begin(ctx); err != nil {
		return Restored{}, err
	}
	s.processState().cache.forget()
	if err := r.gather(ctx, winners); err != nil {
		return Restored{}, err
	}
	for {
		seen, err := r.step(ctx, "look")
		if err != nil {
			return Restored{}, err
		}
		if err := r.read(ctx); err != nil {
			return Restored{}, err
		}
		err = r.mend(ctx, seen)
		if err == nil {
			return r.out(), nil
		}
		if !errors.Is(err, errChanged) { // by a return or a cancellation
			return Restored{}, err
		}
		// The next round needs another id. Otherwise a late copy of a "put" of this round could undo one of the next
		// (TestRestore_LateCopies_ChangeNothing).
		id := session.CallID()
		if _, err := r.step(ctx, "again", r.call, id); err != nil {
			return Restored{}, err
		}
		r.call = id
	}
}

// byRestore stands for the id of a call in records that Restore made: no call has an id so short.
const byRestore = "-"

// restorer is one run of Restore.
type restorer struct {
	s    *Stock
	call string // id of the round

	wins    map[string]win // by what has them: 'u' and a claimant, 'r:' or 'a:' and a request
	owned   []owned        // all of wins, by ordinal
	back    []span         // what was returned
	nothing []Entry        // of KindNothing

	users, records table // as they are on the server

	epoch   int64
	serial  int64   // the highest serial among the winners
	entries []Entry // of the ledger, as it is on the server
	strange bool    // the ledger has something else, too

	// What was done, by what it was done to. A round that is broken off is followed by one that may do it again: by key it
	// counts once.
	added       map[string]int64
	displaced   map[string]Entry
	freed       map[string]freed // by what had it, as wins
	unaccounted int64

	theirs error // of winners, to be returned as it is
}

// owned is a span and its holder by the winners: "" if it was returned.
type owned struct {
	span
	holder string
}

// freed is a record from which units were taken without a new owner, and how many. The server counts them as sold until
// the last step, as long as the record is the one that this Restore has put.
type freed struct {
	text string
	n    int64
}

// win is what the winners say of one holder.
type win struct {
	claimant string
	spans    []span // by ordinal
}

// table is a hash of the server's as it was read, with the changes that are to be made.
type table struct {
	kind string
	is   map[string]string
	was  map[string]string // the texts before of the fields that change, "" for none
}

func (t *table) put(name, value string) {
	if _, again := t.was[name]; !again {
		t.was[name] = t.is[name]
	}
	t.is[name] = value
}

// changes are (kind, name, old, new)….
func (t *table) changes() (args []string) {
	for name, old := range t.was {
		if t.is[name] != old {
			args = append(args, t.kind, name, old, t.is[name])
		}
	}
	return args
}

// begin suspends the stock.
func (r *restorer) begin(ctx context.Context) error {
	for {
		seen, err := r.step(ctx, "look")
		if err != nil {
			return err
		}
		r.epoch = seen.epoch
		_, err = r.step(ctx, "begin", decimal(seen.revision), script.NotAfter(seen.at, r.s.c.calls.Wanted(ctx)))
		if !errors.Is(err, errChanged) {
			return err
		}
	}
}

// gather reads the winners, and refuses those that contradict each other.
func (r *restorer) gather(ctx context.Context, winners iter.Seq2[Entry, error]) error {
	r.wins = map[string]win{}
	for e, err := range winners {
		if err != nil {
			r.theirs = err
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: restore of %q: %w", errs.ErrUnavailable, r.s.keys[0], errs.Ended(ctx))
		}
		if e.Epoch == r.epoch {
			r.serial = max(r.serial, e.Serial)
		}
		if err := r.add(e); err != nil {
			return err
		}
	}
	return r.contradiction()
}

// add takes an entry of the winners in, and refuses one that cannot be.
func (r *restorer) add(e Entry) error {
	n := max(e.N, 1)
	switch {
	case e.Kind == KindHeld || e.Kind == KindExtended || e.Kind == KindExpired || e.Kind == KindCancelled:
		return nil
	case e.Kind == KindNothing && e.Ordinal == 0 && e.N >= 0 && e.N <= maxLimit &&
		keyname.Required("", e.Request) == nil && keyname.Text("", e.Claimant) == nil:
		r.nothing = append(r.nothing, e)
		return nil
	case !e.sells() && e.Kind != KindReturn:
		return errs.InvalidOption("Kind", fmt.Sprintf("%.32q", e.Kind), "a kind of entry")
	case e.N < 0 || e.N > maxLimit || e.Ordinal < 1 || e.Ordinal > maxLimit-n+1:
		return errs.InvalidOption("Ordinal and N", fmt.Sprintf("%d and %d", e.Ordinal, e.N),
			fmt.Sprintf("within 1 and %d", int64(maxLimit)))
	case keyname.Text("", e.Claimant) != nil || keyname.Text("", e.Request) != nil:
		return errs.InvalidOption("Claimant or Request", fmt.Sprintf("%.32q, %.32q", e.Claimant, e.Request),
			fmt.Sprintf("UTF-8 of at most %d bytes, without a NUL byte", keyname.MaxText))
	case e.Kind == KindReturn:
		r.back = append(r.back, span{e.Ordinal, e.Ordinal + n - 1})
		return nil
	case e.Claimant == "" && e.Request == "":
		return errs.InvalidOption("Claimant and Request", "empty",
			fmt.Sprintf("set, one of them at least: ordinal %d", e.Ordinal))
	}
	holder := e.holder()
	w, units := r.wins[holder], span{e.Ordinal, e.Ordinal + n - 1}
	w.claimant = e.Claimant
	w.spans = append(w.spans, units)
	if holder[0] == 'u' && (n > 1 || len(w.spans) > 1) {
		return errs.InvalidOption("Request", "empty", fmt.Sprintf("set: %.64q has more than one unit", e.Claimant))
	}
	r.wins[holder] = w
	r.owned = append(r.owned, owned{units, holder})
	return nil
}

// contradiction puts what was added in order, and returns an error if two winners have one unit, or one was returned
// that has a winner.
func (r *restorer) contradiction() error {
	slices.SortFunc(r.owned, func(a, b owned) int { return bySpan(a.span, b.span) })
	for i, o := range r.owned {
		if i > 0 && o.first <= r.owned[i-1].last {
			return fmt.Errorf("%w: winners: ordinal %d is that of %.64q and of %.64q", errs.ErrCorrupt, o.first,
				r.owned[i-1].holder,
				o.holder)
		}
	}
	for _, s := range r.back {
		for o := range r.others("", s) {
			return fmt.Errorf("%w: winners: ordinal %d is that of %.64q, and was returned", errs.ErrCorrupt,
				max(o.first, s.first),
				o.holder)
		}
	}
	slices.SortFunc(r.back, bySpan)
	for i, s := range r.back {
		if last := len(r.owned) - 1; i > 0 && s.first <= r.owned[last].last {
			r.owned[last].last = max(r.owned[last].last, s.last) // said twice
			continue
		}
		r.owned = append(r.owned, owned{s, ""})
	}
	slices.SortFunc(r.owned, func(a, b owned) int { return bySpan(a.span, b.span) })
	for holder, w := range r.wins {
		slices.SortFunc(w.spans, bySpan)
		if holder[0] != 'r' {
			continue
		}
		for o := range r.others(holder, span{w.spans[0].first, w.spans[len(w.spans)-1].last}) {
			return fmt.Errorf("%w: winners: ordinal %d, amid those of %.64q, is that of %.64q", errs.ErrCorrupt, o.first, holder,
				o.holder)
		}
	}
	return nil
}

// others are the spans of the winners that overlap s and have another holder.
func (r *restorer) others(holder string, s span) iter.Seq[owned] {
	return func(yield func(owned) bool) {
		for i := sort.Search(len(r.owned), func(i int) bool {
			return r.owned[i].last >= s.first
		}); i < len(r.owned) && r.owned[i].first <= s.last; i++ {
			if o := r.owned[i]; o.holder != holder && !yield(o) {
				return
			}
		}
	}
}

// read reads all that the server has.
func (r *restorer) read(ctx context.Context) error {
	r.users = table{"u", map[string]string{}, map[string]string{}}
	r.records = table{"r", map[string]string{}, map[string]string{}}
	for i, to := range []table{r.users, r.records} {
		if err := r.s.c.scan(ctx, r.s.keys[1+i], func(field, value string) error {
			to.is[field] = value
			return nil
		}); err != nil {
			return err
		}
	}
	return r.readLedger(ctx)
}

// enterWins enters what each holder has, without the units that came back.
func (r *restorer) enterWins() {
	back := r.returned()
	for holder, w := range r.wins {
		units := w.spans
		w.spans = nil
		for _, s := range units {
			w.spans = append(w.spans, s.minusAll(back[holder])...)
		}
		if w.spans == nil {
			r.leave(holder, w.claimant, span{units[0].first, units[len(units)-1].last})
			continue
		}
		switch holder[0] {
		case 'u':
			r.enterUser(holder, w)
		case 'r':
			r.enterRequest(holder, w)
		default:
			r.enterAny(holder, w)
		}
	}
}

// mend writes the records as they should be, and lets the stock sell on. It returns errChanged if something has changed
// on the server since it was read.
func (r *restorer) mend(ctx context.Context, began restoreReply) error {
	r.enterWins()
	r.enterNothing(began.at)
	t, err := r.reconcile()
	if err != nil {
		return err
	}
	for part := range slices.Chunk(append(r.users.changes(), r.records.changes()...), 4*128) {
		if _, err := r.step(ctx, "put", part...); err != nil {
			return err
		}
	}
	if _, err := r.step(ctx, "unhold"); err != nil {
		return err
	}
	for part := range slices.Chunk(t.deadlines, 2*128) {
		if _, err := r.step(ctx, "hold", part...); err != nil {
			return err
		}
	}
	serial, entries := "", ""
	if began.serial != noLedger {
		list, last, differs := r.relist(began)
		serial = decimal(last)
		if differs {
			entries = strconv.Itoa(len(list))
			if err := r.rewrite(ctx, list, last); err != nil {
				return err
			}
		}
	}
	now, err := r.step(ctx, "look")
	if err != nil {
		return err
	}
	if now.seen[0] != began.seen[0] || now.seen[1] != began.seen[1] || now.seen[2] != began.seen[2] ||
		now.seen[3] != int64(len(r.users.is)) || now.seen[4] != int64(len(r.records.is)) ||
		now.seen[5] != int64(len(t.deadlines)/2) {
		return errChanged
	}
	counted := now.seen[0] - t.free
	r.unaccounted = max(0, counted-t.sold)
	sold := max(t.sold, counted)
	top := max(t.top, now.seen[2], sold)
	if sold > maxLimit-t.held {
		return fmt.Errorf("%w: %q would have %d units sold and %d held", errs.ErrCorrupt, r.s.keys[0], sold, t.held)
	}
	var args []string
	for _, v := range append(now.seen[:], sold, t.held, top) {
		args = append(args, decimal(v))
	}
	_, err = r.step(ctx, "end", append(args, serial, entries)...)
	return err
}

// enterNothing enters the ids that are to get nothing, unless they have units by the winners or here. A reservation
// that is held here, and not over at now (the server's time), is another one: its id was forgotten, and used again.
func (r *restorer) enterNothing(now int64) {
	for _, e := range r.nothing {
		field := "r:" + e.Request
		text, there := r.records.is[field]
		q, ok := parseRecord(text)
		over := ok && (q.state == "E" || q.state == "H" && q.deadline < now)
		if _, wins := r.wins[field]; wins || there && !over {
			continue
		}
		if !there { // a deadline says that it is a reservation's, and not a claim's
			q = record{n: e.N, asked: e.N, deadline: min(e.N, 1), claimant: e.Claimant}
		}
		q.state, q.by = "C", byRestore
		if q.n > 0 {
			q.by = fmt.Sprintf("%s*%d", byRestore, q.n)
		}
		q.n = 0
		r.records.put(field, q.text())
	}
}

// leave enters nothing: all units that holder has by the winners were returned here, as entries say that the winners do
// not know. But the record is to say so too. If this Restore is broken off while the ledger is written anew, the
// entries are gone, and the next one finds only the record. That of a claimant names the last return, which may be
// another one, and that of a request may be forgotten (TestRestore_ReturnedAndForgotten_GivesNothingBack).
func (r *restorer) leave(holder, claimant string, units span) {
	switch ordinal := decimal(units.first); holder[0] {
	case 'u':
		record := r.users.is[claimant]
		parts := strings.SplitN(record, ";", 4)
		if len(parts) == 4 && parts[0] != ordinal && parts[2] != ordinal && r.freed[holder].text != record {
			r.users.put(claimant, strings.Join([]string{parts[0], parts[1], ordinal, byRestore}, ";"))
		}
	case 'r':
		if _, known := r.records.is[holder]; !known {
			r.records.put(holder,
				record{state: "R", ordinal: units.first, n: units.n(), call: byRestore, by: byRestore, claimant: claimant}.text())
		}
	}
}

// enterUser enters a unit of Claim.
func (r *restorer) enterUser(holder string, w win) {
	unit := w.spans[0].first
	record, ordinal := r.users.is[w.claimant], decimal(unit)
	parts := strings.SplitN(record, ";", 4) // ordinal;call[;returned;by]
	// What was returned here stays returned, whatever the claimant has now.
	if parts[0] == ordinal || len(parts) == 4 && parts[2] == ordinal {
		return
	}
	r.added[holder] = 1
	if parts[0] != "" && parts[0] != "0" {
		r.displace(Entry{Ordinal: number(parts[0]), N: 1, Claimant: w.claimant})
	}
	r.users.put(w.claimant, ordinal+";"+byRestore)
}

// enterRequest enters units of a request or of a reservation.
func (r *restorer) enterRequest(field string, w win) {
	units := span{w.spans[0].first, w.spans[len(w.spans)-1].last}
	old, known := parseRecord(r.records.is[field])
	was := old.units()
	same := known && old.claimant == w.claimant
	if gone := old.returned(); same && units.first <= was.last && gone.first <= units.last && units.last <= gone.last {
		units.last = was.last // so does what was returned here in part
	}
	switch {
	case same && old.state == "G" && was == units:
		return
	case same && old.state == "R" && was.first <= units.first && units.last <= max(was.last, old.ordinal+old.asked-1):
		// What was returned here stays returned. If a part came back first, the record has the rest, and the winners perhaps
		// all.
		return
	}
	next := record{state: "G", ordinal: units.first, n: units.n(), call: byRestore, claimant: w.claimant}
	if same { // a late copy of the same call must find itself again
		next.asked, next.deadline, next.call = old.asked, old.deadline, old.call
	}
	switch {
	case known && old.state == "G":
		kept := []span{units}
		if !same {
			kept = nil
		}
		rest := was.minus(kept)
		lost, unowned := int64(0), int64(0)
		for _, s := range rest {
			r.displace(Entry{Ordinal: s.first, N: s.n(), Claimant: old.claimant, Request: field[2:]})
			lost += s.n()
			for o := range r.others(field, s) {
				unowned += o.unowned(s.first, s.last)
			}
		}
		r.added[field] = units.n() - (was.n() - lost)
		r.frees(field, next.text(), unowned)
	case !known || old.state != "H":
		r.added[field] = units.n()
	}
	r.records.put(field, next.text())
}

// enterAny enters units of ClaimAny.
func (r *restorer) enterAny(field string, w win) {
	units := span{w.spans[0].first, w.spans[len(w.spans)-1].last}
	if a, ok := parseAny(r.records.is[field]); ok && a.n > 0 {
		if a.ordinal <= units.first && units.last < a.ordinal+a.n {
			return
		}
		for _, s := range a.units().minus(a.returned) {
			for _, s := range s.minus(w.spans) {
				r.displace(Entry{Ordinal: s.first, N: s.n(), Request: field[2:]})
			}
		}
	}
	text := fmt.Sprintf("%d;%d", units.first, units.n())
	holes := units.minus(w.spans) // returned one by one
	n := units.n()
	for _, s := range holes {
		text += fmt.Sprintf(";%d.%d.%s", s.first, s.n(), byRestore)
		n -= s.n()
	}
	r.added[field] = n
	r.records.put(field, text)
}

// out is what was done in all rounds.
func (r *restorer) out() Restored {
	out := Restored{Unaccounted: r.unaccounted}
	for _, n := range r.added {
		out.Added += n
	}
	out.Displaced = slices.SortedFunc(maps.Values(r.displaced), func(a, b Entry) int {
		return cmp.Compare(a.Ordinal, b.Ordinal)
	})
	return out
}

var restoreScript = script.Load("restore", files, "restore")

type restoreReply struct {
	seen     [6]int64 // sold held seq, and the lengths of claimants, records and holds
	revision int64
	at       int64 // the server's ms
	epoch    int64
	serial   int64 // of the ledger's last entry, noLedger if there is none
	moved    int64
}

// noLedger stands for the serial of a stock without a ledger. While one is rewritten the serial is -1: see restore.lua.
const noLedger = -2

var errChanged = errors.New("changed meanwhile")

// stockChanged is what restore.lua replies when something has changed. It replies stockRestoring when another round
// restores the stock.
const stockChanged = -11

// step runs restore.lua. The error is errChanged itself if something has changed since the step was prepared.
func (r *restorer) step(ctx context.Context, step string, args ...string) (restoreReply, error) {
	id := r.call
	if step == "again" {
		args, id = args[:1], args[1]
	}
	v, err := r.s.ints(ctx, 12, restoreScript, append([]string{step, id}, args...)...)
	if err != nil {
		return restoreReply{}, err
	}
	if v[0] == stockChanged {
		return restoreReply{}, errChanged
	}
	if err := r.s.verdict(v); err != nil {
		return restoreReply{}, err
	}
	return restoreReply{seen: [6]int64(v[2:8]), revision: v[8], at: v[9], epoch: v[1], serial: v[10], moved: v[11]}, nil
}
