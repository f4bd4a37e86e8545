package redlatchgocron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/rlock"
)

// Locker is a gocron.Locker whose locks last for a period from the start of the job. It is safe for concurrent use.
type Locker struct {
	locks  *rlock.Client
	period time.Duration
}

// NewLocker makes a Locker of jobs that have the same period: how long after a run has begun, on whatever machine, no
// other may begin. Choose less than the time from tick to tick, by more than the machines' clocks and the delays of
// their starts differ: 50 minutes for an hourly job. At least 1 ms, at most a hundred years; otherwise the error is
// ErrInvalidOption, and it is if locks is nil. Nothing is sent.
//
// For a scheduler whose jobs have different intervals make one of each, and pass it to a job by
// gocron.WithDistributedJobLocker.
func NewLocker(locks *rlock.Client, period time.Duration) (*Locker, error) {
	if locks == nil {
		return nil, errs.Edge("redlatchgocron", errs.InvalidOption("locks", "nil", "a client"))
	}
	if err := session.CheckRange("period", period, time.Millisecond); err != nil {
		return nil, errs.Edge("redlatchgocron", err)
	}
	return &Locker{locks, period}, nil
}

// Lock has this process run the job, unless another runs it, or has begun it less than a period ago: rlock's
// Lock.DoOnce, on the Reentrant lock "gocron:" + job. gocron calls it, with the job's name; give jobs names by
// gocron.WithName, since jobs of one name exclude each other, and the default is that of the Go function. It does not
// wait for another process.
//
// On success the server has confirmed that the lock stays taken for the period, even if this process dies. On failure
// the job does not run now. gocron passes the error to gocron.AfterLockError:
//
//   - redlatch.ErrNotAcquired: another process runs the job, or did. Nothing is to be done.
//   - redlatch.ErrUnavailable, ErrUnknownOutcome: the server did not confirm it. No process runs the job while the
//     server is down, and the tick is lost.
//   - any other of rlock's Lock.TryLock, such as ErrInvalidName.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	r := &run{began: make(chan struct{}), end: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		_, r.err = l.locks.Reentrant("gocron:"+job).DoOnce(ctx, l.period, func(context.Context) error {
			close(r.began)
			<-r.end // gocron unlocks when the job has returned, whether or not ctx has ended
			return nil
		})
	}()
	select {
	case <-r.began:
		return r, nil
	case <-r.ended:
	}
	if r.err == nil { // it was not run
		r.err = fmt.Errorf("job %q runs, or has begun less than %v ago: %w", job, l.period, redlatch.ErrNotAcquired)
	}
	return nil, errs.Edge("redlatchgocron", r.err)
}

// run is a job that runs under its lock.
type run struct {
	began, end, ended chan struct{}
	err               error
}

// Unlock ends the hold. The lock stays taken until the period is over. gocron calls it once, when the job has returned,
// and ignores its error, which is that of rlock's Hold.UnlockAfter; a lost hold is logged by the client.
func (r *run) Unlock(context.Context) error {
	select {
	case <-r.end:
		return errors.New("redlatchgocron: Unlock was called before")
	default:
	}
	close(r.end)
	<-r.ended
	return r.err
}
