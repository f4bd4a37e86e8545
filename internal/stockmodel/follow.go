package stockmodel

import (
	"fmt"
	"slices"
	"strings"
)

// Act is one act of a call of the scripts: Ask about ID, with a hold of MS, that may run until Last (0: at any time),
// and what it was answered: Outcome, and N units from Ordinal on.
type Act struct {
	ID   string
	Ask  Ask
	MS   int64
	Last int64

	Outcome, N, Ordinal int32
}

// tooLate is the outcome of an act that is not done.
const tooLate = -11

// entry is one of the ledger.
type entry struct {
	Entry
	id string
}

// Follower follows what is seen of one stock. Instants are ms of the server's clock.
type Follower struct {
	s       Stock
	records map[string]*Record
	ends    map[string]int64  // of holds
	last    map[string]string // the call that has extended a hold
	log     []entry
	moved   int
	read    map[string]int // how many entries each client has read
	rev     int64
	paused  bool
	ending  int64
	Sold    int // units, in all
}

// NewFollower makes one of a stock of so many units that is open until an instant.
func NewFollower(limit int32, ending int64) *Follower {
	return &Follower{s: Stock{Limit: limit}, records: map[string]*Record{}, ends: map[string]int64{}, ending: ending,
		last: map[string]string{}, read: map[string]int{}}
}

func (f *Follower) enter(id string, lines []Entry) {
	for _, e := range lines {
		f.log = append(f.log, entry{e, id})
		if e.Kind == KindGrant || e.Kind == KindLate {
			f.Sold += int(e.N)
		}
	}
}

func (f *Follower) record(id string) *Record {
	if f.records[id] == nil {
		f.records[id] = &Record{}
	}
	return f.records[id]
}

// expire ends the holds whose time is over, and returns how many.
func (f *Follower) expire(now int64) (n int) {
	var due []string
	for id, end := range f.ends {
		if f.record(id).Is == Held && now > end {
			due = append(due, id)
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		if d := f.ends[a] - f.ends[b]; d != 0 {
			return int(d)
		}
		return strings.Compare(a, b)
	})
	for _, id := range due {
		f.enter(id, f.s.Expire(f.record(id), Whole))
	}
	return len(due)
}

// Acts takes in a call of acts, all of which a server has run at an instant, and how many units it says are left then.
func (f *Follower) Acts(now int64, call string, left int64, acts []Act) error {
	f.expire(now)
	f.s.Closed = 0
	switch {
	case now >= f.ending:
		f.s.Closed = 6
	case f.paused:
		f.s.Closed = 12
	}
	for _, a := range acts {
		r := f.record(a.ID)
		before := *r
		if late := a.Last > 0 && now > a.Last; late || a.Outcome == tooLate {
			if !late || a.Outcome != tooLate {
				return fmt.Errorf("the model refuses %+v at %d: an act is refused after its not-after, and not before", a, now)
			}
			continue
		}
		answer, again := f.act(r, a, now, call)
		if !answer.fits(a, before) {
			return fmt.Errorf("the model refuses %+v at %d: with %+v it answers %+v (again: %v); the stock is %+v", a, now,
				before, answer, again, f.s)
		}
	}
	if is := int64(f.s.Limit - f.s.Sold - f.s.Held); is != left {
		return fmt.Errorf("the model refuses that %d units are left at %d: it has %d; the stock is %+v", left, now, is, f.s)
	}
	return nil
}

// act does one act, which may be the second run of a call that extends a hold, or extend it to no later end.
func (f *Follower) act(r *Record, a Act, now int64, call string) (answer Answer, again bool) {
	if again = a.Ask.Verb == Extend && r.Is == Held && (f.last[a.ID] == call || now+a.MS <= f.ends[a.ID]); again {
		return Answer{Outcome: Granted, N: r.N}, true
	}
	was := r.Is
	answer, lines := f.s.Act(r, a.Ask, Whole)
	f.enter(a.ID, lines)
	if r.Is == Held && (was != Held || a.Ask.Verb == Extend) {
		f.ends[a.ID] = now + a.MS
		if a.Ask.Verb == Extend {
			f.last[a.ID] = call
		}
	}
	return answer, false
}

