package rcounter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Defaults of Combine.
const (
	DefaultMaxBatch   = 128
	DefaultMaxFlights = 64
	DefaultWindow     = 100 * time.Microsecond
)

// Combine says how the claims of one process on one stock share script calls. Claim and ClaimAny do; a call that finds
// nothing under way is sent at once, by itself. The zero value is good.
type Combine struct {
	// Off sends every claim by itself.
	Off bool
	// MaxBatch is how many claims share a call at most, 1 to 128: one of 128 claimants takes the server some 200 us,
	// during which it does nothing else. Defaults to DefaultMaxBatch.
	MaxBatch int
	// MaxFlights is how many calls are under way at most. Defaults to DefaultMaxFlights.
	MaxFlights int
	// Window is how long the first claim of a call that is not full waits for more, while others are under way.
	// Defaults to DefaultWindow.
	Window time.Duration
}

func (o *Combine) check() error {
	switch {
	case o.MaxBatch < 0 || o.MaxBatch > DefaultMaxBatch:
		return errs.InvalidOption("Combine.MaxBatch", o.MaxBatch, fmt.Sprintf("between 1 and %d, or 0 for the default", DefaultMaxBatch))
	case o.MaxFlights < 0:
		return errs.InvalidOption("Combine.MaxFlights", o.MaxFlights, "at least 1, or 0 for the default")
	case o.Window < 0:
		return errs.InvalidOption("Combine.Window", o.Window, "0 for the default, or more")
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = DefaultMaxBatch
	}
	if o.MaxFlights == 0 {
		o.MaxFlights = DefaultMaxFlights
	}
	if o.Window == 0 {
		o.Window = DefaultWindow
	}
	return nil
}

// lane combines the claims of one kind on one stock:
//
//   - nothing is under way: the claim flies alone, at once, on its caller's goroutine
//   - otherwise it takes a seat in the open batch
//   - the batch is full, or its first seat was taken a Window ago: it takes off, if flights are left
//   - a flight lands: the next batch takes off, full or not
//
// A flight carries the values of the context of its first claim: a span of it is in that caller's trace, and in no other.
//
// A fixed batch on a single flight is several times slower than no combining as soon as the server is a millisecond
// away; this keeps as many flights in the air as there are batches to fill.
//
// A lane lives as long as somebody claims: nothing is in it when nobody does.
type lane struct {
	o   *Combine
	run func(ctx context.Context, seats []*seat) // answers the seats of one flight
	// forsaken is told of seats that won and whose callers had left by then; nil where that does not matter, because
	// the unit is the claimant's and the next claim tells.
	forsaken func(left []*seat)
	spawn    func(func())
	bound    time.Duration
	key      string

	mu      sync.Mutex
	open    *batch
	ready   []*batch // full, waiting for a flight
	flights int
}

// seat is one claim in a batch. Until it has landed, grant and err are the flight's.
type seat struct {
	ctx      context.Context // its caller's, for the values in it
	claimant string
	n        int64

	grant Grant
	err   error
	left  bool // the caller has gone; guarded by lane.mu
}

// batch is what one flight carries, guarded by lane.mu.
type batch struct {
	seats  []*seat
	until  time.Time   // when the last caller's patience ends
	timer  *time.Timer // of the window
	sent   bool
	landed bool
	aboard int // callers of a batch that was sent and who have not left
	cancel context.CancelFunc
	done   chan struct{} // closed when landed: one close wakes everybody

	late  chan struct{} // closed when the patience of those without a deadline ends
	clock *time.Timer
}

