package stockmodel

import (
	"fmt"
	"slices"
	"strings"
)

// Act is one act of a call of the scripts: Ask about ID of a Claimant, with a hold of MS, that may run until Last (0:
// at any time), and what it was answered: Outcome, and N units from Ordinal on.
type Act struct {
	ID, Claimant string

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
	judge Judge
	last  map[string]string // the call that has extended a hold
	log   []entry
	moved int
	read  map[string]int // how many entries each client has read
	rev   int64

	claimants map[string]claimant
	owners    map[int64]string // of units that were claimed without an id
}

// claimant is what a stock has of one that claims without an id.
type claimant struct {
	ordinal, returned int64  // 0: none
	call, by          string // that claimed, and that returned
}

// NewFollower makes one of a stock of so many units that is open until an instant.
func NewFollower(limit int32, ending int64) *Follower {
	f := &Follower{judge: *NewJudge(limit, 0), last: map[string]string{}, read: map[string]int{},
		claimants: map[string]claimant{}, owners: map[int64]string{}}
	f.judge.End = ending
	return f
}

func (f *Follower) enter(id string, lines []Entry) {
	for _, e := range lines {
		f.log = append(f.log, entry{e, id})
	}
}

// expire ends the holds whose time is over, and returns how many.
func (f *Follower) expire(now int64) int {
	ids, lines := f.judge.Expire(now)
	for i, id := range ids {
		f.enter(id, lines[i:i+1])
	}
	return len(ids)
}

// Acts takes in a call of acts, all of which a server has run at an instant, and how many units it says are left then.
func (f *Follower) Acts(now int64, call string, left int64, acts []Act) error {
	f.expire(now)
	for _, a := range acts {
		before := f.judge.Kept[a.ID].Record
		if late := a.Last > 0 && now > a.Last; late || a.Outcome == tooLate {
			if !late || a.Outcome != tooLate {
				return fmt.Errorf("the model refuses %+v at %d: an act is refused after its not-after, and not before", a, now)
			}
			continue
		}
		answer, again := f.act(a, now, call)
		if !answer.fits(a, before) {
			return fmt.Errorf("the model refuses %+v at %d: with %+v it answers %+v (again: %v); the stock is %+v", a, now,
				before, answer, again, f.judge.Stock)
		}
	}
	if is := int64(f.judge.Left()); is != left {
		return fmt.Errorf("the model refuses that %d units are left at %d: it has %d; the stock is %+v", left, now, is,
			f.judge.Stock)
	}
	return nil
}

// Claimed takes in a call that claims a unit for each of some claimants: an outcome and an ordinal for each, and how
// many units it says are left then.
func (f *Follower) Claimed(now int64, call string, left int64, claimants []string, said []int64) error {
	f.expire(now)
	for i, who := range claimants {
		c, want := f.claimants[who], Answer{Outcome: Granted}
		switch {
		case c.ordinal > 0:
			want.Ordinal, want.Again = int32(c.ordinal), true
		case c.call == call: // a second run, after a return
			want.Ordinal = int32(c.returned)
		default:
			f.judge.look(now)
			f.judge.Room = 0
			var lines []Entry
			want, lines = f.judge.Act(&Record{}, Ask{Verb: Claim, N: 1}, Whole)
			if f.enter("", lines); want.Ordinal > 0 {
				f.claimants[who] = claimant{ordinal: int64(want.Ordinal), call: call, returned: c.returned, by: c.by}
				f.owners[int64(want.Ordinal)] = who
			}
		}
		is, ordinal := int32(said[2*i]), int32(said[2*i+1])
		if again := want.Again && is == Granted+1; is != want.Outcome && !again || ordinal != want.Ordinal {
			return fmt.Errorf("the model refuses that %s, which has %+v, is answered %d, %d at %d: it answers %+v; "+
				"the stock is %+v", who, c, is, ordinal, now, want, f.judge.Stock)
		}
	}
	if is := int64(f.judge.Left()); is != left {
		return fmt.Errorf("the model refuses that %d units are left at %d: it has %d; the stock is %+v", left, now, is,
			f.judge.Stock)
	}
	return nil
}

// GaveBack takes in a call by which a claimant returns its unit, and whether it did.
func (f *Follower) GaveBack(call, who string, ordinal int64, did bool) error {
	c := f.claimants[who]
	has, again := c.ordinal == ordinal, c.returned == ordinal && c.by == call
	if did != (has || again) {
		return fmt.Errorf("the model refuses that %s returns unit %d: %v; it has %+v", who, ordinal, did, c)
	}
	if has {
		f.judge.Sold--
		f.enter("", []Entry{{KindReturn, int32(ordinal), 1}})
		f.claimants[who] = claimant{call: c.call, returned: ordinal, by: call}
	}
	return nil
}

// Owner is whose unit that is, or was, that claims without an id.
func (f *Follower) Owner(ordinal int64) string { return f.owners[ordinal] }

// Cart takes in a call about a cart, whose lines are acts of a stock each, and how many units each says are left: all
// lines are done, or none but what stands for itself, that an unknown id is forbidden.
func Cart(now int64, call string, stocks []*Follower, lines []Act, left []int64) error {
	refused := slices.ContainsFunc(lines, func(a Act) bool {
		return a.Outcome < 0 || a.Outcome > Granted+1 && (a.Ask.Verb != Confirm || a.Outcome != NoUnits)
	})
	for i, f := range stocks {
		a, acts := lines[i], lines[i:i+1]
		if refused && a.Outcome == 0 { // it was not in the way, and not done
			acts = nil
		}
		f.expire(now)
		before := f.judge.Kept[a.ID]
		if err := f.Acts(now, call, left[i], acts); err != nil {
			return err
		}
		if after := f.judge.Kept[a.ID]; refused && before != after && after.Is != Forbidden {
			return fmt.Errorf("the model refuses a part of a cart: %+v of %+v at %d is done, and others are not", a, before, now)
		}
	}
	return nil
}

// act does one act, which may be the second run of a call that extends a hold.
func (f *Follower) act(a Act, now int64, call string) (answer Answer, again bool) {
	k := f.judge.Kept[a.ID]
	if a.Ask.Verb == Extend && k.Is == Held && f.last[a.ID] == call {
		return Answer{Outcome: Granted, N: k.N}, true
	}
	answer, lines := f.judge.Do(now, a.ID, a.Claimant, a.Ask, a.MS)
	if f.enter(a.ID, lines); a.Ask.Verb == Extend && k.Is == Held && !answer.Again {
		f.last[a.ID] = call
	}
	return answer, answer.Again
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
		f.judge.End = now + *end
	}
	if paused != nil {
		f.judge.Paused = *paused
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
	r := f.judge.Kept[id].Record
	p := strings.Split(record, ";")
	switch {
	case record == "" && r.Is == None:
		return nil
	case record == "" || r.Is == None || p[0] != letters[r.Is:r.Is+1]:
	case (r.Is == Held || r.Is == Sold) && (p[1] != fmt.Sprint(r.Ordinal) || p[2] != fmt.Sprint(r.N)):
	default:
		return nil
	}
	return fmt.Errorf("the model refuses the record %q of %s: it has %+v", record, id, r)
}

// Status takes in the numbers of a stock.
func (f *Follower) Status(sold, seq, held int64) error {
	if s := f.judge.Stock; int64(s.Sold) != sold || int64(s.Seq) != seq || int64(s.Held) != held {
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

// Record is what the model has of an id.
func (f *Follower) Record(id string) Record { return f.judge.Kept[id].Record }

// Entries is how many entries of the ledger there have been.
func (f *Follower) Entries() int { return len(f.log) }

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
