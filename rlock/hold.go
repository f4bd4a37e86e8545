package rlock

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Hold is one acquisition of a lock: the right to act as its holder until Unlock, or until it is lost. It is safe for
// concurrent use and belongs to no goroutine.
//
// Run the work under [Hold.Context], which ends with the hold. If the program can no longer reach a hold or any of its
// contexts, the hold was forgotten: it is renewed no more, a warning is logged, and its lease runs out. A function that
// context.AfterFunc runs after one of its contexts keeps it reachable. The garbage collector finds forgotten holds. In
// an idle process it runs every two minutes, and the hold is renewed until then. WithLease, Options.MaxHold and
// [Lock.Do] bound a hold without it.
type Hold struct {
	h       *session.Handle
	cleanup runtime.Cleanup
	parts   *parts // of a Multi or Quorum lock: then h is nil
	// acquired is the context of the acquisition, for Event.Acquisition; nil without an observer
	acquired context.Context
}

// newHold makes the Hold of a handle, and learns from the garbage collector if it is forgotten.
//
// Nothing here runs the garbage collector for that. It would go through the whole heap of every idle process that holds
// a lock, for a mistake that most programs do not make and that the log names.
func newHold(h *session.Handle) *Hold {
	hold := &Hold{h: h}
	hold.cleanup = runtime.AddCleanup(hold, (*session.Handle).Dropped, h)
	return hold
}

// follow keeps the context of the hold's acquisition, if there is an observer: it gets it at the release.
func (x *Hold) follow(ctx context.Context, c *Client) {
	if c.opts.Observer != nil {
		x.acquired = ctx
	}
}

// client is that of the hold; of a composite, that of its first member.
func (x *Hold) client() *Client {
	if x.parts != nil {
		return x.parts.of.members[0].c
	}
	return ownerOf(x.h).lock.c
}

// ownerOf is the owner of which h is a handle.
func ownerOf(h *session.Handle) *owner { return h.Holding.Lease.Of.(*owner) }

// Context returns a child of parent that ends with the hold. Its cause is ErrReleased after Unlock, otherwise ErrLost,
// ErrMaxHold or ErrClosed. It carries the owner of this lock: acquiring the same lock under it re-enters the hold. It
// carries nothing for other locks, so goroutines that share it exclude each other on those.
//
// If the hold is over, the context has already ended.
func (x *Hold) Context(parent context.Context) context.Context {
	if own, ok := parent.(*holdContext); ok && own.hold == x {
		parent = own.Context // it refers to the Hold, and the life, which the watchdog knows, to it
	}
	return &holdContext{x.life().Context(parent), x}
}

// Done returns a channel that is closed when the hold is over.
func (x *Hold) Done() <-chan struct{} { return x.life().Done() }

// Err returns nil while the hold lasts, and then why it ended: ErrReleased, ErrLost, ErrMaxHold or ErrClosed. ErrLost
// may be joined with ErrWrongType, so compare with errors.Is.
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
// while it lasted is used by no other caller. Called for the first time when the hold is over, Owner returns one that
// never held anything.
func (x *Hold) Owner() Owner {
	if x.parts != nil {
		return x.parts.owners()
	}
	if x.h.Bar() {
		return Owner(x.h.Holding.Lease.Owner)
	}
	// Another caller of this process may have the lock as the same owner now, and must not be joined by who gets this
	// text.
	return Owner(fmt.Sprintf("%s:turn %d", x.h.Holding.Lease.Owner, x.h.Turn()))
}

// Token returns the fencing token of the hold. ok is false if the lock is not a Fenced one, nor a Multi with one.
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
// CallTimeouts, and a second. After a third of that it is raised to the full lease, or to that of WithLease.
func (x *Hold) Until() time.Time {
	if x.parts != nil {
		return x.parts.until()
	}
	return x.h.Holding.Until()
}

// Extend makes the hold last for at least d from now. d is at least 10 ms. It never shortens the hold. It tries until
// it is answered, ctx ends or Options.RetryTimeout is over.
//
// nil: the server has confirmed it. ErrLost, ErrMaxHold, ErrClosed or ErrReleased: the hold is over, and was so before
// the call or this call found it out. ErrUnavailable, ErrUnknownOutcome or ErrNotReplicated: Until has not moved.
// ErrInvalidOption: d is out of bounds, and nothing was sent.
func (x *Hold) Extend(ctx context.Context, d time.Duration) error {
	if x.parts != nil {
		return x.parts.extend(ctx, d)
	}
	return x.h.Extend(ctx, d)
}

// Unlock ends the hold and releases the lock, unless other holds of the same owner last: then it sends nothing. It may
// be called from any goroutine, and with a ctx that has ended: the release then has a second. A ctx that comes from
// this hold's Context, which Unlock ends, has a second, too.
//
// nil: the lock was released, and the server has confirmed it; or other holds of its owner last, or another caller of
// this process has it next, without a request, and by this process's clock it was held until then. ErrLost: the hold
// was over before, and another owner may have held the lock since. ErrUnavailable or ErrUnknownOutcome: the release was
// not confirmed while ctx lasted; it goes on in the background until the lease is over. Any other refusal of the
// server, such as ErrDenied, is returned at once, and the release goes on likewise.
//
// In every case the hold's contexts have ended and it is renewed no more. Later calls return the first one's result.
func (x *Hold) Unlock(ctx context.Context) error {
	if x.parts != nil {
		return x.parts.unlock(ctx)
	}
	x.cleanup.Stop()
	return x.h.Release(ctx, x.acquired)
}

// UnlockAfter is Unlock for work that must not be done again too soon: the lock stays taken until d after it was
// acquired, however early the work is done. So a job that takes a moment is not run again by a machine that comes a
// little later, or whose clock is behind (ShedLock's lockAtLeastFor). If d is over, UnlockAfter is Unlock.
//
// Otherwise the hold ends, and the server ends the lock when d is over, even if the process exits. Waiters are notified
// now, and ask when it is due. The result is Unlock's: nil says that the server has confirmed it. After ErrUnavailable
// or ErrUnknownOutcome the lock stays taken for d or for the lease that it had; the call goes on in the background. If
// one owner has several holds, the longest d counts, from the last Unlock on.
//
// d is at most a hundred years, whatever the lease and MaxHold. ErrInvalidOption: it is not, and nothing was done.
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

// keep has the lock last until d after the handle's acquisition, unless its Unlock was called.
func keep(h *session.Handle, d time.Duration) {
	h.Unless(func() {
		h.Bar()
		own, until := ownerOf(h), int64(h.Began+d)
		for k := own.keep.Load(); k < until; k = own.keep.Load() {
			if own.keep.CompareAndSwap(k, until) {
				return
			}
		}
	})
}

// life is whether the hold lasts, and the contexts that end with it.
func (x *Hold) life() *session.Life {
	if x.parts != nil {
		return &x.parts.b.life
	}
	return &x.h.Life
}
