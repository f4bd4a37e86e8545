package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Extend asks at once for a lease of at least d, until it is answered or ctx or l ends. errs.ErrLost or
// errs.ErrOverwritten: the server says that l is not held, which ends it. Neither confirmed nor an error: l was over
// before the answer could be noted; Ended has been or is being called.
func (e *Engine) Extend(ctx context.Context, l *Lease, d time.Duration) (confirmed bool, err error) {
	ctx, cancel := context.WithDeadline(ctx, e.Until(l)) // no answer is worth waiting for once it is over
	defer cancel()
	e.Longest(l, d)
	sent := time.Now()
	m, err := e.runner.Do(ctx, script.Call{
		Script: l.Renew, Keys: l.keys(), Args: []string{l.Owner, script.Millis(d)},
		Replicas: e.replicas, ReplicasWait: e.replicasWait,
	})
	if err != nil {
		return false, err
	}
	v, err := m.AsIntSlice()
	switch {
	case err != nil || len(v) != 1:
		return false, script.Unexpected(fmt.Sprintf("renew on %q", l.Key), v, err)
	case v[0] == notKnown:
		return false, fmt.Errorf("%w: renew on %q: the server could not (memory is full)", errs.ErrUnavailable, l.Key)
	case v[0] == denied:
		return false, fmt.Errorf("%w: renew on %q: the user may not read it", errs.ErrDenied, l.Key)
	case v[0] < 1:
		why := lossOf(v[0])
		e.Lost(l, why)
		return false, why
	}
	return e.Confirmed(l, sent, d), nil
}
