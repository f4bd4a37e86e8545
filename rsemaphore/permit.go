package rsemaphore

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Permit is one acquisition of a semaphore: the right to as many permits as were acquired, until Release or until it is
// lost. It is safe for concurrent use and belongs to no goroutine.
//
// Run the work under [Permit.Context], which ends with the permit. A permit is forgotten when the program can reach
// neither it nor one of its contexts any more. It is then no longer renewed, its lease runs out, and a warning is
// logged. The garbage collector finds forgotten permits; in an idle process it runs every two minutes, and until then
// the permit is renewed. A permit with a leaseTime of its own may be left to its lease on purpose: permits with a
// leaseTime of a minute that are never released limit the starts in a minute.
type Permit struct {
	h        *hold.Handle
	cleanup  runtime.Cleanup
	acquired context.Context // the context of the acquisition, for Event.Acquisition; nil without an observer
}

// permit is the watchdog's part of a Permit.
type permit struct {
	hold.Holding // the owner is the base of the ids and their number
	s            *Semaphore
	n            int
	token        int64        // set before the handle is made; 0: none
	unheard      atomic.Bool  // a release got no reply, and may have served other waiters of this process
	stillHeld    atomic.Int64 // the permits that it still holds: with weights, n less the released parts
	partsMu      sync.Mutex   // allows one ReleasePart at a time, so that the server receives the lowest number last
}

func (s *Semaphore) newPermit(ctx context.Context, permits int, longest time.Duration, renewed bool) *permit {
	own := &permit{s: s, n: permits}
	own.stillHeld.Store(int64(permits))
	own.Lease = lease.Lease{Name: s.name, Key: s.key, More: &s.renewKeys,
		Owner: s.c.newOwner(permits, renewed, s.share != nil), Renew: s.store.renew, Untracked: true, Ctx: ctx,
		Longest: longest}
	own.Lease.RaiseSoon()
	own.Granted = own.base()
	own.Begin(s.c.keeper, own)
	return own
}

// Shown implements lease.Holder.
func (p *permit) Shown() string {
	first := idText(idOf(p.base(), 0))
	if records := p.s.store.records(p.n); records > 1 {
		return fmt.Sprintf("%s and %d more", first, records-1)
	}
	return first
}

// Records implements lease.Holder.
func (p *permit) Records() int { return p.s.store.records(p.n) }

// ids returns the raw ids.
func (p *permit) ids() []string {
	ids := make([]string, p.s.store.records(p.n))
	for i := range ids {
		ids[i] = idOf(p.base(), i)
	}
	return ids
}

// base returns the common part of the ids.
func (p *permit) base() string { return p.Lease.Owner[:baseSize] }

// Object and Permits are the semaphore and the number of permits, for the debug page.
func (p *permit) Object() any    { return described{p.s} }
func (p *permit) Permits() int64 { return p.stillHeld.Load() }

// Send implements hold.Resource.
func (p *permit) Send(ctx context.Context, _ bool) (gone bool, err error) {
	held, err := p.release(ctx, p.Entry())
	if err != nil {
		p.unheard.Store(true)
	} else if p.unheard.Swap(false) {
		// the release without a reply may have served waiters after the last poll
		p.s.c.waiters.PollAll(p.s.queueKey)
	}
	return !held, err
}

// maxBatchedRecords is the maximum number of records of a permit that is released together with others: a call for all
// of them must not hold up other calls.
const maxBatchedRecords = 4

// batchKey is equal for all permits that one call can release.
type batchKey struct {
	queueKey string
	store    *store
}

// BatchKey implements hold.Several.
func (p *permit) BatchKey() any {
	if p.s.store.records(p.n) > maxBatchedRecords {
		return nil
	}
	return batchKey{p.s.queueKey, p.s.store}
}

// SendAll implements hold.Several.
func (p *permit) SendAll(ctx context.Context, all []*hold.Holding) error {
	semaphore := p.s
	var others []string
	for _, holding := range all {
		if other := holding.Lease.Of.(*permit); other != p {
			others = append(others, other.Lease.Owner, other.Entry())
		}
	}
	_, err := semaphore.runRelease(ctx, p.Lease.Owner, 0, p.Entry(), others...)
	poll := false
	for _, holding := range all {
		if other := holding.Lease.Of.(*permit); err != nil {
			other.unheard.Store(true)
		} else if other.unheard.Swap(false) {
			poll = true
		}
	}
	if poll {
		semaphore.c.waiters.PollAll(semaphore.queueKey) // as in Send
	}
	return err
}

// release sends the release of the whole permit once, and reports whether all of it was held.
func (p *permit) release(ctx context.Context, entry string) (held bool, err error) {
	if entry == "" && p.s.plain(p.n) {
		coalesce := p.s.c.coalescer.Enter()
		defer p.s.c.coalescer.Leave()
		if coalesce {
			if done, err := p.s.releaseShared(ctx, p.base()); done || err != nil {
				return done, err
			}
		}
	}
	released, err := p.s.runRelease(ctx, p.Lease.Owner, 0, entry)
	return released >= p.stillHeld.Load(), err // more, if a ReleasePart got no reply
}

// Label implements hold.Resource.
func (p *permit) Label() string { return p.s.label }

func newPermitHandle(handle *hold.Handle) *Permit {
	permit := &Permit{h: handle}
	permit.cleanup = runtime.AddCleanup(permit, (*hold.Handle).Dropped, handle)
	return permit
}

func (x *Permit) permit() *permit { return x.h.Holding.Lease.Of.(*permit) }

