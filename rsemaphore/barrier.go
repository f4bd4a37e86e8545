package rsemaphore

import (
	"cmp"
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/session"
)

// ErrBrokenBarrier: a party that had arrived left before all were there: its context ended, its lease ran out because
// its process died or was cut off, or its action failed. All parties that had arrived in that generation get it, with
// an Arrival that has the number of the generation. The next arrival begins the next generation.
//
// If this party itself broke the generation, the error is joined with the reason: its context's error and cause, its
// action's error, or ErrLost. With ErrLost the party could not renew its lease, and gave up by its own clock. If the
// last of the others came before the server gave it up, they have gone on without its knowledge.
var ErrBrokenBarrier = errs.New("broken_barrier", "barrier broken")

const (
	maxParties    = 10_000
	barrierMemory = time.Hour // the time for which an unused barrier is remembered
)

// CyclicBarrier lets a number of parties, in any processes, wait for each other: Await returns when all have arrived.
// The barrier is then ready for the next generation. After an hour without use it counts its generations from 1 again.
// The value is an immutable description, safe for concurrent use, and costs nothing until used. Redisson has no such
// barrier; the key is ours ({name}:barrier, or name:barrier if the name has braces).
//
// A party is one call of Await. It has a lease, which is renewed while it waits. If its process dies, or its context
// ends, before all have arrived, the generation is broken: all parties that have arrived get ErrBrokenBarrier. They get
// it at the latest when the dead party's lease is over (Options.WatchdogTimeout, or three Heartbeats with
// Options.Liveness) by the server's clock. Parties that have not arrived yet do not learn of it: they arrive in the
// next generation, with the parties that come back. So parties that call Await again are together again by themselves.
// A party that must know whether it missed a generation compares Arrival.Generation.
//
// Everything before Await in any party happens before everything after it in all others of that generation: no party
// goes on before all have arrived, and none is in two generations at a time.
type CyclicBarrier struct {
	object
	parties int
	action  func(context.Context) error
}

// CyclicBarrier describes the barrier of that name for that many parties, 1 to 10,000. Nothing is sent. If the name or
// number cannot be used, every call returns the error. All parties of one generation must bring the same number
// (ErrCapacityMismatch); the next generation may have another.
func (c *Client) CyclicBarrier(name string, parties int) *CyclicBarrier {
	barrier := &CyclicBarrier{object: c.object(name), parties: parties}
	barrier.bad = cmp.Or(barrier.bad, c.session.Error(session.CheckNumber("parties", int64(parties), 1, maxParties)))
	barrier.channel, barrier.key = keyname.Prefix("redlatch_barrier", barrier.key), keyname.Suffix(barrier.key, "barrier")
	return barrier
}

// WithAction returns the barrier with an action. The last party to arrive runs its own action, in its own process,
// before any party goes on, so all parties should bring the same. The others wait for it, as long as it takes, and the
// last party's lease is renewed meanwhile. The generation trips once the action has returned nil and the server has
// confirmed the trip. It breaks
//
//   - if the action fails or panics; the error, or panic, comes out of the last party's Await;
//   - if the last party dies in it or is cut off, when its lease is over;
//   - if another party leaves or dies before the action returns.
//
// Then the action has run, wholly or in part, and no party goes on. So an action that must not be repeated needs a mark
// of its own.
//
// The action's ctx is that of the last party's Await. It also ends when that party's lease is lost, the Client is
// closed, or the generation breaks because another party left or died: its cause is then ErrLost, ErrClosed or
// ErrBrokenBarrier as Await returns it. The action learns of a break by a message, or within Options.PollCap. If it
// returns nil after that, it counts as done all the same, if the server still accepts the trip.
func (b *CyclicBarrier) WithAction(action func(ctx context.Context) error) *CyclicBarrier {
	changed := *b
	changed.action = action
	return &changed
}

// Arrival is the end of a barrier's generation for one party.
type Arrival struct {
	// Generation counts from 1 and grows by one with each generation, tripped or broken.
	Generation int64
	// Last is true for one party of each generation that tripped, the party that arrived last.
	Last bool
}

// BarrierState is the state of a barrier on the server at one moment.
type BarrierState struct {
	Generation int64 // the generation whose parties arrive now
	Waiting    int   // parties that have arrived in it; as many as Parties while the last runs its action
	Parties    int   // the number of parties according to the last arrival; 0 if the barrier was never used
}

// Await arrives at the barrier and waits until all parties have arrived. The results are:
//
//   - nil: all have arrived, and the action of the last party, if it has one, has run.
//   - ErrBrokenBarrier: a party that had arrived, this one or another, left before that; see there and
//     [CyclicBarrier.WithAction]. If this party left, because ctx ended, the error is joined with ctx's error and
//     cause.
//   - ErrCapacityMismatch: others wait there for another number of parties; this party did not arrive.
//   - ErrNotAcquired, joined with ctx's error and cause: ctx ended while the parties of a full generation waited for
//     their action, so this party could not arrive.
//   - ErrUnavailable: the server did not answer, and this party did not arrive.
//   - ErrClosed: the client was closed.
//   - ErrUnknownOutcome: a request got no reply. If this party arrived after all, it is removed in the background,
//     which breaks that generation.
//
// When ctx ends Await still has to tell the server. That takes a round trip or two, at most Options.CallTimeout and 40
// ms. If all have arrived by then the result is nil all the same.
func (b *CyclicBarrier) Await(ctx context.Context) (Arrival, error) {
	if b.bad != nil {
		return Arrival{}, b.bad
	}
	if err := b.c.session.Enter(); err != nil {
		return Arrival{}, err
	}
	defer b.c.session.Leave()
	began := time.Now()
	arrival, err := b.await(ctx)
	b.c.session.Tell(ctx, errs.Event{Kind: errs.EventAwaited, Name: b.name, Took: time.Since(began), Err: err})
	return arrival, err
}

// Inspect returns the state of the barrier.
func (b *CyclicBarrier) Inspect(ctx context.Context) (BarrierState, error) {
	reply, err := session.Ask(ctx, b.c.session, b.bad, func(ctx context.Context) (barrierReply, error) {
		return (&barrierParty{barrier: b}).send(ctx, b.c.runner.Do, "state")
	})
	if err != nil {
		return BarrierState{}, err
	}
	return BarrierState{
		Generation: max(reply.generation, 1), Waiting: int(reply.arrived), Parties: int(reply.parties),
	}, nil
}
