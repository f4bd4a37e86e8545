package sale

import (
	"strconv"
	"strings"
	"time"
)

// Answer is what has become of an order, from every verb alike.
type Answer struct {
	ID, User string
	State    State
	Why      string    // of Refused and Closed, and beside ErrLater
	Lines    []Line    // what it has now, reserved or sold; of Lapsed what it had; of Refused what is left of each line
	Until    time.Time // Reserved: when units go back, by this machine's clock, never later than the server does it
	Again    bool      // it had been so before this call, or before a repetition of it
	Epoch    int64     // the opening
}

// State is what an order is; "": the sale does not know it.
type State string

// States, see the package comment.
const (
	Reserved State = "reserved"
	Sold     State = "sold"
	Lapsed   State = "lapsed"
	Refused  State = "refused"
	Closed   State = "closed"
)

// The values of Answer.Why. Beside ErrLater it is also "suspended", while Restore runs.
const (
	// of Refused
	SoldOut   = "sold out"
	UserLimit = "user limit"
	Ended     = "ended"
	// beside ErrLater
	NotStarted = "not started"
	Paused     = "paused"
	// of Closed
	Cancelled = "cancelled"
	Expired   = "expired" // paid too late, and not one unit was to be had
	Returned  = "returned"
	Forbidden = "forbidden" // paid, cancelled or returned before the sale knew of it
)

// Won reports whether the order has units, Reserved or Sold.
func (a Answer) Won() bool { return a.State == Reserved || a.State == Sold }

// Refund is what goes back of paid, all lines that the customer ever paid for: for each item the units that the order
// does not have. The result is the sum over all time, not the new part. Pay back the difference to what was paid back
// before, with the order's id and this sum as the bank's idempotency key: then a shop that calls the bank twice with
// one answer pays once.
//
// Refund is nil unless the answer is a decision: of a zero Answer, as beside an error, and of Refused, Reserved and
// Lapsed.
func (a Answer) Refund(paid ...Line) (back []Line) {
	if a.State != Sold && a.State != Closed {
		return nil
	}
	has := map[string]int64{}
	if a.State == Sold {
		for _, l := range a.Lines {
			has[l.Item] += l.N
		}
	}
	for _, l := range paid {
		n := l.N - min(l.N, has[l.Item])
		has[l.Item] -= l.N - n // an item may be in two lines of what was paid
		if n > 0 {
			back = append(back, Line{Item: l.Item, N: n})
		}
	}
	return back
}

// states are the states of records, and why those are closed.
var states = map[byte]struct {
	State
	why string
}{
	'R': {Reserved, ""}, 'S': {Sold, ""}, 'L': {Lapsed, ""},
	'C': {Closed, Cancelled}, 'E': {Closed, Expired}, 'G': {Closed, Returned}, 'F': {Closed, Forbidden},
}

// record is an order as the server has it: see parse in sale.lua.
type record struct {
	state    byte
	deadline int64
	lines    []recordLine
	user     string
}

type recordLine struct {
	Line
	asked int64
}

// parseRecord reads the record of an order.
func parseRecord(id, text string) (r record, ok bool) {
	if text == "" {
		return r, false
	}
	if text[0] >= '0' && text[0] <= '9' {
		ordinal, err := strconv.ParseInt(text, 10, 64)
		return record{state: 'S', user: id, lines: []recordLine{{Line{N: 1, Ordinal: ordinal}, 1}}}, err == nil
	}
	head, rest, ok1 := strings.Cut(text, ";")
	of, user, ok2 := strings.Cut(rest, ";")
	if !ok1 || !ok2 || head == "" || states[head[0]].State == "" {
		return r, false
	}
	r.state, r.user = head[0], user
	var wrong error
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			wrong = err
		}
		return n
	}
	if r.state == 'R' {
		r.deadline = number(head[1:])
	}
	for _, line := range strings.Split(of, "|") {
		f := strings.Split(line, ",")
		switch {
		case line == "" && of == "": // of a forbidden id
		case len(f) != 4:
			return r, false
		default:
			r.lines = append(r.lines, recordLine{Line{f[0], number(f[2]), number(f[3])}, number(f[1])})
		}
	}
	return r, wrong == nil
}

// answer is the record as the answer to a call that the server ran at now, and that was sent at sent. Lines without
// units stay, so that the lines of an answer are those of the order; but a closed order has no lines.
func (r *record) answer(id string, now int64, sent time.Time) Answer {
	is := states[r.state]
	a := Answer{ID: id, User: r.user, State: is.State, Why: is.why}
	if a.State == Closed {
		return a
	}
	for _, l := range r.lines {
		a.Lines = append(a.Lines, l.Line)
	}
	if r.state == 'R' {
		a.Until = sent.Add(time.Duration(r.deadline-now) * time.Millisecond)
	}
	return a
}
