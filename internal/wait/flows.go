package wait

import (
	"iter"
	"slices"
)

// Tenants of one key share a local queue, and so the calls that request for its waiters: with a local queue for each
// tenant, a process with 10,000 tenants would poll with 10,000 calls in place of 80. But a tenant's waiter must not
// wait until the requests for a thousand waiters of another are sent:
//
//	tenant A                         tenant B                      calls, 128 waiters each
//	1,000 callers come
//	                                 one caller comes              1: A's first 128
//	                                                               2: A's next, and B's   in order of arrival: the 8th
//
// The server's queue decides in which order they are served.

// perTurn is how many waiters of a flow stand in a row while others wait.
const perTurn = 8

// isOfFlows reports whether a member of the local queue has a flow. Called with mu held.
func (l *localQueue) isOfFlows() bool { return l.ofFlows > 0 }

// inOrder returns the waiters of a local queue, by arrival or, with flows, in turns. Called with mu held.
func (l *localQueue) inOrder() iter.Seq[*Caller] {
	byArrival := func(yield func(*Caller) bool) {
		for caller := l.first; caller != nil; caller = caller.behind {
			if !yield(caller) {
				return
			}
		}
	}
	if !l.isOfFlows() {
		return byArrival
	}
	return slices.Values(inTurns(slices.Collect(byArrival)))
}

// inTurns returns waiters in an order in which each flow has perTurn of them before any flow has more. Waiters of one
// flow keep their order.
func inTurns(callers []*Caller) []*Caller {
	byFlow := map[string][]*Caller{}
	var flows []string // by arrival
	for _, caller := range callers {
		flow := caller.request.Flow
		if byFlow[flow] == nil {
			flows = append(flows, flow)
		}
		byFlow[flow] = append(byFlow[flow], caller)
	}
	ordered := make([]*Caller, 0, len(callers))
	for len(flows) > 0 {
		remaining := flows[:0]
		for _, flow := range flows {
			turn := byFlow[flow]
			count := min(perTurn, len(turn))
			ordered = append(ordered, turn[:count]...)
			if byFlow[flow] = turn[count:]; len(turn) > count {
				remaining = append(remaining, flow)
			}
		}
		flows = remaining
	}
	return ordered
}
