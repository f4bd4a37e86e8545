package simulation

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

const (
	allow what = "allow"
	queue what = "wait"
)

// limited is a unit every two milliseconds, or five at once after a pause.
var limited = ratelimit.LimiterOptions{Rate: 500, Burst: 5, MaxWait: 50 * time.Millisecond}

func limits() *kind {
	return &kind{
		name: "limit", crowds: true, only: true,
		make: func(*world, *object) {}, open: func(*world, *object) {}, act: actOnLimit, verdict: auditLimit,
		plan: func(r *rand.Rand, s *Step) { s.What, s.N = []what{allow, queue, queue}[r.IntN(3)], 1+r.IntN(2) },
	}
}

func actOnLimit(w *world, o *object, c *client, s Step) {
	ctx, stop := w.during(s, s.Wait)
	defer stop()
	l := c.red.Limiters().Limiter(o.name, limited)
	e := o.book.begin(s, s.What, "", int64(s.N))
	if s.What == allow {
		a, err := l.Allow(ctx, "", e.n)
		if err == nil && !a.Allowed {
			err = ratelimit.ErrLimited
		}
		w.told(o, c, s, e, err, ratelimit.ErrLimited)
		return
	}
	_, err := l.Wait(ctx, "", e.n)
	w.told(o, c, s, e, err, ratelimit.ErrLimited)
}

// auditLimit: in no interval do more units pass than were promised; and callers that leave close the limiter for MaxWait at most.
func auditLimit(w *world, o *object) {
	var passed []*entry
	for _, e := range o.book.all() {
		if e.err == nil && !e.done.IsZero() {
			passed = append(passed, e)
		}
	}
	// The server let an entry pass when it was asked, or at the most as long before its answer came as the answer took.
	for i := range passed {
		units := int64(0)
		for _, e := range passed[i:] {
			units += e.n
			span := e.done.Sub(passed[i].done) + w.plan.Longest + time.Millisecond
			if most := limited.Burst + int64(span*time.Duration(limited.Rate)/time.Second) + 1; units > most {
				w.violated("%s: %d units passed in %v, %d at most were promised", o.name, units, span, most)
				return
			}
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), calls)
	defer stop()
	time.Sleep(limited.MaxWait + time.Duration(limited.Burst)*time.Second/time.Duration(limited.Rate))
	if a, err := w.clients[0].red.Limiters().Limiter(o.name, limited).Allow(ctx, "", limited.Burst); err != nil || !a.Allowed {
		w.violated("%s: everybody has left, and it is closed: %+v, %v", o.name, a, err)
	}
}
