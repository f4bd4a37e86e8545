package stock

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// span is the units first to last.
type span struct{ first, last int64 }

func (s span) n() int64 { return s.last - s.first + 1 }

// minus is what of s is in none of others, which are sorted and do not overlap.
func (s span) minus(others []span) (rest []span) {
	for _, o := range others {
		if o.last < s.first || o.first > s.last {
			continue
		}
		if o.first > s.first {
			rest = append(rest, span{s.first, o.first - 1})
		}
		s.first = o.last + 1
	}
	if s.first <= s.last {
		rest = append(rest, s)
	}
	return rest
}

func bySpan(a, b span) int { return cmp.Compare(a.first, b.first) }

// record is the record of a request or reservation: see stock.lua.
type record struct {
	state                       string
	ordinal, n, asked, deadline int64
	call, by, claimant          string
}

// units is what the record has, or had at its end.
func (q record) units() span { return span{q.ordinal, q.ordinal + q.n - 1} }

// returned is what a request that has units has returned of them, by Return with Keep: those after its own. See
// return_units in acts.lua.
func (q record) returned() span {
	p := strings.Split(q.by, ".")
	if q.state != "G" || len(p) < 3 {
		return span{q.ordinal + q.n, q.ordinal + q.n - 1}
	}
	return span{q.ordinal + q.n, q.ordinal + max(q.n, number(p[len(p)-1])) - 1}
}

// cart is the digest of the cart that the record is a line of; empty for a reservation by itself: see cart.lua.
func (q record) cart() string {
	_, digest, _ := strings.Cut(q.call, "+")
	return digest
}

func parseRecord(text string) (record, bool) {
	p := strings.SplitN(text, ";", 8)
	if len(p) != 8 || len(p[0]) != 1 {
		return record{}, false
	}
	q := record{state: p[0], ordinal: number(p[1]), n: number(p[2]), asked: number(p[3]), call: p[4], by: p[5],
		deadline: number(p[6]), claimant: p[7]}
	return q, q.ordinal >= 0 && q.n >= 0 && q.asked >= 0 && q.deadline >= 0
}

func (q record) text() string {
	return fmt.Sprintf("%s;%d;%d;%d;%s;%s;%d;%s", q.state, q.ordinal, q.n, q.asked, q.call, q.by, q.deadline, q.claimant)
}

// anyRecord is the record of a claim without a claimant: see any.lua.
type anyRecord struct {
	ordinal, n int64
	returned   []span // by ordinal; they do not overlap
}

func (a anyRecord) units() span { return span{a.ordinal, a.ordinal + a.n - 1} }

func parseAny(text string) (anyRecord, bool) {
	p := strings.Split(text, ";")
	if len(p) < 2 {
		return anyRecord{}, false
	}
	a := anyRecord{ordinal: number(p[0]), n: number(p[1])}
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
		if n > 0 {
			a.returned = append(a.returned, span{first, first + n - 1})
		}
	}
	slices.SortFunc(a.returned, bySpan)
	for i, s := range a.returned {
		if i > 0 && s.first <= a.returned[i-1].last {
			return anyRecord{}, false
		}
	}
	return a, true
}

// number is a decimal from 0 to maxLimit, or -1.
func number(text string) int64 {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 || v > maxLimit {
		return -1
	}
	return v
}
