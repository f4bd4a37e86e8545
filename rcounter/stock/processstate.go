package stock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// processState is what a process keeps of a stock while it claims from it: the claims that share calls, and what it
// knows while the stock is sold out. All Stock values of a name have the same one. It is made when it is first needed.
// The client's map refers to it weakly, so it goes when no such value is left and no call is under way.
type processState struct {
	claims batch.Batcher[string, Grant] // by claimant
	anys   batch.Batcher[int64, Grant]  // by how many units
	acts   batch.Batcher[act, done]     // on requests and reservations
	looks  batch.Batcher[string, found] // by the id of a request or reservation
	cache  cache
}

// processState is what this process keeps of the stock.
func (s *Stock) processState() *processState {
	if d := s.known.Load(); d != nil {
		return d
	}
	d := s.c.stocks.Of(s.keys[0], func() *processState { return newProcessState(s.c, s) })
	s.known.Store(d)
	return d
}

func newProcessState(c *Client, s *Stock) *processState {
	s = &Stock{c: c, name: s.name, keys: s.keys} // not the caller's, which refers to what is made here
	d := &processState{cache: newCache(c, s.keys)}
	d.claims = batch.Batcher[string, Grant]{Options: &c.batch, Tally: &c.tally, What: "claim", Key: s.keys[0],
		Run: batch.Each(func(ctx context.Context, claimants []string) ([]Grant, error) {
			return s.claim(ctx, session.CallID(), claimants)
		}, Grant.Won)}
	d.anys = batch.Batcher[int64, Grant]{Options: &c.batch, Tally: &c.tally, What: "claim", Key: s.keys[0],
		Run: s.runAnys, Abandoned: s.takeBack}
	d.acts = batch.Batcher[act, done]{Options: &c.acts, Tally: &c.tally, What: "act", Key: s.keys[0], Run: s.runActs,
		Calls: s.usefulCalls}
	d.looks = batch.Batcher[string, found]{Options: &c.acts, Tally: &c.tally, What: "find", Key: s.keys[0], Reads: true,
		Run: batch.Each(s.findAll, func(found) bool { return false }), Calls: s.usefulCalls}
	return d
}

// runAnys makes one call for several ClaimAny: one grant for the sum of their units, which they get in the order of
// asking.
func (s *Stock) runAnys(ctx context.Context, requests []*batch.Request[int64, Grant]) {
	id, sum := session.RecordID(), int64(0)
	for _, r := range requests {
		sum = min(sum+r.Ask, maxLimit) // of two numbers up to 2^53
	}
	g, err := s.any(ctx, id, sum)
	if err != nil {
		for _, r := range requests {
			r.Err = err
		}
		if errors.Is(err, errs.ErrUnknownOutcome) || errors.Is(err, errs.ErrNotReplicated) {
			s.c.calls.Finish(func() { s.handBack(ctx, id, 0, 0) })
		}
		return
	}
	next, rest := g.Ordinal, g.N
	for _, r := range requests {
		r.Answer = g
		n := min(r.Ask, rest)
		switch {
		case !g.Won():
		case n > 0:
			r.Answer.Ordinal, r.Answer.N = next, n
			next, rest = next+n, rest-n
		default: // the call won, and nothing of it is left for this one
			r.Answer = Grant{Outcome: SoldOut, Remaining: g.Remaining, Epoch: g.Epoch}
		}
	}
}

// takeBack returns the units of claims whose callers left before the answer.
func (s *Stock) takeBack(left []*batch.Request[int64, Grant]) {
	s.c.calls.Finish(func() {
		for _, r := range left {
			if r.Answer.Won() {
				s.handBack(r.Ctx, r.Answer.Request, r.Answer.Ordinal, r.Answer.N)
			}
		}
	})
}

// handBack is giveBackAny in the background.
func (s *Stock) handBack(ctx context.Context, request string, first, n int64) {
	ctx = context.WithoutCancel(ctx) // its caller may have left
	call := session.CallID()
	err := s.c.calls.GiveBack(ctx, func(ctx context.Context) error {
		_, err := s.giveBackAny(ctx, call, request, first, n)
		if errors.Is(err, ErrRestoring) { // it can be given back when the stock is restored
			err = fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
		}
		return err
	})
	if err != nil {
		s.c.failed(ctx, notReturned, s.name, err)
	}
}
