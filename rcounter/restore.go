package rcounter

import (
	"context"
	_ "embed"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/errs"
)

// Restored is what Restore has done.
type Restored struct {
	// Added is how many units the stock did not know of.
	Added int64
	// Displaced are units that the stock had given to somebody else than the winners say, as after a failover that
	// forgot the one grant and made the other. They have been taken from those named here, whose next claim may get
	// them another.
	Displaced []Entry
	// Unaccounted is how many units the stock counts as sold of which neither its records nor the winners say to whom.
	// They stay sold; Resize makes up for them.
	Unaccounted int64
}

// Restore mends a stock from the caller's own records: after a failover that lost grants, after ErrCorrupt, and after
// the stock was lost and opened again with OpenSpec.Suspended. It suspends the stock, enters every winner that it does
// not know, raises what is sold and the sequence of ordinals above them, and lets it sell on; a closed stock stays closed.
//
// winners are the units that are held, each once, as the ledger's entries told them or unit by unit: Ordinal, N (0
// stands for 1), Claimant and, if there was one, Request. Where they and the stock say different things, the winners
// are right, except that a unit returned here stays returned. An ordinal that two of them have is ErrCorrupt. If there are more
// winners than units, the limit is raised to their number: nothing is left to sell.
//
// When it fails the stock stays suspended, and Restore can be called again: an error of winners' own, as it is;
// ErrNotOpen; ErrInvalidOption for an entry that cannot be; ErrRestoring; ErrWrongType, ErrUnavailable,
// ErrUnknownOutcome. It keeps all records in memory and takes one round trip for 128 of them; a ctx without a deadline gives each
// of these five call timeouts.
func (s *Stock) Restore(ctx context.Context, winners iter.Seq2[Entry, error]) (Restored, error) {
	if err := s.c.usable(s.refused); err != nil {
		return Restored{}, err
	}
	if winners == nil {
		return Restored{}, errs.InvalidOption("winners", "nil", "a sequence")
	}
	r := &restorer{s: s, call: callID()}
	began, err := r.step(ctx, "begin")
	if err != nil {
		return Restored{}, err
	}
	s.desk().memory.forget()
	if err := r.gather(winners); err != nil {
		return Restored{}, err
	}
	for {
		if err := r.read(ctx); err != nil {
			return Restored{}, err
		}
		done, err := r.mend(ctx, began)
		if done || err != nil {
			return r.out, err
		}
		if began, err = r.step(ctx, "look"); err != nil { // something was returned or cancelled meanwhile
			return Restored{}, err
		}
	}
}

// byRestore stands for the id of a call in records that Restore made: no call has an id so short.
const byRestore = "-"

// restorer is one run of Restore.
type restorer struct {
	s    *Stock
	call string
	out  Restored

	wins  map[string]win   // by what has them: 'u' and a claimant, 'r:' or 'a:' and a request
	owner map[int64]string // of each ordinal in wins
	top   int64

	users, records map[string]string // as they are on the server
	changed        []string          // (kind, name, value)…
}

// win is what winners say of one holder.
type win struct {
	claimant string
	ordinals []int64
}

