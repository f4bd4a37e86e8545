package rsemaphore_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// All times are ms.
const (
	simPoll     = 1000.0
	simStale    = 2.5 * simPoll
	simHandOver = 2000.0 // the first lease of what is handed over
	simLease    = 3000.0
	simMargin   = 20.0
	simOpen     = 5.0 // for so long a release is left to Redisson's waiters
	simNotAfter = 500.0
	simMarked   = 12_000.0 // a claim is known for so long: longer than any call of its acquisition can be under way
	simTries    = 6
	simLate     = 4000.0 // the longest delay
	simLength   = 600_000.0
	simNever    = 1e15
	simMost     = int64(1<<53 - 1)
)

// simPlan is what a run is about.
type simPlan struct {
	seed   uint64
	mutant string
	// calm: nothing is lost or late, but a process may die.
	calm bool
	// counting: a CountingSemaphore, whose grants are claimed. Otherwise permits have leases.
	counting bool
	// weighted: weights to 2^53-1, parts of which are released.
	weighted bool
	// failover: to a replica that misses the last writes. durable: nothing is trusted that the replica has not confirmed.
	failover, durable bool
	// migration: the keys' slot moves, key by key.
	migration bool
	// crossing: messages take long, replies do not.
	crossing bool
	// long: a quarter of the work lasts longer than a lease, and is renewed. Renewals are lost and late more often.
	long bool
	java bool
}

// simPlanOf is the plan of a seed.
func simPlanOf(seed uint64) simPlan {
	p := simPlan{seed: seed, java: seed%2 == 0, long: seed/10%3 == 0}
	switch seed % 10 {
	case 1:
		p.calm = true
	case 2, 3:
		p.weighted = true
	case 4:
		p.failover = true
	case 5:
		p.failover, p.durable = true, true
	case 6:
		p.migration = true
	case 7:
		p.counting = true
	case 8:
		p.counting, p.migration, p.java = true, true, false
	case 9:
		p.crossing = true
	}
	return p
}

// simTally is what happened, and what must not have.
type simTally struct {
	runs, bad                              int
	grants, direct, entered, calls, java   int
	renewed, parts, failovers, excused     int
	over, sums, order, asleep, stuck, left int
	freeFor                                float64 // the longest for which a head that could be served was not
}

func (t simTally) violations() int {
	return t.over + t.sums + t.order + t.asleep + t.stuck + t.left
}

func (t *simTally) add(o simTally) {
	t.runs++
	if o.violations() > 0 {
		t.bad++
	}
	for _, f := range []struct{ sum, n *int }{
		{&t.grants, &o.grants}, {&t.direct, &o.direct}, {&t.entered, &o.entered}, {&t.calls, &o.calls}, {&t.java, &o.java},
		{&t.renewed, &o.renewed}, {&t.parts, &o.parts}, {&t.failovers, &o.failovers}, {&t.excused, &o.excused}, {&t.over, &o.over},
		{&t.sums, &o.sums}, {&t.order, &o.order}, {&t.asleep, &o.asleep}, {&t.stuck, &o.stuck}, {&t.left, &o.left},
	} {
		*f.sum += *f.n
	}
	t.freeFor = max(t.freeFor, o.freeFor)
}

func (t simTally) String() string {
	return fmt.Sprintf("%d runs, %d grants (%d at once, %d acted on, %d of Redisson), %d renewals, %d parts, %d failovers, longest servable head %.0f ms; "+
		"violations %d in %d runs (over capacity %d, sums %d, order %d, asleep %d, stuck %d, left over %d); "+
		"over capacity after a failover %d",
		t.runs, t.grants, t.direct, t.entered, t.java, t.renewed, t.parts, t.failovers, t.freeFor,
		t.violations(), t.bad, t.over, t.sums, t.order, t.asleep, t.stuck, t.left, t.excused)
}

type simEvent struct {
	at float64
	n  int
	do func()
}

type simEvents []simEvent

