package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// kind is one kind of object: the steps that plans have for the object, how a step is made, and the checks. The oracle
// judges the claims of the object.
type kind struct {
	name     string
	plan     func(r *rand.Rand, s *Step)
	make     func(w *world, o *object)
	open     func(w *world, o *object) // before the plan begins
	act      func(w *world, o *object, c *client, s Step)
	verdict  func(w *world, o *object)           // when the plan is over, and all is well
	crowds   bool                                // crowds are tried with it
	owners   func(n *node, name string) []string // what has it, as a server says; nil: nothing has
	tenantOf func(s Step) string                 // whose share a step has; nil: there are no shares
	late     func(p Plan) time.Duration          // how much longer than others it may take to acquire; nil: no longer
	only     bool                                // crowds only are tried with it
	keeps    bool                                // it has UnlockAfter
}

var all []*kind

func init() {
	all = slices.Concat(locks(), permits(), []*kind{once()}, books(), sales())
}

// Kinds are the names of the kinds of objects.
func Kinds() (names []string) {
	for _, k := range all {
		names = append(names, k.name)
	}
	return names
}

func kindOf(name string) *kind {
	for _, k := range all {
		if k.name == name {
			return k
		}
	}
	panic("simulation: no such kind: " + name)
}

const (
	take  what = "take"
	again what = "take-twice" // re-enters what it holds
	longr what = "take-extend"
)

// lease is a hold or a permit.
type lease interface {
	Done() <-chan struct{}
	Until() time.Time
	Extend(ctx context.Context, d time.Duration) error
}

// held is what an acquisition returns.
type held struct {
	lease
	release func(ctx context.Context) error
	keep    func(ctx context.Context, d time.Duration) error // UnlockAfter; nil: there is none
	reenter func(ctx context.Context) error                  // nil: it cannot be
	token   int64
	ids     []string // as the server has them; nil: the hold is its process's only one
}

// holding makes a kind whose objects are held. units are what an act takes of the object's resources.
func holding(name string, capacity int, plan func(r *rand.Rand, s *Step),
	units func(o *object, s Step) map[*resource]int,
	acquire func(ctx context.Context, c *client, name string, s Step) (held, error), parts ...string) *kind {
	k := &kind{name: name, crowds: true, owners: fields, open: func(*world, *object) {}, verdict: func(*world, *object) {}}
	k.plan = func(r *rand.Rand, s *Step) {
		s.What, s.For, s.N = []what{take, take, take, again, longr}[r.IntN(5)], often(r, 200*time.Millisecond,
			8*time.Second), 1
		if r.IntN(8) > 0 {
			s.Wait = upTo(r, 50*time.Millisecond, 5*time.Second)
		}
		if r.IntN(4) == 0 { // it gives up soon, whatever the fault
			s.Ends = []ends{byWait, byDeadline, byCancel, byAnother}[r.IntN(4)]
			if s.Wait = upTo(r, 0, 5*time.Millisecond); s.Ends == byAnother {
				s.Wait = 0
			}
		}
		if r.IntN(4) == 0 {
			s.Lease = upTo(r, 100*time.Millisecond, longestLease-time.Second)
		}
		if plan != nil {
			plan(r, s)
		}
	}
	k.make = func(w *world, o *object) {
		o.parts = append(o.parts, w.resource(o.name, capacity, w.nodes[:1]))
		for _, p := range parts {
			o.parts = append(o.parts, w.resource(o.name+p, capacity, w.nodes[:1]))
		}
		o.parts[0].ordered, o.parts[0].growing = name == "fair", name == "fenced" || name == "election"
		if name == "quorum" {
			o.parts[0].nodes = w.nodes
		}
	}
	k.act = func(w *world, o *object, c *client, s Step) {
		u := map[*resource]int{o.parts[0]: s.N}
		if units != nil {
			u = units(o, s)
		}
		x := &claim{step: s.Number, who: c, units: u, renewed: s.Lease == 0}
		if k.tenantOf != nil {
			x.tenant = k.tenantOf(s)
		}
		w.take(c, s, x,
			func(ctx context.Context) (held, error) {
				return acquire(ctx, c, o.name, s)
			})
	}
	return k
}

// lock acquires l. several: a process may have several holds of it. Only those are asked for their owners: a hold that
// has shown its owner could not be passed on within its process.
func lock(l *rlock.Lock, several bool) func(context.Context, Step) (held, error) {
	return func(ctx context.Context, s Step) (held, error) {
		h, err := l.WithLabel(s.Label).TryLock(ctx, s.patience(), s.Lease)
		if err != nil {
			return held{}, err
		}
		token, _ := h.Token()
		var ids []string
		if several {
			ids = []string{string(h.Owner())}
		}
		return held{ids: ids, lease: h, release: h.Unlock, keep: h.UnlockAfter, token: token,
			reenter: func(ctx context.Context) error {
				inner, err := l.TryLock(h.Context(ctx), 0, s.Lease)
				if err != nil {
					return err
				}
				return inner.Unlock(ctx)
			}}, nil
	}
}