// fits reports whether what was answered is the answer, or the first run's to its second.
func (x Answer) fits(a Act, before Record) bool {
	switch a.Ask.Verb {
	case Cancel, Return:
		if a.Outcome != x.Outcome {
			return false
		}
		return a.N == x.N && !x.Again || x.Again && a.N >= 0 && a.N <= max(before.Before, before.N)
	}
	granted := a.Outcome == Granted || a.Outcome == Granted+1
	switch {
	case x.Outcome == Granted, x.Outcome == WasReturn && x.Again && granted:
		return granted && a.N == x.N && a.Ordinal == x.Ordinal
	case x.Outcome == WasReturn && x.Again:
		return a.Outcome == WasReturn
	}
	return a.Outcome == x.Outcome
}

// Changed takes in a Change: revision counts them, so one that has run before is known by it. end is the ms from now to
// the end of the sale; nil, as paused: that is not changed.
func (f *Follower) Changed(now, revision int64, end *int64, paused *bool) {
	if revision <= f.rev {
		return
	}
	f.rev = revision
	f.expire(now)
	if end != nil {
		f.ending = now + *end
	}
	if paused != nil {
		f.paused = *paused
	}
}

// Reaped takes in that a server has ended so many holds.
func (f *Follower) Reaped(now int64, n int64) error {
	if is := f.expire(now); int64(is) != n {
		return fmt.Errorf("the model refuses that %d holds end at %d: %d do", n, now, is)
	}
	return nil
}

// letters are the states in the records of the scripts.
const letters = "-HGRCECC"

// Found takes in the record of an id: "" if there is none.
func (f *Follower) Found(id, record string) error {
	r := f.record(id)
	p := strings.Split(record, ";")
	switch {
	case record == "" && r.Is == None:
		return nil
	case record == "" || r.Is == None || p[0] != letters[r.Is:r.Is+1]:
	case (r.Is == Held || r.Is == Sold) && (p[1] != fmt.Sprint(r.Ordinal) || p[2] != fmt.Sprint(r.N)):
	default:
		return nil
	}
	return fmt.Errorf("the model refuses the record %q of %s: it has %+v", record, id, *r)
}

// Status takes in the numbers of a stock.
func (f *Follower) Status(sold, seq, held int64) error {
	if s := f.s; int64(s.Sold) != sold || int64(s.Seq) != seq || int64(s.Held) != held {
		return fmt.Errorf("the model refuses %d sold up to %d and %d held: it has %+v", sold, seq, held, s)
	}
	return nil
}

// Line is an entry of the ledger as a server replies it.
type Line struct {
	Serial     int
	Kind       string
	Ordinal, N int32
	Request    string
}

// Read takes in the first entries of the ledger, as a server has replied them.
func (f *Follower) Read(lines []Line) error {
	for i, l := range lines {
		n := f.moved + i
		if n >= len(f.log) || l.Serial != n+1 {
			return fmt.Errorf("the model refuses entry %+v: it has %d entries, of which %d were removed", l, len(f.log), f.moved)
		}
		if e := f.log[n]; l.Kind != e.Kind.String() || l.Ordinal != e.Ordinal || l.N != e.N || l.Request != e.id {
			return fmt.Errorf("the model refuses entry %+v: it has %v %+v", l, e.Kind, e)
		}
	}
	return nil
}

// Heard takes in that a client has read the entries up to one.
func (f *Follower) Heard(client string, serial int) { f.read[client] = max(f.read[client], serial) }

// Removed takes in that a server has removed n entries, up to one, for a client.
func (f *Follower) Removed(client string, serial int, n int64) error {
	if serial > f.read[client] {
		return fmt.Errorf("the model refuses that %s has entries up to %d removed: it has read %d", client, serial,
			f.read[client])
	}
	if is := max(serial-f.moved, 0); int64(is) != n {
		return fmt.Errorf("the model refuses that %d entries up to %d are removed: it has %d", n, serial, is)
	}
	f.moved = max(f.moved, serial)
	return nil
}
