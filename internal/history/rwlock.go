package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// AcquireRead and ReleaseRead are of the shared side of a read-write lock; Acquire and Release are of its exclusive
// side.
const (
	AcquireRead Kind = iota + 2
	ReleaseRead
)

// RWLockModel is a lock with leases that many readers, or one writer, can hold.
//
// Its holders are those of a LockModel, each with an interval in which its lease ends. A reader is granted when no
// writer can still be sure of its hold, but for the one under which it reads; a writer when no one can. A refused
// reader needs a writer, a refused writer anybody.
//
// A call of unknown outcome may have acquired or kept a hold. That hold does not rule out a grant, and may explain
// refusals, until its lease ends or a grant shows that it is not there. So the model has one state at any time and not
// one for each possibility. A few false refusals may pass, but no false grant.
type RWLockModel struct {
	LockModel
	// Under, if set, says of a reader under which writer it reads, 0: none.
	Under func(owner int) int
}

// rwHolder is one holder, as far as is known.
type rwHolder struct {
	state
	shared bool
}

// held are the holders of the lock, by owner.
type held []rwHolder

func (m RWLockModel) step(h held, in input) (bool, held) {
	op := in.op
	shared := op.Kind == AcquireRead || op.Kind == ReleaseRead
	under := 0
	if shared && m.Under != nil {
		under = m.Under(op.Owner)
	}
	mayBeFree := func(x rwHolder) bool { return x.ghost || in.ret >= x.sure }
	mayBeHeld := func(x rwHolder) bool { return op.Call-m.Slack <= x.bounds }
	inTheWay := func(x rwHolder) bool { return (!shared || !x.shared) && x.owner != under }
	// without those whose lease has ended by now
	next := slices.DeleteFunc(append(make(held, 0, len(h)+1), h...), func(x rwHolder) bool { return !mayBeHeld(x) })
	at := slices.IndexFunc(next, func(x rwHolder) bool { return x.owner == op.Owner })
	add := func(x rwHolder) held {
		next = append(next, x)
		slices.SortFunc(next, func(a, b rwHolder) int { return a.owner - b.owner })
		return next
	}
	me := rwHolder{state{owner: op.Owner, sure: in.sure, bounds: in.bounds}, shared}
	switch {
	case op.Kind == Acquire || op.Kind == AcquireRead:
		blocked := slices.ContainsFunc(next, func(x rwHolder) bool { return inTheWay(x) && !mayBeFree(x) })
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
func (m RWLockModel) Check(l *Log) error {
	if m.Timeout == 0 {
		m.Timeout = 2 * time.Minute
	}
	ops, lost := l.Ops()
	released := map[int]Op{}
	for _, op := range ops {
		if op.Kind == Release || op.Kind == ReleaseRead {
			released[op.Owner] = op
		}
	}
	byLock := map[string][]porcupine.Operation{}
	for _, op := range ops {
		in := input{op: op, ret: op.Return}
		if op.Kind == Acquire || op.Kind == AcquireRead {
			switch op.Outcome {
			case Unknown:
				in.ret += m.LateAcquire + op.Late
				in.bounds = in.ret + op.Lease
			case OK:
				in.sure, in.bounds = m.trust(op, released, lost)
			}
		}
		byLock[op.Lock] = append(byLock[op.Lock],
			porcupine.Operation{ClientId: op.Client, Input: in, Call: int64(op.Call), Return: int64(in.ret)})
	}
	model := porcupine.Model{
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
	for name, history := range byLock {
		switch result, info := porcupine.CheckOperationsVerbose(model, history, m.Timeout); result {
		case porcupine.Unknown:
			return fmt.Errorf("history: lock %q: %w within %v for %d operations", name, ErrUndecided, m.Timeout, len(history))
		case porcupine.Illegal:
			return fmt.Errorf("history: lock %q: not the history of a read-write lock; around the first operation that fits "+
				"nowhere:\n%s",
				name, stuck(history, info))
		}
	}
	return nil
}

// side is how a description names what is not of a plain lock.
func (k Kind) side() (verb Kind, mode string) {
	if k >= AcquireRead {
		return k - AcquireRead, "read "
	}
	return k, ""
}
