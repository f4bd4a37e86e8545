package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	watchdog = 3 * time.Second
	pollCap  = time.Second
	calls    = 500 * time.Millisecond // the default call timeout
	// heartbeat is such that permits are taken over long before a lease is over, and that most pauses outlast three.
	heartbeat = 200 * time.Millisecond
	// longestLease is that of the longest hold, or a renewed one, and a little.
	longestLease = 5 * time.Second
	// recovery is what a client may need after its traffic was disturbed: calls end, wait a moment, and are made again.
	recovery = 3 * time.Second
	// reaction is how long a waiter that nothing disturbs may be without what is free: a message may have been missed.
	reaction = 2*pollCap + 4*calls
)

// resource is what holders share: so much of it that one unit is one permit, or all of it a lock.
type resource struct {
	name     string
	capacity int
	ordered  bool // waiters are served in their order
	growing  bool // grants have tokens that grow
	isLimit  bool // of a part of the holders, which have another resource, too
	nodes    []*node
	waiting  map[*claim]bool
	active   map[*claim]bool
	free     time.Time // since when all who wait would find room
	kept     time.Time // until then the server may keep it for UnlockAfter
	firm     time.Time // and until then it must
	progress progress
	over     time.Time // since when more is held, and renewed, than there is
}

// claim is one acquisition: from its call until its holder knows, by itself, that it is over.
type claim struct {
	step     int
	who      *client
	units    map[*resource]int
	renewed  bool
	tenant   string // whose share it has; empty: there are no shares
	passes   passes
	token    int64
	ids      []string  // on the server; nil: it is the only one of its process
	began    time.Time // of the call
	from, to time.Time // while the holder may act
	lost     bool      // it was over before it was released
}

// setback is when a server lost something that it had said.
type setback struct {
	at     time.Time
	node   *node
	what   what
	window time.Duration // how long before
}

// oracle knows the true time, and what everybody believes.
type oracle struct {
	mu         sync.Mutex
	began      time.Time
	resources  []*resource
	claims     []*claim
	setbacks   []setback
	disturbed  time.Time // until when anything was done to anybody
	stuck      time.Time // until when leases may last that were prolonged by a clock
	back       bool      // a clock was stepped back
	over       bool      // everybody has closed
	violations []string
	figures    Figures
}

// Figures are counts of a run, or of several.
type Figures struct {
	Runs, Steps, Faults     int
	Acquired, Refused, Lost int
	Failed                  int // calls that ended with an error of the network
	TakenOver               int // permits, from clients that had crashed or were cut off
	Answers                 int // of sales, latches and barriers
	Followed, Restored      int // sales, in their model; and how often they were restored
	Forgotten               int // orders that a server lost after it had answered
	Simulated               time.Duration
	LongestFree             time.Duration // with a caller waiting and none disturbed
	LongestOrphan           time.Duration // in a crowd: taken, and no caller has it
	LongestStay             time.Duration // in a crowd: of a call that gave up
	MostPassed              int           // in a crowd: how many grants others got while a tenant waited
	Doubtful                int           // holds that a setback of the server excuses
	Overlaps                int           // of such with others
}

// Add adds g to f.
func (f *Figures) Add(g Figures) {
	f.Runs, f.Steps, f.Faults = f.Runs+g.Runs, f.Steps+g.Steps, f.Faults+g.Faults
	f.Acquired, f.Refused, f.Lost, f.Failed = f.Acquired+g.Acquired, f.Refused+g.Refused, f.Lost+g.Lost, f.Failed+g.Failed
	f.Answers, f.Simulated, f.TakenOver = f.Answers+g.Answers, f.Simulated+g.Simulated, f.TakenOver+g.TakenOver
	f.Followed, f.Restored, f.Forgotten = f.Followed+g.Followed, f.Restored+g.Restored, f.Forgotten+g.Forgotten
	f.LongestFree = max(f.LongestFree, g.LongestFree)
	f.LongestOrphan, f.LongestStay = max(f.LongestOrphan, g.LongestOrphan), max(f.LongestStay, g.LongestStay)
	f.MostPassed = max(f.MostPassed, g.MostPassed)
	f.Doubtful, f.Overlaps = f.Doubtful+g.Doubtful, f.Overlaps+g.Overlaps
}

