package tenuremodel

import "github.com/redlatch/redlatch/internal/oracle/model"

// How much there is of everything. What does not fit is said by Result.Overflows.
const (
	processes = 3
	slots     = 3 // tenures of a process: one that asks or is held, and those that are being released
	// owners of a process that anything refers to; a number that nothing refers to stands for a new owner again
	perOwner = 6
	places   = 4 // in the server's queue
	messages = 7 // under way at once
)

// Times, in ticks. Every instant is kept as a countdown, or as what has passed since.
const (
	leaseTime  = 4 // what the server writes
	trustTime  = 3 // for how long that is trusted, from the send on
	callTime   = 1 // a request is given up after that; it may run until the end of the tick in which it is
	tenureTime = 1 // turns follow each other for that long: the library's 20 ms
	starved    = 2 // for how long another process may have queued when a turn is passed on
	calmTime   = 20
)

// anyTurns says that turns are bounded by time only.
const anyTurns = 255

// owner is the number of an owner; 0 is no process's.
type owner uint8

func (o owner) process() int { return int(o-1) / perOwner }

// condition is what has become of a tenure.
type condition uint8

const (
	nothing   condition = iota
	asking              // its request goes on: it is under way, or waits in the server's queue
	leaving             // no caller waits for it any more; the reply to the request under way is read to its end
	held                // a caller has its turn, or was given it
	ended               // lost; the caller has yet to unlock
	releasing           // by Unlock
	pending             // it is released in the background, until an answer is final
	conditions
)

func (c condition) String() string {
	return [conditions]string{"nothing", "asking", "leaving", "held", "ended", "releasing", "pending"}[c]
}

// becomes is what a tenure can become.
var becomes = [conditions][]condition{
	nothing:   {asking},
	asking:    {held, leaving, pending},
	leaving:   {pending},
	held:      {releasing, pending, ended},
	ended:     {releasing, pending},
	releasing: {nothing, pending},
	pending:   {nothing},
}

// stay is what the caller does that has the tenure.
type stay uint8

const (
	noCaller stay = iota
	given         // it has its turn, and has not run yet
	inside        // it works
	stopped       // its context has ended, and it has yet to unlock
	stays
)

func (y stay) String() string {
	return [stays]string{"no caller", "given", "inside", "stopped"}[y]
}

// marks of a tenure.
type marks uint16

const (
	attended marks = 1 << iota // its first caller asks, on its own goroutine
	passed                     // the turn followed another
	barred                     // no caller has it next
	known                      // its owner was passed on
	again                      // a late reply came while it was being released
	// What only the checks know:
	forgiven // FLUSHALL took it from its holder, who may act until it learns of that
	overdue  // the caller acts, though nothing is trusted any more
	crowded  // another process was queued when it was granted
	memory   // a caller keeps a context of a turn that is over
)

// tenure is what a process has of the lock: one owner, one lease, one place in the queue.
type tenure struct {
	is      condition
	caller  stay
	own     owner
	ticket  uint8 // that the last refusal named
	grant   uint8 // ticket of a grant that has yet to be looked at
	since   uint8 // ticks since that refusal's question was sent
	trust   uint8 // ticks left
	age     uint8 // ticks since the grant was heard of
	runs    uint8 // for so many ticks requests may run that were given up
	asked   uint8 // 1 + ticks since the request under way was sent; 0: there is none
	idle    uint8 // ticks since the last answer
	turns   uint8 // that may follow
	allowed uint8 // the same, as the checks count
	marks   marks
}

func (t *tenure) has(m marks) bool { return t.marks&m != 0 }

func (t *tenure) mark(m marks, on bool) {
	t.marks &^= m
	if on {
		t.marks |= m
	}
}

// become changes the condition. What the table does not have is a fault of the model.
func (t *tenure) become(c condition) {
	for _, to := range becomes[t.is] {
		if to == c {
			t.is = c
			if c == nothing {
				*t = tenure{}
			}
			return
		}
	}
	panic("tenuremodel: a tenure that is " + t.is.String() + " becomes " + c.String())
}

// process is one client.
type process struct {
	tenures  [slots]tenure
	arrivals uint8 // callers that have yet to come
	waiting  uint8 // in its line
	paused   bool
	asleep   bool // and its clock stands still; what is left of a lease is corrected when it wakes
	deaf     bool // no request is made for those that wait: the fault of a rule that is off
}

