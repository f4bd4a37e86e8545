package stock

import (
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/script"
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

// moment is when the server, at its ms now, answered a request that was sent at sent; epoch is the opening.
type moment struct {
	epoch, now int64
	sent       time.Time
}

// parseRecord reads the record of the order id, see parse in sale.lua, as the answer to a call. Lines without units
// stay, so that the lines of an answer are those of the order; but a closed order has no lines.
func parseRecord(id, text string, at *moment) (a Answer, ok bool) {
	ok = true
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		ok = ok && err == nil
		return n
	}
	a = Answer{ID: id, Epoch: at.epoch}
	if text != "" && text[0] >= '0' && text[0] <= '9' {
		a.User, a.State, a.Lines = id, Sold, []Line{{N: 1, Ordinal: number(text)}}
		return a, ok
	}
	head, rest, ok1 := strings.Cut(text, ";")
	of, user, ok2 := strings.Cut(rest, ";")
	if !ok1 || !ok2 || head == "" {
		return Answer{}, false
	}
	is := states[head[0]]
	a.User, a.State, a.Why = user, is.State, is.why
	if a.State == Reserved {
		a.Until = at.sent.Add(script.Duration(number(head[1:]) - at.now))
	}
	if of != "" { // of a forbidden id
		a.Lines = make([]Line, 0, 1+strings.Count(of, "|"))
	}
	for more := of != ""; more; {
		var line string
		line, of, more = strings.Cut(of, "|")
		var f [4]string // item, asked, n, ordinal
		for i := range f {
			f[i], line, ok1 = strings.Cut(line, ",")
			ok = ok && ok1 == (i < len(f)-1)
		}
		number(f[1])
		a.Lines = append(a.Lines, Line{Item: f[0], N: number(f[2]), Ordinal: number(f[3])})
	}
	if a.State == Closed {
		a.Lines = nil
	}
	return a, ok && a.State != ""
}
