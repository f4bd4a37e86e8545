// Package beliefmodel is a model of one process's belief against the server: of the work of internal/lease with one
// lock, and of the work of the scripts acquire, renew, release and the hand-over in rlock with its lease. The model is
// for tests.
//
// A process believes that it holds a lock by a lease ([SearchLeases]), or by heartbeats ([SearchBeats]: Heartbeats and
// Monitor in internal/lease). Requests and replies come in any order, late, never or twice; processes are paused, or
// sleep so that their clocks stand still; their clocks are slow; the server forgets. Time is in ticks, and each instant
// is kept as a countdown, or as what has passed since, so that states repeat.
//
// With leases, two processes ask for a lock, wait in its queue, hold it, renew it, make it last longer, release it. In
// every state no two processes believe at once that they hold the lock; a process that believes it is the one that the
// server has, and the server's lease lasts at least as long as the process believes; and the server has no owner that
// its process has done with. A process whose lock the server has forgotten may believe until a renewal that it sends
// afterwards is answered.
//
// With heartbeats, one process acquires a lock, sends heartbeats while it holds it, and releases it. Another looks at
// the lock, then at the heartbeat, and removes the owner whose heartbeat it has seen unchanged for long enough. The
// lease itself has no end. In every state, while the holder believes that it has the lock, the server says so, too: no
// lock is taken from a living holder before that has stopped to believe.
//
// Each [Rule] is one thing that the library does for this, and can be left out.
//
// Not modelled are what callers share of a tenure, several owners of one lock,
// MinReplicas, and looks in place of renewals.
package beliefmodel

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/proof/models/model"
)

// Rule is one thing that the library does.
type Rule uint8

// The rules of leases; the first three are those of heartbeats, too.
const (
	Whole       Rule = iota // Whole: nothing is left out
	FromSend                // a deadline counts from before the send; without it, from the reply
	Confirmed               // only a confirmed renewal or heartbeat counts; without it, one that is sent
	Margin                  // something is taken off for clocks that are slow
	OwnSend                 // a reply counts from the send of its own request; without it, of the last one
	AtDeadline              // at the deadline it is over; without it, once no renewal is under way
	Durations               // the server gets durations; without it, instants of the process's clock
	RenewsOwn               // a renewal asks whose the lock is
	RenewsHeld              // a renewal makes no holder of an owner that holds nothing
	Raises                  // a renewal shortens no lease
	AsksAgain               // nor does an acquire that runs a second time
	ReleasesOwn             // a release asks whose the lock is
	NotAfter                // the server refuses a request that comes after its caller has given up
	LastRelease             // a release is repeated until no acquire of its owner can run after it
	FromRefusal             // a grant's lease counts from the question that was refused; without it, from the message
	LastTicket              // a grant is used if it answers the last refusal; without it, any
	FirstLease              // who is handed the lock counts the lease that it has asked for that; without it, the full one
	Jump                    // after a sleep it believes for so much less; without it, its clock is believed
	BeforeJump              // and what was sent before the sleep counts for so much less
)

// The rules of heartbeats alone.
const (
	FromAsk   Rule = iota + BeforeJump + 1 // a hold counts from when it was asked for; without it, from the reply
	Gap                                    // a heartbeat that is confirmed after the trust has ended brings nothing back
	OwnClock                               // the watcher counts by its own clock; without it, by that of the heartbeat
	Change                                 // it watches for a change; without it, a process without a key is gone
	SeenHeld                               // it counts no longer than it has seen the hold
	FromReply                              // it counts from the reply that first showed the beat; without it, its send
	ToSend                                 // and to the send of the question that showed it last; without it, to the reply
	ByOwner                                // it removes that owner; without it, whatever owner there is
	NewOwner                               // no owner is used twice
	Rules                                  // Rules is how many there are.
)

func (r Rule) String() string {
	return [Rules]string{"whole", "counts from the send", "counts what was confirmed", "has a margin",
		"counts from its own send", "ends at the deadline", "sends durations", "renews its own", "renews what is held",
		"shortens nothing by a renewal", "shortens nothing by a second acquire", "releases its own", "refuses what is late",
		"releases last", "counts a grant from the refusal", "takes the last grant", "counts the first lease",
		"believes less after a sleep", "believes answers from before a sleep less",
		"counts from when a hold was asked for", "revives nothing", "counts by its own clock", "watches for a change",
		"counts from when it saw the hold", "counts from the reply", "counts to the last question", "removes an owner",
		"uses no owner twice"}[r]
}

// Trust is for how long a process believes in a lease or a heartbeat, of which it hears when its request is so old.
func Trust(lease, margin, age int32) int32 { return max(lease-margin-age, 0) }

// slack is what a reply in whole milliseconds may be off.
const slack = 2 * time.Millisecond

