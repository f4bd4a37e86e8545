package history

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// LockModel is an exclusive lock with leases.
//
// One owner holds it at a time. A grant lasts until it is released, or until its lease ends. The lease ends somewhere
// in an interval. It never ends before the holder stopped trusting it, because that is promised to the holder. It ends
// at the latest one lease after the last request for it can have reached the server. A refusal needs a holder. A call
// of unknown outcome happened at some time or never: an acquire may have left behind an owner that no client knows of,
// until its lease ends or a client removes it.
type LockModel struct {
	// Slack is how far the server's clock and the clients' may be apart in what they say about one lease: whole
	// milliseconds and a cached time on the server make it 2 ms.
	Slack time.Duration
	// LateAcquire is how long after its caller gave up an acquire may still be granted.
	LateAcquire time.Duration
	// LateGrant is how long a waiter may stay in the lock's queue after its caller gave up. It may then be handed the
	// lock, and no client knows of that until the lease ends. Zero: not at all.
	LateGrant time.Duration
	// Late is how long after its caller gave up, or let go, a renewal or release may still run.
	Late time.Duration
	// Timeout bounds the check. Zero: two minutes.
	Timeout time.Duration
}

// ErrUndecided: the check took longer than its model's Timeout. It says nothing of the log.
var ErrUndecided = errors.New("not decided")

// state says which owner holds the lock. The zero value: none.
type state struct {
	owner  int
	ghost  bool          // granted to a caller that does not know: may be cleared away at any time
	sure   time.Duration // held at least until then
	bounds time.Duration // and at most until then
}

// input is what the checker knows about a call. It is made when the whole history is known, so a grant says until when
// it was trusted in the end.
type input struct {
	op           Op
	ret          time.Duration // by when it has happened
	sure, bounds time.Duration // Acquire
}

func (m LockModel) step(s state, in input) []state {
	op := in.op
	mayBeFree := s.owner == 0 || s.ghost || in.ret >= s.sure // no slack here: the holder had its margin
	mayBeHeld := s.owner != 0 && op.Call-m.Slack <= s.bounds
	mine := s.owner == op.Owner
	granted := state{owner: op.Owner, sure: in.sure, bounds: in.bounds}
	switch {
	case op.Kind == Acquire && op.Outcome == OK:
		if mayBeFree {
			return []state{granted}
		}
	case op.Kind == Acquire && op.Outcome == Refused:
		if mayBeHeld {
			return []state{s}
		}
	case op.Kind == Acquire:
		if mayBeFree {
			granted.ghost, granted.sure = true, 0
			return []state{s, granted}
		}
		return []state{s}
	case op.Outcome == OK:
		if mine && mayBeHeld {
			return []state{{}}
		}
	case op.Outcome == Refused:
		if !mine {
			return []state{s}
		}
		if mayBeFree { // its time was over, and what was left of it is given back in the background
			return []state{{}, {owner: s.owner, ghost: true, bounds: s.bounds}}
		}
	default: // whatever the call does later, its owner has released the lock
		if mine {
			return []state{{}, {owner: s.owner, ghost: true, bounds: s.bounds}}
		}
		return []state{s}
	}
	return nil
}

// Check reports what in the log no such lock can have done, or that it could not be found out in time; nil if all of it
// is possible.
func (m LockModel) Check(l *Log) error {
	if m.Timeout == 0 {
		m.Timeout = 2 * time.Minute
	}
	ops, lost := l.Ops()
	byLock := map[string][]Op{}
	for _, op := range ops {
		byLock[op.Lock] = append(byLock[op.Lock], op)
	}
	names := make([]string, 0, len(byLock))
	for name := range byLock {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := m.checkOne(name, byLock[name], lost); err != nil {
			return err
		}
	}
	return nil
}

func (m LockModel) checkOne(name string, ops []Op, lost map[int]time.Duration) error {
	released := map[int]Op{}
	for _, op := range ops {
		if op.Kind == Release {
			released[op.Owner] = op
		}
	}
	var refused []Op
	for _, op := range ops {
		if op.Kind == Acquire && op.Outcome == Refused && !m.forNoCaller(op, ops) {
			refused = append(refused, op)
		}
	}
	history := make([]porcupine.Operation, 0, len(ops))
	for _, op := range ops {
		if op.Kind == Acquire &&
			(op.Outcome == Refused && !slices.Contains(refused, op) || op.Outcome == Unknown && !m.explains(op, refused)) {
			continue
		}
		in := input{op: op}
		ret := op.Return
		switch {
		case op.Kind == Acquire && op.Outcome == Unknown:
			ret = op.Return + m.LateAcquire + op.Late
			in.bounds = ret + op.Lease
		case op.Kind == Acquire && op.Outcome == OK:
			in.sure, in.bounds = m.trust(op, released, lost)
		}
		in.ret = ret
		history = append(history,
			porcupine.Operation{ClientId: op.Client, Input: in, Call: int64(op.Call), Return: int64(ret)})
	}
	result, info := porcupine.CheckOperationsVerbose(m.model(), history, m.Timeout)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("history: lock %q: %w within %v for %d operations", name, ErrUndecided, m.Timeout, len(ops))
	}
	return fmt.Errorf("history: lock %q: not the history of a lock; around the first operation that fits nowhere:\n%s",
		name, stuck(history, info))
}

