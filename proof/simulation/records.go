package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// entry is one call of an object that keeps records, and what it was answered.
type entry struct {
	step        int
	what        what
	key         string // whose call it is: the same key asks the same question
	n           int64
	began, done time.Time
	err         error
	answer      stock.Answer
	generation  int64
	round       string // of several latches
}

// callLog is what was asked of an object, and answered.
type callLog struct {
	mu      sync.Mutex
	entries []*entry
}

func (b *callLog) begin(s Step, w what, key string, n int64) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := &entry{step: s.Number, what: w, key: key, n: n, began: time.Now()}
	b.entries = append(b.entries, e)
	return e
}

func (b *callLog) end(e *entry, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.done, e.err = time.Now(), err
}

// all are the entries in the order of their answers. Entries without an answer are last.
func (b *callLog) all() []*entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.Clone(b.entries)
	slices.SortStableFunc(list, func(a, b *entry) int { return a.done.Compare(b.done) })
	return list
}

// keys are those of the calls, in their order.
func (b *callLog) keys() (keys []string) {
	for _, e := range b.all() {
		if e.key != "" && !slices.Contains(keys, e.key) {
			keys = append(keys, e.key)
		}
	}
	return keys
}

const (
	await what = "await"
	down  what = "count-down"
)

func books() []*kind {
	return []*kind{
		{
			name: "latch", crowds: true, make: func(*world, *object) {}, open: openLatch, act: actOnLatch, verdict: auditLatches,
			plan: func(r *rand.Rand, s *Step) {
				s.What, s.ID = []what{await, down}[r.IntN(2)], r.IntN(latchCount+1)
				s.Wait = upTo(r, 100*time.Millisecond, 20*time.Second)
			},
		},
		{
			name: "barrier", crowds: true, make: func(*world, *object) {}, open: func(*world, *object) {}, act: actOnBarrier,
			verdict: auditBarrier,
			plan:    func(r *rand.Rand, s *Step) { s.What, s.Wait = await, upTo(r, 100*time.Millisecond, 8*time.Second) },
		},
		limits(),
	}
}

// during is what a call is made with that has no waitTime: in a crowd until its caller leaves, otherwise for longest.
func (w *world) during(s Step, longest time.Duration) (context.Context, context.CancelFunc) {
	if w.plan.Crowd && s.Ends != byWait {
		return s.context()
	}
	if w.plan.Crowd {
		longest = s.Wait
	}
	return context.WithTimeout(context.Background(), longest)
}

// answered notes the answer of a call, and judges its error.
func (w *world) answered(o *object, c *client, s Step, e *entry, err error, fine ...error) {
	o.calls.end(e, err)
	w.note("client %d: step %d: %s of %s: %v %v", s.Who, s.Number, e.what, e.key, e.answer, err)
	w.count(func(f *Figures) { f.Answers++ })
	if err != nil {
		w.overstayed(s, e.began)
	}
	if err == nil || c.dead() || slices.ContainsFunc(fine, func(f error) bool { return errors.Is(err, f) }) {
		return
	}
	w.failed(s, err)
}

// forgot reports whether the server of sales and the like has lost anything that it had said.
// Latches and barriers do not wait for replicas.
func (w *world) forgot() bool {
	return slices.ContainsFunc(w.of(w.nodes[0]), func(s setback) bool { return s.what != clock })
}

// of are the setbacks of a server.
func (o *oracle) of(n *node) (list []setback) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.setbacks {
		if s.node == n {
			list = append(list, s)
		}
	}
	return list
}
