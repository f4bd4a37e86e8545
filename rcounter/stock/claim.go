package stock

import (
	"cmp"
	"context"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Request is what a claim or a reservation asks for: N units, all or none, under an id.
type Request struct {
	// ID is the caller's own, such as that of an order: a new one for each request.
	ID string
	// N is how many units, 1 to 2^53-1.
	N int64
	// UpTo says that fewer will do: if fewer than N units are left, or the claimant may not have N more, it gets as many
	// as there are. Grant.N says how many, and Grant.Missing how many it could not get. Then it is SoldOut or UserLimit
	// only if it could get none. What was granted is the answer from then on, also if more units are left later.
	UpTo bool
}

// Claim claims one unit for claimant: any text that names one participant of this sale, such as a user id or an order
// id. With a request it claims the units of that instead. One round trip, repeated until answered.
//
// If claimant has a unit, the answer is that unit until the retention is over, also if the stock is sold out, has ended
// or was closed: Granted the first time, Replayed from then on. So after an error, ErrUnknownOutcome above all, repeat
// Claim until it is answered, or call Lookup. A request that was given up may still be served; the next Claim then
// tells the unit. After a Return claimant may claim again, and gets another ordinal.
//
// The same holds for a request, by its id: a claimant may make several of them, as far as Spec.PerUser allows, or it is
// UserLimit. After its units were returned it is Returned, for as long as Spec.Remember says; then the id is a new one.
// If fewer than N units are left, it is SoldOut, and Remaining says how many are. A refusal is not recorded: the same
// request may be granted later. If the id was cancelled (Cancel), it is Cancelled. The same id with another claimant or
// another N is ErrMismatch.
//
// Only under Fresh may the process answer SoldOut by itself, as of a moment ago.
//
// Errors, with a zero Grant: ErrInvalidName for the claimant or the id, ErrInvalidOption for N or for more than one
// request, ErrMismatch, ErrCorrupt, ErrNotReplicated, ErrWrongType, ErrUnavailable, ErrUnknownOutcome.
func (s *Stock) Claim(ctx context.Context, claimant string, request ...Request) (grant Grant, err error) {
	defer edge(&err)
	if len(request) == 0 {
		if err := cmp.Or(s.usable(), keyname.Required("claimant", claimant)); err != nil {
			return Grant{}, err
		}
		return s.obtain(ctx, isFresh(ctx), func(ctx context.Context) (Grant, error) {
			return s.processState().claims.Do(ctx, claimant)
		})
	}
	if len(request) > 1 {
		return Grant{}, errs.InvalidOption("request", len(request), "given once at most")
	}
	a := request[0].act(claimant, actOnce, actOnceUpTo)
	if err := cmp.Or(s.usable(), checkRequest(a.id, a.claimant, a.n)); err != nil {
		return Grant{}, err
	}
	return s.obtain(ctx, isFresh(ctx), func(ctx context.Context) (Grant, error) { return s.granted(ctx, a) })
}

// act is r as an act: all, or fewer if they will do.
func (r Request) act(claimant string, all, fewer verb) act {
	a := act{verb: all, id: r.ID, claimant: claimant, n: r.N}
	if r.UpTo {
		a.verb = fewer
	}
	return a
}

// obtain answers a claim: SoldOut by the process itself if it may say so and knows it, otherwise as the server answers
// (ask).
func (s *Stock) obtain(ctx context.Context, may bool, ask func(context.Context) (Grant, error)) (Grant, error) {
	m := &s.processState().cache
	if may {
		epoch, yes, until := m.soldOut(ctx)
		if yes {
			s.c.calls.Tell(ctx,
				errs.Event{Kind: errs.EventAnsweredLocally, Name: s.name, Outcome: string(SoldOut)})
			return Grant{Outcome: SoldOut, Epoch: epoch}, nil
		}
		var done context.CancelFunc
		ctx, done = untilContext(ctx, until)
		defer done()
	}
	turns, began := m.turns.Load(), s.c.began()
	g, err := ask(ctx)
	m.observe(g, turns)
	s.c.claimed(ctx, s.name, began, g, err)
	return g, err
}

var claimScript = script.Load("claim", files, "claim")

// claim runs claim.lua for at most 128 claimants; the grants are in their order. With ErrNotReplicated they are there
// too.
func (s *Stock) claim(ctx context.Context, id string, claimants []string) ([]Grant, error) {
	args := make([]string, 2, 2+len(claimants))
	args[0], args[1] = id, s.c.calls.Mark()
	v, unconfirmed := s.sure(ctx, 3+2*len(claimants), claimScript, append(args, claimants...)...)
	if v == nil {
		return nil, unconfirmed
	}
	grants := make([]Grant, len(claimants))
	for i := range grants {
		grants[i] = Grant{Outcome: outcome(v[3+2*i]), Ordinal: v[4+2*i], Remaining: v[2], Epoch: v[1]}
		if grants[i].Won() {
			grants[i].N = 1
		}
	}
	return grants, unconfirmed
}
