package stock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// verdict is what a sweep found for every home: an outcome, or 0 if the home is to be asked again.
type verdict struct {
	epoch    int64
	outcomes []Outcome
}

// sweep looks at all shards and moves units to the homes in wanted, if any units are left.
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
	if t.plan.phase == phaseReady { // an opening was broken off or still runs: let all shards sell (TestAnOpeningThatWasBrokenOffIsBroughtToItsEnd)
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

// arrive completes every transfer, and reports whether there was one. The process that began a transfer may have died; its
// units are not sold out (TestUnitsOnTheirWayAreNotSoldOut).
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

// supply moves units to every home that is wanted and empty, each time from the shard that has most.
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
		t.shards[donor].limit -= max(1, n) // in this shot only, so that the next home asks another donor
	}
	return nil
}

// move completes the transfer from one shard to another. With fresh it begins one first, if there is none. Any process may
// repeat any step.
//
// It takes the first step also for a transfer that it has seen. With Options.MinReplicas that step confirms the debit.
// Otherwise: the debit is on the primary only, the units are added to the receiver, and a failover puts them back at the giver
// as well.
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

// sweeps lets all claims that need a sweep at the same time share one.
type sweeps struct {
	sweep func(ctx context.Context, wanted []int) (verdict, error)
	spawn func(func())

	mu      sync.Mutex
	running bool
	next    *round
}

// round is one sweep.
type round struct {
	ctx     context.Context // with the values of the first claim that waits for it
	wanted  map[int]bool
	until   time.Time     // when the last of the claims that wait for it gives up
	done    chan struct{} // closed when verdict and err are there
	verdict verdict
	err     error
}

// join returns the verdict of a sweep that begins after the call. A sweep that is under way will not do: it sees nothing left,
// then a unit is returned, then this call asks its home, which has nothing. That sweep would say SoldOut, of a moment before
// the call (TestShardsSellExactlyTheLimitAndNeverSaySoldOutTooEarly).
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

// run sweeps while claims wait.
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
