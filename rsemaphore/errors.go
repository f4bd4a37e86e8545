package rsemaphore

import (
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Three families of errors need different answers. Contended (ErrNotAcquired): others have it. Lost (ErrLost,
// ErrMaxHold): you had it. Unknown (ErrUnknownOutcome): a request was sent and no reply seen.
var (
	// ErrNotAcquired: there were not enough permits for as long as the caller was willing to wait. It is joined with
	// ctx's error and cause when ctx ended. errors.As gives a *NotAcquiredError. Nothing is held; try later.
	ErrNotAcquired = errs.ErrNotAcquired
	// ErrLost: the permit is over and was not released: its lease ran out, or it was taken away on the server.
	// Somebody else may have it. Stop. It is joined with ErrWrongType, whichever call finds it out, where the server said
	// that the key now holds something else. Of ids (ReleaseIDs): one was never granted, was released before, or its lease
	// is over; nothing was changed.
	ErrLost = errs.ErrLost
	// ErrCapacityMismatch: the object exists on the server with another capacity than the caller's, and nobody has
	// resized it, nor is it [Semaphore.Shared]; or it was, and the request is for more than there are now. Nothing was
	// changed. The text says both.
	ErrCapacityMismatch = errors.New("capacity mismatch")
	// ErrReleased is the cause of a permit's contexts after Release, and what calls on a released permit return.
	ErrReleased = errs.ErrReleased
	// ErrMaxHold: the permit reached Options.MaxHold. It is renewed no more; it stays taken until Release or until its
	// lease runs out, whichever is first.
	ErrMaxHold = errs.ErrMaxHold
	// ErrUnavailable: the server could not be asked, or refused before doing anything; nothing changed there. It wraps
	// rueidis' error.
	ErrUnavailable = errs.ErrUnavailable
	// ErrUnknownOutcome: the request was sent and its reply not seen in time. What an acquire may have taken is
	// released in the background; what a release may have left goes on being released until the lease is over.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrDenied: the server does not know the user, or the user lacks a right; the text says which, as far as the server
	// tells, and for which operation. Waiting does not help, so no call waits. Nothing is acquired: what a script did
	// before the command that was refused is released, as far as the rights go. A permit whose renewals are denied
	// lasts until Until, and ends with ErrLost unless the right is back by then; one whose release is denied has ended
	// here, and stays taken until the end of its lease.
	ErrDenied = errs.ErrDenied
	// ErrNotReplicated: granted, but fewer than Options.MinReplicas replicas confirmed it in time. It has been taken
	// back; nothing is held.
	ErrNotReplicated = errs.ErrNotReplicated
	// ErrClosed: the client was closed, or its hub.
	ErrClosed = errs.ErrClosed
	// ErrInvalidName refuses a name that is empty, over 64 KiB with its prefix, not UTF-8 without NUL bytes, or whose braces would
	// spread one object over two Cluster slots. Nothing was sent.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption refuses an option or argument, naming it, its value and its bounds. Nothing was sent; of a request for
	// more permits than the capacity, which is the server's to say, nothing was acquired.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrWrongType: a key of that name holds something else, or is known to belong to another kind of object (see "One name,
	// one kind" in the package comment), which the error names. Nothing was changed. A permit whose key was overwritten is
	// lost: ErrLost, too.
	ErrWrongType = errs.ErrWrongType
)

// NotAcquiredError says more of an ErrNotAcquired.
type NotAcquiredError struct {
	Name string
	// Lease is how long it takes until leases that run out, if none is renewed, leave enough, as last heard; negative
	// if that is not known. It says nothing about the work that is left: leases that are renewed have two thirds of
	// themselves left at least, 20 s by default. So it is no Retry-After: take how long the work usually lasts.
	Lease  time.Duration
	Waited time.Duration
	n      int // what was asked for
	cause  error
}

func (e *NotAcquiredError) Error() string {
	s := fmt.Sprintf("rsemaphore: %d of %q %v after %v", e.n, e.Name, ErrNotAcquired, e.Waited.Round(time.Millisecond))
	if e.Lease >= 0 {
		s += fmt.Sprintf(" (leases end in %v)", e.Lease.Round(time.Millisecond))
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
