package history

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// LockModel is a lock with leases, which one owner or many readers can hold.
//
// A grant lasts until it is released, or until its lease ends. The lease ends somewhere in an interval. It never ends
// before the holder stopped trusting it, because that is promised to the holder. It ends at the latest one lease after
// the last request for it can have reached the server. A reader is granted when no writer can still be sure of its
// hold, but for the one under which it reads; any other when no holder can. A refused reader needs a writer, any other
// refusal a holder.
//
// A call of unknown outcome happened at some time or never: an acquire may have left behind an owner that no client
// knows of. That hold does not rule out a grant, and may explain refusals, until its lease ends or a grant shows that
// it is not there. So the model has one state at any time and not one for each possibility. A few false refusals may
// pass, but no false grant.
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
	// Under, if set, says of a reader under which writer it reads, 0: none.
	Under func(owner int) int
}

// ErrUndecided: the check took longer than its model's Timeout. It says nothing of the log.
var ErrUndecided = errors.New("not decided")

// holder is one holder, as far as is known.
type holder struct {
	owner  int
	shared bool
	ghost  bool          // granted to a caller that does not know: may be cleared away at any time
	sure   time.Duration // held at least until then
	bounds time.Duration // and at most until then
}

// held are the holders of the lock, by owner.
type held []holder

// input is what the checker knows about a call. It is made when the whole history is known, so a grant says until when
// it was trusted in the end.
type input struct {
	op           Op
	ret          time.Duration // by when it has happened
	sure, bounds time.Duration // of a grant
}

func (m LockModel) step(h held, in input) (bool, held) {
	op := in.op
	under := 0
	if op.Kind.shared() && m.Under != nil {
		under = m.Under(op.Owner)
	}
	mayBeFree := func(x holder) bool { return x.ghost || in.ret >= x.sure } // no slack here: the holder had its margin
	mayBeHeld := func(x holder) bool { return op.Call-m.Slack <= x.bounds }
	inTheWay := func(x holder) bool { return (!op.Kind.shared() || !x.shared) && x.owner != under }
	// without those whose lease has ended by now
	next := slices.DeleteFunc(append(make(held, 0, len(h)+1), h...), func(x holder) bool { return !mayBeHeld(x) })
	at := slices.IndexFunc(next, func(x holder) bool { return x.owner == op.Owner })
	add := func(x holder) held {
		next = append(next, x)
		slices.SortFunc(next, func(a, b holder) int { return a.owner - b.owner })
		return next
	}
	me := holder{owner: op.Owner, shared: op.Kind.shared(), sure: in.sure, bounds: in.bounds}
	switch {
	case op.Kind.acquires():
		blocked := slices.ContainsFunc(next, func(x holder) bool { return inTheWay(x) && !mayBeFree(x) })
		switch op.Outcome {
		case OK:
			if blocked {
				return false, nil
			}
			next = slices.DeleteFunc(next, inTheWay)
			return true, add(me)
		case Refused:
			return slices.ContainsFunc(next, inTheWay), next
		}
		if !blocked {
			me.ghost, me.sure = true, 0
			next = add(me)
		}
		return true, next
	case op.Outcome == OK:
		if at < 0 {
			return false, nil
		}
		return true, slices.Delete(next, at, at+1)
	case at < 0:
		return true, next
	case op.Outcome == Refused && !mayBeFree(next[at]):
		return false, nil
	}
	// its owner has released it, whatever the server still does
	next[at].ghost = true
	return true, next
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
	var refused []Op
	for _, op := range ops {
		if !op.Kind.acquires() {
			released[op.Owner] = op
		}
		if op.Kind.acquires() && op.Outcome == Refused && !m.forNoCaller(op, ops) {
			refused = append(refused, op)
		}
	}
	history := make([]porcupine.Operation, 0, len(ops))
	for _, op := range ops {
		in := input{op: op, ret: op.Return}
		switch {
		case !op.Kind.acquires():
		case op.Outcome == Refused && !slices.Contains(refused, op), op.Outcome == Unknown && !m.explains(op, refused):
			continue
		case op.Outcome == Unknown:
			in.ret = op.Return + m.LateAcquire + op.Late
			in.bounds = in.ret + op.Lease
		case op.Outcome == OK:
			in.sure, in.bounds = m.trust(op, released, lost)
		}
		history = append(history,
			porcupine.Operation{ClientId: op.Client, Input: in, Call: int64(op.Call), Return: int64(in.ret)})
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

func (m LockModel) model() porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return held(nil) },
		Step:  func(s, in, _ any) (bool, any) { return m.step(s.(held), in.(input)) },
		Equal: func(a, b any) bool { return slices.Equal(a.(held), b.(held)) },
		Hash: func(s any) uint64 {
			n := uint64(0)
			for _, x := range s.(held) {
				n = (n ^ uint64(x.owner) ^ uint64(x.bounds)) * 0x9e3779b97f4a7c15
			}
			return n
		},
	}
}

// forNoCaller reports whether a refusal may be due to a grant to a waiter that had given up. Such a grant happens at
// some other time, and is over when it is found out, so the refusal says nothing about the other owners.
func (m LockModel) forNoCaller(op Op, ops []Op) bool {
	return m.LateGrant > 0 && slices.ContainsFunc(ops, func(w Op) bool {
		return w.Kind.acquires() && w.Outcome == Unknown && w.Call <= op.Return &&
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
	verb := [...]string{"acquire", "release", "read acquire", "read release"}[op.Kind]
	outcome := [...]string{"ok", "refused", "unknown"}[op.Outcome]
	s := fmt.Sprintf("  %12v .. %12v client %d owner %d %s: %s", op.Call, op.Return, op.Client, op.Owner, verb, outcome)
	if op.Kind.acquires() && op.Outcome == OK {
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