// claim answers one claim.
func (l *lane) claim(ctx context.Context, mine *seat) (Grant, error) {
	if ctx.Err() != nil {
		return Grant{}, fmt.Errorf("%w: claim on %q: %w", errs.ErrUnavailable, l.key, why(ctx))
	}
	mine.ctx = ctx
	if l.o.Off {
		l.run(ctx, []*seat{mine})
		return mine.grant, mine.err
	}
	l.mu.Lock()
	if l.flights == 0 {
		l.flights++
		l.mu.Unlock()
		return l.alone(ctx, mine)
	}
	b, late := l.board(ctx, mine)
	l.mu.Unlock()

	var gaveUp error
	select {
	case <-b.done:
		return mine.grant, mine.err
	case <-late: // nil if ctx has a deadline
		gaveUp = errPatience
	case <-ctx.Done():
		gaveUp = why(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case b.landed: // in between: to drop the answer now would lose a unit
		return mine.grant, mine.err
	case b.sent:
		mine.left = true // whoever lands the flight sees it
		if b.aboard--; b.aboard == 0 {
			b.cancel() // nobody is left to fly for
		}
		return Grant{}, fmt.Errorf("%w: claim on %q: %w", errs.ErrUnknownOutcome, l.key, gaveUp)
	}
	mine.left = true
	return Grant{}, fmt.Errorf("%w: claim on %q: %w", errs.ErrUnavailable, l.key, gaveUp)
}

// alone flies with one seat on the caller's goroutine.
func (l *lane) alone(ctx context.Context, mine *seat) (Grant, error) {
	defer l.land()
	l.run(ctx, []*seat{mine})
	return mine.grant, mine.err
}

// board takes a seat. late is closed when the patience of a caller without a deadline ends. Called with mu held.
func (l *lane) board(ctx context.Context, mine *seat) (b *batch, late <-chan struct{}) {
	b = l.open
	if b == nil {
		b = &batch{done: make(chan struct{}), seats: make([]*seat, 0, min(16, l.o.MaxBatch))}
		l.open = b
		if l.flights < l.o.MaxFlights && l.o.MaxBatch > 1 {
			b.timer = time.AfterFunc(l.o.Window, func() { l.waited(b) })
		}
	}
	b.seats = append(b.seats, mine)
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(l.bound)
		if b.late == nil {
			c := make(chan struct{})
			b.late, b.clock = c, time.AfterFunc(l.bound, func() { close(c) })
		}
		late = b.late
	}
	if until.After(b.until) {
		b.until = until
	}
	if len(b.seats) == l.o.MaxBatch {
		l.close()
		if l.flights < l.o.MaxFlights {
			l.flights++
			l.spawn(func() { l.fly(b) })
		} else {
			l.ready = append(l.ready, b)
		}
	}
	return b, late
}

// close closes the open batch to more seats. Called with mu held.
func (l *lane) close() {
	if l.open.timer != nil {
		l.open.timer.Stop()
	}
	l.open = nil
}

// waited is the end of b's window.
func (l *lane) waited(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == b && l.flights < l.o.MaxFlights {
		l.close()
		l.flights++
		l.spawn(func() { l.fly(b) })
	}
}

// land ends a flight: the next batch takes it over.
func (l *lane) land() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next *batch
	switch {
	case len(l.ready) > 0:
		next, l.ready = l.ready[0], l.ready[1:]
	case l.open != nil:
		next = l.open
		l.close()
	default:
		l.flights--
		return
	}
	l.spawn(func() { l.fly(next) })
}

// fly carries b there and back.
func (l *lane) fly(b *batch) {
	defer l.land()
	l.mu.Lock()
	aboard := make([]*seat, 0, len(b.seats))
	for _, s := range b.seats {
		if !s.left { // whoever left before this moment is told that nothing was sent
			aboard = append(aboard, s)
		}
	}
	b.sent, b.aboard = true, len(aboard)
	ctx := context.Context(context.Background())
	if len(aboard) > 0 {
		ctx = context.WithoutCancel(aboard[0].ctx) // one call has one parent: the first claim's
	}
	ctx, b.cancel = context.WithDeadline(ctx, b.until)
	defer b.cancel()
	l.mu.Unlock()
	if len(aboard) > 0 {
		l.run(ctx, aboard)
	}

	l.mu.Lock()
	b.landed = true
	var left []*seat
	if l.forsaken != nil {
		for _, s := range aboard {
			if s.left && s.grant.Won() {
				left = append(left, s)
			}
		}
	}
	l.mu.Unlock()
	close(b.done)
	if b.clock != nil {
		b.clock.Stop()
	}
	if left != nil {
		l.forsaken(left)
	}
}

// why is the reason for which ctx ended.
func why(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
