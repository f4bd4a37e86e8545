//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// claim is what a command runs under: the hold of a lock, a permit, or a leadership.
type claim interface {
	Done() <-chan struct{}
	Err() error
	Until() time.Time
	release(ctx context.Context) error
	owner() rlock.Owner
	token() int64
}

type lockClaim struct {
	*rlock.Hold
	atLeast time.Duration
	of      int64 // the token of the hold that was joined
}

func (c lockClaim) release(ctx context.Context) error {
	if c.atLeast > 0 {
		return c.UnlockAfter(ctx, c.atLeast)
	}
	return c.Unlock(ctx)
}

func (c lockClaim) owner() rlock.Owner { return c.Owner() }

func (c lockClaim) token() int64 {
	if t, ok := c.Token(); ok {
		return t
	}
	return c.of
}

type permitClaim struct{ *rsemaphore.Permit }

func (c permitClaim) release(ctx context.Context) error { return c.Release(ctx) }
func (c permitClaim) owner() rlock.Owner                { return "" }
func (c permitClaim) token() int64                      { return 0 }

type leaderClaim struct{ *election.Leadership }

func (c leaderClaim) release(ctx context.Context) error { return c.Resign(ctx) }
func (c leaderClaim) owner() rlock.Owner                { return "" }
func (c leaderClaim) token() int64                      { return c.Token() }

// forever is longer than anybody waits.
const forever = 100 * 365 * 24 * time.Hour

// acquire waits for as long as the flags say, or until ctx ends.
func (j *job) acquire(ctx context.Context, red *redlatch.Client) (claim, error) {
	if j.semaphore != "" {
		wait := j.wait
		if !j.bounded {
			wait = forever
		}
		p, err := red.Semaphores().Semaphore(j.semaphore, j.capacity).WithLabel(j.label).TryAcquire(ctx, j.permits, wait,
			j.lease)
		if err != nil {
			return nil, err
		}
		return permitClaim{p}, nil
	}
	if j.election {
		l, err := red.Elections().Election(j.lock).WithPriority(j.priority).Campaign(ctx, j.label)
		if err != nil {
			return nil, err
		}
		return leaderClaim{l}, nil
	}
	lock := red.Locks().Reentrant(j.lock)
	ancestor, join := j.joined()
	switch {
	case join:
		// Joining is for Reentrant locks; to all others a Fenced lock is one.
		if j.fenced && ancestor.Token == 0 {
			return nil, usage("--fenced: the hold of lock %q that this joins was acquired without it, and has no token", j.lock)
		}
		ctx = lock.WithOwner(ctx, ancestor.Owner)
	case j.fenced:
		lock = red.Locks().Fenced(j.lock)
	}
	lock = lock.WithLabel(j.label).WithLease(j.lease)
	if j.bounded {
		lock = lock.WithWait(j.wait)
	}
	h, err := lock.Lock(ctx)
	if join && errors.Is(err, redlatch.ErrLost) {
		return nil, fmt.Errorf("%w: the hold that %s names, which this would join, is over; --no-join acquires the lock "+
			"instead", err, heldEnv)
	}
	if err != nil {
		return nil, err
	}
	return lockClaim{h, j.atLeast, ancestor.Token}, nil
}

// await acquires, and gives up at a signal that ends processes.
func (j *job) await(ctx context.Context, red *redlatch.Client, signals <-chan os.Signal) (claim, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		claim claim
		err   error
	}
	done := make(chan result, 1)
	go func() {
		c, err := j.acquire(ctx, red)
		done <- result{c, err}
	}()
	var by os.Signal
	began, notice := time.Now(), time.After(time.Second)
	for {
		select {
		case r := <-done:
			if by != nil {
				if r.err == nil {
					_ = j.release(r.claim)
				}
				return nil, signalled(by)
			}
			if r.err != nil {
				return nil, j.refused(ctx, red, r.err, time.Since(began))
			}
			return r.claim, nil
		case s := <-signals:
			if ends(s) && by == nil {
				by = s
				cancel()
			}
		case <-notice:
			if j.server.verbose {
				j.say("waiting for %s, held%s", j.what(), j.holders(ctx, red))
			}
		}
	}
}

func (j *job) what() string {
	if j.semaphore != "" {
		return fmt.Sprintf("semaphore %q", j.semaphore)
	}
	if j.election {
		return fmt.Sprintf("election %q", j.lock)
	}
	return fmt.Sprintf("lock %q", j.lock)
}

// refused is the error of an acquisition, with its exit code.
func (j *job) refused(ctx context.Context, red *redlatch.Client, err error, waited time.Duration) error {
	switch {
	case errors.Is(err, redlatch.ErrNotAcquired):
		return coded{j.conflict,
			fmt.Errorf("%s is held%s; waited %v", j.what(), j.holders(ctx, red), waited.Round(time.Millisecond))}
	case errors.Is(err, rsemaphore.ErrCapacityMismatch):
		return fmt.Errorf("-c %d: %w", j.capacity, err)
	}
	return err
}

// holders says who has it, as far as the server tells at once.
func (j *job) holders(ctx context.Context, red *redlatch.Client) string {
	ctx, cancel := context.WithTimeout(ctx, 2*j.server.timeout)
	defer cancel()
	var text string
	if j.semaphore != "" {
		s, err := red.Semaphores().Semaphore(j.semaphore, j.capacity).Inspect(ctx)
		for i, h := range s.Permits {
			if err == nil && i < 3 {
				text += " by " + nameOf(h.Label, h.Process, h.Client) + ","
			}
		}
		return strings.TrimSuffix(text, ",")
	}
	s, err := red.Locks().Reentrant(j.lock).Inspect(ctx)
	for i, h := range s.Holders {
		if err == nil && i < 3 {
			text += fmt.Sprintf(" by %s (lease %s),", nameOf(h.Owner.Label(), h.Process, string(h.Owner)), brief(h.Lease))
		}
	}
	return strings.TrimSuffix(text, ",")
}