func (f Figures) String() string {
	return fmt.Sprintf("%d runs, %v simulated, %d acts, %d faults: %d acquired, %d refused, %d lost, %d taken over, %d "+
		"failed, %d answers, %d sales followed, %d times restored, %d orders forgotten; "+
		"free with waiters and none disturbed for %v at most, taken by no caller for %v, calls that gave up %v late, "+
		"tenants passed %d times; %d holds in doubt after a setback, %d overlaps of such",
		f.Runs, f.Simulated.Round(time.Second), f.Steps, f.Faults, f.Acquired, f.Refused, f.Lost, f.TakenOver, f.Failed,
		f.Answers, f.Followed, f.Restored, f.Forgotten, f.LongestFree.Round(time.Millisecond),
		f.LongestOrphan.Round(time.Millisecond), f.LongestStay.Round(time.Millisecond), f.MostPassed,
		f.Doubtful, f.Overlaps)
}

func (o *oracle) resource(name string, capacity int, nodes []*node) *resource {
	r := &resource{name: name, capacity: capacity, nodes: nodes, waiting: map[*claim]bool{}, active: map[*claim]bool{},
		progress: progress{reported: map[string]bool{}, left: map[string]time.Time{}}}
	o.resources = append(o.resources, r)
	return r
}

func (o *oracle) violated(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.violation(format, args...)
}

// violation is called with mu held.
func (o *oracle) violation(format string, args ...any) {
	if len(o.violations) < 20 {
		text := fmt.Sprintf(format, args...)
		if !o.over {
			text = o.at(time.Now()) + ": " + text
		}
		o.violations = append(o.violations, text)
	}
}

func (o *oracle) count(fn func(f *Figures)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fn(&o.figures)
}

// wait: a call for c begins.
func (o *oracle) wait(c *claim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.began = time.Now()
	for r := range c.units {
		r.waiting[c] = true
		used := c.units[r]
		for a := range r.active {
			used += a.units[r]
		}
		if used > r.capacity {
			r.free = time.Time{}
		}
	}
}

// enter: the call has ended, and c may act if it got.
func (o *oracle) enter(c *claim, got bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for r := range c.units {
		delete(r.waiting, c)
		if len(c.units) > 1 && !got {
			for _, id := range c.mine() {
				r.progress.left[id] = time.Now()
			}
		}
		if got {
			r.active[c], r.free = true, time.Time{}
			if now := time.Now(); now.Before(r.firm) && r.capacity == 1 {
				o.violation("%s: step %d has it %v before the end of an UnlockAfter", r.name, c.step, r.firm.Sub(now))
			}
		}
	}
	if got {
		c.from = time.Now()
		o.claims = append(o.claims, c)
		o.figures.Acquired++
	}
}

// leave: c acts no more.
func (o *oracle) leave(c *claim, lost bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.to, c.lost = time.Now(), lost
	for r := range c.units {
		delete(r.active, c)
		for _, id := range c.mine() {
			r.progress.left[id] = c.to
		}
	}
	if lost {
		o.figures.Lost++
	}
}

// setBack: a server has lost something.
func (o *oracle) setBack(n *node, w what, window time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setbacks = append(o.setbacks, setback{time.Now(), n, w, window})
}

// disturb notes that something is done to a client until then.
func (o *oracle) disturb(until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disturbed = later(o.disturbed, until)
}

// look is called from time to time: is there a caller that waits for what is free?
func (o *oracle) look(calm bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for _, r := range o.resources {
		used, most, oldest := 0, 0, time.Time{}
		for c := range r.active {
			used += c.units[r]
		}
		o.lookAtExcess(r, now)
		for c := range r.waiting {
			room := true // of one that waits for several, in all of them
			for other, units := range c.units {
				for a := range other.active {
					room = room && a.units[other]+units <= other.capacity
				}
			}
			if !room && len(c.units) > 1 { // a Multi has what it could get, while it waits for the rest
				used = r.capacity
			}
			if !room || c.who.dead() {
				continue
			}
			most, oldest = max(most, c.units[r]), later(oldest, c.began)
		}
		if most == 0 || used+most > r.capacity {
			r.free = time.Time{}
			continue
		}
		if r.free.IsZero() {
			r.free = now
		}
		since := later(r.free, oldest)
		if !calm {
			since = later(since, later(o.disturbed.Add(recovery+longestLease), o.stuck))
		}
		if d := now.Sub(since); d > 0 {
			o.figures.LongestFree = max(o.figures.LongestFree, d)
			if d > reaction {
				o.violation("%s: there is room for each of the %d who wait, and none gets it for %v", r.name, len(r.waiting),
					now.Sub(r.free))
				r.free = now
			}
		}
	}
}