func (e simEvents) Len() int { return len(e) }
func (e simEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e simEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *simEvents) Push(x any)   { *e = append(*e, x.(simEvent)) }
func (e *simEvents) Pop() any     { o := *e; x := o[len(o)-1]; *e = o[:len(o)-1]; return x }

// simWorld is a run: the true time, the server, the processes, and what is true of them all.
type simWorld struct {
	simPlan
	tally      simTally
	r          *rand.Rand
	now        float64
	events     simEvents
	seq, bases int
	server     *simServer
	procs      []*simProc
	epoch      int // failovers
	failedOver float64
	// what is true:
	active     map[int]*simWaiter // who acts
	since      map[int]float64
	foreign    map[int]bool  // Redisson's permits
	taken      map[int]int64 // counting: who has what, as the server gave it
	procOf     map[int]*simProc
	line       []simEntry // the order in which they came
	capacities []simCapacity
	freeAt     float64
}

type simCapacity struct {
	at float64
	n  int64
}

func (w *simWorld) after(d float64, f func()) {
	w.seq++
	heap.Push(&w.events, simEvent{w.now + d, w.seq, f})
}

// at runs f in a process, when it runs again if it stands still.
func (w *simWorld) at(p *simProc, d float64, f func()) {
	w.after(d, func() {
		switch {
		case !p.alive:
		case p.pausedTo > w.now:
			w.at(p, p.pausedTo-w.now, f)
		default:
			f()
		}
	})
}

func (w *simWorld) delay() float64 {
	switch x := w.r.Float64(); {
	case w.calm || w.crossing || x < 0.9:
		return 0.1 + w.r.Float64()
	case x < 0.99:
		return 20 * w.r.Float64()
	}
	return simLate * w.r.Float64()
}

func (w *simWorld) messageDelay() float64 {
	if w.crossing && w.r.IntN(3) == 0 {
		return simLate * w.r.Float64()
	}
	return w.delay()
}

func (w *simWorld) lost() bool { return !w.calm && w.r.Float64() < 0.02 }

// answer brings a reply: with durable, when the replica has confirmed what the call wrote, or did not in time.
func (w *simWorld) answer(p *simProc, seen float64, f func(confirmed bool)) {
	w.tally.calls++
	if w.lost() {
		return
	}
	wait, confirmed, epoch := 0.0, true, w.epoch
	if w.durable && seen > w.now {
		wait = min(seen-w.now, 250)
		confirmed = seen-w.now <= 250
	}
	w.after(wait, func() {
		if epoch == w.epoch { // otherwise the connection broke
			w.at(p, w.delay(), func() { f(confirmed) })
		}
	})
}

func (w *simWorld) amount() int64 {
	if w.counting {
		return 1 + w.r.Int64N(2)
	}
	c := int64(5)
	if w.weighted {
		c = w.unit()
	}
	switch x := w.r.Float64(); {
	case x < 0.08:
		return c
	case x < 0.3:
		return 1 + w.r.Int64N(max(2, c*3/5))
	}
	return max(1, c/5-w.r.Int64N(max(1, c/10)))
}

// unit is the capacity at the start.
func (w *simWorld) unit() int64 {
	switch {
	case w.counting:
		return 10
	case !w.weighted:
		return 5
	case w.seed%20 < 10:
		return simMost
	}
	return 1000
}

func (w *simWorld) capacityIs(n int64) { w.capacities = append(w.capacities, simCapacity{w.now, n}) }

func (w *simWorld) unline(base int) {
	w.line = slices.DeleteFunc(w.line, func(e simEntry) bool { return e.base == base })
}

// granted looks at every grant of ours: who is overtaken, and whether the sums are right.
func (w *simWorld) granted(base int, n int64) {
	first := true
	for i := range w.line {
		e := &w.line[i]
		if e.base == base {
			break
		}
		if _, out := w.server.out[e.base]; out || !w.server.eligible(*e) || e.n > w.server.total(w.counting) {
			continue
		}
		if first {
			if e.passed += n; e.passed > 4*e.n && !w.migration { // a release while the queue is away leaves its entry there
				w.tally.order++
			}
		}
		first = false
	}
	w.unline(base)
	w.tally.grants++
	w.check()
}

