package election

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rlock"
)

// takeSlot tries one slot after the other, and again while ctx lasts. A candidate does not queue: it would be for one
// slot while another becomes free.
func (s *Shards) takeSlot(ctx context.Context, value string) (*Shard, error) {
	for {
		first := rand.IntN(s.n)
		var err error
		for i := range s.n {
			index := (first + i) % s.n
			var hold *rlock.Hold
			hold, err = s.lock(index).WithLabel(value).TryLock(rlock.Detach(ctx), 0, 0)
			if err == nil {
				return &Shard{index, hold}, nil
			}
			if !errors.Is(err, errs.ErrNotAcquired) || ctx.Err() != nil {
				return nil, edge(err)
			}
		}
		pause(ctx, s.c.session, s.c.session.PollCap)
	}
}
