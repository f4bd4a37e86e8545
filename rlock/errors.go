package rlock

import (
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// ErrReentry is returned if the owner holds this lock already, and the lock cannot be re-entered; or if the owner reads
// and asks to write the same lock. Nothing changed. All other errors are those of package redlatch.
var ErrReentry = errs.ErrReentry

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
	// Kind is "string" or "hash" if the lock of this name is held as another kind of lock than this one, as happens while
	// a service moves from one kind to another: "string" is a Plain lock of this library, or a lock of redsync,
	// bsm/redislock or rueidislock; "hash" is a lock of any other kind, or of Redisson. Otherwise Kind is empty. It is as
	// in the last answer, too.
	Kind string
	// Holders are those who held the lock when the call gave up, ten at most; nil if that is not known. It is asked for
	// only if the call has waited for at least 100 ms, and was not cancelled: it then returns up to 20 ms later, and sends
	// one call, and one for each process that holds the lock. In a process, calls for one name share that, ten times in a
	// second at most. After a call that does not wait, [Lock.Inspect] says the same.
	Holders []Holder
	cause   error
	unheard bool // ctx ended before anything was known of a holder
}

func (e *NotAcquiredError) Error() string {
	s := fmt.Sprintf("rlock: %q %v after %v", e.Name, errs.ErrNotAcquired, e.Waited.Round(time.Millisecond))
	left := ""
	if e.Lease >= 0 {
		left = fmt.Sprintf("lease ends in %v", e.Lease.Round(time.Millisecond))
	}
	if len(e.Holders) > 0 {
		s += ": held by " + listed(e.Holders)
		if left != "" {
			s += ", " + left
		}
	} else if left != "" {
		s += " (holder's " + left + ")"
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
	if e.Kind != "" {
		s += " (it is held as another kind of lock: its key is a " + e.Kind + ")"
	}
	if e.Ours {
		s += " (this client holds it: to re-enter a hold, acquire under its Context)"
	}
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// listed are the first of some holders: their processes as far as they are known, and as which the server has them.
func listed(holders []Holder) string {
	const shown = 3
	var each []string
	for _, h := range holders[:min(len(holders), shown)] {
		who := "owner " + string(h.Owner)
		if !h.Owner.ours() {
			who = fmt.Sprintf("owner %.64q", h.Owner)
		}
		if h.Process != "" {
			who = h.Process + " (" + who + ")"
		}
		each = append(each, who)
	}
	if n := len(holders) - len(each); n > 0 {
		each = append(each, fmt.Sprintf("%d more", n))
	}
	return strings.Join(each, ", ")
}

// Unwrap returns ErrNotAcquired, and the context's error and cause if ctx ended.
func (e *NotAcquiredError) Unwrap() []error {
	if e.cause == nil {
		return []error{errs.ErrNotAcquired}
	}
	return []error{errs.ErrNotAcquired, e.cause}
}
