package rsemaphore

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Three families of errors need different answers. Contended (ErrNotAcquired): others have the permits. Lost (ErrLost,
// ErrMaxHold): the caller had them. Unknown (ErrUnknownOutcome): a request was sent, and its reply was not seen.
var (
	// ErrNotAcquired: there were not enough permits for as long as the caller was willing to wait. It is joined with
	// ctx's error and cause when ctx ended, even if a request was under way then: what that may still take is released in
	// the background. Of a CountingSemaphore that is ErrUnknownOutcome. errors.As gives a *NotAcquiredError. Nothing is
	// held; try later.
	ErrNotAcquired = errs.ErrNotAcquired
	// ErrLost: the permit is over and was not released: its lease ran out, or it was removed on the server. Another holder
	// may have it. Stop. If the key now holds something else, every call that finds this out joins ErrWrongType.
	// ReleaseIDs returns ErrLost if one of the ids was never granted, was released before, or is over; nothing was
	// changed.
	ErrLost = errs.ErrLost
	// ErrCapacityMismatch: the object exists on the server with another capacity than the caller's. Of a semaphore that
	// was resized, or is [Semaphore.Shared]: the request is for more than the capacity there. Nothing was changed. The
	// text says both numbers.
	ErrCapacityMismatch = errs.New("capacity_mismatch", "capacity mismatch")
	// ErrReleased is the cause of a permit's contexts after Release, and what calls on a released permit return.
	ErrReleased = errs.ErrReleased
	// ErrMaxHold: the permit has lasted for Options.MaxHold. It is no longer renewed. It stays taken until Release, or
	// until its lease runs out.
	ErrMaxHold = errs.ErrMaxHold
	// ErrUnavailable: the server could not be asked, or refused before it did anything. Nothing changed there. The error
	// wraps that of rueidis.
	ErrUnavailable = errs.ErrUnavailable
	// ErrUnknownOutcome: the request was sent, and its reply was not seen within Options.CallTimeout, or its connection
	// broke. Permits that an acquisition may have taken are released in the background. A release is repeated in the
	// background until the lease is over.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrDenied: the server does not know the user, or the user lacks a right. The text says the operation, and the right
	// as far as the server does. Waiting does not help, so no call waits. Nothing is acquired: what a script did before
	// the command that was refused is released, as far as the user's rights allow. A permit whose renewals are denied
	// lasts until Until, and ends with ErrLost unless they are allowed again by then. A permit whose release is denied has
	// ended in this process, and stays taken until its lease is over.
	ErrDenied = errs.ErrDenied
	// ErrNotReplicated: the permits were granted, but fewer than Options.MinReplicas replicas confirmed that in time. They
	// were given back; nothing is held.
	ErrNotReplicated = errs.ErrNotReplicated
	// ErrClosed: the client was closed, or its hub.
	ErrClosed = errs.ErrClosed
	// ErrInvalidName: the name is empty, longer than 64 KiB with its prefix, not UTF-8, or has a NUL byte; or its braces
	// would spread one object over two Cluster slots; or it is, with its prefix, a key that another object has next to its
	// own. Nothing was sent.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption: an option or argument is out of its bounds. The text says which, its value and the bounds. Nothing
	// was sent, except for a request for more permits than the capacity, which only the server knows; then nothing was
	// acquired.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrWrongType: the key, or one that belongs to it, holds another type or a value that no program of this library
	// writes, or is known to belong to another kind of object, which the text names (see "One name, one kind" in the
	// package comment). Nothing was changed. A permit whose key was overwritten is lost, too: ErrLost.
	ErrWrongType = errs.ErrWrongType
)

// NotAcquiredError says more of an ErrNotAcquired.
type NotAcquiredError struct {
	Name string
	// Lease is how long it takes until enough leases have run out, if none is renewed. It is from the last answer to this
	// call, and negative if it is not known. It says nothing about the work that is left: a lease that is renewed always
	// has two thirds of its length left, 20 s by default. So do not send it as a Retry-After; send how long the work
	// usually takes.
	Lease   time.Duration
	Waited  time.Duration
	n       int // what was asked for
	cause   error
	unheard bool // ctx ended before anything was known of others
}

func (e *NotAcquiredError) Error() string {
	s := fmt.Sprintf("rsemaphore: %d of %q %v after %v", e.n, e.Name, ErrNotAcquired, e.Waited.Round(time.Millisecond))
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

// Unwrap makes errors.Is hold for ErrNotAcquired and for the context's error and cause.
func (e *NotAcquiredError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrNotAcquired}
	}
	return []error{ErrNotAcquired, e.cause}
}

// capacityMismatch says what the server has, and what the caller brought or asked for.
func capacityMismatch(name string, has int64, wanted int) error {
	return fmt.Errorf("%w: %q has %d, not %d", ErrCapacityMismatch, name, has, wanted)
}
