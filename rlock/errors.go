package rlock

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Errors fall into three families, which need different answers. Contended (ErrNotAcquired): another owner holds the
// lock. Lost (ErrLost, ErrMaxHold): the caller held it and holds it no longer. Unknown (ErrUnknownOutcome): a request
// was sent and its reply was not seen. Compare with errors.Is.
var (
	// ErrNotAcquired is returned if another owner held the lock for as long as the caller was willing to wait. Nothing is
	// held; try later. If ctx ended, the error is joined with ctx's error and cause, even if nothing was known of a holder
	// by then, or a request was under way: what that may still take is released in the background, and nothing is left for
	// the caller to do. A handler checks for context.Canceled first. errors.As gives a *NotAcquiredError.
	ErrNotAcquired = errs.ErrNotAcquired
	// ErrLost says that a hold ended without being released. Its lease ran out, or its key was deleted, evicted or taken
	// over. Another owner may hold the lock. Stop, and have the resource refuse what was under way (fencing). If the
	// server said that the key now holds something else, the error is joined with ErrWrongType, whichever call finds that
	// out.
	ErrLost = errs.ErrLost
	// ErrReleased is the cause of a hold's contexts after Unlock, and the error of calls on a released hold.
	ErrReleased = errs.ErrReleased
	// ErrMaxHold says that the hold reached Options.MaxHold. It is renewed no more. The lock stays taken until Unlock or
	// until its lease runs out, whichever is first.
	ErrMaxHold = errs.ErrMaxHold
	// ErrUnavailable is returned if the server could not be asked, or refused before it did anything. Nothing changed
	// there. It wraps rueidis' error.
	ErrUnavailable = errs.ErrUnavailable
	// ErrUnknownOutcome is returned if a request was sent and its reply was not seen within Options.CallTimeout, or its
	// connection broke; and by Unlock and Extend if ctx ended before the reply came. What an acquisition may have taken is
	// released in the background. A release goes on in the background until it is confirmed or the lease is over.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrDenied is returned if the server does not know the user, or the user lacks a right. The text names the right, as
	// far as the server reports it, and the operation. No call waits, because waiting does not help. Nothing is acquired:
	// what a script did before the refused command is released, as far as the rights go. A hold whose renewals are denied
	// lasts until Hold.Until, and ends with ErrLost unless the right is back by then. A hold whose release is denied has
	// ended here, and its lock stays taken until the end of its lease.
	ErrDenied = errs.ErrDenied
	// ErrNotReplicated is returned if the lock was granted, but fewer than Options.MinReplicas replicas confirmed it in
	// time. The grant was taken back; nothing is held.
	ErrNotReplicated = errs.ErrNotReplicated
	// ErrReentry is returned if the owner holds this lock already, and the lock cannot be re-entered; or if the owner
	// reads and asks to write the same lock. Nothing changed.
	ErrReentry = errs.ErrReentry
	// ErrClosed is returned after the client, or its hub, was closed.
	ErrClosed = errs.ErrClosed
	// ErrInvalidName refuses a name that is empty, longer than 64 KiB with its prefix, not UTF-8, or that has a NUL byte,
	// or braces that would spread one lock over two Cluster slots; and one that is, with its prefix, a key that another
	// object has next to its own, such as "redlatch_queue:{x}", the queue of the lock "x". Nothing was sent.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption refuses an option or argument. The text names it, its value and its bounds. Nothing was sent.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrWrongType is returned if the key, or one that belongs to it, does not hold a lock of this kind: another type, or
	// a value that no program of this library or of Redisson writes. Nothing was changed. A hold whose key was overwritten
	// is lost: its error is ErrLost, too. (TestHostileValuesOfLocksAreErrWrongType)
	ErrWrongType = errs.ErrWrongType
)

// NotAcquiredError is the error of an acquisition that ended without the lock. It says what the last answer said about
// the holder.
type NotAcquiredError struct {
	Name string // of the lock, or of the member of a Multi that was held
	// Lease is how long the holder's lease still lasts unless it is renewed. It is negative if that is not known, or if
	// the lease has no end. It bounds how long a dead holder keeps the lock. It says nothing about the work that is left:
	// the lease of a hold that is renewed has at least two thirds of its time left, 20 s by default, however soon the
	// holder is done. So do not send it as a Retry-After; send how long the work usually takes.
	Lease  time.Duration
	Waited time.Duration // before the call gave up
	// Ours says that this client holds the lock at the moment. If the hold is the caller's own, acquire under its
	// [Hold.Context] to re-enter it; waiting for it would never end. Of a read-write lock only the writer counts.
	Ours bool
	// Foreign says that the holder is not an owner of this library: Redisson holds the lock, or the key belongs to another
	// program. NoEnd says that the lock has no end, because it was removed, or the key was made, by hand. Waiting for such
	// a lock may never end; [Lock.ForceUnlock] takes it. A lock of Redisson's always has an end, so if both are true,
	// check whether two programs use one name. Both are as in the last answer to this call, and false if it did not ask.
	// Foreign is false for Fair and ReadWrite locks.
	Foreign, NoEnd bool
	cause          error
	unheard        bool // ctx ended before anything was known of a holder
	listeners      int  // for the holder's release, by the last answer; 0: not said
}

func (e *NotAcquiredError) Error() string {
	s := fmt.Sprintf("rlock: %q %v after %v", e.Name, ErrNotAcquired, e.Waited.Round(time.Millisecond))
	if e.Lease >= 0 {
		s += fmt.Sprintf(" (holder's lease: %v)", e.Lease.Round(time.Millisecond))
	}
	if e.unheard {
		s += " (no answer by then)"
	}
	switch {
	case e.Foreign && e.NoEnd:
		s += " (the key has no end and its holder is not of this library: perhaps not a lock)"
	case e.NoEnd:
		s += " (the lock has no end: only its holder or ForceUnlock ends it)"
	case e.Foreign:
		s += " (the holder is not of this library)"
	}
	if e.Ours {
		s += " (this client holds it: to re-enter a hold, acquire under its Context)"
	}
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap returns ErrNotAcquired, and the context's error and cause if ctx ended.
func (e *NotAcquiredError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrNotAcquired}
	}
	return []error{ErrNotAcquired, e.cause}
}