// check looks at the sums on the server.
func (w *simWorld) check() {
	s := w.server
	sum := s.avail + s.outside()
	if w.counting {
		for _, n := range w.taken {
			sum += n
		}
	}
	if sum != s.capacity || s.avail > s.capacity {
		w.tally.sums++
	}
}

// entered looks at every waiter that begins to act: with it, no more than the capacity is in use. What was acquired before the
// capacity fell may be more.
func (w *simWorld) entered(t *simWaiter) {
	w.tally.entered++
	w.active[t.base], w.since[t.base] = t, w.now
	sum, oldest := int64(0), w.now
	for b, a := range w.active {
		if a.until > w.now {
			sum += a.n
			oldest = min(oldest, w.since[b])
		}
	}
	most := int64(0)
	for i, c := range w.capacities {
		if i+1 == len(w.capacities) || w.capacities[i+1].at > oldest-3*simLate {
			most = max(most, c.n)
		}
	}
	switch {
	case sum <= most:
	case w.failover && !w.durable && w.failedOver > 0 && oldest < w.failedOver+2*simLease:
		w.tally.excused++ // what was not replicated is forgotten: not promised
	default:
		w.tally.over++
	}
}

// javaTry is a client of Redisson that races for one permit. It holds it for a while, or forgets it.
func (w *simWorld) javaTry() {
	s := w.server
	if s.prune(); s.avail < 1 {
		return
	}
	w.bases++
	b := w.bases
	w.tally.java++
	w.foreign[b] = true
	s.avail--
	holder := &simWaiter{w: w, base: b, n: 1, until: w.now + 1500 - simMargin}
	if w.counting {
		w.taken[b]++
		holder.until = simNever
	} else {
		s.out[b] = simHold{1, s.now() + 1500}
	}
	s.wrote()
	w.active[b], w.since[b] = holder, w.now
	if !w.counting && w.r.IntN(10) == 0 {
		return
	}
	w.after(5*w.r.Float64(), func() {
		delete(w.active, b)
		w.after(w.delay(), func() {
			_, out := s.out[b]
			if w.taken[b] == 0 && !out {
				return
			}
			delete(s.out, b)
			delete(w.taken, b)
			s.avail++
			s.wrote()
			for _, p := range w.procs { // Redisson's channel, which waiters of ours listen to
				if p.contended > 0 && !w.lost() {
					w.at(p, w.messageDelay(), func() { p.poll(0) })
				}
			}
		})
	})
}

// watch looks at the first in line: if enough is free for it, and it listens, it is served within a bound.
func (w *simWorld) watch() {
	s, servable := w.server, false
	free := s.capacity
	for _, n := range w.taken {
		free -= n
	}
	for _, h := range s.out {
		if h.end > s.now() {
			free -= h.n
		}
	}
	for _, e := range w.line {
		if _, out := s.out[e.base]; !out && s.eligible(e) {
			servable = e.n <= free && e.n <= s.total(w.counting)
			break
		}
	}
	bound := 1.1*simPoll + 10
	if !w.calm {
		bound = simPoll + 2*simLate + 2*(simNotAfter+100)
	}
	switch {
	case !servable || w.now < s.queueless:
		w.freeAt = -1
	case w.freeAt < 0:
		w.freeAt = w.now
	default:
		w.tally.freeFor = max(w.tally.freeFor, w.now-w.freeAt)
		if w.now-w.freeAt > bound {
			w.tally.asleep++
			w.freeAt = w.now
		}
	}
}

func (w *simWorld) kill(p *simProc) {
	p.alive = false
	for b, t := range w.active {
		if t.p == p {
			delete(w.active, b)
		}
	}
	w.after(0.2, func() { p.connected = false })
}

