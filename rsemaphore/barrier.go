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
// its process died or was cut off, or its action failed. All that had arrived in that generation get it, with an
// Arrival that says which generation it was. The next arrival begins the next generation. Where this party itself broke
// it the error is joined with the reason: its context's error and cause, its action's error, or ErrLost. With ErrLost
// the party could not ask the server for a lease, and gave up by its own clock: if the last of the others came before
// the server gave it up, they have gone without its knowing.
var ErrBrokenBarrier = errs.New("broken_barrier", "barrier broken")

const (
	maxParties    = 10_000
	barrierMemory = time.Hour // how long an unused barrier is remembered
)

// CyclicBarrier lets a number of parties, in any processes, wait for each other: Await returns when all have arrived.
// The barrier is then ready for the next generation. After an hour without use it counts its generations from 1 again.
// The value is an immutable description, safe for concurrent use, and costs nothing until used. Redisson has no such
// barrier; the key is ours ({name}:barrier, or name:barrier where the name has braces).
//
// A party is one call of Await. It has a lease, which is renewed while it waits. If its process dies, or its context
// ends, before all have arrived, the generation is broken: all that have arrived get ErrBrokenBarrier, at the latest
// when the lease of the dead one is over (Options.WatchdogTimeout, or three Heartbeats with Options.Liveness) by the
// server's clock. Parties that have not arrived yet learn nothing of it: they arrive in the next generation, with those
// that come back. So parties that call Await again are together again by themselves. A party that must know whether it
// missed a generation looks at Arrival.Generation.
//
// Everything before Await in any party happens before everything after it in all others of that generation: no party
// goes on before all have arrived, and none is in two generations at a time.
type CyclicBarrier struct {
	object
	parties int
	action  func(context.Context) error
}

// CyclicBarrier describes the barrier of that name for that many parties, 1 to 10,000. Nothing is sent. A name or
// number that cannot be used is reported by every call on it. All that arrive in one generation must say the same
// number (ErrCapacityMismatch); the next generation may have another.
func (c *Client) CyclicBarrier(name string, parties int) *CyclicBarrier {
	b := &CyclicBarrier{object: c.object(name), parties: parties}
	b.bad = cmp.Or(b.bad, c.session.Error(session.CheckNumber("parties", int64(parties), 1, maxParties)))
	b.channel, b.key = keyname.Prefix("redlatch_barrier", b.key), keyname.Suffix(b.key, "barrier")
	return b
}

// WithAction returns the barrier with an action, which the last party to arrive runs, in its own process, before any
// party goes on. The action is that of the party that happens to be last, so all should bring the same.
//
// The others wait for it, as long as it takes; the last party's lease is renewed meanwhile. The generation trips once
// the action has returned nil and the server has confirmed that. It breaks if the action fails or panics (the error,
// or panic, comes out of the last party's Await), if the last party dies in it or is cut off (when its lease is over),
// or if another party leaves or dies before it is through: then the action has run, wholly or in part, and no party
// goes on. So an action that must not be repeated needs a mark of its own.
//
// The action's ctx is that of the last party's Await, and ends, too, when that party's lease is lost, the Client is
// closed, or the generation breaks because another party left or died: its cause is then ErrLost, ErrClosed or
// ErrBrokenBarrier as Await returns it. It learns of a break by a message, or within Options.PollCap. If it returns nil
// after that, it counts as done all the same, if the server still takes it.
func (b *CyclicBarrier) WithAction(action func(ctx context.Context) error) *CyclicBarrier {
	w := *b
	w.action = action
	return &w
}

// Arrival is how a generation of a barrier ended for one party.
type Arrival struct {
	// Generation counts from 1 and grows by one with each generation, tripped or broken.
	Generation int64
	// Last is true for one party of each generation that tripped, the one that arrived last.
	Last bool
}

// BarrierState is what a barrier looks like from outside.
type BarrierState struct {
	Generation int64 // that gathers now
	Waiting    int   // parties that have arrived in it; as many as Parties while the last runs its action
	Parties    int   // that it waits for, as the last that arrived had it; 0 if it was never used
}

// Await arrives at the barrier and waits until all parties have.
//
// nil: all have arrived, and the action, if the last one had any, has been run. ErrBrokenBarrier: a party that had
// arrived, this one or another, left before that; see there and [CyclicBarrier.WithAction]. If it was this one, because
// ctx ended, the error is joined with ctx's error and cause.
//
// ErrCapacityMismatch: others wait there for another number of parties; this one did not arrive. ErrNotAcquired, joined
// with ctx's error and cause: ctx ended while the parties of a full generation waited for their action, so this one had
// no place to arrive at. ErrUnavailable: the server could not be asked, and this party did not arrive. ErrClosed: the
// client was closed. ErrUnknownOutcome: a request got no reply; if this party arrived after all it is taken back in the
// background, which breaks that generation.
//
// When ctx ends Await still has to tell the server, which takes a round trip or two, at most Options.CallTimeout and
// 40 ms; if all have arrived by then the result is nil all the same.
func (b *CyclicBarrier) Await(ctx context.Context) (Arrival, error) {
	if b.bad != nil {
		return Arrival{}, b.bad
	}
	if err := b.c.session.Enter(); err != nil {
		return Arrival{}, err
	}
	defer b.c.session.Leave()
	began := time.Now()
	a, err := b.await(ctx)
	b.c.session.Tell(ctx, errs.Event{Kind: errs.EventAwaited, Name: b.name, Took: time.Since(began), Err: err})
	return a, err
}

// Inspect looks at the barrier.
func (b *CyclicBarrier) Inspect(ctx context.Context) (BarrierState, error) {
	r, err := ask(ctx, b.c, b.bad, (&party{b: b}).exchange("state", 0), b.c.runner.Do)
	if err != nil {
		return BarrierState{}, err
	}
	return BarrierState{Generation: max(r.gen, 1), Waiting: int(r.arrived), Parties: int(r.parties)}, nil
}
