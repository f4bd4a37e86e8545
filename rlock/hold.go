package rlock

import (
	"context"
	"runtime"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// Hold is one acquisition of a lock, the right to act as its holder until Unlock, or until it is lost. It is safe for
// concurrent use and belongs to no goroutine.
//
// Run the work under [Hold.Context], which ends with the hold. A hold that nobody can reach any more, neither it nor
// one of its contexts, is no longer renewed, with a warning in the log: its lease runs out. The garbage collector finds that
// out, which runs every two minutes in a process that is idle: it is renewed until then. What context.AfterFunc runs after one
// of its contexts counts as one of them.
type Hold struct {
	h       *session.Handle
	cleanup runtime.Cleanup
	parts   *parts // of a Multi or Quorum lock: then h is nil
}

func newHold(h *session.Handle) *Hold {
	hold := &Hold{h: h}
	hold.cleanup = runtime.AddCleanup(hold, (*session.Handle).Dropped, h)
	return hold
}

// ownerOf is the owner of which h is a handle.
func ownerOf(h *session.Handle) *owner { return h.Holding.Lease.Of.(*owner) }

// Context returns a child of parent that ends with the hold: at Unlock with cause ErrReleased, otherwise with ErrLost,
// ErrMaxHold or ErrClosed. It carries the owner of this lock: acquiring the same lock under it re-enters the hold. It
// carries nothing for other locks, so goroutines that share it exclude each other on them.
//
// The context of a hold that is over has ended.
func (x *Hold) Context(parent context.Context) context.Context {
	if own, ok := parent.(*holdContext); ok && own.hold == x {
		parent = own.Context // it refers to the Hold, and the life, which the watchdog knows, to it
	}
	return &holdContext{x.life().Context(parent), x}
}

// Done returns a channel that is closed when the hold is over.
func (x *Hold) Done() <-chan struct{} { return x.life().Done() }

// Err says why the hold is over: ErrReleased, ErrLost (which may be joined with ErrWrongType: compare with errors.Is),
// ErrMaxHold or ErrClosed; nil while it lasts.
func (x *Hold) Err() error { return x.life().Err() }

// Name returns the lock's name.
func (x *Hold) Name() string {
	if x.parts != nil {
		return x.parts.of.name
	}
	return x.h.Holding.Lease.Name
}

// Owner returns the owner as the server knows it. Re-entries share it.
func (x *Hold) Owner() Owner {
	if x.parts != nil {
		return x.parts.owners()
	}
	return Owner(x.h.Holding.Lease.Owner)
}

// Token returns the hold's fencing token; false if the lock is not a Fenced one.
func (x *Hold) Token() (token int64, ok bool) {
	if x.parts != nil {
		return x.parts.token()
	}
	token = ownerOf(x.h).token
	return token, token != 0
}

// Until returns the instant, on this process's monotonic clock, until which it is safe to act. It moves on with every
// confirmed renewal, and back when it is found out that somebody has shortened the lease on the server; after the hold is
// over it says nothing. A lock that was handed over has a short lease at first (four
// PollCaps of 10 s at most, four CallTimeouts or a second, whichever is most), which is raised to the full one after a third
// of it, also that of WithLease.
func (x *Hold) Until() time.Time {
	if x.parts != nil {
		return x.parts.until()
	}
	return x.h.Holding.Until()
}

// Extend makes the hold last for at least d from now, at least 10 ms; it never shortens it. nil: confirmed by the
// server. ErrLost: the hold is over and this is how it was found out, or it was before; ErrMaxHold, ErrClosed, ErrReleased
// likewise. ErrUnavailable, ErrUnknownOutcome or ErrNotReplicated: Until is as it was. ErrInvalidOption: d is out of bounds,
// and nothing was sent.
func (x *Hold) Extend(ctx context.Context, d time.Duration) error {
	if x.parts != nil {
		return x.parts.extend(ctx, d)
	}
	return x.h.Extend(ctx, d)
}

// Unlock ends the hold and releases the lock, or lowers its count if other holds of the same owner last. It may be
// called from any goroutine and with a ctx that has ended.
//
// nil: released, confirmed by the server. ErrLost: the hold was over before, somebody else may have had the lock.
// ErrUnavailable or ErrUnknownOutcome: not confirmed while ctx lasted (1 s if it had ended at the call, or comes from
// this hold's Context, which Unlock ends); the release goes on in the background until the lease is over. Any other
// refusal of the server, as for want of a right, comes at once, and the release goes on likewise. In every
// case the hold's contexts have ended and it is not renewed any more. Later calls return the first one's result.
func (x *Hold) Unlock(ctx context.Context) error {
	if x.parts != nil {
		return x.parts.unlock(ctx)
	}
	x.cleanup.Stop()
	return x.h.Release(ctx)
}

// UnlockAfter is Unlock for work that must not be done again too soon: the lock stays taken until d after it was acquired,
// however early the work is done. So a job that takes a moment is not run again by a machine that comes a little later, or
// whose clock is behind (ShedLock's lockAtLeastFor). If d is over it is Unlock.
//
// Otherwise the hold ends, and the server is left to end the lock when d is over: this process need not last until then.
// Nobody is told when that happens; waiters look when it is due. The result is Unlock's: nil says that the server
// confirmed it. ErrUnavailable or ErrUnknownOutcome: the lock stays taken for d or for the lease it had, whichever comes
// about; this goes on in the background. Of several holds of one owner the longest d counts, from the last Unlock on.
// d is at most a hundred years, whatever the lease and MaxHold; ErrInvalidOption otherwise, and nothing is done.
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
		own, until := ownerOf(h), int64(h.Began+d)
		for k := own.keep.Load(); k < until && !own.keep.CompareAndSwap(k, until); k = own.keep.Load() {
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
