package redpacket

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

const (
	defaultRetain = 24 * time.Hour
	// maxLifetime is the longest time from Send to the removal of the packet.
	maxLifetime = 100 * 365 * 24 * time.Hour
)

// Spec describes the packet that Send opens. Durations are counted on the server's clock from the moment the packet
// opens; fractions of a millisecond are rounded up.
type Spec struct {
	// Total is the amount in cents, 1 to 2^53-1. Required.
	Total int64
	// Shares is the number of shares, 1 to 1,000,000. Required.
	Shares int64
	// Min is the least that a share may be, in cents. Defaults to 1.
	Min int64
	// Max is the most that a share may be, in cents. Defaults to 0: no upper limit.
	Max int64
	// Method says how the total is split. Defaults to DoubleMean.
	Method Method
	// OpenFor is how long shares can be taken, at least 1 ms. Required.
	OpenFor time.Duration
	// Retain is how long the answers stay after that, at least 1 ms. Until then a user's Grab gives the same
	// answer, the packet can be refunded, and the name cannot be used again. Defaults to 24 h. OpenFor and Retain together
	// are at most 100 years.
	Retain time.Duration
	// Ledger has every Grab that takes a share and the Refund write an entry to the packet's ledger, in the script that
	// does it: see Packet.Ledger. Defaults to false.
	Ledger bool
	// Rand draws the shares. Defaults to nil: an unpredictable generator.
	Rand *rand.Rand
}

func (o *Spec) check() error {
	if o.Min == 0 {
		o.Min = 1
	}
	o.Method = cmp.Or(o.Method, DoubleMean)
	if _, err := checkSplit(o.Total, o.Shares, o.Min, o.Max, o.Method,
		[...]string{"Total", "Shares", "Min", "Max", "Method"}); err != nil {
		return err
	}
	switch {
	case o.OpenFor < time.Millisecond || o.OpenFor > maxLifetime:
		return errs.InvalidOption("OpenFor", o.OpenFor, fmt.Sprintf("between 1ms and %v", maxLifetime))
	case o.Retain < 0 || o.Retain > 0 && o.Retain < time.Millisecond || o.Retain > maxLifetime:
		return errs.InvalidOption("Retain", o.Retain, fmt.Sprintf("between 1ms and %v, or 0 for the default", maxLifetime))
	}
	if o.Retain == 0 {
		o.Retain = defaultRetain
	}
	if o.OpenFor+o.Retain > maxLifetime {
		return errs.InvalidOption("OpenFor + Retain", fmt.Sprintf("%v + %v", o.OpenFor, o.Retain),
			fmt.Sprintf("at most %v", maxLifetime))
	}
	return nil
}
