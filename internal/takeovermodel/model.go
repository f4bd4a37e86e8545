// Package takeovermodel is a model of take-over: of heartbeats (Heartbeats in internal/lease), and of the monitor that
// takes a lock from a process that is gone (Monitor). It is for tests.
//
// One process acquires a lock, sends heartbeats while it holds it, and releases it; another waits and watches: it looks
// at the lock, then at the heartbeat, and removes the owner whose heartbeat it has seen unchanged for long enough.
// Requests and replies come in any order, late or never; either process is paused; the holder's clock is slow; the key
// of the heartbeats is deleted. The lease itself has no end here (internal/leasemodel). Time is in ticks, and every
// instant is kept as a countdown, or as what has passed since.
//
// What must hold in every state: while the holder believes that it has the lock, the server says so, too. So no lock is
// taken from a living holder before that has stopped to believe.
//
// Each [Rule] is one thing that the library does for this, and can be left out.
package takeovermodel

// Rule is one thing that the library does.
type Rule uint8

// The rules.
const (
	Whole     Rule = iota // Whole: nothing is left out
	FromSend              // trust counts from before the heartbeat was sent; without it, from its reply
	Confirmed             // only a heartbeat that was confirmed counts
	FromAsk               // a hold without one is trusted from when it was asked for; without it, from the reply
	Gap                   // a heartbeat that is confirmed after the trust has ended brings nothing back
	Margin                // something is taken off the trust for clocks that are slow
	OwnClock              // who watches counts by its own clock; without it, by the time that the heartbeat names
	Change                // it watches for a change; without it, a key that is not there is a process that is gone
	SeenHeld              // it counts no longer than it has seen the hold
	FromReply             // it counts from the reply that showed the heartbeat first; without it, from the question
	ToSend                // and to the send of the question that showed it last; without it, to the reply
	ByOwner               // it removes that owner; without it, whatever owner there is
	NewOwner              // no owner is used twice
	Rules                 // Rules is how many there are.
)

func (r Rule) String() string {
	return [Rules]string{"whole", "counts from the send", "counts what was confirmed",
		"counts from when a hold was asked for", "revives nothing", "has a margin", "counts by its own clock",
		"watches for a change", "counts from when it saw the hold", "counts from the reply", "counts to the last question",
		"removes an owner", "uses no owner twice"}[r]
}

// Trust is for how long a holder believes by a heartbeat, or a question, that was sent so long ago.
func Trust(trust, margin, age int32) int32 { return max(trust-margin-age, 0) }

// Watch is what who watches has seen of one hold and its process's heartbeats. Instants are ticks ago.
type Watch struct {
	First int32 // since it saw the hold first
	Since int32 // since it saw the heartbeat as it is
	Known bool  // it has seen the heartbeat, or that there is none
}

// Saw takes in the reply to a look that was sent so long ago, and reports whether the process is gone: it may be
// removed. changed: the heartbeat is not as it was when it was looked at last.
func (w *Watch) Saw(changed bool, asked, trust int32, without Rule) (gone bool) {
	if changed || !w.Known {
		if w.Since = 0; without == FromReply {
			w.Since = asked
		}
	}
	w.Known = true
	since := w.Since
	if without != SeenHeld {
		since = min(since, w.First)
	}
	if without == ToSend {
		asked = 0
	}
	return since-asked >= trust
}

// Ticks of the search.
const (
	trust  = 3
	margin = 1
	call   = 1
	late   = 4
	most   = trust + late // of what is counted
	behind = 3            // the holder's wall clock
)

const (
	owners   = 3
	messages = 4
)

type kind uint8

const (
	none kind = iota
	ask
	beat
	release
	inspect
	look
	force
	askReply
	beatReply
	inspectReply
	lookReply
)

func (k kind) String() string {
	return [...]string{"", "acquire", "heartbeat", "release", "look at the lock", "look at the heartbeat", "removal",
		"reply to an acquire", "reply to a heartbeat", "reply to a look at the lock", "reply to a look at the heartbeat"}[k]
}

// ofWatcher reports whether it is a message from or to the process that waits.
func (k kind) ofWatcher() bool {
	return k == inspect || k == look || k == force || k == inspectReply || k == lookReply
}

// message is one that is under way.
type message struct {
	kind  kind
	own   uint8
	ok    bool // granted; the heartbeat has changed; it is there
	there bool
	old   bool  // by the time that the heartbeat names its process is gone
	age   int32 // by the clock of its process
	rest  int32 // for so many ticks it may still be under way
}

type phase uint8

const (
	idle phase = iota
	asking
	holding
)

// holder is the process that holds.
type holder struct {
	is     phase
	own    uint8
	trust  int32 // ticks left
	beats  int32 // 1 + ticks since the heartbeat under way was sent; 0: there is none
	asked  int32
	paused bool
}

type round uint8

const (
	rests round = iota
	inspects
	looks
	takes
)

// watcher is the process that waits.
type watcher struct {
	is     round
	own    uint8 // that it has seen hold; 0: none
	watch  Watch
	asked  int32 // 1 + ticks since the question under way was sent
	paused bool
}

// Faults are how often each may happen.
type Faults struct {
	Lost, Late, Pauses, Slow, Deletes uint8
	Acquires                          uint8
}

// state is all there is.
type state struct {
	holds uint8 // owner, by the server
	there bool  // the heartbeat
	// The heartbeat has changed since what the watcher has seen, up to the look under way if that has run, and since
	// then.
	changed, newer bool
	ran            bool
	stamp          int32 // ticks since the time that the heartbeat names; only if that is looked at
	h              holder
	w              watcher
	net            [messages]message
	left           Faults
	full           bool
}

func (s *state) believes() bool { return s.h.is == holding && s.h.trust > 0 }

// Taken is what a search finds.
const Taken = "a process believes that it holds the lock, and it was taken from it"

func (s *state) wrong() string {
	if s.believes() && s.holds != s.h.own {
		return Taken
	}
	return ""
}
