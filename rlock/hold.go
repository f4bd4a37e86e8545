package rlock

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/session"
)

// Hold is one acquisition of a lock: the right to act as its holder until Unlock, or until it is lost. It is safe for
// concurrent use and belongs to no goroutine.
//
// Run the work under [Hold.Context], which ends with the hold. If the program can no longer reach a hold or any of its
// contexts, the hold was forgotten: its renewal ends, a warning is logged, and its lease runs out. A function that
// context.AfterFunc runs after one of its contexts keeps the hold reachable. The garbage collector finds forgotten
// holds. In an idle process it runs every two minutes, and a forgotten hold is renewed until then. WithLease,
// Options.MaxHold and [Lock.Do] bound a hold without the garbage collector.
type Hold struct {
	h       *hold.Handle
	cleanup runtime.Cleanup
	parts   *heldParts // set for a Multi or Quorum lock: h is then nil
	// acquired is the context of the acquisition, for the Acquisition field of its events; nil without an observer
	acquired context.Context
}

// newHold makes the Hold of a handle, with a cleanup that reports a forgotten hold.
//
// The library never starts the garbage collector to find forgotten holds. A collection scans the whole heap, in every
// idle process that holds a lock, and a forgotten hold is a mistake that most programs do not make and that the log
// names.
func newHold(handle *hold.Handle) *Hold {
	made := &Hold{h: handle}
	made.cleanup = runtime.AddCleanup(made, (*hold.Handle).Dropped, handle)
	return made
}

// follow keeps the context of the hold's acquisition for the observer, which gets it at the release.
func (x *Hold) follow(ctx context.Context, client *Client) {
	if client.opts.Observer != nil {
		x.acquired = ctx
	}
}

// client returns the client of the hold; for a Multi or Quorum, the client of its first member.
func (x *Hold) client() *Client {
	if x.parts != nil {
		return x.parts.of.members[0].c
	}
	return ownerOf(x.h).lock.c
}

// ownerOf returns the owner whose handle it is.
func ownerOf(handle *hold.Handle) *owner { return handle.Holding.Lease.Of.(*owner) }

// Context returns a child of parent that ends with the hold. Its cause is ErrReleased after Unlock, otherwise ErrLost,
// ErrMaxHold or ErrClosed. It carries the owner of this lock: acquiring the same lock under it re-enters the hold. It
// carries nothing for other locks, so goroutines that share it exclude each other on those locks.
//
// If the hold is over, the context has already ended.
func (x *Hold) Context(parent context.Context) context.Context {
	if carried, ok := parent.(*holdContext); ok && carried.hold == x {
		// The life refers to its contexts, and the watchdog to the life. A parent that refers to the Hold would keep a
		// forgotten hold reachable.
		parent = carried.Context
	}
	return &holdContext{x.life().Context(parent), x}
}

// Done returns a channel that is closed when the hold is over.
func (x *Hold) Done() <-chan struct{} { return x.life().Done() }

// Err returns nil while the hold lasts, and then the reason for its end: ErrReleased, ErrLost, ErrMaxHold or ErrClosed.
// ErrLost may be joined with ErrWrongType, so compare with errors.Is.
func (x *Hold) Err() error { return x.life().Err() }

// Name returns the lock's name.
func (x *Hold) Name() string {
	if x.parts != nil {
		return x.parts.of.name
	}
	return x.h.Holding.Lease.Name
}

// Owner returns the owner as the server knows it. A re-entry has the owner of the hold that it re-enters. Callers of
// one process that follow each other may hold the lock as one owner; the owner of a hold for which Owner was called
// while it lasted is used by no other caller, which takes over as another owner. Called for the first time when the
// hold is over, Owner returns one that never held anything.
func (x *Hold) Owner() Owner {
	if x.parts != nil {
		return x.parts.owners()
	}
	if x.h.Bar() {
		return Owner(x.h.Holding.Lease.Owner)
	}
	// Another caller of this process may hold the lock as the same owner now. A process that gets this text must not
	// join that hold.
	return Owner(fmt.Sprintf("%s:turn %d", x.h.Holding.Lease.Owner, x.h.Turn()))
}

// Token returns the fencing token of the hold. ok is true for a Fenced lock, and for a Multi with a Fenced member.
func (x *Hold) Token() (token int64, ok bool) {
	if x.parts != nil {
		return x.parts.token()
	}
	token = ownerOf(x.h).token
	return token, token != 0
}

