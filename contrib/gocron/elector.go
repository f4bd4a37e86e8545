package redlatchgocron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rlock/election"
)

// Elector is a gocron.Elector: the process that leads an election runs the jobs. It is safe for concurrent use.
type Elector struct {
	cancel   context.CancelFunc
	ended    chan struct{}
	resigned error // set before ended is closed

	mu         sync.Mutex
	leadership *election.Leadership // nil: another leads, or none
	err        error                // of the last campaign that failed
}

// NewElector campaigns in e until Close, under value, which others see as the leader's: at most 256 bytes of UTF-8.
// After a leadership is lost it campaigns again, and after an error, such as redlatch.ErrDenied, a second or two later;
// that error is logged, at logger or, if that is nil, at slog.Default(), and IsLeader returns it.
func NewElector(e *election.Election, value string, logger *slog.Logger) *Elector {
	logger = cmp.Or(logger, slog.Default())
	ctx, cancel := context.WithCancel(context.Background())
	x := &Elector{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(x.ended)
		for {
			err := e.Run(ctx, value, func(ctx context.Context, l *election.Leadership) error {
				x.set(l, nil)
				<-ctx.Done()
				x.set(nil, nil)
				return nil
			})
			if ctx.Err() != nil {
				if !errors.Is(err, redlatch.ErrNotAcquired) { // it led
					x.resigned = err
				}
				return
			}
			x.set(nil, err)
			logger.Warn("redlatchgocron: cannot campaign", "election", e.Name(), "error", err)
			if errors.Is(err, redlatch.ErrClosed) || !script.Pause(ctx, time.Second+rand.N(time.Second)) {
				return
			}
		}
	}()
	return x
}

func (x *Elector) set(l *election.Leadership, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.leadership, x.err = l, err
}

// IsLeader returns nil if this process leads, by its own clock: it sends nothing. Otherwise the error is
// redlatch.ErrNotAcquired, joined with that of the last campaign if that failed, and gocron skips the job.
func (x *Elector) IsLeader(context.Context) error {
	_, err := x.Leadership()
	return err
}

// Leadership returns the leadership under which this process runs jobs, or IsLeader's error. A job that works under
// its Context stops when the leadership ends; one that writes passes its Token on.
func (x *Elector) Leadership() (*election.Leadership, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch l := x.leadership; {
	case l != nil && l.Err() == nil && time.Now().Before(l.Until()):
		return l, nil
	case x.err != nil:
		return nil, fmt.Errorf("redlatchgocron: %w: %w", redlatch.ErrNotAcquired, x.err)
	}
	return nil, fmt.Errorf("redlatchgocron: this process does not lead: %w", redlatch.ErrNotAcquired)
}

// Close ends the campaign, resigns and returns the error of that, or ctx's if that ends first: resigning goes on. Stop
// the scheduler before, and close the client of the elections after.
func (x *Elector) Close(ctx context.Context) error {
	x.cancel()
	select {
	case <-x.ended:
		return x.resigned
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
