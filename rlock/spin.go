package rlock

import (
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Spin describes a lock whose waiters poll, and neither publish nor subscribe. It is for servers that forbid channels,
// and for locks that are held for a moment only. For all others it is the Reentrant lock of that name (Redisson's
// RSpinLock): its release wakes their waiters where it may publish. Those waiters come first: a Spin waiter acquires
// only when the queue is empty.
//
// A waiter sleeps between its tries: shortest at first, then twice as long after every try, up to longest. From each
// sleep a random part of up to a half is taken off, so that waiters that began together do not stay together. Both are
// at least 100 µs; 0 stands for 1 ms and 128 ms. A holder's lease that ends earlier does not wake a waiter;
// Options.PollCap bounds every sleep.
//
// Waiters of one process spin one after the other, not all at once. A TryLock with a waitTime of 0 may overtake them,
// but not the waiters of the other kinds that queue.
func (c *Client) Spin(name string, shortest, longest time.Duration) *Lock {
	s, bad := c.single(name, spinning)
	b := backoff{shortest, longest}
	if err := b.complete(); err != nil && bad == nil {
		bad = errs.Edge("rlock", err)
	}
	s.backoff = &b
	return s.asLock(bad)
}

// backoff is how long a Spin lock's waiter sleeps.
type backoff struct{ shortest, longest time.Duration }

// complete fills in what is 0, and refuses what is out of bounds.
func (b *backoff) complete() error {
	const least, first, last = 100 * time.Microsecond, time.Millisecond, 128 * time.Millisecond
	if b.shortest == 0 {
		b.shortest = first
		if b.longest > 0 {
			b.shortest = min(b.shortest, b.longest)
		}
	}
	if b.longest == 0 {
		b.longest = max(b.shortest, last)
	}
	return session.Check(
		session.Duration{Name: "shortest sleep", Value: &b.shortest, Least: least, Most: session.MaxDuration},
		session.Duration{Name: "longest sleep", Value: &b.longest, Least: max(least, b.shortest), Most: session.MaxDuration},
	)
}

// after is the sleep after the n-th try.
func (b *backoff) after(n int) time.Duration {
	d := b.longest
	if n < 40 && b.shortest<<n < b.longest && b.shortest<<n > 0 {
		d = b.shortest << n
	}
	return d - rand.N(d/2+1)
}
