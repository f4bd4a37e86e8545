package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	var buffer [64]byte // enough for the ids that the library makes
	text := strconv.AppendInt(append(append(buffer[:0], p.order...), '.'), p.first, 10)
	return string(strconv.AppendInt(append(text, '.'), p.n, 10))
}

// giveBack is the act that gives a part back.
func (p part) giveBack() act { return act{verb: actGiveBack, id: p.order, first: p.first, n: p.n} }

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
	return p, fmt.Errorf("%w: the id %.64q is not an id of Anyone", errs.ErrInvalidName, id)
}

// units are what an order of Anyone asks for.
type units struct {
	item string
	n    int64
}

// anyoneOrder is the order on the server of all that ask for an item in one call.
type anyoneOrder struct {
	units  // the sum
	answer Answer
	err    error
}

// share is what one of them has of it: n units from the ordinal first on.
type share struct {
	of       *anyoneOrder
	first, n int64
}

// buyAnyone buys the units of an order of Anyone.
func (s *Sale) buyAnyone(ctx context.Context, o Order) (Answer, error) {
	want := o.Lines[0]
	got, err := s.processState().anyone.Do(ctx, units{want.Item, want.N})
	if got.of == nil { // it was not sent
		return Answer{}, err
	}
	a := got.of.answer
	switch id := (part{a.ID, got.first, got.n}); {
	case err != nil:
	case !a.Won():
		a.Lines = slices.Clone(a.Lines) // others have the same
	case got.n == want.N || o.UpTo && got.n > 0:
		a.ID, a.Lines = id.id(), []Line{{Item: want.Item, N: got.n, Ordinal: got.first}}
	default: // fewer than wanted
		if got.n > 0 {
			s.handBack(ctx, id.giveBack())
		}
		a = Answer{State: Refused, Why: SoldOut, Lines: []Line{{Item: want.Item, N: got.n}}, Epoch: a.Epoch}
	}
	return a, err
}

// runAnyone makes one call for several orders of Anyone: one order for each item, and its units go to the requests in
// the order of asking.
func (s *Sale) runAnyone(ctx context.Context, requests []*batch.Request[units, share]) {
	var orders []*anyoneOrder
	byItem := map[string]*anyoneOrder{}
	for _, r := range requests {
		o := byItem[r.Ask.item]
		if o == nil {
			o = &anyoneOrder{units: units{item: r.Ask.item}}
			byItem[o.item], orders = o, append(orders, o)
		}
		o.n = min(o.n+r.Ask.n, maxUnits) // of two numbers up to 2^53
		r.Answer.of = o
	}
	acts := make([]act, len(orders))
	for i, o := range orders {
		sum := Order{ID: anyonePrefix + session.RecordID(), Lines: []Line{{Item: o.item, N: o.n}}, UpTo: true}
		acts[i] = sum.act(actBuy, 0)
	}
	all, err := s.act(ctx, acts, nil)
	for i, o := range orders {
		var d decided
		isLost := errors.Is(err, errs.ErrUnknownOutcome)
		if o.err = err; all != nil {
			d = all[i]
			if isLost = err != nil && d.needsReplicas(); !isLost {
				o.err = nil // a refusal needs no replica
			}
		}
		if isLost {
			s.handBack(ctx, act{verb: actReturn, id: acts[i].id, forbids: true})
		}
		o.answer, o.err = s.answered(acts[i].id, []Line{{Item: o.item}}, d, o.err)
	}
	for _, r := range requests {
		o := r.Answer.of
		if r.Err = o.err; o.err == nil && o.answer.Won() {
			rest := &o.answer.Lines[0]
			r.Answer.first, r.Answer.n = rest.Ordinal, min(r.Ask.n, rest.N)
			rest.Ordinal, rest.N = rest.Ordinal+r.Answer.n, rest.N-r.Answer.n
		}
	}
}

// takeBack gives the units back of callers that left before the answer.
func (s *Sale) takeBack(left []*batch.Request[units, share]) {
	for _, r := range left {
		if r.Answer.n > 0 {
			s.handBack(r.Ctx, part{r.Answer.of.answer.ID, r.Answer.first, r.Answer.n}.giveBack())
		}
	}
}

// handBack gives units back in the background: a part of an order of Anyone, or a whole order whose call may still run.
// Such an order is forbidden then. Only the values of ctx are used.
func (s *Sale) handBack(ctx context.Context, a act) {
	ctx = context.WithoutCancel(ctx)
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
			ask = part{p.order, p.first + kept, p.n - kept}.giveBack()
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
