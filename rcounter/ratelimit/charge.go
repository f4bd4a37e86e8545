package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Charge is units that were taken by an estimate, for work whose cost is known afterwards. Settle corrects the
// estimate. A Charge is safe for concurrent use. A nil Charge is one that was refused: its Settle does nothing.
//
// A charge whose process has died, or that is not settled within an hour, stays at its estimate. Where its units count
// for longer, the charge is kept for that long. An open charge costs the server about 120 bytes, and a settled one
// nothing.
type Charge struct {
	c      *Client
	limits int
	parts  []charged // that the server has counted

	turn    chan struct{} // full while a Settle is under way; guards settled
	settled bool
}

// charged is units of one limit.
type charged struct {
	part
	index  int    // of the limit in the order of the Takes
	member string // on the server: see limit.lua
}

// Charge takes an estimate of units from key's limit, if they may pass now, as Allow does, and with the same errors.
// The charge is nil if they may not. When the cost is known, Charge.Settle corrects it. All algorithms have charges.
//
// After ErrUnknownOutcome the estimate may have been taken, and stays taken until it counts no more.
func (l *Limiter) Charge(ctx context.Context, key string, estimate int64) (charge *Charge, admission Admission,
	err error) {
	defer edge(&err)
	r := &request{id: session.RecordID()}
	if err := r.add(ctx, Take{l, key, estimate}, 1); err != nil {
		return nil, Admission{}, err
	}
	charge, d, err := l.c.charge(ctx, r)
	if err != nil {
		return nil, Admission{}, err
	}
	return charge, d.Each[0], nil
}

// ChargeAll takes estimates of units from several limits, all or none, as AllowAll does, and with the same errors. Each
// Take.N is an estimate, at least 1. Charge.Settle corrects all of them in one step.
func (c *Client) ChargeAll(ctx context.Context, takes ...Take) (charge *Charge, decision Decision, err error) {
	defer edge(&err)
	r, err := c.newRequest(ctx, takes, 1)
	if err != nil {
		return nil, Decision{}, err
	}
	r.id = session.RecordID()
	return c.charge(ctx, r)
}

func (c *Client) charge(ctx context.Context, r *request) (*Charge, Decision, error) {
	d, err := c.decide(ctx, r)
	if err != nil || !d.Allowed {
		return nil, d, err
	}
	return c.newCharge(r, d), d, nil
}

// newCharge is the charge of a request that passed.
func (c *Client) newCharge(r *request, d Decision) *Charge {
	h := &Charge{c: c, limits: len(r.parts), turn: make(chan struct{}, 1)}
	for i, p := range r.parts {
		if a := d.Each[i]; a.Down == nil && !a.WouldRefuse {
			h.parts = append(h.parts, charged{p, i, fmt.Sprintf("1;%s;%d;%s", r.id, p.n, p.t.kind())})
		}
	}
	return h
}

// kind is the kind of limit, as charges name it: see limit.lua.
func (t *terms) kind() string {
	if t.algorithm == FixedWindow {
		return t.words[0] + t.words[2]
	}
	return t.words[0]
}

// mostUsed is the bound of what a charge settles at. Scripts count it exactly.
const mostUsed = 1 << 52

// Settle says how many units were used, for each limit of the charge in the order of its Takes. The charge is settled
// once, however often Settle runs: call it again after an error. Later calls do nothing, whatever they say. Settle
// works with an ended context. One round trip, which calls in a crowd share, repeated until answered.
//
// Units that were not used are given back to where they were counted, while they count there; later others may have
// used their room. With GCRA the limit stands afterwards as if only the used units had been taken, but up to a 32nd of
// Burst * Per / Rate may come back late, and nothing while callers wait in its line (Wait, Reserve).
//
// If more units were used, the rest is taken now, whether there is room or not. Then the limit is in debt, and refuses
// all until it has recovered. A limit owes at most Burst (with a window Rate), and what is more is not counted. So no
// debt lasts longer than Burst * Per / Rate, or the window. In a line the rest gets a turn at the end, a burst at most.
//
// What was admitted by LimiterOptions.WhenDown, or beyond a Shadow limit, was not counted, and is not settled. After
// Limiter.Reset, or if the limit is lost, nothing is given back or taken.
//
// Errors: ErrInvalidOption for a number that is negative or above 2^52, and for too few or too many of them;
// ErrWrongType, ErrDenied, ErrUnavailable, ErrUnknownOutcome.
func (h *Charge) Settle(ctx context.Context, used ...int64) (err error) {
	if h == nil {
		return nil
	}
	defer edge(&err)
	if len(used) != h.limits {
		return errs.InvalidOption("the number of used", len(used), fmt.Sprintf("%d, one for each limit", h.limits))
	}
	for _, n := range used {
		if n < 0 || n > mostUsed {
			return errs.InvalidOption("used", n, fmt.Sprintf("between 0 and %d", int64(mostUsed)))
		}
	}
	if len(h.parts) == 0 {
		return nil
	}
	ctx, cancel := session.ToRelease(ctx)
	defer cancel()
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: another Settle is under way: %w", errs.ErrUnavailable, errs.Cut(errs.Ended(ctx)))
	}
	if !h.settled {
		err = h.settle(ctx, used)
		h.settled = err == nil
	}
	return err
}

// settle has the server settle the charge, and reports it to the observer for each limit.
func (h *Charge) settle(ctx context.Context, used []int64) error {
	began := time.Now()
	s := h.settlement(ctx, used)
	units, err := h.c.settles.Of(s[0].key).Do(ctx, s)
	for i, p := range h.parts {
		h.c.refusals.forget(p.key)
		e := errs.Event{Kind: errs.EventSettled, Name: p.l.name, Took: time.Since(began), Err: err}
		if err == nil {
			e.N = units[i]
		}
		edge(&e.Err)
		h.c.calls.Tell(ctx, e)
	}
	return err
}