// permitContext refers to the Permit, which therefore counts as in use for as long as any of its contexts does. The
// watchdog refers to the handle behind the Permit, and never to the Permit. The other way round, a permit that is used
// only through its context would be collected and no longer renewed, or a forgotten permit would be renewed forever
// (TestPermit_Dropped_IsRenewedNoMoreAndLogged, and the suite of internal/contract forgets a permit). A listener of a
// context keeps the permit, too: context.AfterFunc refers to it.
type permitContext struct {
	context.Context
	permit *Permit
}

// Context returns a child of parent that ends with the permit: at Release with cause ErrReleased, otherwise with
// ErrLost, ErrMaxHold or ErrClosed. If the permit is over, the context has ended.
func (x *Permit) Context(parent context.Context) context.Context {
	if own, ok := parent.(*permitContext); ok && own.permit == x {
		parent = own.Context // own refers to the Permit, and the life, which the watchdog knows, must not refer to own
	}
	return &permitContext{x.h.Life.Context(parent), x}
}

// Done returns a channel that is closed when the permit is over.
func (x *Permit) Done() <-chan struct{} { return x.h.Done() }

// Err returns the reason of the permit's end: ErrReleased, ErrLost (which may be joined with ErrWrongType: compare with
// errors.Is), ErrMaxHold or ErrClosed. It is nil while the permit lasts.
func (x *Permit) Err() error { return x.h.Err() }

// Name returns the semaphore's name.
func (x *Permit) Name() string { return x.h.Holding.Lease.Name }

// N returns the number of permits that it holds: as many as were acquired, less those that ReleasePart has released.
// After the end of the permit it means nothing.
func (x *Permit) N() int { return int(x.permit().stillHeld.Load()) }

// IDs returns the ids of its permits, as many as were acquired, each 32 hexadecimal digits. [Semaphore.ReleaseIDs] and
// Redisson take these ids. An acquisition of a WeightedSemaphore has one id, whatever it weighs.
func (x *Permit) IDs() []string {
	ids := x.permit().ids()
	for i, raw := range ids {
		ids[i] = idText(raw)
	}
	return ids
}

// Until returns the instant, on this process's monotonic clock, until which it is safe to act. Every confirmed renewal
// moves it forward. After the end of the permit it means nothing.
func (x *Permit) Until() time.Time { return x.h.Holding.Until() }

// Extend makes the permit last for at least extension from now; it never shortens it. extension is at least 10 ms. The
// request is repeated until it is answered, ctx ends or Options.RetryTimeout is over. The results are:
//
//   - nil: the server has confirmed it.
//   - ErrLost: the permit is over; this call may have found that out.
//   - ErrReleased: Release was called.
//   - ErrUnavailable, ErrUnknownOutcome or ErrNotReplicated: Until has not changed.
func (x *Permit) Extend(ctx context.Context, extension time.Duration) error {
	return x.h.Extend(ctx, extension)
}

// Release ends the permit and gives it back, all of it. It may be called from any goroutine and with a ctx that has
// ended. In every case the permit's contexts have ended and it is no longer renewed. The results are:
//
//   - nil: the server has confirmed it.
//   - ErrLost: the permit was over before, in whole or in part; another holder may have had it.
//   - ErrUnavailable or ErrUnknownOutcome: the server has not confirmed it while ctx lasted. If ctx had ended, or comes
//     from this permit's Context, which Release ends, Release waits for 1 s.
//   - Any other error, as for want of a right, is returned at once.
//
// After the last two the release goes on in the background until the lease is over. Later calls return the first call's
// result.
func (x *Permit) Release(ctx context.Context) error {
	x.cleanup.Stop()
	return x.h.Release(ctx, x.acquired)
}

// ReleasePart gives n permits back and keeps the rest: n is 1 to less than [Permit.N]. It serves waiters. It may be
// called with a ctx that has ended, and then has a second. To give back all, call Release. It is for permits of a
// WeightedSemaphore; for others, and for another n, it returns ErrInvalidOption.
//
// N is less by n before anything is sent, and stays so whatever the error: act with no more. A repeated request gives
// nothing back twice. The results are:
//
//   - nil: the server has confirmed it.
//   - ErrUnavailable or ErrUnknownOutcome: the server may keep n from others until it receives the next ReleasePart or
//     Release.
//   - ErrLost, ErrReleased, ErrMaxHold or ErrClosed: the permit is over.
func (x *Permit) ReleasePart(ctx context.Context, n int) error {
	own := x.permit()
	semaphore := own.s
	if semaphore.store.perPermit {
		return semaphore.c.session.Error(fmt.Errorf("%q: %w: ReleasePart is for permits of a WeightedSemaphore",
			semaphore.name, errs.ErrInvalidOption))
	}
	own.partsMu.Lock()
	defer own.partsMu.Unlock()
	before := own.stillHeld.Load()
	if n < 1 || int64(n) >= before {
		return semaphore.c.session.Error(fmt.Errorf("%q: %w", semaphore.name,
			errs.InvalidOption("n", n, fmt.Sprintf("1 to %d, less than the permit has", before-1))))
	}
	if err := x.Err(); err != nil {
		return semaphore.c.session.Error(fmt.Errorf("release of a part of %q: %w", semaphore.name, err))
	}
	kept := before - int64(n)
	own.stillHeld.Store(kept)
	ctx, cancel := session.ToRelease(ctx)
	defer cancel()
	held, err := session.Ask(ctx, semaphore.c.session, nil, func(ctx context.Context) (held int64, err error) {
		outcomeUnknown, err := script.Repeat(ctx, false, func() (err error) {
			held, err = semaphore.runRelease(ctx, own.Lease.Owner, kept, "")
			return err
		})
		if outcomeUnknown {
			semaphore.c.waiters.PollAll(semaphore.queueKey)
		}
		return held, err
	})
	if err == nil && held == 0 {
		err = semaphore.c.session.Error(fmt.Errorf("release of a part of %q: %w", semaphore.name, errs.ErrLost))
	}
	return err
}
