package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// what is a kind of step: an act of a client, or a fault.
type what string

// The faults. Who is the client that they strike, On the server.
const (
	loseRequest  what = "lose-request"  // the client's next script is not run, its connection is reset
	loseReply    what = "lose-reply"    // it is run, and the connection is reset in place of the reply
	lateRequest  what = "late-request"  // it comes late, with what is behind it
	lateReply    what = "late-reply"    // its reply does
	ghost        what = "ghost"         // the connection is reset, and the request comes late all the same
	doubleFirst  what = "double-first"  // it is run again later; the first reply counts
	doubleSecond what = "double-second" // the second one does
	cut          what = "cut"           // the client's connections are reset
	pause        what = "pause"         // nothing leaves the client or comes in
	hole         what = "hole"          // what goes between client and server is lost in silence
	deaf         what = "deaf"          // no message of a subscription comes in
	slow         what = "slow"          // everything takes longer
	crash        what = "crash"         // the client is gone; another one takes its place
	stall        what = "stall"         // the server does nothing
	clock        what = "clock"         // the server's clock is stepped
	restart      what = "restart"       // the server is away, and comes back with its data
	empty        what = "empty"         // or without
	// its replica takes its place, which has nothing of what was written in the time before
	failover     what = "failover"
	flushScripts what = "flush-scripts"
	flushAll     what = "flush-all"

	// confirmed is a failover as a setback where clients have MinReplicas: what has no replicas to wait for may be lost.
	confirmed what = "confirmed-failover"
)

// blow is a fault as plans have it.
type blow struct {
	what     what
	weight   int
	server   bool
	shortest time.Duration
	longest  time.Duration
}

var blows = []blow{
	{loseRequest, 4, false, 0, 0},
	{loseReply, 8, false, 0, 0},
	{lateRequest, 3, false, 20 * time.Millisecond, 4 * time.Second},
	{lateReply, 3, false, 20 * time.Millisecond, 4 * time.Second},
	{ghost, 4, false, 20 * time.Millisecond, 4 * time.Second},
	{doubleFirst, 5, false, 0, 4 * time.Second},
	{doubleSecond, 4, false, 0, 400 * time.Millisecond},
	{cut, 3, false, 0, 0},
	{pause, 4, false, 50 * time.Millisecond, 8 * time.Second},
	{hole, 3, false, 50 * time.Millisecond, 8 * time.Second},
	{deaf, 3, false, 100 * time.Millisecond, 4 * time.Second},
	{slow, 2, false, 100 * time.Millisecond, 3 * time.Second},
	{crash, 3, false, 100 * time.Millisecond, 3 * time.Second},
	{stall, 3, true, 50 * time.Millisecond, 4 * time.Second},
	{clock, 2, true, -20 * time.Second, 6 * time.Second},
	{restart, 2, true, 10 * time.Millisecond, 2 * time.Second},
	{empty, 1, true, 10 * time.Millisecond, 2 * time.Second},
	{failover, 3, true, 1 * time.Millisecond, 800 * time.Millisecond},
	{flushScripts, 2, true, 0, 0},
	{flushAll, 1, true, 0, 0},
}

// Step is one line of a plan.
type Step struct {
	Number int
	At     time.Duration
	What   what
	Who    int // client
	On     int // object of an act, server of a fault
	N      int // how many, or which way
	ID     int
	Wait   time.Duration
	Lease  time.Duration // 0: renewed
	For    time.Duration
	Ends   ends          // how the call gives up after Wait
	Keep   time.Duration // it is released by UnlockAfter of so long; 0: by Unlock
	Label  string        // of a lock
}

// ends is how a caller gives up.
type ends string

const (
	byWait     ends = ""           // its waitTime is over, or WithWait
	byDeadline ends = "deadline"   // the deadline of its context
	byCancel   ends = "cancel"     // its context is cancelled
	byAnother  ends = "cancel-now" // its context is cancelled by another goroutine, at once
)

// context is what the step's call is made with. Its waitTime is patience.
func (s Step) context() (context.Context, context.CancelFunc) {
	switch s.Ends {
	case byDeadline:
		return context.WithTimeout(context.Background(), s.Wait)
	case byCancel:
		ctx, cancel := context.WithCancel(context.Background())
		t := time.AfterFunc(s.Wait, cancel)
		return ctx, func() { t.Stop(); cancel() }
	case byAnother:
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		return ctx, cancel
	}
	return context.WithTimeout(context.Background(), s.Wait+10*calls)
}

