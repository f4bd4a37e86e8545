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

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// composite is a lock made of several: a Multi, or a Quorum. Its Hold has the members' Holds (parts). The handle of
// each refers to one bundle, which knows how many must last, and ends the composite's life when fewer do. Everything
// else is the members' own: owners, watchdog, contexts, pending releases, Close. The composite's contexts carry the
// members' owners.
type composite struct {
	name     string
	members  []member // of a Multi: in the order in which all processes acquire them
	need     int      // how many must be held: all, or a majority
	quorum   bool
	queueKey string // of those that wait for a Quorum: its members, whatever their names
}

// member is one of a composite's locks. Its own wait and lease are not used.
type member struct {
	*single
	label string
}

// newComposite describes a lock made of members.
func newComposite(verb string, members []member, need int) *Lock {
	names, queueKey := make([]string, len(members)), make([]string, len(members))
	for i, m := range members {
		names[i], queueKey[i] = m.name, m.c.session.ID+" "+m.key
	}
	name := verb + "(" + strings.Join(names, ",") + ")"
	return &Lock{form: &composite{name, members, need, verb == "quorum", strings.Join(queueKey, ",")},
		terms: terms{wait: forever}}
}

// longest implements form.
func (q *composite) longest(lease time.Duration) (longest time.Duration) {
	for _, l := range q.members {
		longest = max(longest, l.longest(lease))
	}
	return longest
}

// membersOf returns the members of a composite, or refuses what none can be made of.
func membersOf(verb string, locks []*Lock) ([]member, error) {
	members := make([]member, len(locks))
	for i, l := range locks {
		if l == nil {
			return nil, fmt.Errorf("rlock: %w: %s: lock %d is nil", errs.ErrInvalidOption, verb, i+1)
		}
		if l.bad != nil {
			return nil, l.bad
		}
		s, ok := l.form.(*single)
		if !ok {
			return nil, fmt.Errorf("rlock: %w: %s: lock %d is %q, must not be made of several itself", errs.ErrInvalidOption,
				verb,
				i+1, l.Name())
		}
		members[i] = member{s, l.terms.label}
	}
	return members, nil
}

// Name implements form.
func (q *composite) Name() string { return q.name }

// labelled are the members for one acquisition: a label of the whole goes to those that have none.
func (q *composite) labelled(label string) []member {
	if label == "" {
		return q.members
	}
	labelled := slices.Clone(q.members)
	for i := range labelled {
		labelled[i].label = cmp.Or(labelled[i].label, label)
	}
	return labelled
}

// acquire implements form.
func (q *composite) acquire(ctx context.Context, t terms) (*Hold, error) {
	if q.quorum {
		return q.elect(ctx, t)
	}
	return q.collect(ctx, t)
}

// withOwner implements form: it gives each member its part of what Hold.Owner of a composite says.
func (q *composite) withOwner(ctx context.Context, o Owner) context.Context {
	owners := strings.Split(string(o), ",")
	for i, m := range q.members {
		own := fmt.Sprintf("not %d owners: %s", len(q.members), o)
		if len(owners) == len(q.members) {
			own = owners[i]
		}
		if own == "" {
			own = "none" // the member of a Quorum gave no vote: it has none for a joiner, either
		}
		ctx = m.withOwner(ctx, Owner(own))
	}
	return ctx
}

// gather asks all members at the same time. The error says that fewer answered than must be held.
func gather[T any](ctx context.Context, q *composite,
	ask func(form, context.Context) (T, error)) (answers []T, failed []error, err error) {
	answers, failed = make([]T, len(q.members)), make([]error, len(q.members))
	var wg sync.WaitGroup
	for i, m := range q.members {
		wg.Go(func() {
			ctx := ctx
			if q.quorum { // a dead server gets the time of one call, not of five
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, m.c.opts.CallTimeout)
				defer cancel()
			}
			answers[i], failed[i] = ask(m.single, ctx)
		})
	}
	wg.Wait()
	answered := 0
	for _, err := range failed {
		if err == nil {
			answered++
		}
	}
	if answered < q.need {
		err = errors.Join(failed...)
	}
	return answers, failed, err
}

// free is how long it is until as many members are free as must be held. lefts are the members' leases.
func (q *composite) free(lefts []time.Duration, failed []error) time.Duration {
	for i, d := range lefts {
		if failed[i] != nil || d == noEnd {
			lefts[i] = session.MaxDuration + 1
		}
	}
	slices.Sort(lefts)
	if d := lefts[q.need-1]; d <= session.MaxDuration {
		return d
	}
	return noEnd
}

// isLocked implements form: fewer members are free than must be held.
func (q *composite) isLocked(ctx context.Context) (bool, error) {
	held, failed, err := gather(ctx, q, form.isLocked)
	free := 0
	for i := range held {
		if failed[i] == nil && !held[i] {
			free++
		}
	}
	return err == nil && free < q.need, err
}

// Kind implements form.
func (q *composite) Kind() string {
	if q.quorum {
		return "Quorum"
	}
	return "Multi"
}

// Inspect implements form.
func (q *composite) Inspect(ctx context.Context) (State, error) {
	states, failed, err := gather(ctx, q, form.Inspect)
	if err != nil {
		return State{Name: q.name}, err
	}
	lefts := make([]time.Duration, len(states))
	for i, m := range states {
		lefts[i] = m.Lease
		if failed[i] != nil {
			states[i] = State{Name: q.members[i].name}
		}
	}
	left := q.free(lefts, failed)
	return State{Name: q.name, Locked: left != 0, Lease: left, Members: states}, nil
}

// forceUnlock implements form.
func (q *composite) forceUnlock(ctx context.Context) (bool, error) {
	removed, _, err := gather(ctx, q, form.forceUnlock)
	return slices.Contains(removed, true), err
}
