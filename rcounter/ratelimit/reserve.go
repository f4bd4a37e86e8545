package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"strconv"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Reservation is units that were taken for a turn that may be yet to come. It is safe for concurrent use.
type Reservation struct {
	part
	id, place string // on the server: see cancel.lua
	turn      time.Time

	mu       sync.Mutex
	canceled bool
}

// Delay is how long until the units may pass; 0: they may now.
func (r *Reservation) Delay() time.Duration { return max(0, time.Until(r.turn)) }

// N is how many units are reserved.
func (r *Reservation) N() int64 { return r.n }

// Cancel gives the units back, because they are not used. Their turn is given to the next that reserves; or the line
// ends before it, if no later turn follows. Units whose turn has come are given back only if nothing was taken since,
// because later callers may have been refused on their account; Cancel reports whether any were. It may be called again
// after an error; after a success it does nothing. One round trip.
func (r *Reservation) Cancel(ctx context.Context) (back bool, err error) {
	defer edge(&err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.canceled {
		return false, nil
	}
	a, err := r.cancel(ctx)
	r.canceled = err == nil
	return a.taken == 1, err
}

// Reserve takes n units, 1 to Burst, of key's limit for the first time at which they may pass, and says how long that
// is from now. A caller that does not use them calls Cancel. Callers have turns in the order in which the server runs
// their calls, but the next caller gets a turn that was given back. Only with GCRA. One round trip, repeated until
// answered.
//
// If that time is longer than LimiterOptions.MaxWait, or after ctx's deadline, Reserve takes nothing and returns
// ErrLimited, with nil. The other errors are those of Allow, whatever LimiterOptions.WhenDown is.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (reservation *Reservation, err error) {
	defer edge(&err)
	r, _, err := l.reserve(ctx, key, n)
	return r, err
}

// Wait takes n units, 1 to Burst, from key's limit and returns when they may pass. It takes them at once, in the
// order in which the server runs the calls, and sleeps until they may pass; it does not ask
// again. The Admission is the server's, of before the sleep. Only with GCRA. One round trip.
//
// If the units could only pass after ctx's deadline, or after LimiterOptions.MaxWait, Wait takes nothing and returns
// ErrLimited at once, with an Admission that says how long. If ctx ends while Wait sleeps, it returns ctx's error at
// once. The units are then given back in the background, if the server answers within a call timeout: their turn goes
// to the next that waits. The same is tried if ctx ends before the reply comes: ErrUnknownOutcome.
//
// The other errors are those of Allow, whatever LimiterOptions.WhenDown is.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) (admission Admission, err error) {
	defer edge(&err)
	r, a, err := l.reserve(ctx, key, n)
	if err != nil {
		return a, err
	}
	if d := r.Delay(); d == 0 || script.Pause(ctx, d) {
		return a, nil
	}
	r.giveBack(ctx)
	return Admission{}, errs.Ended(ctx)
}

func (l *Limiter) reserve(ctx context.Context, key string, n int64) (*Reservation, Admission, error) {
	var want request
	if err := want.add(ctx, Take{l, key, n}, 1); err != nil {
		return nil, Admission{}, err
	}
	p := want.parts[0]
	if p.t.algorithm != GCRA {
		return nil, Admission{},
			errs.InvalidOption("Algorithm", p.t.algorithm, "GCRA for Wait and Reserve: windows have no turns")
	}
	if l.o.Shadow {
		return nil, Admission{},
			errs.InvalidOption("Shadow", true, "false for Wait and Reserve: a shadow limit keeps nobody waiting")
	}
	if n > p.t.burst {
		a := reply{taken: tookNone, wait: p.patience(0)}
		return nil, a.admission(false), fmt.Errorf("%w: %q of %q: n is %d, and the limit stored on the server lets %d "+
			"pass at once", ErrLimited, key, l.name, n, p.t.burst)
	}
	most := l.o.MaxWait
	if d, ok := ctx.Deadline(); ok {
		most = max(0, min(most, time.Until(d)))
	}
	r := &Reservation{part: p, id: callID()}
	a, err := r.take(ctx, most)
	switch {
	case errors.Is(err, errs.ErrUnknownOutcome): // the units may have been taken for a caller that no longer waits
		r.giveBack(ctx)
		return nil, Admission{}, err
	case err != nil:
		return nil, Admission{}, err
	case a.taken == 0:
		a.taken = tookNone
		return nil, a.admission(false), l.limited(key, a.wait)
	}
	// It is counted from the reply: the units pass no earlier than the server said.
	r.turn = time.Now().Add(a.wait)
	a.taken = n
	return r, a.admission(false), nil
}

func (l *Limiter) limited(key string, wait time.Duration) error {
	if wait > l.o.MaxWait {
		return fmt.Errorf("%w: %q of %q, for another %v, longer than MaxWait, %v", ErrLimited, key, l.name, wait, l.o.MaxWait)
	}
	return fmt.Errorf("%w: %q of %q, for another %v", ErrLimited, key, l.name, wait)
}

// giveBack cancels a reservation in the background, because ctx has ended, for
// a call timeout at most. If it fails, too few units pass.
func (r *Reservation) giveBack(ctx context.Context) {
	c := r.l.c
	c.calls.Finish(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.calls.CallTimeout)
		defer cancel()
		if _, err := r.cancel(ctx); err != nil {
			edge(&err)
			c.calls.Tell(ctx, errs.Event{Kind: errs.EventBackgroundFailed, Name: r.l.name, Err: err})
			c.calls.Complain("units of a rate limiter could not be returned; fewer units pass until they drain", r.l.name, err)
		}
	})
}

var (
	reserveScript = script.Load("reserve", files, "reserve")
	cancelScript  = script.Load("cancel", files, "cancel")
)

// take runs reserve.lua.
func (r *Reservation) take(ctx context.Context, most time.Duration) (a reply, err error) {
	a, r.place, err = r.run(ctx, reserveScript, strconv.FormatInt(most.Microseconds(), 10))
	return a, err
}

// cancel runs cancel.lua.
func (r *Reservation) cancel(ctx context.Context) (reply, error) {
	r.l.c.refusals.forget(r.key)
	a, _, err := r.run(ctx, cancelScript, r.place)
	return a, err
}

// run runs one of the two scripts, which differ in their last argument.
func (r *Reservation) run(ctx context.Context, s *script.Script, last string) (a reply, place string, err error) {
	m, err := r.l.c.calls.Do(ctx, script.Call{Script: s, Keys: []string{r.key},
		Args: []string{r.id, r.t.words[1], r.t.words[2], r.t.words[3], strconv.FormatInt(r.n, 10), last}})
	if err != nil {
		return reply{}, "", err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 5 {
		return reply{}, "", fmt.Errorf("unexpected reply to a reservation on %q", r.key)
	}
	a = reply{taken: v[0], wait: script.Micros(v[1]), free: v[2], empty: script.Micros(v[3])}
	return a, strconv.FormatInt(v[4], 10), a.refused(r.key)
}