func locks() (ks []*kind) {
	single := map[string]func(c *rlock.Client, name string) *rlock.Lock{
		"reentrant": (*rlock.Client).Reentrant, "nonreentrant": (*rlock.Client).NonReentrant,
		"fenced": (*rlock.Client).Fenced,
		"fair":   (*rlock.Client).Fair, "plain": (*rlock.Client).Plain,
		"spin": func(c *rlock.Client, name string) *rlock.Lock {
			return c.Spin(name, time.Millisecond, 100*time.Millisecond)
		},
	}
	for _, name := range []string{"reentrant", "nonreentrant", "fenced", "fair", "plain", "spin"} {
		ks = append(ks, holding(name, 1, nil, nil, func(ctx context.Context, c *client, object string, s Step) (held, error) {
			return lock(single[name](c.locks[0], object), false)(ctx, s)
		}))
	}
	const everybody = 1000
	ks = append(ks, holding("readwrite", everybody, func(r *rand.Rand, s *Step) {
		if s.N = 1; r.IntN(3) == 0 {
			s.N = everybody
		}
		if s.What == again {
			s.What = take
		}
	}, nil, func(ctx context.Context, c *client, object string, s Step) (held, error) {
		x := c.locks[0].ReadWrite(object)
		if s.N == 1 {
			return lock(x.Read(), true)(ctx, s)
		}
		return lock(x.Write(), true)(ctx, s)
	}))
	ks = append(ks, holding("multi", 1, func(r *rand.Rand, s *Step) {
		s.ID = r.IntN(4)
	}, func(o *object, s Step) map[*resource]int {
		switch s.ID {
		case 0:
			return map[*resource]int{o.parts[0]: 1}
		case 1:
			return map[*resource]int{o.parts[1]: 1}
		}
		return map[*resource]int{o.parts[0]: 1, o.parts[1]: 1}
	}, func(ctx context.Context, c *client, object string, s Step) (held, error) {
		one, two := c.locks[0].Reentrant(object), c.locks[0].Reentrant(object+"b")
		switch s.ID {
		case 0:
			return lock(one, false)(ctx, s)
		case 1:
			return lock(two, false)(ctx, s)
		case 2:
			one, two = two, one
		}
		m, err := rlock.Multi(one, two)
		if err != nil {
			return held{}, err
		}
		return lock(m, false)(ctx, s)
	}, "b"))
	for _, k := range ks {
		k.keeps = true
		switch k.name {
		case "fair":
			// Without Pub/Sub no message says to the next in line that the first has left. It asks within a PollCap, or has left
			// by then, too.
			k.late = func(p Plan) time.Duration { return 2 * p.deaf() }
		case "plain":
			k.owners = text
		case "spin":
			k.late = func(Plan) time.Duration { return 100 * time.Millisecond } // its longest pause
		}
	}
	ks = append(ks, elections())
	quorum := holding("quorum", 1, nil, nil, func(ctx context.Context, c *client, object string, s Step) (held, error) {
		var members []*rlock.Lock
		for _, l := range c.locks {
			members = append(members, l.Reentrant(object))
		}
		q, err := rlock.Quorum(members...)
		if err != nil {
			return held{}, err
		}
		return lock(q, false)(ctx, s)
	})
	quorum.late = func(p Plan) time.Duration { return 128 * 2 * p.Longest } // votes are split
	return append(ks, quorum)
}

// term makes a leadership a lease.
type term struct{ *election.Leadership }

func (term) Extend(context.Context, time.Duration) error { return nil }

func elections() *kind {
	k := holding("election", 1, func(_ *rand.Rand, s *Step) { s.What, s.Lease = take, 0 }, nil,
		func(ctx context.Context, c *client, object string, s Step) (held, error) {
			if s.Ends == byWait {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, s.Wait)
				defer cancel()
			}
			l, err := c.red.Elections().Election(object).Campaign(ctx, "")
			if err != nil {
				return held{}, err
			}
			return held{lease: term{l}, release: l.Resign, token: l.Token()}, nil
		})
	k.only = true
	return k
}

func permits() []*kind {
	const few, many = 3, 10
	ks := []*kind{
		holding("semaphore", few, func(r *rand.Rand, s *Step) { s.N = 1 + r.IntN(few)*r.IntN(2) }, nil,
			func(ctx context.Context, c *client, object string, s Step) (held, error) {
				return permit(c.red.Semaphores().Semaphore(object, few).TryAcquire(ctx, s.N, s.patience(), s.Lease))
			}),
		holding("weighted", many, func(r *rand.Rand, s *Step) { s.N = 1 + r.IntN(many) }, nil,
			func(ctx context.Context, c *client, object string, s Step) (held, error) {
				return permit(c.red.Semaphores().WeightedSemaphore(object, many).TryAcquire(ctx, s.N, s.patience(), s.Lease))
			}),
	}
	ks = append(ks,
		holding("tenants", few, func(r *rand.Rand, s *Step) { s.N = 1 + r.IntN(few)*r.IntN(2) }, nil,
			func(ctx context.Context, c *client, object string, s Step) (held, error) {
				of := c.red.Semaphores().Semaphore(object, few).For(fmt.Sprint("tenant ", s.Number%5)).WithWeight(1 + s.Number%3).
					WithPriority(s.Number % 2)
				return permit(of.TryAcquire(ctx, s.N, s.patience(), s.Lease))
			}),
		// The maximum is what holders share, and never the capacity.
		holding("maximum", few, func(r *rand.Rand, s *Step) { s.N = 1 + r.IntN(few)*r.IntN(2) }, nil,
			func(ctx context.Context, c *client, object string, s Step) (held, error) {
				sem := c.red.Semaphores().Semaphore(object, many).For("one").WithMax(few)
				return permit(sem.TryAcquire(ctx, s.N, s.patience(), s.Lease))
			}), shared())
	for _, k := range ks {
		k.owners = func(n *node, name string) []string { return members(n, "{"+name+"}:timeout") }
	}
	ks[1].owners = func(n *node, name string) []string { return members(n, "{"+name+"}:weights") }
	return ks
}