// patience is the waitTime of the step's call.
func (s Step) patience() time.Duration {
	if s.Ends != byWait {
		return time.Minute
	}
	return s.Wait
}

// Plan is what happens in a run.
type Plan struct {
	Seed     uint64
	Clients  int
	Servers  int
	Durable  bool // there is a replica, and clients have MinReplicas
	Alone    bool // each call has a connection to itself
	Crowd    bool // nothing goes wrong, and many callers give up soon
	Keeping  bool // half of the releases of a crowd are UnlockAfter
	Terms    bool // callers of a crowd have leases and labels of their own
	MaxHold  bool // clients have a MaxHold
	Mute     bool // no client may subscribe
	Living   bool // permits have Liveness
	Beating  bool // locks have Liveness
	Wired    bool // Result.Wire is kept
	Shortest time.Duration
	Longest  time.Duration
	Drift    []float64 // of the servers' clocks
	Kinds    []string  // of the objects
	Steps    []Step
}

// length is how long plans begin something.
const length = 12 * time.Second

// NewPlan makes the plan of a seed. kinds, if any, are those of the objects.
func NewPlan(seed uint64, kinds ...string) Plan {
	r := rand.New(rand.NewPCG(seed, 20))
	p := Plan{
		Seed: seed, Clients: 2 + r.IntN(3), Servers: 1, Durable: r.IntN(4) == 0, Alone: r.IntN(3) == 0, Living: seed%3 == 0,
		Shortest: 100 * time.Microsecond, Longest: upTo(r, 200*time.Microsecond, 3*time.Millisecond),
	}
	tried := slices.DeleteFunc(slices.Clone(all), func(k *kind) bool { return k.only })
	for _, i := range r.Perm(len(tried))[:3] {
		p.Kinds = append(p.Kinds, tried[i].name)
	}
	if len(kinds) > 0 {
		p.Kinds = kinds
	}
	if slices.Contains(p.Kinds, "quorum") {
		p.Servers, p.Durable = 3+2*r.IntN(2), false
	}
	for range p.Servers {
		p.Drift = append(p.Drift, (r.Float64()-0.5)*0.008)
	}
	for i, name := range p.Kinds {
		p.acts(r, i, kindOf(name))
	}
	if seed%5 != 0 {
		p.faults(r)
		if p.Servers > 1 {
			p.forgetting(r)
		}
		p.dying(r)
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return int(a.At - b.At) })
	for i := range p.Steps {
		p.Steps[i].Number = i
	}
	return p
}

func (p Plan) length() time.Duration {
	if p.Crowd {
		return crowdLength
	}
	return length
}

// calm reports whether nothing goes wrong in p.
func (p Plan) calm() bool {
	return !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.fault() })
}

func (s Step) fault() bool {
	return slices.ContainsFunc(blows, func(b blow) bool { return b.what == s.What })
}

