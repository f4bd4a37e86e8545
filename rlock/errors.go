package rlock

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Three families of errors need different answers. Contended (ErrNotAcquired): somebody else has it. Lost (ErrLost,
// ErrMaxHold): you had it. Unknown (ErrUnknownOutcome): a request was sent and no reply seen.
var (
	// ErrNotAcquired: somebody else held the lock for as long as the caller was willing to wait. It is joined with
	// ctx's error and cause when ctx ended, also where nothing was known of a holder
	// by then: a handler looks for context.Canceled first. errors.As gives a *NotAcquiredError. Nothing is held; try later.
	ErrNotAcquired = errs.ErrNotAcquired
	// ErrLost: the hold is over and was not released: its lease ran out, or its key was deleted, evicted or taken
	// over. Somebody else may hold the lock. Stop, and have the resource refuse what was under way (fencing). It is joined
	// with ErrWrongType, whichever call finds it out, where the server said that the key now holds something else.
	ErrLost = errs.ErrLost
	// ErrReleased is the cause of a hold's contexts after Unlock, and what calls on a released hold return.
	ErrReleased = errs.ErrReleased
	// ErrMaxHold: the hold reached Options.MaxHold. It is renewed no more; the lock stays taken until Unlock or until
	// its lease runs out, whichever is first.
	ErrMaxHold = errs.ErrMaxHold
	// ErrUnavailable: the server could not be asked, or refused before doing anything; nothing changed there. It wraps
	// rueidis' error.
	ErrUnavailable = errs.ErrUnavailable
	// ErrUnknownOutcome: the request was sent and its reply not seen in time. What an acquire may have taken is
	// released in the background; what a release may have left goes on being released until the lease is over.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrDenied: the server does not know the user, or the user lacks a right; the text says which, as far as the server
	// tells, and for which operation. Waiting does not help, so no call waits. Nothing is acquired: what a script did
	// before the command that was refused is released, as far as the rights go. A hold whose renewals are denied
	// lasts until Until, and ends with ErrLost unless the right is back by then; one whose release is denied has ended
	// here, and its lock stays taken until the end of its lease.
	ErrDenied = errs.ErrDenied
	// ErrNotReplicated: the lock was granted, but fewer than Options.MinReplicas replicas confirmed it in time. It has
	// been taken back; nothing is held.
	ErrNotReplicated = errs.ErrNotReplicated
	// ErrReentry: the owner holds this lock already, and it is one that is not re-entered; or it reads, and asks to write
	// the same lock. Nothing changed.
	ErrReentry = errs.ErrReentry
	// ErrClosed: the client was closed, or its hub.
	ErrClosed = errs.ErrClosed
	// ErrInvalidName refuses a name that is empty, over 64 KiB with its prefix, not UTF-8 without NUL bytes, or whose braces would
	// spread one lock over two Cluster slots. Nothing was sent.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption refuses an option or argument, naming it, its value and its bounds. Nothing was sent.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrWrongType: the key of that name holds something that is not a lock. Nothing was changed. A hold whose key was
	// overwritten is lost: ErrLost, too.
	ErrWrongType = errs.ErrWrongType
)

// NotAcquiredError says more of an ErrNotAcquired.
type NotAcquiredError struct {
	Name string
	// Lease is how long the holder's lease still lasts unless it is renewed, as last heard; negative if that is
	// not known or it has no end. It bounds how long a dead holder keeps the lock. It says nothing about the work that is
	// left: of a hold that is renewed it is two thirds of the lease at least, 20 s by default, however soon the holder is
	// through. So it is no Retry-After: take how long the work usually lasts.
	Lease  time.Duration
	Waited time.Duration
	// Ours: this client holds the lock at the moment. If it is the caller's own hold, acquire under its [Hold.Context] to
	// re-enter it; waiting for it would never end. Of a read-write lock only its writer counts.
	Ours bool
	// Foreign: the holder is not an owner of this library. It may be one of Redisson's, or the key another program's. And
	// NoEnd: the lock has no end, because somebody removed it or made the key by hand; if nobody releases it, waiting never
	// ends, and [Lock.ForceUnlock] takes it. Both at once is hardly a lock: look whether two programs use one name. What
	// Redisson holds always has an end. They are as this call last heard; false if it had no need to ask, Foreign also of Fair and ReadWrite locks.
	Foreign, NoEnd bool
	cause          error
}

func (e *NotAcquiredError) Error() string {
	s := fmt.Sprintf("rlock: %q %v after %v", e.Name, ErrNotAcquired, e.Waited.Round(time.Millisecond))
	if e.Lease >= 0 {
		s += fmt.Sprintf(" (holder's lease: %v)", e.Lease.Round(time.Millisecond))
	}
	switch {
	case e.Foreign && e.NoEnd:
		s += " (the key has no end and its holder is none of this library: perhaps not a lock)"
	case e.NoEnd:
		s += " (the lock has no end: only its holder or ForceUnlock ends it)"
	case e.Foreign:
		s += " (the holder is none of this library)"
	}
	if e.Ours {
		s += " (this client holds it: to re-enter a hold, acquire under its Context)"
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
