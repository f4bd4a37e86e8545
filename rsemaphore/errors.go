package rsemaphore

import (
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// ErrCapacityMismatch: the object exists on the server with another capacity than the caller's. Of a semaphore that was
// resized, or is [Semaphore.Shared]: the request is for more than the capacity there. Nothing was changed. The text
// says both numbers.
var ErrCapacityMismatch = errs.New("capacity_mismatch", "capacity mismatch")

// NotAcquiredError says more of an ErrNotAcquired.
type NotAcquiredError struct {
	Name string
	// Lease is how long it takes until enough leases have run out, if none is renewed. It is from the last answer to this
	// call, and negative if it is not known. It says nothing about the work that is left: a lease that is renewed always
	// has two thirds of its length left, 20 s by default. So do not send it as a Retry-After; send how long the work
	// usually takes.
	Lease  time.Duration
	Waited time.Duration // before the call gave up
	// Holders are some of the permits that were held when the call gave up: ten at most, first those whose leases end
	// first; nil if that is not known. They are asked for only if the call has waited for at least 100 ms, and was not
	// cancelled: it then returns up to 20 ms later, and sends one call, and one for each of their clients. In a process,
	// calls for one semaphore share that, ten times in a second at most. A counting.Semaphore does not know its holders.
	Holders []Holder
	n       int // what was asked for
	cause   error
	unheard bool // ctx ended before anything was known of others
}

// notAcquired is the error of a call for permits whose holders and leases are not known.
func notAcquired(name string, n int, waited time.Duration, cause error) *NotAcquiredError {
	return &NotAcquiredError{Name: name, n: n, Lease: -1, Waited: waited, cause: cause}
}

func (e *NotAcquiredError) Error() string {
	s := fmt.Sprintf("rsemaphore: %d of %q %v after %v", e.n, e.Name, errs.ErrNotAcquired,
		e.Waited.Round(time.Millisecond))
	if len(e.Holders) > 0 {
		s += ": held by " + listed(e.Holders)
	}
	if e.Lease >= 0 {
		s += fmt.Sprintf(" (leases end in %v)", e.Lease.Round(time.Millisecond))
	}
	if e.unheard {
		s += " (no answer by then)"
	}
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// listed are the holders of permits by their processes, as far as those are known, and how many each has.
func listed(holders []Holder) string {
	var names []string
	has := map[string]int{}
	for _, h := range holders {
		name := h.Process
		switch {
		case name != "":
		case h.Client != "":
			name = "client " + h.Client
		default:
			name = "permit " + h.ID
		}
		if has[name] == 0 {
			names = append(names, name)
		}
		has[name] += h.N
	}
	const shown = 3
	for i, name := range names[:min(len(names), shown)] {
		names[i] = fmt.Sprintf("%s (%d)", name, has[name])
	}
	if len(names) > shown || len(holders) == session.MostNamed { // there may be more than were looked at
		names = append(names[:min(len(names), shown)], "others")
	}
	return strings.Join(names, ", ")
}

// Unwrap makes errors.Is hold for ErrNotAcquired and for the context's error and cause.
func (e *NotAcquiredError) Unwrap() []error {
	if e.cause == nil {
		return []error{errs.ErrNotAcquired}
	}
	return []error{errs.ErrNotAcquired, e.cause}
}

// capacityMismatch says what the server has, and what the caller brought or asked for.
func capacityMismatch(name string, has int64, wanted int) error {
	return fmt.Errorf("%w: %q has %d, not %d", ErrCapacityMismatch, name, has, wanted)
}