func (r *restorer) gather(winners iter.Seq2[Entry, error]) error {
	r.wins, r.owner = map[string]win{}, map[int64]string{}
	for e, err := range winners {
		if err != nil {
			return err
		}
		n := max(e.N, 1)
		var holder string
		switch {
		case e.Back:
			return errs.InvalidOption("Back", e.Back, fmt.Sprintf("false: ordinal %d is not held", e.Ordinal))
		case e.N < 0 || e.Ordinal < 1 || e.Ordinal > MaxLimit-n+1:
			return errs.InvalidOption("Ordinal and N", fmt.Sprintf("%d and %d", e.Ordinal, e.N), fmt.Sprintf("within 1 and %d", int64(MaxLimit)))
		case len(e.Claimant) > MaxClaimantLen || len(e.Request) > MaxClaimantLen:
			return errs.InvalidOption("Claimant or Request", fmt.Sprintf("%.32q…, %.32q…", e.Claimant, e.Request), fmt.Sprintf("at most %d bytes", MaxClaimantLen))
		case e.Claimant == "" && e.Request == "":
			return errs.InvalidOption("Claimant and Request", "empty", fmt.Sprintf("set, one of them at least: ordinal %d", e.Ordinal))
		case e.Claimant == "":
			holder = "a:" + e.Request
		case e.Request == "":
			holder = "u" + e.Claimant
		default:
			holder = "r:" + e.Request
		}
		w := r.wins[holder]
		w.claimant = e.Claimant
		for o := e.Ordinal; o < e.Ordinal+n; o++ {
			if by, taken := r.owner[o]; taken {
				return fmt.Errorf("%w: winners: ordinal %d is that of %.64q and of %.64q", ErrCorrupt, o, by, holder)
			}
			r.owner[o] = holder
			w.ordinals = append(w.ordinals, o)
		}
		if holder[0] == 'u' && len(w.ordinals) > 1 {
			return errs.InvalidOption("Request", "empty", fmt.Sprintf("set: %.64q has more than one unit", e.Claimant))
		}
		r.wins[holder] = w
		r.top = max(r.top, e.Ordinal+n-1)
	}
	return nil
}

// read reads all that the server has.
func (r *restorer) read(ctx context.Context) error {
	r.users, r.records, r.changed = map[string]string{}, map[string]string{}, nil
	for i, to := range []map[string]string{r.users, r.records} {
		if err := r.s.c.scan(ctx, r.s.keys[1+i], func(field, value string) error { to[field] = value; return nil }); err != nil {
			return err
		}
	}
	return nil
}

func (r *restorer) putUser(claimant, record string) {
	r.users[claimant] = record
	r.changed = append(r.changed, "u", claimant, record)
}

func (r *restorer) put(field, record string) {
	r.records[field] = record
	r.changed = append(r.changed, "r", field, record)
}

// mend makes the server's records those that they should be. It reports false if they have changed meanwhile.
func (r *restorer) mend(ctx context.Context, began restoreReply) (bool, error) {
	for holder, w := range r.wins {
		slices.Sort(w.ordinals)
		switch holder[0] {
		case 'u':
			r.enterUser(w)
		case 'r':
			r.enterRequest(holder, w)
		default:
			r.enterAny(holder, w)
		}
	}
	sold, held, top, deadlines, err := r.settle()
	if err != nil {
		return false, err
	}
	for part := range slices.Chunk(r.changed, 3*128) {
		if _, err := r.step(ctx, "put", part...); err != nil {
			return false, err
		}
	}
	if _, err := r.step(ctx, "unhold"); err != nil {
		return false, err
	}
	for part := range slices.Chunk(deadlines, 2*128) {
		if _, err := r.step(ctx, "hold", part...); err != nil {
			return false, err
		}
	}
	now, err := r.step(ctx, "look")
	if err != nil {
		return false, err
	}
	if now.seen[0] != began.seen[0] || now.seen[1] != began.seen[1] || now.seen[2] != began.seen[2] ||
		now.seen[3] != int64(len(r.users)) || now.seen[4] != int64(len(r.records)) {
		return false, nil
	}
	r.out.Unaccounted = max(0, now.seen[0]-sold)
	sold = max(sold, now.seen[0])
	top = max(top, now.seen[2], sold)
	args := make([]string, 0, 11)
	for _, v := range append(now.seen[:], sold, held, top, max(now.limit, sold+held), now.state) {
		args = append(args, strconv.FormatInt(v, 10))
	}
	_, err = r.step(ctx, "end", args...)
	if err == errChanged {
		return false, nil
	}
	return err == nil, err
}

// enterUser enters a unit of Claim.
func (r *restorer) enterUser(w win) {
	record, ordinal := r.users[w.claimant], strconv.FormatInt(w.ordinals[0], 10)
	parts := strings.SplitN(record, ";", 4) // ordinal;call[;returned;by]
	if parts[0] == ordinal || parts[0] == "0" && len(parts) == 4 && parts[2] == ordinal {
		return
	}
	if parts[0] == "" || parts[0] == "0" {
		r.out.Added++
	} else {
		r.displaced(Entry{Ordinal: number(parts[0]), N: 1, Claimant: w.claimant})
	}
	r.putUser(w.claimant, ordinal+";"+byRestore)
}

