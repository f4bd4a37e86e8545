package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// event is what a client did, or is about to do, with one primitive. Times are of the machine's monotonic clock, in
// nanoseconds.
type event struct {
	Client int    `json:"c"` // a process; one that takes the place of a killed one has a number of its own
	Of     string `json:"of"`
	Do     string `json:"do"`
	ID     string `json:"id,omitempty"` // of the use, claimant, order or round
	Call   int64  `json:"call,omitempty"`
	Return int64  `json:"ret,omitempty"`
	To     int64  `json:"to,omitempty"` // until when its holder may act
	N      int64  `json:"n,omitempty"`  // permits, or cents
	V      int64  `json:"v,omitempty"`  // token, ordinal, value, or the client's place
	Out    string `json:"out,omitempty"`

	Entry *stock.Entry `json:"entry,omitempty"`

	Patience time.Duration `json:"patience,omitempty"` // of a caller that waits for it to the end
}

// now is a clock that all processes of the machine share.
func now() int64 { return redistest.Monotonic() }

// reason is the outcome of a call that ended with err.
func reason(err error) string {
	if err == nil {
		return "ok"
	}
	return redlatch.Reason(err)
}

// open reports that a call has no outcome: it did not run, or that is not known.
func open(out string) bool {
	return slices.Contains([]string{"", "unknown_outcome", "unavailable", "timeout", "canceled", "denied", "closed",
		"not_replicated", "other"}, out)
}

// until is t on the machine's monotonic clock, or a little earlier.
func until(t time.Time) int64 {
	n := now() // before time.Until reads its own
	return n + int64(time.Until(t))
}

// record is the events of one primitive in one cell.
type record struct {
	events []event
	ended  map[int]int64 // when a client was killed
	final  map[string]int64
	lease  time.Duration
}

// all are the events of one kind.
func (h record) all(do string) (list []event) {
	for _, e := range h.events {
		if e.Do == do {
			list = append(list, e)
		}
	}
	return list
}

// use is n units that their holder could act under at every instant of an interval.
type use struct {
	from, to, n int64
	id          string
	client      int
}

// idle is the longest time without a holder; of a primitive without holders, between two answers.
func (h record) idle(answers []event) (longest time.Duration) {
	uses := h.uses()
	if len(uses) == 0 {
		for _, e := range answers {
			uses = append(uses, use{from: e.Return, to: e.Return})
		}
	}
	for i, last := 1, int64(0); i < len(uses); i++ {
		last = max(last, uses[i-1].to)
		longest = max(longest, time.Duration(uses[i].from-last))
	}
	return longest
}

// uses are those of the history. What a client had not begun to give back when it was killed, it could use until then,
// but no longer than the first answer said.
func (h record) uses() (list []use) {
	left := map[string]int64{}
	for _, e := range h.all("stop") {
		left[e.ID] = e.To
	}
	for _, e := range h.all("leave") {
		left[e.ID] = e.To
	}
	for _, e := range h.all("take") {
		if e.Out != "ok" {
			continue
		}
		to, ok := left[e.ID]
		if !ok {
			to = e.To
			if at, killed := h.ended[e.Client]; killed {
				to = min(to, at)
			}
		}
		if to > e.Return {
			list = append(list, use{from: e.Return, to: to, n: e.N, id: e.ID, client: e.Client})
		}
	}
	slices.SortFunc(list, func(a, b use) int { return cmp.Compare(a.from, b.from) })
	return list
}
