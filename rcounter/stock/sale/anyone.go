package sale

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Orders of Anyone that share a call are one order on the server, with the id "~call". The order sells the sum of their
// units, as many as there are. Each caller has a range of the units: "~call.ordinal.n" is its id. A range that comes
// back is taken out of the lines of that order.

// part is a range of the units of an order of Anyone.
type part struct {
	order    string
	first, n int64
}

func (p part) id() string {
	text := append(make([]byte, 0, len(p.order)+24), p.order...)
	text = strconv.AppendInt(append(text, '.'), p.first, 10)
	return string(strconv.AppendInt(append(text, '.'), p.n, 10))
}

// parsePart reads an id that the library has made.
func parsePart(id string) (p part, err error) {
	f := strings.Split(id, ".")
	if len(f) == 3 && len(f[0]) > len(anyonePrefix) {
		var err1, err2 error
		p.order = f[0]
		p.first, err1 = strconv.ParseInt(f[1], 10, 64)
		p.n, err2 = strconv.ParseInt(f[2], 10, 64)
		if err1 == nil && err2 == nil && p.first > 0 && p.first <= maxUnits && p.n > 0 && p.n <= maxUnits {
			return p, nil
		}
	}
	return p, fmt.Errorf("%w: the id %.64q is none of Anyone", errs.ErrInvalidName, id)
}

// buyAnyone buys the units of an order of Anyone.
func (s *Sale) buyAnyone(ctx context.Context, o Order) (Answer, error) {
	want := o.Lines[0]
	a, err := s.processState().anyone.Do(ctx, want)
	if err != nil || !a.Won() || a.Lines[0].N == want.N || o.UpTo {
		return a, err
	}
	s.handBack(ctx, a.ID) // fewer than wanted
	return Answer{State: Refused, Why: SoldOut, Lines: a.Lines, Epoch: a.Epoch}, nil
}

// runAnyone makes one call for several orders of Anyone: one order for each item, and its units go to the requests in
// the order of asking.
func (s *Sale) runAnyone(ctx context.Context, requests []*batch.Request[Line, Answer]) {
	var acts []act
	sums := map[string]int64{} // by item
	for _, r := range requests {
		sums[r.Ask.Item] = min(sums[r.Ask.Item]+r.Ask.N, maxUnits) // of two numbers up to 2^53
	}
	at := map[string]int{}
	for item, sum := range sums {
		at[item] = len(acts)
		o := Order{ID: anyonePrefix + session.RecordID(), Lines: []Line{{Item: item, N: sum}}, UpTo: true}
		acts = append(acts, o.act(actBuy, 0))
	}
	all, err := s.act(ctx, acts, nil)
	sold, errsOf := make([]Answer, len(acts)), make([]error, len(acts))
	for i, a := range acts {
		var d decided
		isLost := errors.Is(err, errs.ErrUnknownOutcome)
		if errsOf[i] = err; all != nil {
			d = all[i]
			if isLost = err != nil && d.needsReplicas(); !isLost {
				errsOf[i] = nil // a refusal needs no replica
			}
		}
		if isLost {
			s.handBack(ctx, a.id)
		}
		sold[i], errsOf[i] = s.answered(a.id, []Line{{Item: itemOf(a.of)}}, d, errsOf[i])
	}
	lines := make([]Line, len(requests)) // one for each answer
	for k, r := range requests {
		i := at[r.Ask.Item]
		r.Answer, r.Err = sold[i], errsOf[i]
		if r.Err != nil || !r.Answer.Won() {
			continue
		}
		rest := &sold[i].Lines[0]
		n := min(r.Ask.N, rest.N)
		if n == 0 { // nothing of it is left for this one
			r.Answer = Answer{State: Refused, Why: SoldOut, Lines: []Line{{Item: r.Ask.Item}}, Epoch: r.Answer.Epoch}
			continue
		}
		r.Answer.ID = part{acts[i].id, rest.Ordinal, n}.id()
		lines[k] = Line{Item: r.Ask.Item, N: n, Ordinal: rest.Ordinal}
		r.Answer.Lines = lines[k : k+1 : k+1]
		rest.Ordinal, rest.N = rest.Ordinal+n, rest.N-n
	}
}

// itemOf is the item of a single line as acts.lua reads it.
func itemOf(of string) string {
	item, _, _ := strings.Cut(strings.TrimPrefix(of, "+"), ",")
	return item
}

// takeBack gives the units back of callers that left before the answer.
func (s *Sale) takeBack(left []*batch.Request[Line, Answer]) {
	for _, r := range left {
		if r.Answer.Won() {
			s.handBack(r.Ctx, r.Answer.ID)
		}
	}
}

// handBack gives units back in the background: a part of an order of Anyone, or a whole order whose call may still run.
// Such an order is forbidden then. Only the values of ctx are used.
func (s *Sale) handBack(ctx context.Context, id string) {
	ctx = context.WithoutCancel(ctx)
	a := act{verb: actReturn, id: id, forbids: true}
	if p, err := parsePart(id); err == nil {
		a = act{verb: actGiveBack, id: p.order, first: p.first, n: p.n}
	}
	s.c.calls.Finish(func() {
		err := s.c.calls.GiveBack(ctx, func(ctx context.Context) error {
			all, err := s.act(ctx, []act{a}, nil)
			if err == nil && all[0].code != codeOK {
				err = s.verdict([3]int64{all[0].code})
			}
			if errors.Is(err, ErrLater) { // it can be given back when Restore has ended
				err = fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
			}
			return err
		})
		if err != nil {
			s.c.failed(ctx, "units of an order given up on could not be returned, and stay sold", s.name, err)
		}
	})
}

// byPart does an act to an order of Anyone, which is sold already: only Return changes it.
func (s *Sale) byPart(ctx context.Context, a act) (Answer, error) {
	p, err := parsePart(a.id)
	if err != nil {
		return Answer{}, err
	}
	ask := act{verb: actStatus, id: p.order}
	if a.verb == actReturn {
		kept := int64(0)
		if a.of != "" {
			_, n, _ := strings.Cut(a.of, ",")
			if kept, err = strconv.ParseInt(n, 10, 64); err != nil { // several lines
				return Answer{}, errs.InvalidOption("keep", a.of, "one line for an order of Anyone")
			}
		}
		if kept < p.n {
			ask = act{verb: actGiveBack, id: p.order, first: p.first + kept, n: p.n - kept}
		}
	}
	d, err := s.do(ctx, ask)
	a2, err := s.answered(p.order, nil, d, err)
	if err != nil {
		return a2, err
	}
	return p.of(a2, a.id), nil
}

// of is what a part has of its order.
func (p part) of(a Answer, id string) Answer {
	a.ID = id
	if a.State != Sold {
		return a
	}
	var has []Line
	for _, l := range a.Lines {
		first, end := max(p.first, l.Ordinal), min(p.first+p.n, l.Ordinal+l.N)
		if first < end {
			has = append(has, Line{Item: l.Item, N: end - first, Ordinal: first})
		}
	}
	if a.Lines = has; has == nil {
		a.State, a.Why = Closed, Returned
	}
	return a
}