// enterRequest enters units of ClaimOnce or of a reservation.
func (r *restorer) enterRequest(field string, w win) {
	first, last := w.ordinals[0], w.ordinals[len(w.ordinals)-1]
	old, known := parseRecord(r.records[field])
	if known && old.ordinal == first && (old.state == "G" || old.state == "R") {
		return
	}
	switch {
	case known && old.state == "G":
		r.displaced(Entry{Ordinal: old.ordinal, N: old.n, Claimant: old.claimant, Request: field[2:]})
	case !known || old.state != "H":
		r.out.Added += last - first + 1
	}
	n := record{state: "G", ordinal: first, n: last - first + 1, call: byRestore, claimant: w.claimant}
	if known && old.deadline > 0 {
		n.asked, n.deadline, n.call = old.asked, old.deadline, old.call
	}
	r.put(field, n.text())
}

// enterAny enters units of ClaimAny.
func (r *restorer) enterAny(field string, w win) {
	first, last := w.ordinals[0], w.ordinals[len(w.ordinals)-1]
	if a, ok := parseAny(r.records[field]); ok && a.n > 0 && a.ordinal <= first && last < a.ordinal+a.n {
		return
	}
	text := fmt.Sprintf("%d;%d", first, last-first+1)
	next := first
	for _, o := range w.ordinals {
		if o > next { // a hole: returned one by one
			text += fmt.Sprintf(";%d.%d.%s", next, o-next, byRestore)
		}
		next = o + 1
	}
	r.out.Added += int64(len(w.ordinals))
	r.put(field, text)
}

// settle takes units from those who hold what is somebody else's by the winners, and adds up the rest.
func (r *restorer) settle() (sold, held, top int64, deadlines []string, err error) {
	bad := func(name string) error {
		return fmt.Errorf("%w: %q has a record of %.64q that is none", ErrCorrupt, r.s.keys[0], name)
	}
	top = r.top
	for claimant, text := range r.users {
		ordinal, err := strconv.ParseInt(strings.SplitN(text, ";", 2)[0], 10, 64)
		if err != nil || !strings.Contains(text, ";") {
			return 0, 0, 0, nil, bad(claimant)
		}
		if by, taken := r.owner[ordinal]; ordinal > 0 && taken && by != "u"+claimant {
			r.displaced(Entry{Ordinal: ordinal, N: 1, Claimant: claimant})
			r.putUser(claimant, fmt.Sprintf("0;%s;%d;%s", byRestore, ordinal, byRestore))
			continue
		}
		if ordinal > 0 {
			sold++
			top = max(top, ordinal)
		}
	}
	counts := map[string]int64{}
	for field, text := range r.records {
		switch field[:2] {
		case "u:":
			if _, there := counts[field]; !there {
				counts[field] = 0
			}
		case "r:":
			q, ok := parseRecord(text)
			if !ok {
				return 0, 0, 0, nil, bad(field)
			}
			if q.state == "G" && r.overlaps(field, q.ordinal, q.n) {
				r.displaced(Entry{Ordinal: q.ordinal, N: q.n, Claimant: q.claimant, Request: field[2:]})
				q.state, q.by = "R", byRestore
				r.put(field, q.text())
			}
			switch q.state {
			case "G":
				sold += q.n
				top = max(top, q.ordinal+q.n-1)
				counts["u:"+q.claimant] += q.n
			case "H":
				held += q.n
				counts["u:"+q.claimant] += q.n
				deadlines = append(deadlines, field[2:], strconv.FormatInt(q.deadline, 10))
			}
		case "a:":
			a, ok := parseAny(text)
			if !ok {
				return 0, 0, 0, nil, bad(field)
			}
			for o := a.ordinal; o < a.ordinal+a.n; o++ {
				if by, taken := r.owner[o]; taken && by != field && !a.returned[o] {
					r.displaced(Entry{Ordinal: o, N: 1, Request: field[2:]})
					a.returned[o] = true
					text += fmt.Sprintf(";%d.1.%s", o, byRestore)
				}
			}
			if text != r.records[field] {
				r.put(field, text)
			}
			sold += a.n - int64(len(a.returned))
			top = max(top, a.ordinal+a.n-1)
		default:
			return 0, 0, 0, nil, bad(field)
		}
	}
	for field, n := range counts {
		if text := strconv.FormatInt(n, 10); r.records[field] != text {
			r.put(field, text)
		}
	}
	return sold, held, top, deadlines, nil
}

