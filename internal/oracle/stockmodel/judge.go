package stockmodel

import (
	"maps"
	"slices"
	"strings"
)

// Judge is a stock with the records of its ids, as the documentation describes it. It answers acts at instants, in ms,
// for the tests of whatever drives a stock: it knows acts and records, and no type of the library.
type Judge struct {
	Stock
	Per    int32 // the most units of one claimant; 0: any number
	Paused bool
	End    int64 // when the sale ends; 0: never
	Kept   map[string]Kept
}

// Kept is what a stock has about one id.
type Kept struct {
	Record
	Claimant string
	Asked    int32
	Until    int64 // the end of a hold
	Ended    int64 // when it was sold, or came to its end
}

// NewJudge makes a judge of a stock that was just opened.
func NewJudge(limit, per int32) *Judge {
	return &Judge{Stock: Stock{Limit: limit}, Per: per, Kept: map[string]Kept{}}
}

// Clone returns a judge of the same stock that goes on by itself.
func (j *Judge) Clone() *Judge {
	n := *j
	n.Kept = maps.Clone(j.Kept)
	return &n
}

// Left is how many units are neither held nor sold.
func (j *Judge) Left() int32 { return j.left(Whole) }

// Has is how many units a claimant has.
func (j *Judge) Has(claimant string) (n int32) {
	for _, k := range j.Kept {
		if k.Claimant == claimant && (k.Is == Held || k.Is == Sold) {
			n += k.N
		}
	}
	return n
}

// Expire ends the holds whose time is over, in the order of their ends, and returns their ids and entries.
func (j *Judge) Expire(now int64) (ids []string, lines []Entry) {
	for id, k := range j.Kept {
		if k.Is == Held && now > k.Until {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		if d := j.Kept[a].Until - j.Kept[b].Until; d != 0 {
			return int(d)
		}
		return strings.Compare(a, b)
	})
	for _, id := range ids {
		k := j.Kept[id]
		k.Ended = now
		lines = append(lines, j.Stock.Expire(&k.Record, Whole)...)
		j.Kept[id] = k
	}
	return ids, lines
}

// Forget removes the records that came to their end longer ago than that, and returns how many.
func (j *Judge) Forget(now, remember int64) (n int) {
	for id, k := range j.Kept {
		if k.Is != Sold && k.Is != Held && now > k.Ended+remember {
			delete(j.Kept, id)
			n++
		}
	}
	return n
}

// Do does an act about an id for a claimant, who has no name where that does not matter; of Reserve and Extend, with a
// hold of ms. It returns the answer and the entries of the ledger.
func (j *Judge) Do(now int64, id, claimant string, ask Ask, ms int64) (Answer, []Entry) {
	k := j.Kept[id]
	switch takes := ask.Verb == Reserve || ask.Verb == Claim; {
	case takes && k.Is != None && k.Is != Forbidden && (k.Claimant != claimant || k.Asked != ask.N):
		return Answer{Outcome: Other}, nil
	case takes && k.Is == None:
		k.Claimant, k.Asked = claimant, ask.N
	case ask.Verb == Extend && k.Is == Held && now+ms <= k.Until:
		return Answer{Outcome: Granted, N: k.N, Again: true}, nil
	}
	j.look(now)
	if j.Room = 0; j.Per > 0 && k.Claimant != "" {
		if j.Room = j.Per - j.Has(k.Claimant); j.Room <= 0 {
			j.Room = NoRoom
		}
	}
	was := k.Is
	answer, lines := j.Act(&k.Record, ask, Whole)
	if k.Is == Held && (was != Held || ask.Verb == Extend) {
		k.Until = now + ms
	}
	if k.Is != was {
		k.Ended = now
	}
	if k.Is != None {
		j.Kept[id] = k
	}
	return answer, lines
}

// look says whether the sale is open.
func (j *Judge) look(now int64) {
	switch j.Closed = 0; {
	case j.End > 0 && now >= j.End:
		j.Closed = Ended
	case j.Paused:
		j.Closed = IsPaused
	}
}
