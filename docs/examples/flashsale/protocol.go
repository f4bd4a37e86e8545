package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Parent and worker exchange lines over the worker's stdin and stdout.
//
// To the worker: one line of workerConfig in JSON, then a line a claim, until the pipe is closed, which ends it:
//
//	<line> <user>
//
// From the worker: one line when it may sell, then a line an answer, in any order:
//
//	open <opening in JSON>
//	done <line> <outcome> <ordinal> <microseconds>[ <cents>]
//	fail <line> <asked: 0|1> <microseconds> <quoted reason>
//	dead <quoted reason>
//
// The last one says that no other worker could do better: the run is over. User ids contain no control characters
// (parseUser), so that none of this needs escaping on the hot path.

// workerConfig is what a worker has to know.
type workerConfig struct {
	Server  server
	Name    string // of the stock
	Units   int64  // to open it with
	Form    form   // how they are sold
	OpenFor time.Duration
	MayOpen bool // false once the sale has been open: a stock that vanished must not be sold again
	Claims  int  // made at the same time
	Window  int  // sent to a worker and not answered, at most
	patience
}

// patience is how long things may take before they have failed.
type patience struct {
	Retry time.Duration // a claim, or connecting, while Redis does not answer
	Grace time.Duration // answers to claims already sent, once the run is to end
	Quiet time.Duration // a worker that has work and says nothing
}

// opening is what a worker found when it could begin to sell.
type opening struct {
	Opened bool // by this worker
	Limit  int64
	Count  int64
	Last   int64
	Cents  int64 `json:",omitempty"`
	Epoch  int64
}

func (o opening) sold() sold {
	return sold{limit: o.Limit, count: o.Count, last: o.Last, cents: o.Cents, epoch: o.Epoch}
}

func appendClaim(b []byte, c claim) []byte {
	b = strconv.AppendInt(b, c.line, 10)
	b = append(b, ' ')
	b = append(b, c.user...)
	return append(b, '\n')
}

func parseClaim(s string) (claim, error) {
	line, user, ok := strings.Cut(s, " ")
	n, err := strconv.ParseInt(line, 10, 64)
	if !ok || err != nil {
		return claim{}, fmt.Errorf("not a claim: %q", s)
	}
	return claim{n, user}, nil
}

func appendAnswer(b []byte, a answer) []byte {
	if a.outcome == failed {
		return fmt.Appendf(b, "fail %d %d %d %q\n", a.line, btoi(a.asked), a.took.Microseconds(), a.err)
	}
	b = append(b, "done "...)
	b = strconv.AppendInt(b, a.line, 10)
	b = append(b, ' ')
	b = append(b, a.outcome...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, a.ordinal, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, a.took.Microseconds(), 10)
	if a.cents != 0 {
		b = append(b, ' ')
		b = strconv.AppendInt(b, a.cents, 10)
	}
	return append(b, '\n')
}

func appendOpening(b []byte, o opening) []byte {
	j, _ := json.Marshal(o) // a struct of numbers cannot fail
	return fmt.Appendf(b, "open %s\n", j)
}

func appendDead(b []byte, err error) []byte { return fmt.Appendf(b, "dead %q\n", err.Error()) }

// deadError is the reason of a worker that gave up for all of them.
type deadError struct{ reason string }

func (e deadError) Error() string { return e.reason }

// parseReply returns an opening, an answer or a deadError, and an error for anything else.
func parseReply(s string) (any, error) {
	bad := fmt.Errorf("not an answer: %.100q", s)
	verb, rest, _ := strings.Cut(s, " ")
	switch verb {
	case "open":
		var o opening
		if json.Unmarshal([]byte(rest), &o) != nil {
			return nil, bad
		}
		return o, nil
	case "dead":
		reason, err := strconv.Unquote(rest)
		if err != nil {
			return nil, bad
		}
		return deadError{reason}, nil
	case "done", "fail":
		f := strings.SplitN(rest, " ", 4)
		if len(f) != 4 {
			return nil, bad
		}
		line, err1 := strconv.ParseInt(f[0], 10, 64)
		if verb == "done" {
			o := outcome(f[1])
			ordinal, err2 := strconv.ParseInt(f[2], 10, 64)
			us, amount, paid := strings.Cut(f[3], " ")
			took, err3 := strconv.ParseInt(us, 10, 64)
			var cents int64
			var err4 error
			if paid {
				cents, err4 = strconv.ParseInt(amount, 10, 64)
			}
			if errors.Join(err1, err2, err3, err4) != nil || o != granted && o != replayed && o != soldOut {
				return nil, bad
			}
			return answer{line: line, outcome: o, ordinal: ordinal, cents: cents,
				took: time.Duration(took) * time.Microsecond}, nil
		}
		took, err2 := strconv.ParseInt(f[2], 10, 64)
		reason, err3 := strconv.Unquote(f[3])
		if errors.Join(err1, err2, err3) != nil {
			return nil, bad
		}
		return answer{line: line, outcome: failed, asked: f[1] == "1", took: time.Duration(took) * time.Microsecond,
			err: reason}, nil
	}
	return nil, bad
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
