package simulation

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/oracle/stockmodel"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// auditStocks has the model of stocks follow what the servers ran: it refuses the step at which a stock does anything
// else. In the end each answer about an id is the model's, and the database has all entries. A clock that was set back,
// to before the start of a sale, is not in the model.
func (w *world) auditStocks(o *object) {
	if w.back {
		return
	}
	w.net.mu.Lock()
	wire := slices.Clone(w.net.wire)
	w.net.mu.Unlock()
	stocks := map[string]*stockmodel.Follower{}
	for i := range wire {
		if err := o.follow(stocks, &wire[i]); err != nil {
			w.violated("%s: %v", o.name, err)
			return
		}
	}
	w.count(func(f *Figures) { f.Followed += len(stocks) })
	for name, b := range o.bases {
		f := stocks[name]
		if b != nil && (f == nil || f.Entries() != len(b.rows)) {
			w.violated("%s: the database has %d entries of the ledger, and the model %+v", name, len(b.rows), f)
			return
		}
	}
	for _, e := range o.calls.all() {
		name, id, isLine := strings.Cut(e.key, "/")
		if !isLine {
			name, id = o.name, e.key
		}
		if e.what == claims || e.what == giving {
			if stocks[name] == nil {
				continue
			}
			if who := stocks[name].Owner(e.grant.Ordinal); e.err == nil && e.grant.Won() && who != e.key {
				w.violated("%s: step %d: %s was answered unit %d, which is %q's", o.name, e.step, e.key, e.grant.Ordinal, who)
			}
			continue
		}
		if e.key == "sale" {
			continue
		}
		if r := stocks[name].Record(id); !e.fits(r) {
			w.violated("%s: step %d: %s of %s was answered %+v, %d came back, %v; the model has %+v", o.name, e.step, e.what,
				e.key, e.grant, e.back, e.err, r)
		}
	}
}

// fits reports whether an answer about an id can have been, since the id came to that.
func (e *entry) fits(r stockmodel.Record) bool {
	switch e.says() {
	case isSold:
		return (r.Is == stockmodel.Sold || r.Is == stockmodel.Returned) && int64(r.Ordinal) == e.grant.Ordinal &&
			e.grant.N <= int64(r.Before)
	case isHeld:
		return r.Is != stockmodel.None && e.grant.N <= int64(r.Before)
	case cancelled:
		return r.Is == stockmodel.Cancelled || r.Is == stockmodel.Forbidden
	case returned:
		return r.Is == stockmodel.Returned
	case expired:
		return r.Is == stockmodel.Void || r.Is == stockmodel.Expired ||
			e.what != confirm && e.what != part && (r.Is == stockmodel.Sold || r.Is == stockmodel.Returned) // late
	}
	return true
}

// follow takes in what was seen, if it is of stocks of o.
func (o *object) follow(stocks map[string]*stockmodel.Follower, w *Wire) error {
	if w.Keys == 0 || w.Keys%7 != 0 {
		return nil
	}
	var of []*stockmodel.Follower
	for i := 0; i < w.Keys; i += 7 {
		name := w.Args[i][strings.LastIndexByte(w.Args[i], '{')+1 : len(w.Args[i])-1]
		if _, mine := o.bases[name]; !mine {
			return nil
		}
		if stocks[name] == nil {
			stocks[name] = stockmodel.NewFollower(stockLimit, w.Server.Add(time.Hour).UnixMilli())
		}
		of = append(of, stocks[name])
	}
	if strings.HasPrefix(w.Script, "-- Reserves, confirms, extends, cancels or returns a cart") {
		if w.Read || w.Reply[0] != 0 {
			return nil
		}
		args, r := w.Args[w.Keys:], w.Reply
		var lines []stockmodel.Act
		var left []int64
		for i := range of {
			act := []string{args[3], args[4], args[2]}
			switch args[3] {
			case "R":
				act = append(act, args[5], args[7+i], args[6])
			case "C":
				act = append(act, args[5+i])
			case "E":
				act = append(act, args[5])
			case "B":
				act = append(act, "0")
			}
			lines, left = append(lines, stockActs(act, r[4+7*i:])...), append(left, r[10+7*i])
		}
		return stockmodel.Cart(r[3], args[0], of, lines, left)
	}
	if len(of) == 1 {
		return stockStep(of[0], w)
	}
	return nil
}

// about is what an answer says of its id.
type about string

const (
	unheard   about = ""          // it says nothing
	none      about = "none"      // there is no such id
	refused   about = "refused"   // it has nothing yet
	isHeld    about = "held"      //
	isSold    about = "sold"      //
	expired   about = "expired"   //
	cancelled about = "cancelled" // for good
	returned  about = "returned"  // for good
)

func (e *entry) says() about {
	switch {
	case e.done.IsZero():
		return unheard
	case errors.Is(e.err, stock.ErrNotFound):
		return none
	case e.err != nil:
		return unheard
	case e.what == cancel && e.back > 0:
		return cancelled
	case e.what == back && e.back > 0 && e.n == 0:
		return returned
	}
	switch e.grant.Outcome {
	case stock.Granted, stock.Replayed:
		if e.grant.Ordinal == 0 {
			return isHeld
		}
		return isSold
	case stock.Expired:
		return expired
	case stock.Cancelled:
		return cancelled
	case stock.Returned:
		return returned
	case "":
		if e.what == look {
			return none
		}
		return unheard
	}
	return refused
}