// settlement is the charge at what was used, by the terms of now.
func (h *Charge) settlement(ctx context.Context, used []int64) settlement {
	s := make(settlement, len(h.parts))
	for i, p := range h.parts {
		s[i] = settled{p.key, p.l.now(ctx), p.member, strconv.FormatInt(used[p.index], 10)}
	}
	return s
}

// now are the terms that count now, or those that were last known. Those of the charge may not count any more.
func (l *Limiter) now(ctx context.Context) *terms {
	if l.o.Stored {
		return l.stored(ctx, &request{})
	}
	return l.terms
}

// OpenCharges is how many charges of key's limit are not settled yet, about: those that were left open count until they
// are forgotten. One round trip, repeated until answered.
func (l *Limiter) OpenCharges(ctx context.Context, key string) (n int64, err error) {
	defer edge(&err)
	if err := l.usable(key); err != nil {
		return 0, err
	}
	k := chargesKey(l.key(key))
	m, err := l.c.calls.Do(ctx, script.Call{Script: openScript, Keys: []string{k}})
	if err != nil {
		return 0, err
	}
	if n, err = m.AsInt64(); err != nil {
		return 0, fmt.Errorf("unexpected reply to zcard on %q", k)
	}
	return n, nil
}

var (
	settleScript = script.Load("settle", files, "settle")
	openScript   = script.Plain("zcard")
)

// chargesKey is the key of the open charges of a limit.
func chargesKey(limit string) string { return limit + ":c" }

// settlement is a charge that is settled.
type settlement []settled

// settled is its part of one limit.
type settled struct {
	key    string // of the limit
	t      *terms // as they are now
	member string
	used   string
}

type settling = batch.Request[settlement, []int64]

// newSettles makes the batcher of settlements. Their answers are the units that each limit has taken or, negative, got
// back.
func (c *Client) newSettles() *batch.Batcher[settlement, []int64] {
	return &batch.Batcher[settlement, []int64]{
		Options: &c.settleBatch, Shared: c.calls.TellShared(""), What: "settle", Key: "several limits",
		Run: func(ctx context.Context, requests []*settling) {
			ctx, stop := batch.Lone(ctx, requests)
			defer stop()
			c.settle(ctx, requests)
		},
		Alone: func(ctx context.Context, s settlement) ([]int64, error) {
			one := &settling{Ask: s}
			c.settle(ctx, []*settling{one})
			return one.Answer, one.Err
		},
	}
}

// settle makes the calls for settlements: one, unless a limit comes under terms that differ, or the server refuses one
// call for several slots.
func (c *Client) settle(ctx context.Context, requests []*settling) {
	for len(requests) > 0 {
		var call settleCall
		requests = call.add(requests)
		m, err := c.calls.Do(ctx, call.write())
		if script.AcrossSlots(err) {
			script.BySlot(call.requests, func(r *settling) string { return r.Ask[0].key },
				func(slot []*settling) { c.settle(ctx, slot) })
			continue
		}
		var v []int64
		if err == nil {
			if v, err = m.AsIntSlice(); err != nil || len(v) != 2*call.parts {
				err = fmt.Errorf("unexpected reply to settle on %q", call.limits[0][0].key)
			}
		}
		for _, r := range call.requests {
			r.Err = err
			r.Answer = make([]int64, len(r.Ask))
		}
		if err == nil {
			call.read(v)
		}
	}
}

// settleCall is a call of settle.lua.
type settleCall struct {
	requests []*settling
	limits   [][]settledBy // the parts of each limit
	parts    int
}

// settledBy is part of a request.
type settledBy struct {
	settled
	request *settling
	index   int
}

// limit is the index of a key's limit; -1: the call has none.
func (s *settleCall) limit(key string) int {
	return slices.IndexFunc(s.limits, func(l []settledBy) bool { return l[0].key == key })
}

// add adds those requests that can share the call, because each limit comes under the same terms, and returns the rest.
func (s *settleCall) add(requests []*settling) (rest []*settling) {
	for _, r := range requests {
		if slices.ContainsFunc(r.Ask, func(p settled) bool {
			i := s.limit(p.key)
			return i >= 0 && !s.limits[i][0].t.same(p.t)
		}) {
			rest = append(rest, r)
			continue
		}
		s.requests, s.parts = append(s.requests, r), s.parts+len(r.Ask)
		for k, p := range r.Ask {
			i := s.limit(p.key)
			if i < 0 {
				i = len(s.limits)
				s.limits = append(s.limits, nil)
			}
			s.limits[i] = append(s.limits[i], settledBy{p, r, k})
		}
	}
	return rest
}

func (s *settleCall) write() script.Call {
	call := script.Call{Script: settleScript}
	for _, l := range s.limits {
		call.Keys = append(call.Keys, l[0].key)
		call.Args = append(l[0].t.args(call.Args), strconv.Itoa(len(l)))
		for _, p := range l {
			call.Args = append(call.Args, p.member, p.used)
		}
	}
	for _, l := range s.limits {
		call.Keys = append(call.Keys, chargesKey(l[0].key))
	}
	return call
}

// read gives each request its answer.
func (s *settleCall) read(v []int64) {
	for _, l := range s.limits {
		for _, p := range l {
			p.request.Answer[p.index] = v[1]
			if err := (reply{taken: v[0]}).refused(p.key); err != nil {
				p.request.Err = err
			}
			v = v[2:]
		}
	}
}