// kind is what a message is.
type kind uint8

const (
	noMessage    kind = iota
	ask               // acquire.lua
	askReply          //
	release           // release.lua
	releaseReply      //
	grant             // published by a hand-over
	transfer          // acquire.lua with the owner that is replaced; of Server alone
	kinds
)

func (k kind) String() string {
	return [kinds]string{"nothing", "ask", "reply to ask", "release", "reply to release", "grant"}[k]
}

// outcome is what the server has done.
type outcome uint8

const (
	neither outcome = iota
	granted
	queued
	late
)

// notes of a message.
type notes uint8

const (
	live     notes = 1 << iota // a caller waits for the reply; without it, it was given up
	liveNext                   // and so does the request for the next tenure
	final                      // a release that no request can come after
	others                     // others queued when it was granted
	copied                     // a second run, whose reply no caller gets
)

// message is a request, a reply or a grant that is under way.
type message struct {
	kind    kind
	own     owner
	next    owner // whose tenure follows
	outcome outcome
	ticket  uint8
	runs    uint8 // for so many ticks it is not too late
	age     uint8 // ticks since its request was sent
	must    uint8 // for so many ticks the release of an Unlock in time must find what it releases
	notes   notes
}

// Faults are what may go wrong, and acts that are not part of every run, each so many times.
type Faults struct {
	Lost    uint8 // messages
	Doubled uint8 // requests that the server runs twice, the second time whenever it likes
	// ticks that pass while something is under way, or while a caller that was given its turn has yet to run
	Late     uint8
	Pauses   uint8 // of a process, for any time
	Sleeps   uint8 // the same, while its clock stands still
	Flushes  uint8 // FLUSHALL
	PassedOn uint8 // Owner, Extend or UnlockAfter: the owner is known elsewhere
}

// state is everything. It is comparable.
type state struct {
	holder  owner
	lease   uint8
	twice   owner // whose doubled request ran a second time, and made it the holder or queued it
	queue   [places]owner
	tickets [processes*perOwner + 1]uint8 // of each owner's newest entry
	waited  uint8                         // ticks for which another process has queued behind this holder
	flushed uint8                         // 1 + ticks since FLUSHALL
	left    Faults
	proc    [processes]process
	net     [messages]message
	found   string
}

// find is the tenure of an owner, or nil.
func (p *process) find(o owner) *tenure {
	for i := range p.tenures {
		if t := &p.tenures[i]; t.is != nothing && t.own == o {
			return t
		}
	}
	return nil
}

// of is the tenure of an owner, or nil.
func (s *state) of(o owner) *tenure {
	if o == 0 {
		return nil
	}
	return s.proc[o.process()].find(o)
}

// owners are those that anything refers to.
func (s *state) owners() (used [processes*perOwner + 1]bool) {
	used[s.holder] = true
	for _, o := range s.queue {
		used[o] = true
	}
	for i := range s.net {
		used[s.net[i].own], used[s.net[i].next] = true, true
	}
	for i := range s.proc {
		for j := range s.proc[i].tenures {
			used[s.proc[i].tenures[j].own] = true
		}
	}
	return used
}

// head is the tenure by which callers wait, or behind which those wait that come: what the library's tenancy has, or
// would attach to.
func (p *process) head() *tenure {
	for i := range p.tenures {
		if t := &p.tenures[i]; t.is == asking || t.is == held {
			return t
		}
	}
	return nil
}

// send puts a message under way. One that does not fit is lost.
func (w *world) send(s *state, m message) {
	if !model.Put(s.net[:], m) {
		w.overflows++
	}
}

// room reports whether so many messages more can be under way.
func (s *state) room(n int) bool {
	for i := range s.net {
		if s.net[i].kind == noMessage {
			n--
		}
	}
	return n <= 0
}

// flying counts the messages of a kind of an owner.
func (s *state) flying(k kind, o owner) (n int) {
	for i := range s.net {
		if s.net[i].kind == k && s.net[i].own == o {
			n++
		}
	}
	return n
}

func less(n uint8) uint8 {
	if n > 0 {
		n--
	}
	return n
}