// lookAtExcess: after a setback more may be held than there is, until the holders' next renewals, a third of their
// lease later. Called with mu held.
func (o *oracle) lookAtExcess(r *resource, now time.Time) {
	renewed, since := 0, r.over
	for c := range r.active {
		if c.renewed {
			renewed += c.units[r]
			since = later(since, c.who.rough().Add(recovery))
		}
	}
	switch {
	case renewed <= r.capacity:
		r.over = time.Time{}
	case r.over.IsZero():
		r.over = now
	case now.Sub(since) > watchdog/3+2*calls:
		o.violation("%s: more is held than there is, since %s, and no holder learns of it", r.name, o.at(r.over))
		r.over = now
	}
}

// excused reports whether a setback of a server explains that c's lease ended early.
func (o *oracle) excused(c *claim) bool {
	for _, s := range o.setbacks {
		for r := range c.units {
			if slices.Contains(r.nodes, s.node) && s.what != confirmed && (len(r.nodes) == 1 || s.what != empty) &&
				c.began.Before(s.at) && c.from.Before(s.at.Add(pollCap+2*calls)) && !c.to.Before(s.at.Add(-s.window)) {
				return true
			}
		}
	}
	return false
}

// verdict judges all claims when everything is over.
func (o *oracle) verdict(calm bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	doubtful := map[*claim]bool{}
	for _, c := range o.claims {
		if o.excused(c) {
			doubtful[c] = true
			o.figures.Doubtful++
		}
		if calm && c.lost && c.renewed {
			o.violation("step %d: lost after %v, and nothing had gone wrong", c.step, c.to.Sub(c.from))
		}
	}
	for _, r := range o.resources {
		o.judge(r, doubtful, calm)
	}
}

// judge looks for a moment at which more was held of r than there is, for tokens that did not grow, and, in calm, for
// an order that was not kept. Called with mu held.
func (o *oracle) judge(r *resource, doubtful map[*claim]bool, calm bool) {
	var of []*claim
	for _, c := range o.claims {
		if c.units[r] > 0 {
			of = append(of, c)
		}
	}
	slices.SortStableFunc(of, func(a, b *claim) int { return a.from.Compare(b.from) })
	for i, c := range of {
		held, with := 0, ""
		for _, other := range of[:i+1] {
			if other == c || !other.to.After(c.from) || !c.to.After(c.from) {
				continue
			}
			if doubtful[other] || doubtful[c] {
				if other.units[r]+c.units[r] > r.capacity {
					o.figures.Overlaps++
				}
				continue
			}
			held += other.units[r]
			with += fmt.Sprintf(" step %d until %s", other.step, o.at(other.to))
		}
		if held+c.units[r] > r.capacity && !doubtful[c] {
			o.violation("%s: %d of %d are held by step %d from %s, with%s", r.name, held+c.units[r], r.capacity, c.step,
				o.at(c.from), with)
		}
	}
	if r.growing && !(o.back && len(o.setbacks) > 0) {
		o.judgeTokens(r, of)
	}
	if r.ordered && calm {
		for _, b := range of {
			for _, a := range of {
				if a.began.Add(20*time.Millisecond).Before(b.began) && b.from.Add(10*time.Millisecond).Before(a.from) {
					o.violation("%s: step %d asked at %s and was served before step %d, which had asked at %s", r.name, b.step,
						o.at(b.began), a.step, o.at(a.began))
				}
			}
		}
	}
}

// judgeTokens: of two grants of which one was there before the other was asked for, the later has the larger token; and
// no two are equal.
func (o *oracle) judgeTokens(r *resource, of []*claim) {
	byToken := slices.Clone(of)
	slices.SortFunc(byToken, func(a, b *claim) int { return cmp.Compare(a.token, b.token) })
	for i, c := range byToken {
		if i > 0 && c.token == byToken[i-1].token {
			o.violation("%s: steps %d and %d have one token, %d", r.name, byToken[i-1].step, c.step, c.token)
		}
		for _, other := range byToken[i+1:] {
			if other.from.Before(c.began) {
				o.violation("%s: step %d had token %d at %s, and step %d, which asked at %s, has %d", r.name, other.step,
					other.token, o.at(other.from), c.step, o.at(c.began), c.token)
			}
		}
	}
}

func (o *oracle) at(t time.Time) string { return fmt.Sprintf("%.4fs", t.Sub(o.began).Seconds()) }