// Until returns the instant, on this process's monotonic clock, until which it is safe to act. Every confirmed renewal
// moves it on. It moves back if the server reports that the lease was shortened. After the hold is over it has no
// meaning.
//
// A lock that was handed over has a short lease at first: the greatest of four PollCaps of at most 10 s, four
// CallTimeouts, and a second, or WatchdogTimeout if that is less. After a third of that it is raised to the full lease,
// or within 10 ms to that of WithLease.
func (x *Hold) Until() time.Time {
	if x.parts != nil {
		return x.parts.until()
	}
	return x.h.Holding.Until()
}

// Extend makes the hold last for at least d from now. It never shortens the hold. d is at least 10 ms. The request is
// repeated until the server answers, ctx ends or Options.RetryTimeout is over.
//
//   - nil: the server has confirmed the extension.
//   - ErrLost, ErrMaxHold, ErrClosed or ErrReleased: the hold was over before the call, or this call found its end.
//   - ErrUnavailable, ErrUnknownOutcome or ErrNotReplicated: Until has not moved.
//   - ErrInvalidOption: d is out of bounds, and nothing was sent.
func (x *Hold) Extend(ctx context.Context, d time.Duration) error {
	if x.parts != nil {
		return x.parts.extend(ctx, d)
	}
	return x.h.Extend(ctx, d)
}

// Unlock ends the hold and releases the lock. While other holds of the same owner last, it sends nothing. It may be
// called from any goroutine, also with a ctx that has ended, such as one from this hold's Context. The release then has
// one second.
//
//   - nil: the server has confirmed the release. Or nothing was sent, because other holds of the owner last, or because
//     the next caller of this process took the lock over; by this process's clock the lock was held until then.
//   - ErrLost: the hold was over before, and another owner may have held the lock since.
//   - ErrUnavailable or ErrUnknownOutcome: the release was not confirmed while ctx lasted. It is retried in the
//     background until the lease is over.
//   - Any other refusal of the server, such as ErrDenied, is returned at once. The release is retried likewise.
//
// In every case the hold's contexts have ended and its renewal, too. Later calls return the first one's result.
func (x *Hold) Unlock(ctx context.Context) error {
	if x.parts != nil {
		return x.parts.unlock(ctx)
	}
	x.cleanup.Stop()
	return x.h.Release(ctx, x.acquired)
}

// UnlockAfter is Unlock for work that must not be repeated too soon: the lock stays taken until d after its
// acquisition, even if the work ends early. So a short job is not run again by a machine that starts a little later, or
// whose clock is behind (ShedLock's lockAtLeastFor). If d is over, UnlockAfter is Unlock.
//
// Otherwise the hold ends at once, and the server ends the lock when d is over, even if the process exits. Waiters are
// notified now, and send their next request when the lock ends. The result is Unlock's: nil means that the server has
// confirmed the new end. After ErrUnavailable or ErrUnknownOutcome the lock stays taken for d or for its former lease,
// and the request is retried in the background. If one owner has several holds, the longest d counts, from the last
// Unlock on.
//
// d is at most a hundred years, whatever the lease and MaxHold. ErrInvalidOption: d is out of bounds, and nothing was
// done.
func (x *Hold) UnlockAfter(ctx context.Context, d time.Duration) error {
	if err := session.CheckRange("minimum hold", d, 0); err != nil {
		return errs.Edge("rlock", err)
	}
	if x.parts != nil {
		x.parts.keep(d)
	} else {
		keep(x.h, d)
	}
	return x.Unlock(ctx)
}

// keep makes the release keep the lock until minimum after the handle's acquisition. After Unlock it does nothing.
func keep(handle *hold.Handle, minimum time.Duration) {
	handle.Unless(func() {
		handle.Bar()
		holding, until := ownerOf(handle), int64(handle.Began+minimum)
		for current := holding.keepUntil.Load(); current < until; current = holding.keepUntil.Load() {
			if holding.keepUntil.CompareAndSwap(current, until) {
				return
			}
		}
	})
}

// life returns the state of the hold, with the contexts that end with it.
func (x *Hold) life() *hold.Life {
	if x.parts != nil {
		return x.parts.life
	}
	return &x.h.Life
}
