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
	"github.com/redlatch/redlatch/internal/script"
)

// several is a lock made of several single locks: a Multi or a Quorum. heldParts is the hold of one acquisition. Each
// member has its own owner, renewals and pending releases, and Close of its client ends it.
type several struct {
	name     string
	members  []*single // of a Multi: in the order in which all processes acquire them
	labels   []string  // by member
	needed   int       // the number of members that must be held: all, or a majority
	isQuorum bool
	queueKey string // the local queue of a Quorum: the clients and keys of its members
}

// newSeveral makes a lock of single locks. Only the labels of their terms are used.
func newSeveral(verb string, locks []*Lock, needed int) *several {
	whole := &several{needed: needed, isQuorum: verb == "quorum"}
	var names, keys []string
	for _, lock := range locks {
		member := lock.form.(*single)
		whole.members, whole.labels = append(whole.members, member), append(whole.labels, lock.terms.label)
		names, keys = append(names, member.name), append(keys, member.c.keeper.ID+" "+member.key)
	}
	whole.name = verb + "(" + strings.Join(names, ",") + ")"
	whole.queueKey = strings.Join(keys, ",")
	return whole
}

// checkMembers refuses locks that cannot be members.
func checkMembers(verb string, locks []*Lock) error {
	for i, lock := range locks {
		if lock == nil {
			return fmt.Errorf("rlock: %w: %s: lock %d is nil", errs.ErrInvalidOption, verb, i+1)
		}
		if lock.bad != nil {
			return lock.bad
		}
		if _, ok := lock.form.(*single); !ok {
			return fmt.Errorf("rlock: %w: %s: lock %d is %q, must not be made of several itself", errs.ErrInvalidOption,
				verb, i+1, lock.Name())
		}
	}
	return nil
}

func (q *several) asLock() *Lock { return &Lock{form: q, terms: terms{wait: forever}} }

// Name implements form.
func (q *several) Name() string { return q.name }

// Kind implements form.
func (q *several) Kind() string {
	if q.isQuorum {
		return "Quorum"
	}
	return "Multi"
}

// longest implements form.
func (q *several) longest(lease time.Duration) (longest time.Duration) {
	for _, member := range q.members {
		longest = max(longest, member.longest(lease))
	}
	return longest
}

// acquire implements form. A member without a label gets the label of the whole.
func (q *several) acquire(ctx context.Context, wanted terms) (*Hold, error) {
	labelled := *q
	labelled.labels = slices.Clone(q.labels)
	for i := range labelled.labels {
		labelled.labels[i] = cmp.Or(q.labels[i], wanted.label)
	}
	acquire := labelled.acquireAll
	if q.isQuorum {
		acquire = labelled.acquireMajority
	}
	parts, err := acquire(ctx, wanted)
	if err != nil {
		return nil, err
	}
	parts.began = time.Now()
	return &Hold{parts: parts}, nil
}

// acquireMember acquires the i-th member as a part of the whole, with the member's own label.
func (q *several) acquireMember(ctx context.Context, i int, wanted terms) (*Hold, error) {
	wanted.label, wanted.isPart = q.labels[i], !q.isQuorum
	return q.members[i].acquire(ctx, wanted)
}

// withOwner implements form. text is the result of Hold.Owner: each member gets its own owner.
func (q *several) withOwner(ctx context.Context, text Owner) context.Context {
	owners := strings.Split(string(text), ",")
	for i, member := range q.members {
		owner := fmt.Sprintf("not %d owners: %s", len(q.members), text)
		if len(owners) == len(q.members) {
			owner = cmp.Or(owners[i], "none") // empty: a member of a Quorum that was not held, which cannot be joined
		}
		ctx = member.withOwner(ctx, Owner(owner))
	}
	return ctx
}

// requestAll makes a request to each member at the same time. err is set if fewer members replied than must be held.
func requestAll[T any](ctx context.Context, q *several,
	request func(form, context.Context) (T, error)) (replies []T, failures []error, err error) {
	replies, failures = make([]T, len(q.members)), make([]error, len(q.members))
	var wg sync.WaitGroup
	for i, member := range q.members {
		wg.Go(func() {
			ctx := ctx
			if q.isQuorum { // a dead server delays the call by one CallTimeout, not by all retries
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, member.c.opts.CallTimeout)
				defer cancel()
			}
			replies[i], failures[i] = request(member, ctx)
		})
	}
	wg.Wait()
	replied := 0
	for _, failure := range failures {
		if failure == nil {
			replied++
		}
	}
	if replied < q.needed {
		err = errors.Join(failures...)
	}
	return replies, failures, err
}

// isLocked implements form. The lock is held if fewer members are free than must be held.
func (q *several) isLocked(ctx context.Context) (bool, error) {
	held, failures, err := requestAll(ctx, q, form.isLocked)
	free := 0
	for i := range held {
		if failures[i] == nil && !held[i] {
			free++
		}
	}
	return err == nil && free < q.needed, err
}

// Inspect implements form. The lease of the whole ends when enough members are free for another owner.
func (q *several) Inspect(ctx context.Context) (State, error) {
	states, failures, err := requestAll(ctx, q, form.Inspect)
	if err != nil {
		return State{Name: q.name}, err
	}
	var leases []time.Duration
	for i, member := range q.members {
		if failures[i] != nil {
			states[i] = State{Name: member.name}
		} else if states[i].Lease != noEnd {
			leases = append(leases, states[i].Lease)
		}
	}
	slices.Sort(leases)
	left := noEnd
	if len(leases) >= q.needed {
		left = leases[q.needed-1]
	}
	return State{Name: q.name, Locked: left != 0, Lease: left, Members: states}, nil
}

// forceUnlock implements form.
func (q *several) forceUnlock(ctx context.Context) (bool, error) {
	removed, _, err := requestAll(ctx, q, form.forceUnlock)
	return slices.Contains(removed, true), err
}

// failure returns the error of the whole, from the members' errors. A Quorum is lost only if too many members are lost,
// so the error of one lost member is not ErrLost for the whole.
func (q *several) failure(failures []error) error {
	if !q.isQuorum {
		return errors.Join(failures...)
	}
	lost, outcomeUnknown := 0, false
	for _, err := range failures {
		if errors.Is(err, errs.ErrLost) {
			lost++
		}
		outcomeUnknown = outcomeUnknown || errors.Is(err, errs.ErrUnknownOutcome)
	}
	if lost > len(q.members)-q.needed {
		return fmt.Errorf("rlock: %q: %w", q.name, errs.ErrLost)
	}
	for i, err := range failures {
		switch {
		case errors.Is(err, errs.ErrLost): // one member is lost, and the whole is not
			failures[i] = errors.New(err.Error())
		case outcomeUnknown:
			failures[i] = script.Unsure(err)
		}
	}
	return fmt.Errorf("rlock: %q: fewer than %d of %d members: %w", q.name, q.needed, len(q.members),
		errors.Join(failures...))
}
