package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Extend requests a lease of at least extension at once, until it is answered or ctx or the lease ends. errs.ErrLost or
// errs.ErrOverwritten: the server says that the lease is not held, which ends it. Neither confirmed nor an error: the
// lease was over before the reply could be recorded; Ended has been or is being called.
func (e *Engine) Extend(ctx context.Context, lease *Lease, extension time.Duration) (confirmed bool, err error) {
	ctx, cancel := context.WithDeadline(ctx, e.Until(lease)) // a later reply has no use
	defer cancel()
	e.Longest(lease, extension)
	sent := time.Now()
	message, err := e.runner.Do(ctx, script.Call{
		Script: lease.Renew, Keys: lease.keys(), Args: []string{lease.Owner, script.Millis(extension)},
		Replicas: e.replicas, ReplicasWait: e.replicasWait,
	})
	if err != nil {
		return false, err
	}
	verdicts, err := message.AsIntSlice()
	switch {
	case err != nil || len(verdicts) != 1:
		return false, script.Unexpected(fmt.Sprintf("renew on %q", lease.Key), verdicts, err)
	case verdicts[0] == notKnown:
		return false, fmt.Errorf("%w: renew on %q: the server could not (memory is full)", errs.ErrUnavailable, lease.Key)
	case verdicts[0] == denied:
		return false, fmt.Errorf("%w: renew on %q: the user may not read it", errs.ErrDenied, lease.Key)
	case verdicts[0] < 1:
		loss := lossOf(verdicts[0])
		e.Lost(lease, loss)
		return false, loss
	}
	return e.Confirmed(lease, sent, extension), nil
}
