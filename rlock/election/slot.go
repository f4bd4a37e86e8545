package election

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rlock"
)

// takeSlot tries one slot after the other, and again while ctx lasts. A candidate does not queue, because it would
// queue for one slot while another becomes free.
func (s *Shards) takeSlot(ctx context.Context, value string) (*Shard, error) {
	for {
		first := rand.IntN(s.count)
		var err error
		for i := range s.count {
			index := (first + i) % s.count
			var hold *rlock.Hold
			hold, err = s.lock(index).WithLabel(value).TryLock(rlock.Detach(ctx), 0, 0)
			if err == nil {
				return &Shard{index, hold}, nil
			}
			if !errors.Is(err, errs.ErrNotAcquired) || ctx.Err() != nil {
				return nil, withPackage(err)
			}
		}
		pause(ctx, s.client.session, s.client.session.PollCap)
	}
}