// marginOf is what is taken off a lease or trust, as docs/guarantees.md has it: half a percent, and up to 10 ms.
func marginOf(d time.Duration) time.Duration { return d/200 + min(d/10, 10*time.Millisecond) }

func micros(d time.Duration) int32 { return int32(d / time.Microsecond) }

// trustUntil is until when a process believes at an instant by a request that was sent then.
func trustUntil(at, sent, lease time.Duration) time.Duration {
	return at + time.Duration(Trust(micros(lease), micros(marginOf(lease)), micros(at-sent)))*time.Microsecond
}

// Ticks of the search.
const (
	lease  = 4 // what is asked for, and renewed; and how long a message may be late
	longer = 6 // what Extend asks for
	first  = 2 // what is asked for if the lock is handed over
	margin = 1
	call   = 1 // after so many a reply is awaited no more
	behind = 2 // of the first process's wall clock
)

const (
	each     = 3 // owners of a process that anything refers to
	messages = 4
)

type phase uint8

const (
	idle phase = iota
	asking
	holding
	releasing
)

type kind uint8

const (
	none kind = iota
	ask
	renew
	release
	beat
	inspect
	look
	force
	askReply
	renewReply
	releaseReply
	beatReply
	inspectReply
	lookReply
	grant
)

func (k kind) String() string {
	return [...]string{"", "acquire", "renewal", "release", "heartbeat", "look at the lock", "look at the heartbeat",
		"removal", "reply to an acquire", "reply to a renewal", "reply to a release", "reply to a heartbeat",
		"reply to a look at the lock", "reply to a look at the heartbeat", "grant"}[k]
}

// message is one that is under way.
type message struct {
	kind   kind
	own    Owner
	ok     bool // granted, renewed, released; the heartbeat has changed
	there  bool // the heartbeat is there
	old    bool // by the time that the heartbeat names its process is gone
	copy   bool // its reply is lost
	last   bool // a release: no question of the owner runs after it
	knows  bool // a reply to what ran after the server had forgotten the lock
	lease  int32
	age    int32 // by its process's clock
	rest   int32 // for so many ticks it may still be under way
	runs   int32 // the not-after of a question
	ticket uint8
}

// number is another one for each other message.
func (m message) number() uint64 {
	return model.Pack(int32(m.kind), int32(m.own), m.lease, m.age, m.rest, m.runs, int32(m.ticket))<<6 |
		model.Flags(m.ok, m.there, m.old, m.copy, m.last, m.knows)
}

// Faults are how often each may happen, and acts that are not part of every run.
type Faults struct {
	Lost, Late, Doubled, Pauses, Sleeps, Slow, Forgets uint8
	Renewals, Extends                                  uint8
	Acquires                                           [clients]uint8
}

// wire is the network of a state, and what may still happen.
type wire struct {
	net  [messages]message
	left Faults
	full bool // a message had no room
}

// send puts a message on its way.
func (w *wire) send(m message) {
	m.rest = call
	w.full = !model.Put(w.net[:], m) || w.full
}

// network plays the messages of a state. asleep: a process does not read the reply.
func network[S any](
	of func(*S) *wire, asleep func(*S, message) bool, run, hear func(*S, message),
) model.Network[S, message] {
	return model.Network[S, message]{
		Of:   func(s *S) []message { return of(s).net[:] },
		Left: func(s *S) (lost, late *uint8) { return &of(s).left.Lost, &of(s).left.Late },
		Arrive: func(s *S, m message) (string, func(*S)) {
			switch {
			case m.kind <= force:
				return "the server runs", func(n *S) { run(n, m) }
			case !asleep(s, m):
				return "arrives", func(n *S) { hear(n, m) }
			}
			return "", nil
		},
		Due:   func(m message) bool { return m.rest <= 0 },
		Delay: func(m *message) { m.rest += lease },
		Double: func(s *S, m message) func(*S, int) {
			if m.kind > force || m.copy || of(s).left.Doubled == 0 {
				return nil
			}
			return func(s *S, _ int) {
				n := of(s)
				n.left.Doubled--
				m.copy, m.rest = true, lease
				n.full = !model.Put(n.net[:], m) || n.full
			}
		},
	}
}

// event is one step.
type event struct {
	what string
	m    message
}

func (e event) String() string {
	switch {
	case e.m.kind == none:
		return e.what
	case e.m.own == 0:
		return fmt.Sprintf("%s: %v", e.what, e.m.kind)
	}
	return fmt.Sprintf("%s: %v of %c%d", e.what, e.m.kind, 'a'+process(e.m.own), (e.m.own-1)%each)
}

// What a search finds.
const (
	Two       = "two processes believe that they hold the lock"
	Uncovered = "a process believes for longer than the server's lease lasts"
	Orphan    = "the server has an owner that its process has done with"
	Taken     = "a process believes that it holds the lock, and it was taken from it"
)