// faults are those of a run beside delays.
func (w *simWorld) faults() {
	some := func() *simProc { return w.procs[w.r.IntN(len(w.procs))] }
	for range 6 {
		if p := some(); !w.calm {
			w.after(8000*w.r.Float64(), func() { p.pausedTo = w.now + 5000*w.r.Float64() })
		}
	}
	if p := some(); w.r.IntN(2) == 0 {
		w.after(1500*w.r.Float64(), func() { w.kill(p) })
	}
	if w.r.IntN(3) == 0 {
		step := max(1, w.unit()/5)
		at := 500 * w.r.Float64()
		w.after(at, func() { w.server.resize(-step) })
		w.after(at+300*w.r.Float64(), func() { w.server.resize(min(2*step, simMost-w.server.capacity)) })
	}
	for range 20 {
		if w.java {
			w.after(2000*w.r.Float64(), w.javaTry)
		}
	}
	if w.failover {
		for at := 300.0; at < 30_000; at += 1500 {
			lag := 600 * w.r.Float64() * float64(w.r.IntN(2))
			w.after(at, func() { w.server.lag = lag })
			w.after(at+800*w.r.Float64(), func() { w.tally.failovers++; w.server.failOver(200 * w.r.Float64()) })
		}
	}
	if w.migration {
		for at := 200.0; at < 3000; at += 800 {
			w.after(at, func() {
				w.server.split = w.now + 300*w.r.Float64()
				w.server.queueless = w.server.split
				if !w.counting { // whose claims need a key of ours too
					w.server.queueless += 300 * w.r.Float64()
				}
			})
		}
	}
}

func (plan simPlan) run() simTally {
	w := &simWorld{simPlan: plan, r: rand.New(rand.NewPCG(plan.seed, 0)), active: map[int]*simWaiter{}, since: map[int]float64{},
		foreign: map[int]bool{}, taken: map[int]int64{}, procOf: map[int]*simProc{}, freeAt: -1}
	c := w.unit()
	w.server = &simServer{w: w, caller: -1, simState: simState{capacity: c, avail: c,
		out: map[int]simHold{}, marks: map[int]float64{}, stamp: map[int]float64{}}}
	w.capacityIs(c)
	for i := range 4 {
		p := &simProc{w: w, id: i, alive: true, connected: true, waiting: map[int]*simWaiter{}}
		w.procs = append(w.procs, p)
		for range 3 {
			t := &simWaiter{w: w, p: p, left: 40}
			w.at(p, 10*w.r.Float64(), t.begin)
		}
	}
	w.faults()
	for len(w.events) > 0 && w.now < simLength {
		e := heap.Pop(&w.events).(simEvent)
		w.now = e.at
		w.watch()
		for b, a := range w.active {
			if a.until <= w.now {
				delete(w.active, b)
			}
		}
		e.do()
		w.watch()
	}
	w.end()
	return w.tally
}

// end looks at what is left when nobody acts any more.
func (w *simWorld) end() {
	s := w.server
	for _, p := range w.procs {
		if p.alive {
			w.tally.stuck += len(p.waiting)
		}
	}
	w.now += 2 * simLease
	s.prune()
	lost := int64(0)
	for b, n := range w.taken {
		lost += n
		if n != 0 && w.procOf[b] != nil && w.procOf[b].alive {
			w.tally.left++ // taken for nobody, and nobody knows
		}
	}
	if len(s.out) > 0 || s.avail+lost != s.capacity {
		w.tally.left++
	}
}

