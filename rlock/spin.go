package rlock

import (
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Defaults of a Backoff, and its bounds.
const (
	DefaultSpinMin = time.Millisecond
	DefaultSpinMax = 128 * time.Millisecond
	MinSpin        = 100 * time.Microsecond
)

// Backoff is how long a Spin lock's waiter sleeps between its tries: Min, doubled after every try up to Max, less a
// random part of up to a half, so that waiters that began together do not go on together. With Max equal to Min it is
// constant but for that. A holder's lease that ends earlier does not wake it; Options.PollCap bounds every sleep.
//
// The zero value is DefaultSpinMin to DefaultSpinMax. A Min alone has the greater of it and DefaultSpinMax for Max.
type Backoff struct {
	Min, Max time.Duration // at least MinSpin
}

func (b Backoff) withDefaults() (Backoff, error) {
	if b.Min == 0 {
		b.Min = DefaultSpinMin
		if b.Max > 0 {
			b.Min = min(b.Min, b.Max)
		}
	}
	if b.Max == 0 {
		b.Max = max(b.Min, DefaultSpinMax)
	}
	switch {
	case b.Min < MinSpin || b.Min > MaxDuration:
		return b, errs.InvalidOption("Backoff.Min", b.Min, "0 (the default), or "+MinSpin.String()+" to "+MaxDuration.String())
	case b.Max < b.Min || b.Max > MaxDuration:
		return b, errs.InvalidOption("Backoff.Max", b.Max, "0 (the default), or Min ("+b.Min.String()+") to "+MaxDuration.String())
	}
	return b, nil
}

// after is the sleep after the n-th try.
func (b *Backoff) after(n int) time.Duration {
	d := b.Max
	if n < 40 && b.Min<<n < b.Max && b.Min<<n > 0 {
		d = b.Min << n
	}
	return d - rand.N(d/2+1)
}
