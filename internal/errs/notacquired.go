package errs

import (
	"fmt"
	"strings"
	"time"
)

// NotAcquiredError is the error of an acquisition that ended without the lock or the permits. Package redlatch
// documents it.
type NotAcquiredError struct {
	// Name is the name of the lock or semaphore, or of the member of a Multi that another owner held.
	Name string
	// N is how many permits were requested; 0 for a lock.
	N int
	// Lease is how long the holder's lease lasts unless it is renewed; for permits, how long it takes until enough leases
	// have run out. The time is from the last reply to this call. Lease is negative if the time is not known, or if the
	// lease has no end.
	Lease  time.Duration
	Waited time.Duration // before the call gave up
	// Holders are holders of the lock or permits when the call gave up, at most MostHolders of them; nil if they are not
	// known.
	Holders []Holder
	// Cause is the error of ctx and its cause, if ctx ended before the wait time, or the *rlock.DeadlockError that ended
	// the wait; nil if the wait time ended.
	Cause error
	// Unheard: ctx ended before the call knew anything about a holder.
	Unheard bool

	// The following fields are for locks only, and are as in the last reply to this call.

	Ours    bool   // this client holds the lock; for a read-write lock only the writer counts
	Foreign bool   // the holder is not an owner of this library; never of Fair and ReadWrite locks
	NoEnd   bool   // the key never expires, because its expiry was removed, or the key was made by hand
	Kind    string // "string" or "hash", if the lock is held as another kind of lock than the caller's
}

// Holder is one owner of a lock, or one held permit of a semaphore.
type Holder struct {
	// ID is the text under which the server knows the holder: the rlock.Owner of a lock, or the id of a permit.
	ID string
	// N is how many permits are held: 1, or the weight for a WeightedSemaphore. For a lock, N is how often the owner holds
	// it according to the server, which counts an owner of this library once, however often it re-entered.
	N int
	// Client is the beginning of the connection id of the holder's client, which tells clients apart. Client is "" if the
	// holder is not of this library.
	Client string
	Label  string // the label with which the lock or permit was acquired; "" without one
	// Process is Options.Process of the holder's client. Process is "" if the client first held something less than a
	// second ago (with Liveness: less than a heartbeat ago), if the client lacks the right to announce its name, or if the
	// client is Redisson's. Of more than a hundred clients, the rest have "".
	Process string
	// Lease is how long the hold or permit lasts unless it is renewed: the holder's own lease if the hold was joined or is
	// a reader's, otherwise the lock's. Lease is 0 if the lease has run out, and negative if the lease has no end.
	Lease time.Duration
	// Write says that the holder is the writer of a read-write lock. Its read holds are holders of their own.
	Write bool
}

// MostHolders is how many holders a NotAcquiredError has at most.
const MostHolders = 10

// shownHolders is how many holders the error's text has.
const shownHolders = 3

func (e *NotAcquiredError) Error() string {
	var s strings.Builder
	if e.N > 0 {
		fmt.Fprintf(&s, "rsemaphore: %d of ", e.N)
	} else {
		s.WriteString("rlock: ")
	}
	fmt.Fprintf(&s, "%q %v after %v", e.Name, ErrNotAcquired, e.Waited.Round(time.Millisecond))
	if len(e.Holders) > 0 {
		s.WriteString(": held by " + e.holders())
	}
	if left := e.Lease.Round(time.Millisecond); left >= 0 {
		switch {
		case e.N > 0:
			fmt.Fprintf(&s, " (leases end in %v)", left)
		case len(e.Holders) > 0:
			fmt.Fprintf(&s, ", lease ends in %v", left)
		default:
			fmt.Fprintf(&s, " (holder's lease ends in %v)", left)
		}
	}
	if e.Unheard {
		s.WriteString(" (no reply by then)")
	}
	s.WriteString(e.advice())
	if e.Cause != nil {
		s.WriteString(": " + e.Cause.Error())
	}
	return s.String()
}

// advice returns remarks about an unusual holder of a lock.
func (e *NotAcquiredError) advice() (s string) {
	switch {
	case e.Foreign && e.NoEnd:
		s = " (the key has no expiry, and its holder is not of this library: perhaps it is not a lock)"
	case e.NoEnd:
		s = " (the lock has no expiry: only its holder or ForceUnlock can end it)"
	case e.Foreign:
		s = " (the holder is not of this library)"
	}
	if e.Kind != "" {
		s += " (held as another kind of lock: its key is a " + e.Kind + ")"
	}
	if e.Ours {
		s += " (this client holds it: to re-enter a hold, acquire under its Context)"
	}
	return s
}

// holders returns the names of the first holders: the owner of a lock by its process and its owner id, the holders of
// permits by their processes, with the number of permits of each.
func (e *NotAcquiredError) holders() string {
	var names []string
	permits := map[string]int{}
	for _, h := range e.Holders {
		name := h.name(e.N > 0)
		if permits[name] == 0 {
			names = append(names, name)
		}
		permits[name] += h.N
	}
	more := len(names) - shownHolders
	names = names[:min(len(names), shownHolders)]
	if e.N == 0 {
		if more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		return strings.Join(names, ", ")
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%d)", name, permits[name])
	}
	if more > 0 || len(e.Holders) == MostHolders { // there may be more holders than the call read
		names = append(names, "others")
	}
	return strings.Join(names, ", ")
}

// name returns the holder's name in the error's text.
func (h Holder) name(permit bool) string {
	owner := "owner " + h.ID
	switch {
	case permit && h.Process != "":
		return h.Process
	case permit && h.Client != "":
		return "client " + h.Client
	case permit:
		return "permit " + h.ID
	case h.Client == "":
		owner = fmt.Sprintf("owner %.64q", h.ID)
	}
	if h.Process != "" {
		return h.Process + " (" + owner + ")"
	}
	return owner
}

// Unwrap returns ErrNotAcquired and the Cause.
func (e *NotAcquiredError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrNotAcquired}
	}
	return []error{ErrNotAcquired, e.Cause}
}