// The protocol of the queue of permits as a model: a server, its replica, and processes that race, stand still and die, on a network
// that delays, loses and repeats. The true time is known, so that what a process believes can be compared with what is so:
//
//   - those who act never hold more than the capacity together, weights and partial releases included;
//   - what is available and what is out add up to the capacity at each grant and release;
//   - the first in line is overtaken by at most four times what it asks for;
//   - the first in line does not sleep while enough is free for it;
//   - nobody waits for ever, and nothing is left at the end. Of a CountingSemaphore, what a dead process had is gone, no more.
//
// A failover forgets what the replica had not seen. Where grants and renewals wait for the replica (MinReplicas), nothing above
// changes. Otherwise more than the capacity may be in use for a lease after it, which is counted and not held against it.
//
// A CountingSemaphore is not failed over here: its counts are wrong for good then, as its documents say.
func TestTheSimulatedQueueOfPermitsKeepsItsPromises(t *testing.T) {
	seeds, given := redistest.Seeds(t, 20_000), os.Getenv(redistest.SeedsEnv) != ""
	budget := redistest.Sized(300*time.Millisecond, 1500*time.Millisecond, time.Minute)
	began := time.Now()
	var total simTally
	for i, seed := range seeds {
		if !given && i >= 20 && time.Since(began) > budget {
			break
		}
		plan := simPlanOf(seed)
		tally := plan.run()
		total.add(tally)
		if tally.violations() > 0 || given {
			t.Logf("%+v: %v", plan, tally)
		}
	}
	t.Logf("%v", total)
	require.Zero(t, total.violations())
	require.Positive(t, total.entered)
}

// A simulation that finds nothing proves something only if it finds what is wrong. Each mutant breaks one rule.
func TestTheSimulatedQueueOfPermitsFindsEachBrokenRule(t *testing.T) {
	const most = 400
	least := redistest.Sized(1, 1, 100) // to say in how many runs it is found
	for _, c := range []struct {
		mutant, rule string
		like         simPlan
		found        func(simTally) int
	}{
		{"lastwait", "a lease counts from the send of the call that named the ticket, not from the message", simPlan{}, simOver},
		{"ticket", "a grant is trusted only by the ticket named last", simPlan{crossing: true}, simOver},
		{"barge", "nobody takes past the queue", simPlan{}, func(x simTally) int { return x.order }},
		{"budget", "the first in line is overtaken by 4n at most", simPlan{}, func(x simTally) int { return x.order }},
		{"prune", "what Redisson forgot comes back", simPlan{java: true}, simSums},
		{"noserve", "somebody serves", simPlan{}, func(x simTally) int { return x.asleep + x.stuck }},
		{"late renewal", "a renewal counts from its send", simPlan{long: true}, simOver},
		{"unconfirmed renewal", "only a confirmed renewal moves the end", simPlan{long: true}, simOver},
		{"revive", "a renewal brings back nothing", simPlan{}, simSums},
		{"unreplicated", "with MinReplicas a grant is confirmed by a call of its waiter", simPlan{failover: true, durable: true, long: true}, simOver},
		{"doubled", "what was granted while the queue could not be reached is not granted from the queue, too", simPlan{migration: true, long: true}, simSums},
		{"delta", "a partial release says what is kept, not what is given back", simPlan{weighted: true}, simOver},
		{"unclaimed", "a given permit is nobody's before the claim", simPlan{counting: true}, simOver},
		{"unmarked", "a claim that was made is remembered", simPlan{counting: true}, simLeft},
		{"unreturned", "what is not claimed comes back", simPlan{counting: true}, func(x simTally) int { return x.left + x.stuck + x.asleep }},
		{"twice", "a release that ran is remembered", simPlan{counting: true}, simSums},
	} {
		t.Run(c.mutant, func(t *testing.T) {
			var total simTally
			for seed := 1; seed <= most && (total.bad == 0 || seed <= least); seed++ {
				plan := c.like
				plan.seed, plan.mutant = uint64(seed), c.mutant
				tally := plan.run()
				if c.found(tally) > 0 {
					total.add(tally)
				} else {
					total.runs++
				}
			}
			t.Logf("found in %d of %d runs: %s", total.bad, total.runs, c.rule)
			require.Positive(t, total.bad)
		})
	}
}

func simOver(x simTally) int { return x.over }
func simSums(x simTally) int { return x.sums }
func simLeft(x simTally) int { return x.left }
