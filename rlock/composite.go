package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// composite is what a Multi or Quorum lock is made of.
type composite struct {
	members []*Lock // of a Multi: in the order in which all processes acquire them
	need    int     // how many must be held: all, or a majority
	quorum  bool
	line    string // of those who wait for a Quorum: its members, whatever their names
}

// newComposite describes a lock made of members. Their own waits and leases are not used.
func newComposite(verb string, members []*Lock, need int) *Lock {
	names, line := make([]string, len(members)), make([]string, len(members))
	for i, m := range members {
		names[i], line[i] = m.name, m.c.id+" "+m.key
	}
	q := &composite{members: members, need: need, quorum: verb == "quorum", line: strings.Join(line, ",")}
	return &Lock{name: verb + "(" + strings.Join(names, ",") + ")", wait: forever, of: q}
}

// checkParts refuses what no composite can be made of.
func checkParts(verb string, locks []*Lock) error {
	for i, l := range locks {
		switch {
		case l == nil:
			return fmt.Errorf("rlock: %w: %s: lock %d is nil", ErrInvalidOption, verb, i+1)
		case l.bad != nil:
			return l.bad
		case l.of != nil:
			return fmt.Errorf("rlock: %w: %s: lock %d is %q, must not be made of several itself", ErrInvalidOption, verb, i+1, l.name)
		}
	}
	return nil
}

// parts are the members as this very lock uses them: a label goes to those that have none.
func (q *composite) parts(l *Lock) []*Lock {
	if l.label == "" {
		return q.members
	}
	labelled := slices.Clone(q.members)
	for i, m := range labelled {
		if m.label == "" {
			labelled[i] = m.WithLabel(l.label)
		}
	}
	return labelled
}

func (q *composite) acquire(ctx context.Context, l *Lock, waitTime, leaseTime time.Duration) (*Hold, error) {
	if q.quorum {
		return q.elect(ctx, l, waitTime, leaseTime)
	}
	return q.collect(ctx, l, waitTime, leaseTime)
}

// withOwner gives each member its part of what Hold.Owner of a composite says.
func (q *composite) withOwner(ctx context.Context, o Owner) context.Context {
	owners := strings.Split(string(o), ",")
	for i, m := range q.members {
		own := fmt.Sprintf("not %d owners: %s", len(q.members), o)
		if len(owners) == len(q.members) {
			own = owners[i]
		}
		if own == "" {
			own = "none" // a Quorum's member that had no vote to give: it has none for who joins
		}
		ctx = m.WithOwner(ctx, Owner(own))
	}
	return ctx
}

// gather asks all members at the same time. The error says that fewer answered than must be held.
func gather[T any](ctx context.Context, q *composite, l *Lock, ask func(context.Context, *Lock) (T, error)) (answers []T, failed []bool, err error) {
	if l.bad != nil {
		return nil, nil, l.bad
	}
	answers, failed = make([]T, len(q.members)), make([]bool, len(q.members))
	errs := make([]error, len(q.members))
	var wg sync.WaitGroup
	for i, m := range q.members {
		wg.Go(func() {
			ctx := ctx
			if q.quorum { // one that is dead is not worth its patience
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, m.c.opts.CallTimeout)
				defer cancel()
			}
			answers[i], errs[i] = ask(ctx, m)
			failed[i] = errs[i] != nil
		})
	}
	wg.Wait()
	answered := 0
	for _, f := range failed {
		if !f {
			answered++
		}
	}
	if answered < q.need {
		err = errors.Join(errs...)
	}
	return answers, failed, err
}

// left is how long it is until as many members are free as must be held.
func (q *composite) left(ctx context.Context, l *Lock) (time.Duration, error) {
	lefts, failed, err := gather(ctx, q, l, func(ctx context.Context, m *Lock) (time.Duration, error) { return m.RemainingLease(ctx) })
	if err != nil {
		return 0, err
	}
	for i, d := range lefts {
		if failed[i] || d == NoExpiry {
			lefts[i] = MaxDuration + 1
		}
	}
	slices.Sort(lefts)
	if d := lefts[q.need-1]; d <= MaxDuration {
		return d, nil
	}
	return NoExpiry, nil
}

// holdCount is how often the owners that ctx carries hold as many members as must be held.
func (q *composite) holdCount(ctx context.Context, l *Lock) (int, error) {
	counts, _, err := gather(ctx, q, l, func(ctx context.Context, m *Lock) (int, error) { return m.HoldCount(ctx) })
	if err != nil {
		return 0, err
	}
	slices.SortFunc(counts, func(a, b int) int { return cmp.Compare(b, a) })
	return counts[q.need-1], nil
}

func (q *composite) inspect(ctx context.Context, l *Lock) (State, error) {
	states, failed, err := gather(ctx, q, l, func(ctx context.Context, m *Lock) (State, error) { return m.Inspect(ctx) })
	s := State{Name: l.name}
	if err != nil {
		return s, err
	}
	lefts := make([]time.Duration, len(states))
	for i, m := range states {
		if lefts[i] = m.Lease; m.Lease == NoExpiry {
			lefts[i] = MaxDuration + 1
		}
		if failed[i] {
			states[i], lefts[i] = State{Name: q.members[i].name}, MaxDuration+1
		}
	}
	slices.Sort(lefts)
	if s.Lease = lefts[q.need-1]; s.Lease > MaxDuration {
		s.Lease = NoExpiry
	}
	s.Locked, s.Members = s.Lease != 0, states
	return s, nil
}

func (q *composite) forceUnlock(ctx context.Context, l *Lock) (bool, error) {
	removed, _, err := gather(ctx, q, l, func(ctx context.Context, m *Lock) (bool, error) { return m.ForceUnlock(ctx) })
	return slices.Contains(removed, true), err
}
