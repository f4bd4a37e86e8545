package tenuremodel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/model"
)

// Config is what happens.
type Config struct {
	Arrivals  [processes]uint8 // callers that come, for each process
	Contended bool             // it begins when a caller of the first process works, and one of the second is queued
	Faults    Faults
	Strict    bool   // a holder that the second run of a doubled request has made is an orphan, too
	Off       string // the name of a rule that is off; empty: none
	Calm      uint64 // progress is looked at from one of so many states; 0: from none
	Limit     int    // no search goes on beyond so many states; 0: none ends
}

// Result is what a search has found.
type Result struct {
	States    int
	Depth     int // events of the longest of the shortest traces
	Exhausted bool
	Overflows int // messages, tenures and places in the queue that there was no room for: they were lost, or had to wait
	Violation Violation
	Trace     []string
}

// world is a search: the rule that is off, and what did not fit.
type world struct {
	off       int // 1 + the rule that is off
	overflows int
	strict    bool
}

func (w *world) on(r rule) bool { return w.off != int(r)+1 }

// Search looks at every state that can be reached, nearest first. It ends at the first that violates a property.
func Search(c Config) Result {
	w := &world{strict: c.Strict}
	if c.Off != "" {
		i := slices.IndexFunc(Rules, func(r Rule) bool { return r.Name == c.Off })
		if i < 0 {
			panic("tenuremodel: no such rule: " + c.Off)
		}
		w.off = i + 1
	}
	violation, looked := None, uint64(0)
	found := model.Search(model.Machine[state, event]{
		Start: w.start(c), Follow: w.follow, Show: (*state).String, Limit: c.Limit,
		Wrong: func(s *state) string {
			looked++
			violation = w.check(s)
			if violation == None && c.Calm > 0 && looked%c.Calm == 0 && !w.calm(*s) {
				violation = NoProgress
			}
			if violation == None {
				return ""
			}
			return violation.String()
		},
	})
	return Result{States: found.States, Depth: found.Depth, Exhausted: found.Exhausted, Overflows: w.overflows,
		Violation: violation, Trace: found.Trace}
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
	for _, o := range s.queue {
		if o != 0 {
			fmt.Fprintf(&b, ", queued %v", o)
		}
	}
	for pi := range s.proc {
		p := &s.proc[pi]
		if p.waiting > 0 {
			fmt.Fprintf(&b, "; %c: %d wait", 'A'+pi, p.waiting)
		}
		for i := range p.tenures {
			t := &p.tenures[i]
			if t.is == nothing {
				continue
			}
			fmt.Fprintf(&b, "; %v %v", t.own, t.is)
			if t.caller != noCaller {
				fmt.Fprintf(&b, ", %v, trusted for %d", t.caller, t.trust)
			}
		}
	}
	return b.String()
}
