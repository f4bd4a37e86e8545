package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
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
	grant       stock.Grant
	back        int64 // units that came back by it
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

// all are the entries in the order of their answers; those that were never answered are last.
func (b *callLog) all() []*entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.Clone(b.entries)
	slices.SortStableFunc(list, func(a, b *entry) int { return a.done.Compare(b.done) })
	return list
}

const (
	claims  what = "claim"
	orders  what = "claim-once"
	reserve what = "reserve"
	confirm what = "confirm"
	cancel  what = "cancel"
	giving  what = "return"
	await   what = "await"
	down    what = "count-down"
)

func books() []*kind {
	return []*kind{
		{
			name: "stock", crowds: true, make: func(*world, *object) {}, open: openStock, act: actOnStock, verdict: auditStock,
			plan: func(r *rand.Rand, s *Step) {
				s.What = []what{claims, claims, claims, orders, reserve, giving}[r.IntN(6)]
				s.ID, s.N = r.IntN(10), 1+r.IntN(3)
				s.Lease, s.For = upTo(r, 300*time.Millisecond, 3*time.Second), often(r, 100*time.Millisecond, 4*time.Second)
			},
		},
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
	w.note("client %d: step %d: %s of %s: %v %v", s.Who, s.Number, e.what, e.key, e.grant, err)
	w.count(func(f *Figures) { f.Answers++ })
	w.outcome(s.Number, fmt.Sprint(e.what, redlatch.Reason(err), e.grant.Outcome, e.grant.Ordinal, e.generation))
	if err != nil {
		w.overstayed(s, e.began)
	}
	if err == nil || c.dead() || slices.ContainsFunc(fine, func(f error) bool { return errors.Is(err, f) }) {
		return
	}
	w.failed(s, err)
}

const (
	stockLimit = 12
	perUser    = 4
)

func openStock(w *world, o *object) {
	if _, err := w.clients[0].red.Stocks().Stock(o.name).Open(context.Background(),
		stock.Spec{Limit: stockLimit, PerUser: perUser, OpenFor: time.Hour, Retain: time.Hour}); err != nil {
		w.violated("open: %v", err)
	}
}

func actOnStock(w *world, o *object, c *client, s Step) {
	ctx, stop := w.during(s, 8*calls)
	defer stop()
	x := c.red.Stocks().Stock(o.name)
	user := fmt.Sprint("user", s.ID)
	var err error
	fine := []error{}
	if w.forgot(o) {
		fine = append(fine, errs.ErrCorrupt, stock.ErrNotFound)
	}
	switch s.What {
	case claims:
		e := o.calls.begin(s, claims, user, 1)
		e.grant, err = x.Claim(ctx, user)
		w.answered(o, c, s, e, err, fine...)
	case orders:
		request := fmt.Sprint("order", s.ID)
		e := o.calls.begin(s, orders, request, 2)
		e.grant, err = x.Claim(ctx, "buyer"+request, stock.Request{ID: request, N: 2})
		w.answered(o, c, s, e, err, fine...)
	case giving:
		mine, ok := o.calls.last(user)
		if !ok {
			return
		}
		e := o.calls.begin(s, giving, user, mine)
		_, err = x.Return(ctx, stock.Units{Claimant: user, Ordinal: mine})
		w.answered(o, c, s, e, err, fine...)
	case reserve:
		reserveUnits(w, o, c, s, x, fine)
	}
}

// reserveUnits reserves, and after a while sells, gives up, or does nothing.
func reserveUnits(w *world, o *object, c *client, s Step, x *stock.Stock, fine []error) {
	ctx, stop := context.WithTimeout(context.Background(), 20*calls)
	defer stop()
	brief, leave := w.during(s, 20*calls)
	defer leave()
	id := fmt.Sprint("reservation", s.Number)
	e := o.calls.begin(s, reserve, id, int64(s.N))
	g, err := x.Reserve(brief, "payer"+id, stock.Request{ID: id, N: int64(s.N)}, s.Lease)
	e.grant = g
	if w.answered(o, c, s, e, err, fine...); err != nil || !g.Won() || s.ID%3 == 2 {
		return
	}
	if !redistest.Pause(ctx, s.For) || c.dead() {
		return
	}
	if s.ID%3 == 1 {
		e := o.calls.begin(s, cancel, id, 0)
		_, err := x.Cancel(ctx, id)
		w.answered(o, c, s, e, err, fine...)
		return
	}
	e = o.calls.begin(s, confirm, id, int64(s.N))
	sold, err := x.Confirm(ctx, id)
	e.grant = sold
	w.answered(o, c, s, e, err, fine...)
	if err == nil && !sold.Won() && time.Now().Before(g.Until) && len(w.of(w.nodes[0])) == 0 {
		w.violated("%s: step %d: %v before the reservation's time was over", o.name, s.Number, sold.Outcome)
	}
}

// last is the ordinal that user was last answered.
func (b *callLog) last(user string) (ordinal int64, ok bool) {
	for _, e := range b.all() {
		if e.key == user && e.what == claims && !e.done.IsZero() && e.grant.Won() {
			ordinal, ok = e.grant.Ordinal, true
		}
	}
	return ordinal, ok
}

// forgot reports whether the server of stocks and the like has lost anything that it had said.
// Latches and barriers do not wait for replicas.
func (w *world) forgot(o *object) bool {
	return slices.ContainsFunc(w.of(w.nodes[0]), func(s setback) bool {
		return s.what != clock && (s.what != confirmed || o.kind.name != "stock")
	})
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

// auditStock: after a setback a stock may sell a unit again (failover), or nothing at all (empty). Otherwise every
// ordinal has one owner, the same question has one answer, and no more is out than there is.
func auditStock(w *world, o *object) {
	list := o.calls.all()
	setbacks := w.of(w.nodes[0])
	emptied := time.Time{}
	for _, s := range setbacks {
		if s.what == empty || s.what == flushAll {
			emptied = s.at
			break
		}
	}
	if !emptied.IsZero() {
		for _, e := range list {
			// one that runs behind a ghost's back is not an answer to this
			if e.err == nil && e.grant.Won() && e.began.After(emptied) && !w.copiedBack() {
				w.violated("%s: step %d: %s won %v of a stock that was gone", o.name, e.step, e.key, e.grant)
			}
		}
	}
	if w.forgot(o) {
		return
	}
	auditOrdinals(w, o, list)
	auditSums(w, o, list, slices.ContainsFunc(setbacks, func(s setback) bool { return s.what != confirmed }))
	auditServer(w, o, list)
}

// copiedBack reports whether there was a failover: a replica's copy may be older than the emptying.
func (w *world) copiedBack() bool {
	return slices.ContainsFunc(w.of(w.nodes[0]), func(s setback) bool { return s.what == failover || s.what == confirmed })
}

func auditOrdinals(w *world, o *object, list []*entry) {
	owner, answer := map[int64]string{}, map[string]*entry{}
	for _, e := range list {
		if e.err != nil || e.done.IsZero() {
			continue
		}
		if e.grant.Won() && e.grant.Ordinal > 0 {
			for i := range e.grant.N {
				if was, ok := owner[e.grant.Ordinal+i]; ok && was != e.key {
					w.violated("%s: step %d: ordinal %d is %s's and %s's", o.name, e.step, e.grant.Ordinal+i, was, e.key)
				}
				owner[e.grant.Ordinal+i] = e.key
			}
		}
		if e.what != claims && e.what != orders && e.what != confirm {
			continue
		}
		was := answer[e.key]
		returned := slices.ContainsFunc(list, func(x *entry) bool {
			return x.what == giving && x.key == e.key && x.began.Before(e.done)
		})
		back := slices.ContainsFunc(list, func(x *entry) bool { return x.what == giving || x.what == reserve })
		switch {
		case was != nil && !returned && e.grant.Won() && e.grant.Ordinal != was.grant.Ordinal:
			w.violated("%s: %s was answered ordinal %d at step %d and %d at step %d", o.name, e.key, was.grant.Ordinal, was.step,
				e.grant.Ordinal, e.step)
		case was != nil && !returned && !e.grant.Won() && was.done.Before(e.began) &&
			!(back && e.grant.Outcome == stock.SoldOut):
			w.violated("%s: %s won at step %d and was answered %v at step %d", o.name, e.key, was.step, e.grant.Outcome, e.step)
		}
		if e.grant.Won() {
			answer[e.key] = e
		}
	}
}

// auditSums counts what was surely out at each moment, and what may have been when a caller was answered that nothing
// is left.
func auditSums(w *world, o *object, list []*entry, stepped bool) {
	type change struct {
		at time.Time
		n  int64
	}
	var changes []change
	seen := map[string]bool{}
	for _, e := range list {
		if e.err != nil || e.done.IsZero() {
			if e.what == giving {
				changes = append(changes, change{e.began, -1})
			}
			continue
		}
		mine := fmt.Sprint(e.key, "/", e.grant.Ordinal)
		switch {
		case e.what == giving:
			if !seen[fmt.Sprint("back", e.key, "/", e.n)] {
				seen[fmt.Sprint("back", e.key, "/", e.n)] = true
				changes = append(changes, change{e.began, -1})
			}
		case !e.grant.Won(), seen[mine]:
		case e.what == reserve && !stepped:
			end := e.grant.Until
			for _, x := range list {
				if x.key == e.key && x.what != reserve && x.began.Before(end) {
					end = x.began
				}
			}
			if e.done.Before(end) {
				changes = append(changes, change{e.done, e.grant.N}, change{end, -e.grant.N})
			}
		case e.what != reserve:
			seen[mine] = true
			changes = append(changes, change{e.done, e.grant.N})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		if d := a.at.Compare(b.at); d != 0 {
			return d
		}
		return int(a.n - b.n)
	})
	out := int64(0)
	for _, c := range changes {
		if out += c.n; out > stockLimit {
			w.violated("%s: %d of %d units are out at %s", o.name, out, stockLimit, w.at(c.at))
		}
	}
	for _, e := range list {
		if e.err != nil || e.grant.Outcome != stock.SoldOut {
			continue
		}
		most := int64(0)
		for _, x := range list {
			if x.began.Before(e.done) && x != e && !seen["asked"+fmt.Sprint(e.step)+x.key] && x.what != giving {
				seen["asked"+fmt.Sprint(e.step)+x.key] = true
				most += x.n
			}
		}
		gone := slices.ContainsFunc(list, func(x *entry) bool { return x.what == giving && x.began.Before(e.done) })
		if most+e.n <= stockLimit && !gone {
			w.violated("%s: step %d was answered SoldOut when at most %d of %d units could be out", o.name, e.step, most,
				stockLimit)
		}
	}
}

// auditServer asks the server, now that nothing disturbs it, for what was answered.
func auditServer(w *world, o *object, list []*entry) {
	ctx, stop := context.WithTimeout(context.Background(), 20*calls)
	defer stop()
	x := w.clients[0].red.Stocks().Stock(o.name)
	status, err := x.Inspect(ctx)
	if err != nil || status.Sold+status.Held > stockLimit || status.Sold < 0 {
		w.violated("%s: at the end: %+v, %v", o.name, status, err)
	}
	for i := range 10 {
		user := fmt.Sprint("user", i)
		ordinal, ok := o.calls.last(user)
		if !ok || slices.ContainsFunc(list, func(e *entry) bool { return e.what == giving && e.key == user }) {
			continue
		}
		if h, err := x.Lookup(ctx, stock.Units{Claimant: user}); err != nil || h.Ordinal != ordinal {
			w.violated("%s: %s was answered ordinal %d, and at the end has %v, %v", o.name, user, ordinal, h, err)
		}
	}
}
