package tenuremodel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/oracle/model"
)

// Config is what happens.
type Config struct {
	Arrivals  [processes]uint8 // callers that come, for each process
	Faults    Faults
	Contended bool   // it begins when a caller of the first process works, and one of the second is queued
	Strict    bool   // a holder that the second run of a doubled request has made is an orphan, too
	Off       string // the name of a rule that is off; empty: none
	Calm      uint64 // progress is looked at from one of so many states; 0: from none
}

type callers = [processes]uint8

// Sizes are searched to their end.
var Sizes = []struct {
	Name string
	Config
}{
	{"2 callers of one process", Config{Arrivals: callers{2}}},
	{"1 of each of two", Config{Arrivals: callers{1, 1}}},
	{"2, 1, while one works and one is queued", Config{Arrivals: callers{2, 1}, Contended: true}},
	{"2, 1", Config{Arrivals: callers{2, 1}}},
	{"2; a message is doubled", Config{Arrivals: callers{2}, Faults: Faults{Doubled: 1}}},
	{"1; two are lost, one is doubled, two ticks late",
		Config{Arrivals: callers{1}, Faults: Faults{Lost: 2, Doubled: 1, Late: 2}}},
	{"1, 1; a message is lost", Config{Arrivals: callers{1, 1}, Faults: Faults{Lost: 1}}},
	{"1, 1; a process is paused", Config{Arrivals: callers{1, 1}, Faults: Faults{Pauses: 1}}},
	{"2; a process sleeps", Config{Arrivals: callers{2}, Faults: Faults{Sleeps: 1}}},
	{"1, 1; FLUSHALL", Config{Arrivals: callers{1, 1}, Faults: Faults{Flushes: 1}}},
	{"2; an owner is notified", Config{Arrivals: callers{2}, Faults: Faults{PassedOn: 1}}},
}

// rule is the index of one in Rules.
type rule uint8

const (
	oneCallersTurn rule = iota
	takerTime
	takerTrust
	giverTime
	countTurns
	barBehindOthers
	knownIsBarred
	lossEndsTheTurn
	successorAfterALoss
	withdrawal
	declining
	releaseAtOnce
	repeat
	wholeMillisecond
	notAfter
	namingCounts
	nameOnce
	notBeside
	ticketOfTheRefusal
	lastWait
)

// Rules are the things that the library does so that tenures are safe and no caller waits in vain. The model can switch
// each of them off, and Config is where the search then Finds a state that violates a property.
var Rules = []struct {
	Name  string
	Finds string
	Config
}{
	oneCallersTurn: {"a context of a turn that is over enters nothing", EndedContextEnters, Config{Arrivals: callers{2}}},
	takerTime: {"who takes a turn looks whether turns may still begin", TurnLongAfterALoss,
		Config{Arrivals: callers{2}, Faults: Faults{Flushes: 1, Late: 2}}},
	takerTrust: {"who takes a turn looks at what is left of the lease", TwoInside,
		Config{Arrivals: callers{2, 1}, Contended: true, Faults: Faults{Sleeps: 1}}},
	giverTime: {"who gives a turn looks at the time of the tenure", PassedWhileOthersStarve,
		Config{Arrivals: callers{2, 1}}},
	countTurns: {"where others may wait as many turns follow as callers waited", PassedTooOften,
		Config{Arrivals: callers{3, 1}}},
	barBehindOthers: {"where others may wait, who comes when no caller waits here any more has no turn", PassedTooOften,
		Config{Arrivals: callers{3, 1}}},
	knownIsBarred: {"an owner that is known elsewhere has no further turn", KnownOwnerPassed,
		Config{Arrivals: callers{2}, Faults: Faults{PassedOn: 1}}},
	lossEndsTheTurn: {"whatever ends a tenure ends the turn that runs", TwoInside, Config{Arrivals: callers{2}}},
	successorAfterALoss: {"whatever ends a tenure, those that wait have another", NoProgress,
		Config{Arrivals: callers{2}, Calm: 1}},
	withdrawal:    {"the last caller that leaves withdraws the request", Orphan, Config{Arrivals: callers{2}}},
	declining:     {"a caller that cannot use its turn gives the tenure back", Orphan, Config{Arrivals: callers{1}}},
	releaseAtOnce: {"what is granted when no caller waits is released at once", Orphan, Config{Arrivals: callers{2}}},
	repeat:        {"a release is repeated until no request can come after it", Orphan, Config{Arrivals: callers{1}}},
	wholeMillisecond: {"a request may run for the whole millisecond of its not-after", Orphan,
		Config{Arrivals: callers{1}, Faults: Faults{Late: 2}}},
	notAfter: {"the server refuses a request that comes too late", Orphan,
		Config{Arrivals: callers{1}, Faults: Faults{Late: 2}}},
	namingCounts: {"the call that names a tenure is a request of that tenure", Orphan,
		Config{Arrivals: callers{2}, Faults: Faults{Late: 1}}},
	nameOnce: {"only the run that releases the holder names the next", Orphan,
		Config{Arrivals: callers{2}, Faults: Faults{Doubled: 1}}},
	notBeside: {"a late reply sends no release in addition to an Unlock's", UnlockToldLost, Config{Arrivals: callers{2}}},
	ticketOfTheRefusal: {"a grant is used if its ticket is that of the last refusal", TwoInside,
		Config{Arrivals: callers{2, 1}, Contended: true, Faults: Faults{Sleeps: 1}}},
	lastWait: {"a grant's lease counts from the question that was refused last", UnlockToldLost,
		Config{Arrivals: callers{2}, Faults: Faults{Sleeps: 1}}},
}