// forNoCaller reports whether a refusal may be due to a grant to a waiter that had given up. Such a grant happens at
// some other time, and is over when it is found out, so the refusal says nothing about the other owners.
func (m LockModel) forNoCaller(op Op, ops []Op) bool {
	return m.LateGrant > 0 && slices.ContainsFunc(ops, func(w Op) bool {
		return w.Kind == Acquire && w.Outcome == Unknown && w.Call <= op.Return &&
			op.Call <= w.Return+w.Late+m.LateGrant+w.Lease
	})
}

// explains reports whether an acquire of unknown outcome may be the reason of one of the refusals. One that is no
// reason of any says nothing, because what it may have left behind rules out no grant; and many that callers gave up
// would take the checker forever.
func (m LockModel) explains(op Op, refused []Op) bool {
	return slices.ContainsFunc(refused, func(r Op) bool {
		return op.Call <= r.Return && r.Call-m.Slack <= op.Return+m.LateAcquire+op.Late+op.Lease
	})
}

// trust is the interval in which the lease of a grant ends.
func (m LockModel) trust(op Op, released map[int]Op, lost map[int]time.Duration) (sure, bounds time.Duration) {
	at, isLost := lost[op.Owner]
	rel, isReleased := released[op.Owner]
	switch {
	case isLost:
		sure = at
	case op.Renewed:
		sure = Forever // only its release can have ended it
	default:
		sure = Forever
		if !isReleased {
			sure = op.Call + op.Lease - op.Lease/10 // no renewal asked the server
		}
	}
	switch {
	case !op.Renewed:
		bounds = op.Return + op.Lease
	case isLost:
		bounds = at + m.Late + op.Lease // a renewal sent before may have been on its way
	case isReleased && rel.Outcome != OK:
		bounds = rel.Call + m.Late + op.Lease
	default:
		bounds = Forever
	}
	return sure, bounds
}

func (m LockModel) model() porcupine.Model {
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, _ any) []any {
			next := m.step(s.(state), in.(input))
			out := make([]any, len(next))
			for i, n := range next {
				out[i] = n
			}
			return out
		},
		Hash: func(s any) uint64 {
			st := s.(state)
			h := uint64(st.owner) * 0x9e3779b97f4a7c15
			if st.ghost {
				h ^= 1
			}
			return h ^ uint64(st.bounds)<<1
		},
	}
	return nm.ToModel()
}

// longestOrder is the longest sound order of operations that was found, by their numbers.
func longestOrder(info porcupine.LinearizationInfo) (longest []int) {
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	return longest
}

// stuck describes the operations about the place where the longest sound order ends.
func stuck(history []porcupine.Operation, info porcupine.LinearizationInfo) string {
	order := longestOrder(info)
	first := -1
	for i, op := range history {
		if !slices.Contains(order, i) && (first < 0 || op.Return < history[first].Return) {
			first = i
		}
	}
	if first < 0 {
		return "(unknown)"
	}
	near := make([]porcupine.Operation, 0, 16)
	for _, op := range history {
		if op.Return >= history[first].Call-int64(50*time.Millisecond) && op.Call <= history[first].Return {
			near = append(near, op)
		}
	}
	slices.SortFunc(near, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	if len(near) > 30 {
		near = near[len(near)-30:]
	}
	var text strings.Builder
	for _, op := range near {
		fmt.Fprintln(&text, describe(op.Input.(input)))
	}
	fmt.Fprintf(&text, "fits nowhere: %s\n", describe(history[first].Input.(input)))
	return text.String()
}

func describe(in input) string {
	op := in.op
	kind, mode := op.Kind.side()
	verb := mode + [...]string{"acquire", "release"}[kind]
	outcome := [...]string{"ok", "refused", "unknown"}[op.Outcome]
	s := fmt.Sprintf("  %12v .. %12v client %d owner %d %s: %s", op.Call, op.Return, op.Client, op.Owner, verb, outcome)
	if kind == Acquire && op.Outcome == OK {
		s += fmt.Sprintf(" (held until %s at least, %s at most)", when(in.sure), when(in.bounds))
	}
	return s
}

func when(d time.Duration) string {
	if d == Forever {
		return "its release"
	}
	return d.String()
}