var (
	_ lease = (*rlock.Hold)(nil)
	_ lease = (*rsemaphore.Permit)(nil)
)

// take acquires, acts for a while, and releases.
func (w *world) take(c *client, s Step, x *claim, acquire func(ctx context.Context) (held, error)) {
	ctx, cancel := s.context()
	defer cancel()
	w.wait(x)
	h, err := acquire(ctx)
	if x.ids = h.ids; err != nil && s.Ends != byWait || errors.Is(err, errs.ErrNotAcquired) {
		w.overstayed(s, x.began)
	}
	if err == nil {
		x.token = h.token
	}
	if c.dead() { // no process is there to act
		w.enter(x, false)
		if err == nil {
			w.abandon(h)
		}
		return
	}
	w.enter(x, err == nil)
	w.passed(x, err == nil)
	if err != nil {
		w.failed(s, err)
		return
	}
	w.note("client %d: step %d has %s, token %d", s.Who, s.Number, w.plan.Kinds[s.On], h.token)
	w.says(c, w.objects[s.On].name, h.Until())
	if s.What != take {
		w.more(s, h)
	}
	t := time.NewTimer(time.Until(x.from.Add(s.For)))
	defer t.Stop()
	lost := false
	select {
	case <-h.Done():
		lost = true
	case <-t.C:
		// one that is over, and does not know
		select {
		case <-h.Done():
			lost = true
		default:
			if d := time.Since(h.Until()); d > time.Millisecond {
				w.violated("step %d: over for %v, and its context has not ended", s.Number, d)
			}
		}
	case <-c.gone:
	}
	if s.Keep > 0 && !lost {
		w.kept(x, s.Keep)
		h.release = func(ctx context.Context) error { return h.keep(ctx, s.Keep) }
	}
	if !lost {
		w.says(c, w.objects[s.On].name, h.Until())
	}
	w.leave(x, lost)
	if c.dead() {
		w.abandon(h)
		return
	}
	w.note("client %d: step %d leaves %s, lost: %v", s.Who, s.Number, w.plan.Kinds[s.On], lost)
	rctx, rcancel := context.WithTimeout(context.Background(), 10*calls)
	defer rcancel()
	err = h.release(rctx)
	if w.plan.calm() && err != nil && !(lost && errors.Is(err, errs.ErrLost)) && s.Lease == 0 {
		w.violated("step %d: release: %v", s.Number, err)
	}
}

// more re-enters a hold, or makes it last longer.
func (w *world) more(s Step, h held) {
	ctx, cancel := context.WithTimeout(context.Background(), calls)
	defer cancel()
	var err error
	if s.What == again && h.reenter != nil {
		err = h.reenter(ctx)
	}
	if s.What == longr {
		err = h.Extend(ctx, time.Second)
	}
	if err != nil && w.plan.calm() && s.Lease == 0 && !errors.Is(err, rlock.ErrReentry) {
		w.violated("step %d: %s: %v", s.Number, s.What, err)
	}
}

// abandon keeps what a crashed client held.
func (w *world) abandon(h held) {
	w.cmu.Lock()
	defer w.cmu.Unlock()
	w.held = append(w.held, func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.release(ctx) // nothing of it gets out
	})
}

// failed judges an error: where nothing went wrong, only that another caller was there first.
func (w *world) failed(s Step, err error) {
	w.note("client %d: step %d: %v", s.Who, s.Number, err)
	refused := errors.Is(err, errs.ErrNotAcquired)
	w.count(func(f *Figures) {
		if refused {
			f.Refused++
		} else {
			f.Failed++
		}
	})
	if (w.plan.Crowd || s.Wait < calls) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return // the caller left while its call was under way
	}
	for _, ok := range []error{errs.ErrUnavailable, errs.ErrUnknownOutcome, errs.ErrNotReplicated,
		context.DeadlineExceeded, errs.ErrClosed} {
		if refused || errors.Is(err, ok) && !w.plan.calm() {
			return
		}
	}
	w.violated("step %d: %v", s.Number, fmt.Errorf("%s: %w", w.plan.Kinds[s.On], err))
}