func upTo(r *rand.Rand, from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// often is small as a rule and seldom large.
func often(r *rand.Rand, small, large time.Duration) time.Duration {
	if r.IntN(5) > 0 {
		return upTo(r, time.Millisecond, small)
	}
	return upTo(r, small, large)
}

// acts adds what clients do with one object. Half of it comes in bursts.
func (p *Plan) acts(r *rand.Rand, object int, k *kind) {
	var bursts []time.Duration
	for range 5 {
		bursts = append(bursts, upTo(r, 0, length-500*time.Millisecond))
	}
	for range 28 {
		s := Step{Who: r.IntN(p.Clients), On: object, At: upTo(r, 0, length)}
		if r.IntN(3) > 0 {
			s.At = bursts[r.IntN(len(bursts))] + upTo(r, 0, 300*time.Millisecond)
		}
		k.plan(r, &s)
		p.Steps = append(p.Steps, s)
	}
}

func (p *Plan) faults(r *rand.Rand) {
	total := 0
	for _, b := range blows {
		total += b.weight
	}
	for range 2 + r.IntN(14) {
		x, i := r.IntN(total), 0
		for ; x >= blows[i].weight; i++ {
			x -= blows[i].weight
		}
		b := blows[i]
		s := Step{What: b.what, At: upTo(r, 0, length), Who: r.IntN(p.Clients), For: upTo(r, b.shortest, b.longest),
			N: r.IntN(40)}
		if b.longest > time.Second && r.IntN(2) == 0 && b.what != clock {
			s.For = upTo(r, b.shortest, b.longest/8)
		}
		if b.server || b.what == hole {
			s.On = r.IntN(p.Servers)
		}
		p.Steps = append(p.Steps, s)
	}
}

// forgetting has servers of a quorum lose their votes one soon after another.
func (p *Plan) forgetting(r *rand.Rand) {
	for range 3 {
		at, first := upTo(r, 0, length-2*time.Second), r.IntN(p.Servers)
		for i := range (p.Servers + 1) / 2 {
			p.Steps = append(p.Steps,
				Step{What: empty, At: at, On: (first + i) % p.Servers, For: upTo(r, 5*time.Millisecond, 100*time.Millisecond)})
			at += upTo(r, 100*time.Millisecond, 700*time.Millisecond)
		}
	}
}

// dying has clients crash in the middle of what takes several calls.
func (p *Plan) dying(r *rand.Rand) {
	for _, s := range slices.Clone(p.Steps) {
		if (s.What == move || s.What == mend) && r.IntN(8) == 0 {
			at := s.At + upTo(r, p.Shortest, 10*p.Longest) + s.For/4
			p.Steps = append(p.Steps, Step{What: crash, At: at, Who: s.Who, For: 100 * time.Millisecond})
		}
	}
}

// Keep is p with the steps of these numbers only.
func (p Plan) Keep(numbers []int) Plan {
	var kept []Step
	for _, s := range p.Steps {
		if slices.Contains(numbers, s.Number) {
			kept = append(kept, s)
		}
	}
	p.Steps = kept
	return p
}

// Numbers are those of the steps.
func (p Plan) Numbers() (numbers []int) {
	for _, s := range p.Steps {
		numbers = append(numbers, s.Number)
	}
	return numbers
}

// String is the plan in full, a line to a step.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d clients, %d servers, objects %s, a parcel takes %v to %v", p.Seed, p.Clients, p.Servers,
		strings.Join(p.Kinds, " "), p.Shortest, p.Longest)
	if p.Durable {
		b.WriteString(", MinReplicas 1")
	}
	if p.Crowd {
		b.WriteString(", a crowd")
	}
	if p.Mute {
		b.WriteString(", no client may subscribe")
	}
	if p.Living {
		b.WriteString(", Liveness of permits")
	}
	if p.Beating {
		b.WriteString(", Liveness of locks")
	}
	if p.Alone {
		b.WriteString(", a connection for each call")
	}
	b.WriteByte('\n')
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "%5d  %9.4fs  %s\n", s.Number, s.At.Seconds(), s.text(p))
	}
	return b.String()
}

func (s Step) text(p Plan) string {
	var b strings.Builder
	if s.fault() {
		i := slices.IndexFunc(blows, func(b blow) bool { return b.what == s.What })
		if blows[i].server {
			fmt.Fprintf(&b, "fault: %s of server %d", s.What, s.On)
		} else {
			fmt.Fprintf(&b, "fault: %s at client %d", s.What, s.Who)
		}
		if s.What == hole {
			fmt.Fprintf(&b, " and server %d", s.On)
		}
	} else {
		fmt.Fprintf(&b, "client %d: %s %s n=%d id=%d wait=%v lease=%v", s.Who, s.What, p.Kinds[s.On], s.N, s.ID,
			s.Wait.Round(time.Microsecond), s.Lease.Round(time.Microsecond))
	}
	if s.For != 0 {
		fmt.Fprintf(&b, " for %v", s.For.Round(time.Microsecond))
	}
	if s.Label != "" {
		fmt.Fprintf(&b, ", labelled %s", s.Label)
	}
	if s.Keep != 0 {
		fmt.Fprintf(&b, ", kept for %v", s.Keep.Round(time.Microsecond))
	}
	if s.Ends != byWait {
		fmt.Fprintf(&b, ", %s", s.Ends)
	}
	return b.String()
}