func (r *restorer) overlaps(field string, ordinal, n int64) bool {
	for o := ordinal; o < ordinal+n; o++ {
		if by, taken := r.owner[o]; taken && by != field {
			return true
		}
	}
	return false
}

func (r *restorer) displaced(e Entry) { r.out.Displaced = append(r.out.Displaced, e) }

//go:embed restore.lua
var restoreSource string

var restoreScript = stockScript("restore", restoreSource)

type restoreReply struct {
	seen         [6]int64 // sold held seq, and the lengths of claimants, records and holds
	state, limit int64
}

var errChanged = fmt.Errorf("%w: or changed by a return meanwhile", ErrRestoring)

// stockRestoring: what restore.lua says when it is not this call's turn.
const stockRestoring = -10

// step runs restore.lua.
func (r *restorer) step(ctx context.Context, step string, args ...string) (restoreReply, error) {
	v, err := r.s.ints(ctx, 10, restoreScript, append([]string{step, r.call}, args...)...)
	if err != nil {
		return restoreReply{}, err
	}
	switch {
	case v[0] == stockNone:
		return restoreReply{}, fmt.Errorf("%w: %q", ErrNotOpen, r.s.keys[0])
	case v[0] == stockRestoring && step == "end":
		return restoreReply{}, errChanged
	case v[0] == stockRestoring:
		return restoreReply{}, fmt.Errorf("%w: %q", ErrRestoring, r.s.keys[0])
	}
	if err := r.s.verdict(v); err != nil {
		return restoreReply{}, err
	}
	return restoreReply{seen: [6]int64(v[2:8]), state: v[8], limit: v[9]}, nil
}

// record is the record of a request or reservation: see stock.lua.
type record struct {
	state                       string
	ordinal, n, asked, deadline int64
	call, by, claimant          string
}

func parseRecord(text string) (record, bool) {
	p := strings.SplitN(text, ";", 8)
	if len(p) != 8 || len(p[0]) != 1 {
		return record{}, false
	}
	q := record{state: p[0], ordinal: number(p[1]), n: number(p[2]), asked: number(p[3]), call: p[4], by: p[5], deadline: number(p[6]), claimant: p[7]}
	return q, q.ordinal >= 0 && q.n >= 0 && q.asked >= 0 && q.deadline >= 0
}

func (q record) text() string {
	return fmt.Sprintf("%s;%d;%d;%d;%s;%s;%d;%s", q.state, q.ordinal, q.n, q.asked, q.call, q.by, q.deadline, q.claimant)
}

// anyRecord is the record of a claim without a claimant: see any.lua.
type anyRecord struct {
	ordinal, n int64
	returned   map[int64]bool
}

func parseAny(text string) (anyRecord, bool) {
	p := strings.Split(text, ";")
	if len(p) < 2 {
		return anyRecord{}, false
	}
	a := anyRecord{ordinal: number(p[0]), n: number(p[1]), returned: map[int64]bool{}}
	if a.ordinal < 0 || a.n < 0 {
		return anyRecord{}, false
	}
	if a.n == 0 { // given up before it ran
		return a, true
	}
	for _, part := range p[2:] {
		f := strings.SplitN(part, ".", 3)
		if len(f) != 3 {
			return anyRecord{}, false
		}
		first, n := number(f[0]), number(f[1])
		if first < a.ordinal || n < 0 || first+n > a.ordinal+a.n {
			return anyRecord{}, false
		}
		for o := first; o < first+n; o++ {
			a.returned[o] = true
		}
	}
	return a, true
}

// number is a decimal from 0, or -1.
func number(text string) int64 {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 {
		return -1
	}
	return v
}
