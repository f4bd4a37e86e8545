package rlock

import (
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// Backoff is how long a Spin lock's waiter sleeps between its tries: Min, doubled after every try up to Max, less a
// random part of up to a half, so that waiters that began together do not go on together. With Max equal to Min it is
// constant but for that. A holder's lease that ends earlier does not wake it; Options.PollCap bounds every sleep.
//
// The zero value is 1 ms to 128 ms. A Min alone has the greater of it and 128 ms for Max.
type Backoff struct {
	Min, Max time.Duration // at least 100 µs
}

func (b Backoff) withDefaults() (Backoff, error) {
	const least, first, last = 100 * time.Microsecond, time.Millisecond, 128 * time.Millisecond
	if b.Min == 0 {
		b.Min = first
		if b.Max > 0 {
			b.Min = min(b.Min, b.Max)
		}
	}
	if b.Max == 0 {
		b.Max = max(b.Min, last)
	}
	return b, session.Check(
		session.Duration{Name: "Backoff.Min", Value: &b.Min, Least: least, Most: session.MaxDuration},
		session.Duration{Name: "Backoff.Max", Value: &b.Max, Least: max(least, b.Min), Most: session.MaxDuration},
	)
}

// after is the sleep after the n-th try.
func (b *Backoff) after(n int) time.Duration {
	d := b.Max
	if n < 40 && b.Min<<n < b.Max && b.Min<<n > 0 {
		d = b.Min << n
	}
	return d - rand.N(d/2+1)
}
