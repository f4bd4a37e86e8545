package stock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// verdict is what a sweep found for every home: an outcome, or 0: ask it again.
type verdict struct {
	epoch    int64
	outcomes []Outcome
}

// sweep looks at all shards, and sees to it that the homes wanted have units, if any are left.
func (s *Sharded) sweep(ctx context.Context, wanted []int) (verdict, error) {
	t, err := s.look(ctx)
	if err == nil {
		err = s.sound(t)
	}
	if err != nil {
		return verdict{}, err
	}
	v := verdict{epoch: t.plan.epoch, outcomes: make([]Outcome, len(s.shards))}
	empty := make([]bool, len(s.shards))
	donors := false
	for i := range t.shards {
		sh := &t.shards[i]
		switch {
		case t.plan.phase < phaseReady || sh.epoch != t.plan.epoch:
			v.outcomes[i] = NotOpen
		case sh.state == shardClosed || sh.state == shardShut || sh.end <= 0:
			v.outcomes[i] = Ended
		case sh.state == shardSuspended:
			v.outcomes[i] = Suspended
		case sh.start > 0:
			v.outcomes[i] = NotStarted
		default:
			empty[i] = sh.left() <= 0
		}
		donors = donors || sh.state == shardOpen && sh.epoch == t.plan.epoch && sh.left() > 0
	}
	if t.plan.phase < phaseReady {
		v.epoch = 0
		return v, nil
	}
	if !slices.ContainsFunc(wanted, func(i int) bool { return v.outcomes[i] == 0 }) {
		return v, nil
	}
	if t.plan.phase == phaseReady { // an opening that was broken off, or is not through: let all shards sell
		return v, s.complete(ctx, t.plan)
	}

	moved, err := s.arrive(ctx, t)
	if err != nil || moved {
		return v, err
	}
	if donors {
		return v, s.supply(ctx, t, wanted, empty)
	}
	again, err := s.look(ctx)
	if err != nil || !again.same(t) {
		return v, err
	}
	if t.units() != t.plan.total {
		return verdict{}, s.wrongSum(t)
	}
	for i := range empty {
		if empty[i] {
			v.outcomes[i] = SoldOut
		}
	}
	return v, nil
}

// arrive sees to it that whatever is on its way arrives, and reports whether anything was.
func (s *Sharded) arrive(ctx context.Context, t *shot) (moved bool, err error) {
	for i := range t.shards {
		for j, tr := range t.shards[i].out {
			if tr.n > 0 {
				moved = true
				if _, err := s.move(ctx, t.plan, i, j, false); err != nil {
					return moved, err
				}
			}
		}
	}
	return moved, nil
}

// supply moves units to every home that is wanted and empty, each from the shard that has most.
func (s *Sharded) supply(ctx context.Context, t *shot, wanted []int, empty []bool) error {
	for _, home := range wanted {
		if !empty[home] {
			continue
		}
		donor := -1
		for i := range t.shards {
			if t.shards[i].state == shardOpen && t.shards[i].left() > 0 && (donor < 0 || t.shards[i].left() > t.shards[donor].left()) {
				donor = i
			}
		}
		if donor < 0 {
			return nil // the next sweep sees
		}
		n, err := s.move(ctx, t.plan, donor, home, true)
		if err != nil {
			return err
		}
		t.shards[donor].limit -= max(1, n) // what is known of it, so that the next home asks another
	}
	return nil
}

// move brings what is on its way from one shard to another to its end; with fresh it sets units on their way first,
// if none are. Every step may be repeated, by whoever finds it undone.
//
// The first step is taken also for what is known to be on its way: with Options.MinReplicas it is confirmed by that,
// and units that a failover puts back at the giver are not added to the receiver as well.
func (s *Sharded) move(ctx context.Context, p plan, from, to int, fresh bool) (n int64, err error) {
	tr, err := s.debit(ctx, p, from, to, fresh)
	if err != nil || tr.n == 0 {
		return 0, err
	}
	if err := s.credit(ctx, p, from, to, tr); err != nil {
		return 0, err
	}
	return tr.n, s.acknowledge(ctx, p, from, to, tr.number)
}

// sweeps lets all who need a sweep at the same time have the same one.
type sweeps struct {
	sweep func(ctx context.Context, wanted []int) (verdict, error)
	spawn func(func())

	mu      sync.Mutex
	running bool
	next    *round
}

// round is one sweep.
type round struct {
	ctx     context.Context // with the values of the first of those who wait for it
	wanted  map[int]bool
	until   time.Time     // when the last of those who wait for it ends waiting
	done    chan struct{} // closed when verdict and err are there
	verdict verdict
	err     error
}

// join returns the verdict of a sweep that begins after the call. One that is under way is no good: it may have seen
// nothing left before a unit was returned that the caller's home did not get.
func (s *sweeps) join(ctx context.Context, home int) (verdict, error) {
	s.mu.Lock()
	if s.next == nil {
		s.next = &round{ctx: context.WithoutCancel(ctx), wanted: map[int]bool{}, done: make(chan struct{})}
	}
	r := s.next
	r.wanted[home] = true
	if d, ok := ctx.Deadline(); ok && d.After(r.until) {
		r.until = d
	}
	if !s.running {
		s.running = true
		s.spawn(s.run)
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.verdict, r.err
	case <-ctx.Done():
		return verdict{}, fmt.Errorf("%w: %w", ErrUnavailable, errs.Ended(ctx))
	}
}

// run sweeps while anybody waits.
func (s *sweeps) run() {
	for {
		s.mu.Lock()
		r := s.next
		s.next = nil
		if r == nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		var wanted []int
		for i := range r.wanted {
			wanted = append(wanted, i)
		}
		slices.Sort(wanted)
		ctx, cancel := context.WithDeadline(r.ctx, r.until)
		r.verdict, r.err = s.sweep(ctx, wanted)
		cancel()
		close(r.done)
	}
}
