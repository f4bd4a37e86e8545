package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rsemaphore"
)

const latchCount = 5

func openLatch(w *world, o *object) {
	names := []string{o.name}
	if w.plan.Crowd {
		names = nil
		for n := range crowdLength/crowdLatch + 1 {
			names = append(names, fmt.Sprintf("%s-%d", o.name, n))
		}
	}
	for _, name := range names {
		if set, err := w.clients[0].red.Semaphores().CountDownLatch(name).TrySetCount(context.Background(), latchCount,
			10*time.Minute); err != nil || !set {
			w.violated("set: %v", err)
		}
	}
}

// crowdLatch is for how long the callers of a crowd use a latch; then they use another.
const crowdLatch = 100 * time.Millisecond

func actOnLatch(w *world, o *object, c *client, s Step) {
	name := o.name
	if w.plan.Crowd {
		name = fmt.Sprintf("%s-%d", name, s.At/crowdLatch)
	}
	l := c.red.Semaphores().CountDownLatch(name)
	ctx, stop := w.during(s, s.Wait)
	defer stop()
	fine := []error{context.DeadlineExceeded}
	if len(w.of(w.nodes[0])) > 0 {
		fine = append(fine, rsemaphore.ErrLatchExpired, rsemaphore.ErrLatchDeleted)
	}
	if s.What == down {
		part := fmt.Sprint("part", s.ID)
		e := o.calls.begin(s, down, part, 1)
		e.round = name
		_, err := l.CountDownBy(ctx, part)
		w.answered(o, c, s, e, err, fine...)
		return
	}
	e := o.calls.begin(s, await, "all", 0)
	e.round = name
	w.answered(o, c, s, e, l.Await(ctx), fine...)
}

func auditLatches(w *world, o *object) {
	if w.forgot() {
		return
	}
	rounds := map[string][]*entry{}
	for _, e := range o.calls.all() {
		rounds[e.round] = append(rounds[e.round], e)
	}
	for _, list := range rounds {
		auditLatch(w, o, list)
	}
}

// auditLatch: no caller passes before all have begun to count, and every caller soon after all have.
func auditLatch(w *world, o *object, list []*entry) {
	begun, counted := map[string]time.Time{}, map[string]time.Time{}
	for _, e := range list {
		if e.what != down {
			continue
		}
		if t, ok := begun[e.key]; !ok || e.began.Before(t) {
			begun[e.key] = e.began
		}
		if t, ok := counted[e.key]; e.err == nil && (!ok || e.done.Before(t)) {
			counted[e.key] = e.done
		}
	}
	nth := func(of map[string]time.Time) (time.Time, bool) {
		var times []time.Time
		for _, t := range of {
			times = append(times, t)
		}
		if len(times) < latchCount {
			return time.Time{}, false
		}
		slices.SortFunc(times, time.Time.Compare)
		return times[latchCount-1], true
	}
	may, some := nth(begun)
	must, full := nth(counted)
	for _, e := range list {
		if e.what != await {
			continue
		}
		if e.err == nil && !e.done.IsZero() && (!some || e.done.Before(may)) {
			w.violated("%s: step %d passed at %s, before all had counted", o.name, e.step, w.at(e.done))
		}
		if d := e.done.Sub(later(must, e.began)); full && w.plan.Crowd && d > w.plan.soon() {
			w.violated("%s: step %d returned %v after the latch was open: %v", e.round, e.step, d, e.err)
		}
		if full && e.err != nil && errors.Is(e.err, context.DeadlineExceeded) {
			since := later(later(must, e.began), w.disturbed.Add(recovery))
			if w.plan.calm() {
				since = later(must, e.began)
			}
			if d := e.done.Sub(since); d > reaction {
				w.violated("%s: step %d waited until %s for what was open at %s", o.name, e.step, w.at(e.done), w.at(must))
			}
		}
	}
}

const parties = 3

func actOnBarrier(w *world, o *object, c *client, s Step) {
	ctx, stop := w.during(s, s.Wait)
	defer stop()
	e := o.calls.begin(s, await, "all", 0)
	a, err := c.red.Semaphores().CyclicBarrier(o.name, parties).Await(ctx)
	e.generation = a.Generation
	w.answered(o, c, s, e, err, rsemaphore.ErrBrokenBarrier, errs.ErrNotAcquired)
}

// auditBarrier: of each generation that let a caller go, no more than all parties went, they had all come before the
// first one went, and none of them was answered that it broke.
func auditBarrier(w *world, o *object) {
	if w.forgot() {
		return
	}
	if w.plan.Crowd {
		auditMeetings(w, o)
	}
	tripped := map[int64][]*entry{}
	broken := map[int64]*entry{}
	for _, e := range o.calls.all() {
		switch {
		case e.done.IsZero() || e.generation == 0:
		case e.err == nil:
			tripped[e.generation] = append(tripped[e.generation], e)
		case errors.Is(e.err, rsemaphore.ErrBrokenBarrier) && !errors.Is(e.err, errs.ErrLost):
			// who could not ask for a lease knows no better
			broken[e.generation] = e
		}
	}
	for g, went := range tripped {
		if len(went) > parties {
			w.violated("%s: %d of %d parties went in generation %d", o.name, len(went), parties, g)
		}
		first := went[0].done
		for _, e := range went {
			if e.began.After(first) {
				w.violated("%s: step %d came at %s, when another one of generation %d had gone", o.name, e.step, w.at(e.began), g)
			}
		}
		if b := broken[g]; b != nil {
			w.violated("%s: generation %d let step %d go and broke for step %d", o.name, g, went[0].step, b.step)
		}
		came := 0
		for _, e := range o.calls.all() {
			unsure := errors.Is(e.err, errs.ErrLost) || errors.Is(e.err, errs.ErrUnknownOutcome) ||
				errors.Is(e.err, errs.ErrUnavailable) || errors.Is(e.err, errs.ErrClosed)
			if e.began.Before(first) && (unsure || e.done.IsZero() || !e.done.Before(first)) {
				came++
			}
		}
		if came < parties && !w.back { // a clock that was set back lets a request in that is far too late
			w.violated("%s: generation %d went when %d of %d parties were there", o.name, g, came, parties)
		}
	}
}

// auditMeetings: as many callers as a barrier has parties are not there together for longer than two round trips and 10
// ms, and one round trip for each that leaves meanwhile; they go, or it breaks.
func auditMeetings(w *world, o *object) {
	list := o.calls.all()
	for _, last := range list {
		var ends []time.Time
		for _, e := range list {
			if e != last && !e.began.After(last.began) && e.done.After(last.began) {
				ends = append(ends, e.done)
			}
		}
		if len(ends) < parties-1 {
			continue
		}
		slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
		end := ends[parties-2]
		if last.done.Before(end) {
			end = last.done
		}
		left := time.Duration(0)
		for _, e := range list {
			if e.err != nil && e.done.After(last.began) && !e.done.After(end) {
				left++
			}
		}
		if d := end.Sub(last.began); d > w.plan.soon()+left*2*w.plan.Longest {
			w.violated("%s: %d parties were there for %v, step %d the last of them, while %d left", o.name, parties, d,
				last.step, left)
		}
	}
}