// number is a decimal of a script, which has no others.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// stockStep takes in what the model knows of one thing that was seen.
func stockStep(f *stockmodel.Follower, w *Wire) error {
	args, r := w.Args[w.Keys:], w.Reply
	is := func(first string) bool { return strings.HasPrefix(w.Script, first) }
	if w.Read {
		if lines := ledgerLines(w); is("-- Reads the first entries of a stock's ledger") && len(lines) > 0 {
			f.Heard(w.Client, lines[len(lines)-1].Serial)
		}
		return nil
	}
	switch {
	case is("-- Acts on requests and reservations"):
		if r[0] != 0 {
			return nil
		}
		return f.Acts(r[3], args[0], r[2], stockActs(args[3:], r[4:]))
	case is("-- Claims one unit for each"):
		if r[0] != 0 || r[1] == 0 {
			return nil
		}
		return f.Claimed(w.Server.UnixMilli(), args[0], r[2], args[2:], r[3:])
	case is("-- Returns the unit that a claimant has"):
		if r[0] == 0 {
			return f.GaveBack(args[0], args[1], number(args[2]), r[1] == 1)
		}
	case is("-- Changes what Open has set"):
		if r[0] != 0 || r[2] != 1 {
			return nil
		}
		var end *int64
		var paused *bool
		for i := 3; i < len(args); i += 2 {
			n := number(args[i+1])
			switch args[i] {
			case "end":
				end = &n
			case "paused":
				on := n == 1
				paused = &on
			}
		}
		f.Changed(r[3], r[1], end, paused)
	case is("-- Gives back what is held by reservations"):
		return f.Reaped(w.Server.UnixMilli(), r[1])
	case is("-- Reads the records of requests"):
		for i, id := range args {
			if r[0] == 0 && r[1] != 0 && id != "" {
				if err := f.Found(id, w.Words[3+i]); err != nil {
					return err
				}
			}
		}
	case is("-- Reads the state of a stock"):
		return f.Status(r[2], r[3], r[10])
	case is("-- Reads the first entries of a stock's ledger"):
		return f.Read(ledgerLines(w))
	case is("-- Removes the first entries of a stock's ledger"):
		last, _, _ := strings.Cut(args[0], "-")
		return f.Removed(w.Client, int(number(last)), r[1])
	default:
		return nil
	}
	return nil
}

// stockActs are the acts of a call, which begin in args, and what they were answered.
func stockActs(args []string, reply []int64) (acts []stockmodel.Act) {
	for len(args) > 0 {
		a := stockmodel.Act{ID: args[1], Last: number(args[2]), Outcome: int32(reply[0])}
		n := map[string]int{"R": 6, "V": 6, "O": 5, "U": 5, "X": 3}[args[0]]
		if n == 0 {
			n = 4
		}
		switch verb := args[0]; verb {
		case "R", "V", "O", "U":
			a.Claimant = args[3]
			a.Ask = stockmodel.Ask{Verb: stockmodel.Reserve, N: int32(number(args[4])), Part: verb == "V" || verb == "U"}
			if n == 6 {
				a.MS = number(args[5])
			} else {
				a.Ask.Verb = stockmodel.Claim
			}
			a.Ordinal, a.N = int32(reply[1]), int32(reply[2])
		case "C":
			a.Ask = stockmodel.Ask{Verb: stockmodel.Confirm, N: int32(number(args[3]))}
			a.Ordinal, a.N = int32(reply[1]), int32(reply[2])
		case "E":
			a.Ask.Verb, a.MS = stockmodel.Extend, number(args[3])
			a.Ordinal, a.N = int32(reply[1]), int32(reply[2])
		case "X":
			a.Ask.Verb, a.N = stockmodel.Cancel, int32(reply[1])
		case "B":
			a.Ask, a.N = stockmodel.Ask{Verb: stockmodel.Return, N: int32(number(args[3]))}, int32(reply[1])
		}
		acts = append(acts, a)
		args, reply = args[n:], reply[5:]
	}
	return acts
}

// ledgerLines are the entries in a reply of the script that reads a ledger.
func ledgerLines(w *Wire) (lines []stockmodel.Line) {
	for _, word := range slices.Collect(slices.Chunk(w.Words[min(3, len(w.Words)):], 15)) {
		serial, _, _ := strings.Cut(word[0], "-")
		l := stockmodel.Line{Serial: int(number(serial))}
		for i := 1; i+1 < len(word); i += 2 {
			switch word[i] {
			case "k":
				l.Kind = word[i+1]
			case "o":
				l.Ordinal = int32(number(word[i+1]))
			case "n":
				l.N = int32(number(word[i+1]))
			case "r":
				l.Request = word[i+1]
			}
		}
		lines = append(lines, l)
	}
	return lines
}
