package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rlock"
)

// once is the kind of a key of a Once. Its runs are claims of a resource, so no two are at the same time, and its
// answers are judged by auditOnce.
func once() *kind {
	k := holding("once", 1, func(r *rand.Rand, s *Step) {
		s.What, s.Lease, s.ID = run, 0, r.IntN(3)
		s.For = often(r, 50*time.Millisecond, 4*time.Second)
	}, nil, nil)
	k.make = func(w *world, o *object) {
		o.parts = append(o.parts, w.resource(o.name+":k", 1, w.nodes[:1]))
		o.parts[0].growing, o.once = true, &onceBook{keep: time.Second, runs: map[string]*onceRun{}}
		if w.plan.Crowd {
			o.once.keep = 20 * time.Millisecond
		}
		if w.plan.Seed%2 == 0 {
			o.once.stale = 2 * o.once.keep
		}
	}
	k.act = runOnce
	k.verdict = auditOnce
	k.owners = func(n *node, name string) []string { return fields(n, "{"+name+"}:once") }
	return k
}

const run what = "run-once"

// errOut is the error of a function that fails.
var errOut = errors.New("out of paper")

// onceBook is what is known of the answers of a key.
type onceBook struct {
	keep, stale time.Duration
	mu          sync.Mutex
	runs        map[string]*onceRun // by the answer, of which each run has one of its own
	given       []onceGiven
}

// onceRun is a run of the function that made an answer.
type onceRun struct {
	step     int
	from, to time.Time
	given    time.Time // when a caller had the answer first; zero: no caller has
	returned time.Time // when its own caller had it; zero: it had an error
}

// onceGiven is an answer that a caller got.
type onceGiven struct {
	answer      string
	step        int
	own         bool
	began, done time.Time
}

// runOnce calls Do. Its function works for a while, and fails in one of three.
func runOnce(w *world, o *object, c *client, s Step) {
	ctx, cancel := s.context()
	defer cancel()
	x := &claim{step: s.Number, who: c, units: map[*resource]int{o.parts[0]: 1}, renewed: true}
	w.wait(x)
	began, ran, lost := time.Now(), false, false
	answer, replayed, err := c.locks[0].Once(o.name, rlock.OnceOptions{Keep: o.once.keep, Stale: o.once.stale}).
		WithWait(s.patience()).Do(ctx, "k", "f", func(ctx context.Context, token int64) ([]byte, error) {
		ran, x.token = true, token
		if c.dead() { // no process is there to act
			w.enter(x, false)
			return nil, errOut
		}
		w.enter(x, true)
		from := time.Now()
		lost = w.works(ctx, c, s.For)
		w.leave(x, lost)
		if s.ID == 0 {
			return nil, errOut
		}
		text := fmt.Sprintf("%s step %d", o.name, s.Number)
		o.once.mu.Lock()
		defer o.once.mu.Unlock()
		o.once.runs[text] = &onceRun{step: s.Number, from: from, to: time.Now()}
		return []byte(text), nil
	})
	if !ran {
		w.enter(x, false)
	}
	w.note("client %d: step %d: %q, replayed: %v, ran: %v, %v", s.Who, s.Number, answer, replayed, ran, err)
	switch {
	case c.dead():
	case err == nil:
		w.count(func(f *Figures) { f.Answers++ })
		o.once.mu.Lock()
		defer o.once.mu.Unlock()
		o.once.given = append(o.once.given, onceGiven{string(answer), s.Number, !replayed, began, time.Now()})
	case errors.Is(err, errOut), lost && errors.Is(err, errs.ErrLost):
	case ran && errors.Is(err, errs.ErrLost) && !w.plan.calm():
	default:
		if !ran && (s.Ends != byWait || errors.Is(err, errs.ErrNotAcquired)) {
			w.overstayed(s, began)
		}
		w.failed(s, err)
	}
}

// works waits for d, and reports whether ctx has ended before.
func (w *world) works(ctx context.Context, c *client, d time.Duration) (lost bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return !errors.Is(context.Cause(ctx), context.DeadlineExceeded) && !errors.Is(context.Cause(ctx), context.Canceled)
	case <-t.C:
	case <-c.gone:
	}
	return false
}

// auditOnce: each answer that a caller got was made by a run that had ended. Of two such answers the run of the later
// began when the earlier was kept no longer, unless the server had lost it. So all callers got the same bytes while an
// answer was kept. No caller that came when it was served no longer got it.
func auditOnce(w *world, o *object) {
	book := o.once
	book.mu.Lock()
	defer book.mu.Unlock()
	var given []*onceRun
	for _, g := range book.given {
		r := book.runs[g.answer]
		if r == nil || g.done.Before(r.to) {
			w.violated("%s: step %d got %q, which no run had made by then", o.name, g.step, g.answer)
			continue
		}
		if r.given.IsZero() {
			given = append(given, r)
		}
		if r.given.IsZero() || g.done.Before(r.given) {
			r.given = g.done
		}
		if g.own {
			r.returned = g.done
		}
	}
	for _, g := range book.given {
		r := book.runs[g.answer]
		if r == nil || w.back {
			continue
		}
		if d := g.began.Sub(r.given) - book.keep - book.stale; d > calls {
			w.violated("%s: step %d got %q %v after its end", o.name, g.step, g.answer, d)
		}
	}
	// The server's clock drifts. The last part of a millisecond is 0 ms for the scripts: the answer is old then.
	kept := book.keep*98/100 - time.Millisecond
	slices.SortFunc(given, func(a, b *onceRun) int { return a.from.Compare(b.from) })
	for i, b := range given {
		for _, a := range given[:i] {
			if b.from.Before(a.to.Add(kept)) && !w.forgotAnswer(a, b) {
				w.violated("%s: step %d made an answer at %s, and step %d another one from %s on", o.name, a.step, w.at(a.to),
					b.step, w.at(b.from))
			}
		}
	}
}

// forgotAnswer reports whether the server may have forgotten the run of a, or its answer, before the run of b began. A
// failover forgets only what was written shortly before; and, with MinReplicas, nothing that the caller of a was told.
func (w *world) forgotAnswer(a, b *onceRun) bool {
	return slices.ContainsFunc(w.of(w.nodes[0]), func(s setback) bool {
		since := s.at.Add(-s.window)
		switch {
		case s.at.Before(a.from.Add(-2*calls)) || s.at.After(b.from):
			return false
		case s.what == failover && a.given.Before(since):
			return false
		case s.what == confirmed && !a.returned.IsZero() && a.returned.Before(s.at):
			return false
		}
		return true
	})
}
