package stock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// openness orders the states of shards: the stock has the state of the most open shard.
var openness = map[State]int{StateClosed: 1, StateEnded: 2, StatePending: 3, StateOpen: 4}

// The states of a shard, as its scripts have them, beyond those of a stock.
const (
	shardOpen      = 1
	shardClosed    = 2
	shardSuspended = 3
	shardPrepared  = 4
	shardShut      = 5 // closed and suspended
)

// The phases of an opening.
const (
	phaseMaking = 1 // the shards are being made
	phaseReady  = 2 // all are there, and may sell
	phaseLive   = 3 // all sell
)

// plan is what sharded_open.lua keeps; the zero plan is none.
type plan struct {
	epoch            int64
	phase, shards    int
	total            int64
	per, ledger      int64
	start, end, gone int64    // ms from when the server answered
	incs             []string // from phaseReady on, the incarnation of each shard: see sharded_prepare.lua
	mine             bool
	now              int64 // the server's ms, if there is no plan and none was begun
}

// inc is the incarnation of shard i, "" if the plan has none yet.
func (p *plan) inc(i int) string {
	if i >= len(p.incs) {
		return ""
	}
	return p.incs[i]
}

// shard is one shard as it was when its server answered; the zero shard is none.
type shard struct {
	epoch            int64
	state            int64
	limit            int64
	sold, held, seq  int64
	start, end, gone int64 // ms from when the server answered
	anew             bool  // another incarnation than the plan's
	out              []transfer
	in               []int64
}

// transfer is the last one from a shard to another.
type transfer struct{ number, n int64 }

func (s *shard) left() int64 { return s.limit - s.sold - s.held }

// shot is the plan and all shards, each as it was at some moment between the beginning and the end of a look.
type shot struct {
	plan   plan
	shards []shard
}

// units is how many units there are, with those on their way.
func (s *shot) units() (n int64) {
	for i := range s.shards {
		n += s.shards[i].limit
		for j, t := range s.shards[i].out {
			if t.number > s.shards[j].in[i] {
				n += t.n
			}
		}
	}
	return n
}

// same reports whether nothing has moved between two shots. One shot does not do: shard 0 is seen empty, the last unit moves
// there from shard 2, and shard 2 is seen empty (TestAUnitThatMovesFromShardToShardBehindTheLooksIsFound). A unit that comes to
// a shard and leaves it between two looks leaves a trace: a grant raises seq, and a transfer has a number
// (TestAUnitThatIsAlwaysLeftSomewhereElseIsFound).
func (s *shot) same(t *shot) bool {
	if s.plan.epoch != t.plan.epoch || s.plan.phase != t.plan.phase {
		return false
	}
	for i := range s.shards {
		a, b := &s.shards[i], &t.shards[i]
		if a.epoch != b.epoch || a.state != b.state || a.limit != b.limit || a.sold != b.sold || a.held != b.held || a.seq != b.seq ||
			!slices.Equal(a.out, b.out) || !slices.Equal(a.in, b.in) {
			return false
		}
	}
	return true
}

// look takes a shot. It reads everything between its call and its return, and the plan before the shards. So a shard has come
// at least as far as the plan says.
func (s *Sharded) look(ctx context.Context) (*shot, error) {
	for {
		p, err := s.read(ctx)
		if err != nil {
			return nil, err
		}
		if p.epoch != 0 && p.shards != len(s.shards) { // first: all else is a consequence
			return nil, errs.InvalidOption("shards", len(s.shards), fmt.Sprintf("%d, as %q was opened", p.shards, s.name))
		}
		t := &shot{plan: p, shards: make([]shard, len(s.shards))}
		err = s.each(func(i int) (err error) {
			t.shards[i], err = s.lookAt(ctx, i, p)
			return err
		})
		if err != nil {
			return nil, err
		}
		if p.epoch == 0 && slices.ContainsFunc(t.shards, func(sh shard) bool { return sh.epoch != 0 }) {
			// shards without a plan: is it lost, or was it not there yet?
			if p, err = s.read(ctx); err != nil {
				return nil, err
			}
			if p.epoch != 0 {
				continue
			}
		}
		return t, nil
	}
}

// goneSkew is how far apart the ends of the keys of one opening may be, since each server counts on its own clock.
const goneSkew = int64(time.Minute / time.Millisecond)

// sound returns ErrCorrupt for a shot that cannot be: a plan without its shards, or shards without their plan.
func (s *Sharded) sound(t *shot) error {
	p := t.plan
	for i := range t.shards {
		sh := &t.shards[i]
		switch {
		case p.epoch == 0 && sh.epoch != 0 && sh.gone > goneSkew && sh.state != shardPrepared:
			return fmt.Errorf("%w: %q is gone, and its shard %q is there", ErrCorrupt, s.plan, s.shards[i].keys[0])
		case p.phase < phaseReady: // none, or none yet
		case sh.epoch != p.epoch && p.gone > goneSkew:
			return fmt.Errorf("%w: shard %q is gone", ErrCorrupt, s.shards[i].keys[0])
		case sh.epoch == p.epoch && (sh.anew || sh.state == shardPrepared && p.phase == phaseLive):
			return s.anew(i)
		}
	}
	return nil
}

func (s *Sharded) anew(i int) error {
	return fmt.Errorf("%w: shard %q was lost and made anew", ErrCorrupt, s.shards[i].keys[0])
}

func (s *Sharded) wrongSum(t *shot) error {
	return fmt.Errorf("%w: the shards of %q have %d units, and there must be %d", ErrCorrupt, s.name, t.units(), t.plan.total)
}
