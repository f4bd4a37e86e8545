package rlock

import (
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// ErrReentry is returned if the owner holds this lock already, and the lock cannot be re-entered; or if the owner has a
// read hold and requests the write side of the same lock. Nothing changed. All other errors are those of package
// redlatch.
var ErrReentry = errs.ErrReentry

// NotAcquiredError is the error of an acquisition that ended without the lock. Its fields describe the holder by the
// last reply.
type NotAcquiredError struct {
	Name string // the name of the lock, or of the member of a Multi that was held
	// Lease is how long the holder's lease still lasts unless it is renewed. It is negative if it is not known, or if the
	// lease has no end. A dead holder keeps the lock no longer than that. The time until a living holder is done may be
	// shorter or longer: a renewed hold always has at least two thirds of its lease left, 20 s by default. So do not send
	// Lease as a Retry-After; send how long the work usually takes.
	Lease  time.Duration
	Waited time.Duration // the time until the call gave up
	// Ours is true if this client holds the lock at the moment. If the hold is the caller's own, acquire under its
	// [Hold.Context] to re-enter it; waiting for it would never end. For a read-write lock only the writer counts.
	Ours bool
	// Foreign is true if the holder is not an owner of this library: Redisson holds the lock, or the key belongs to
	// another program. NoEnd is true if the lock has no expiry, because the expiry was removed, or the key was made, by
	// hand. Waiting for such a lock may never end; [Lock.ForceUnlock] removes the holder. A lock of Redisson's always has
	// an expiry, so if both are true, check whether two programs use one name. Both come from the last reply to this call,
	// and are false if it sent no request. Foreign is false for Fair and ReadWrite locks.
	Foreign, NoEnd bool
	// Kind is not empty if the lock of this name is held as another kind, as happens while a service moves from one kind
	// to another. "string" is a Plain lock of this library, or a lock of redsync, bsm/redislock or rueidislock. "hash" is
	// a lock of any other kind, or of Redisson. Kind, too, comes from the last reply.
	Kind string
	// Holders are the holders of the lock when the call gave up, at most ten; nil if they are not known. They are read
	// only if the call has waited for at least 100 ms, and was not cancelled. The call then returns up to 20 ms later, and
	// sends one call, and one for each process that holds the lock. Calls of one process for one name share these, ten
	// times in a second at most. After a call that does not wait, [Lock.Inspect] returns the same.
	Holders []Holder
	cause   error
	unheard bool // ctx ended before the first reply about a holder
}

func (e *NotAcquiredError) Error() string {
	text := fmt.Sprintf("rlock: %q %v after %v", e.Name, errs.ErrNotAcquired, e.Waited.Round(time.Millisecond))
	leaseText := ""
	if e.Lease >= 0 {
		leaseText = fmt.Sprintf("lease ends in %v", e.Lease.Round(time.Millisecond))
	}
	if len(e.Holders) > 0 {
		text += ": held by " + listHolders(e.Holders)
		if leaseText != "" {
			text += ", " + leaseText
		}
	} else if leaseText != "" {
		text += " (holder's " + leaseText + ")"
	}
	if e.unheard {
		text += " (no answer by then)"
	}
	switch {
	case e.Foreign && e.NoEnd:
		text += " (the key has no end and its holder is not of this library: perhaps not a lock)"
	case e.NoEnd:
		text += " (the lock has no end: only its holder or ForceUnlock ends it)"
	case e.Foreign:
		text += " (the holder is not of this library)"
	}
	if e.Kind != "" {
		text += " (it is held as another kind of lock: its key is a " + e.Kind + ")"
	}
	if e.Ours {
		text += " (this client holds it: to re-enter a hold, acquire under its Context)"
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// listHolders lists the first holders, with their owner ids, and the names of their processes if known.
func listHolders(holders []Holder) string {
	const maxShown = 3
	var shownHolders []string
	for _, holder := range holders[:min(len(holders), maxShown)] {
		description := "owner " + string(holder.Owner)
		if !holder.Owner.ours() {
			description = fmt.Sprintf("owner %.64q", holder.Owner)
		}
		if holder.Process != "" {
			description = holder.Process + " (" + description + ")"
		}
		shownHolders = append(shownHolders, description)
	}
	if omitted := len(holders) - len(shownHolders); omitted > 0 {
		shownHolders = append(shownHolders, fmt.Sprintf("%d more", omitted))
	}
	return strings.Join(shownHolders, ", ")
}

// Unwrap returns ErrNotAcquired, and the context's error and cause if ctx ended.
func (e *NotAcquiredError) Unwrap() []error {
	if e.cause == nil {
		return []error{errs.ErrNotAcquired}
	}
	return []error{errs.ErrNotAcquired, e.cause}
}