// world is a search: the rule that is off, and how many messages, tenures and places in the queue had no room. They
// were lost, or had to wait.
type world struct {
	off       int // 1 + the rule that is off
	overflows int
	strict    bool
}

func (w *world) on(r rule) bool { return w.off != int(r)+1 }

// Search looks at every state that can be reached, nearest first. It ends at the first that violates a property.
func Search(c Config) model.Result {
	w := &world{strict: c.Strict}
	if c.Off != "" {
		for i := range Rules {
			if Rules[i].Name == c.Off {
				w.off = i + 1
			}
		}
		if w.off == 0 {
			panic("tenuremodel: no such rule: " + c.Off)
		}
	}
	looked := uint64(0)
	return model.Search(model.Machine[state, event]{
		Start: w.start(c), Follow: w.follow, Show: (*state).String,
		Wrong: func(s *state) string {
			looked++
			wrong := w.check(s)
			if wrong == "" && c.Calm > 0 && looked%c.Calm == 0 && !w.calm(*s) {
				wrong = NoProgress
			}
			return wrong
		},
	})
}

// start is the first state.
func (w *world) start(c Config) (s state) {
	s.left = c.Faults
	for pi := range s.proc {
		s.proc[pi].arrivals = c.Arrivals[pi]
	}
	if !c.Contended {
		return s
	}
	for pi := range 2 {
		w.arrive(&s, pi)
		for w.deliver(&s) {
			w.tidy(&s)
		}
	}
	w.takeTurn(&s, 0, s.proc[0].head())
	w.tidy(&s)
	return s
}

func (s *state) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "server: %v", s.holder)
	if s.holder != 0 {
		fmt.Fprintf(&b, " for %d", s.lease)
	}
	queue := s.queue
	if queue := slices.DeleteFunc(queue[:], func(o owner) bool { return o == 0 }); len(queue) > 0 {
		fmt.Fprintf(&b, ", queued %v", queue)
	}
	for pi := range s.proc {
		p := &s.proc[pi]
		if p.waiting > 0 {
			fmt.Fprintf(&b, "; %c: %d wait", 'A'+pi, p.waiting)
		}
		for i := range p.tenures {
			if t := &p.tenures[i]; t.is != nothing {
				fmt.Fprintf(&b, "; %v %v, %v, trusted for %d", t.own, t.is, t.caller, t.trust)
			}
		}
	}
	return b.String()
}
