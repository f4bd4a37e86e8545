package rlock

import (
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Spin describes a lock whose waiters poll, and neither publish nor subscribe. It is for servers that forbid channels,
// and for locks that are held for a moment only. To all other callers it is the Reentrant lock of that name (Redisson's
// RSpinLock): its release wakes their waiters if its user may publish. These waiters come first: a Spin waiter acquires
// only when the queue is empty.
//
// A waiter sleeps between its attempts: shortest at first, then twice as long after every attempt, up to longest. Each
// sleep is shortened by a random part of up to a half, so that waiters that began together do not stay together.
// shortest and longest are at least 100 µs; 0 stands for 1 ms and 128 ms. An earlier end of the holder's lease does not
// wake a waiter; Options.PollCap bounds every sleep.
//
// Waiters of one process spin one after the other, not all at once. A TryLock with a waitTime of 0 may overtake them,
// but not the waiters of the other kinds that queue.
func (c *Client) Spin(name string, shortest, longest time.Duration) *Lock {
	lock, argErr := c.single(name, kindSpin)
	sleeps := backoff{shortest, longest}
	if err := sleeps.setDefaults(); err != nil && argErr == nil {
		argErr = errs.Edge("rlock", err)
	}
	lock.backoff = &sleeps
	return lock.asLock(argErr)
}

// backoff has the sleeps of a Spin lock's waiter.
type backoff struct{ shortest, longest time.Duration }

// setDefaults fills in the defaults, and refuses values that are out of bounds.
func (b *backoff) setDefaults() error {
	const minSleep, defaultShortest, defaultLongest = 100 * time.Microsecond, time.Millisecond, 128 * time.Millisecond
	if b.shortest == 0 {
		b.shortest = defaultShortest
		if b.longest > 0 {
			b.shortest = min(b.shortest, b.longest)
		}
	}
	if b.longest == 0 {
		b.longest = max(b.shortest, defaultLongest)
	}
	return session.Check(
		session.Duration{Name: "shortest sleep", Value: &b.shortest, Least: minSleep, Most: session.MaxDuration},
		session.Duration{Name: "longest sleep", Value: &b.longest, Least: max(minSleep, b.shortest),
			Most: session.MaxDuration},
	)
}

// after returns the sleep after an attempt. Attempts count from 0.
func (b *backoff) after(attempt int) time.Duration {
	sleep := b.longest
	if attempt < 40 && b.shortest<<attempt < b.longest && b.shortest<<attempt > 0 {
		sleep = b.shortest << attempt
	}
	return sleep - rand.N(sleep/2+1)
}
