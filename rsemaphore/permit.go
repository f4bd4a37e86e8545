package rsemaphore

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Permit is one acquisition of a semaphore: the right to as many permits as were asked for, until Release or until
// it is lost. It is safe for concurrent use and belongs to no goroutine.
//
// Run the work under [Permit.Context], which ends with the permit. A permit is forgotten when neither it nor one of its
// contexts can be reached any more. It is then no longer renewed, its lease runs out, and a warning is logged. The
// garbage collector finds that out, which runs every two minutes in an idle process; until then the permit is renewed.
// A permit with a leaseTime of its own may be left to it on purpose: of permits for a minute that are not released,
// each is one start a minute.
type Permit struct {
	h        *session.Handle
	cleanup  runtime.Cleanup
	acquired context.Context // of the acquisition, for Event.Acquisition; nil without an observer
}

// permit is what the watchdog keeps of a Permit.
type permit struct {
	session.Holding // its owner is the base of its ids, and how many they are
	s               *Semaphore
	n               int
	token           int64        // set before the handle is made; 0: none
	unheard         atomic.Bool  // a request of it was not answered, and may have served other waiters of this process
	weight          atomic.Int64 // what it holds: of weights n less the parts that were released
	parts           sync.Mutex   // one ReleasePart at a time, so that what the server hears last is least
}

func (s *Semaphore) newPermit(ctx context.Context, n int, d time.Duration, renewed bool) *permit {
	p := &permit{s: s, n: n}
	p.weight.Store(int64(n))
	p.Lease = lease.Lease{Name: s.name, Key: s.key, More: &s.renewKeys, Owner: s.c.newOwner(n, renewed),
		Renew: s.store.renew, Untracked: true, Soon: true, Ctx: ctx, Longest: d}
	if records := s.store.records(n); records > 1 {
		p.Lease.Records = int32(records)
	}
	p.Granted = p.base()
	p.Begin(&s.c.handles, p)
	return p
}

// Shown is what logs call a permit.
func (p *permit) Shown() string {
	first := idText(idOf(p.base(), 0))
	if records := p.s.store.records(p.n); records > 1 {
		return fmt.Sprintf("%s and %d more", first, records-1)
	}
	return first
}

// ids are the raw ids.
func (p *permit) ids() []string {
	ids := make([]string, p.s.store.records(p.n))
	for i := range ids {
		ids[i] = idOf(p.base(), i)
	}
	return ids
}

// base is what its ids have in common.
func (p *permit) base() string { return p.Lease.Owner[:baseSize] }

// Object is what it is of, and Permits how many it holds, for the debug page.
func (p *permit) Object() any    { return described{p.s} }
func (p *permit) Permits() int64 { return p.weight.Load() }

// Send implements session.Resource.
func (p *permit) Send(ctx context.Context, _ bool) (gone bool, err error) {
	held, err := p.release(ctx, p.Entry())
	if err != nil {
		p.unheard.Store(true)
	} else if p.unheard.Swap(false) {
		// the one that was not answered may have run since the waiters were asked for
		p.s.c.waiters.PollAll(p.s.queueKey)
	}
	return !held, err
}

// mostBatched is how many records one may have that is released with others: a call for all of them is to hold up
// no other call.
const mostBatched = 4

// batchKey is what is the same for all that one call can release.
type batchKey struct {
	queueKey string
	store    *store
}

// BatchKey implements session.Several.
func (p *permit) BatchKey() any {
	if p.s.store.records(p.n) > mostBatched {
		return nil
	}
	return batchKey{p.s.queueKey, p.s.store}
}

// SendAll implements session.Several.
func (p *permit) SendAll(ctx context.Context, all []*session.Holding) error {
	s := p.s
	var others []string
	for _, o := range all {
		if other := o.Lease.Of.(*permit); other != p {
			others = append(others, other.Lease.Owner, other.Entry())
		}
	}
	_, err := s.runRelease(ctx, p.Lease.Owner, 0, p.Entry(), others...)
	again := false
	for _, o := range all {
		if other := o.Lease.Of.(*permit); err != nil {
			other.unheard.Store(true)
		} else if other.unheard.Swap(false) {
			again = true
		}
	}
	if again {
		s.c.waiters.PollAll(s.queueKey) // as in Send
	}
	return err
}

// release sends a release of all once, and reports whether all of it was held.
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
	n, err := p.s.runRelease(ctx, p.Lease.Owner, 0, entry)
	return n >= p.weight.Load(), err // more, if a ReleasePart was not heard
}

// Label implements session.Resource.
func (p *permit) Label() string { return p.s.label }

func newPermitHandle(h *session.Handle) *Permit {
	x := &Permit{h: h}
	x.cleanup = runtime.AddCleanup(x, (*session.Handle).Dropped, h)
	return x
}

func (x *Permit) permit() *permit { return x.h.Holding.Lease.Of.(*permit) }

// permitContext refers to the Permit, which therefore counts as in use for as long as any of its contexts does. The
// watchdog refers to the handle behind the Permit, and never to the Permit. Were it the other way round, a permit that
// is used only through its context would be collected and no longer renewed, or a forgotten one renewed forever
// (TestPermit_Dropped_IsRenewedNoMoreAndLogged, and the suite of internal/contract forgets one). Whatever
// listens on a context keeps it, too: context.AfterFunc refers to it.
type permitContext struct {
	context.Context
	permit *Permit
}

// Context returns a child of parent that ends with the permit: at Release with cause ErrReleased, otherwise with
// ErrLost, ErrMaxHold or ErrClosed. The context of a permit that is over has ended.
func (x *Permit) Context(parent context.Context) context.Context {
	if own, ok := parent.(*permitContext); ok && own.permit == x {
		parent = own.Context // own refers to the Permit, and would be referred to by the life, which the watchdog knows
	}
	return &permitContext{x.h.Life.Context(parent), x}
}

// Done returns a channel that is closed when the permit is over.
func (x *Permit) Done() <-chan struct{} { return x.h.Done() }

// Err says why the permit is over: ErrReleased, ErrLost (which may be joined with ErrWrongType: compare with
// errors.Is), ErrMaxHold or ErrClosed; nil while it lasts.
func (x *Permit) Err() error { return x.h.Err() }

// Name returns the semaphore's name.
func (x *Permit) Name() string { return x.h.Holding.Lease.Name }

// N returns how many permits it holds: as many as were acquired, less what ReleasePart has given back. After the end of
// the permit it means nothing.
func (x *Permit) N() int { return int(x.permit().weight.Load()) }

// IDs returns the ids of its permits, as many as were acquired, each 32 hexadecimal digits: what
// [Semaphore.ReleaseIDs] and Redisson take. An acquisition of a WeightedSemaphore has one, whatever it weighs.
func (x *Permit) IDs() []string {
	ids := x.permit().ids()
	for i, raw := range ids {
		ids[i] = idText(raw)
	}
	return ids
}

// Until returns the instant, on this process's monotonic clock, until which it is safe to act. Every confirmed renewal
// moves it on. After the end of the permit it means nothing.
func (x *Permit) Until() time.Time { return x.h.Holding.Until() }

// Extend makes the permit last for at least d from now; it never shortens it. d is at least 10 ms. It tries until it is
// answered, ctx ends or Options.RetryTimeout is over. nil: the server has confirmed it. ErrLost: the permit is over;
// this call may have found that out. ErrReleased: Release was called. ErrUnavailable, ErrUnknownOutcome or
// ErrNotReplicated: Until is as it was.
func (x *Permit) Extend(ctx context.Context, d time.Duration) error {
	return x.h.Extend(ctx, d)
}

// Release ends the permit and gives it back, all of it. It may be called from any goroutine and with a ctx that has
// ended.
//
// nil: the server has confirmed it. ErrLost: the permit was over before, in whole or in part; another holder may have
// had it. ErrUnavailable or ErrUnknownOutcome: the server has not confirmed it while ctx lasted, or within 1 s if ctx
// had ended or comes from this permit's Context, which Release ends. The release goes on in the background until the
// lease is over. Any other error, as for want of a right, is returned at once, and the release goes on likewise. In
// every case the permit's contexts have ended and it is no longer renewed. Later calls return the first one's result.
func (x *Permit) Release(ctx context.Context) error {
	x.cleanup.Stop()
	return x.h.Release(ctx, x.acquired)
}

// ReleasePart gives n back and keeps the rest: n is 1 to less than [Permit.N]. It serves waiters, and may be called
// with a ctx that has ended, and then has a second. To give back all, call Release. It is for permits of a
// WeightedSemaphore; ErrInvalidOption refuses others, and another n.
//
// Before anything is sent, N is less by n, and stays so whatever the error: act with no more. nil: the server has
// confirmed it. ErrUnavailable or ErrUnknownOutcome: it may keep n from others until the next ReleasePart or Release
// that it hears. ErrLost, ErrReleased, ErrMaxHold or ErrClosed: the permit is over. A repeated request gives nothing
// back twice.
func (x *Permit) ReleasePart(ctx context.Context, n int) error {
	p := x.permit()
	s := p.s
	if s.store.perPermit {
		return s.c.session.Error(fmt.Errorf("%q: %w: ReleasePart is for permits of a WeightedSemaphore",
			s.name, errs.ErrInvalidOption))
	}
	p.parts.Lock()
	defer p.parts.Unlock()
	has := p.weight.Load()
	if n < 1 || int64(n) >= has {
		return s.c.session.Error(fmt.Errorf("%q: %w", s.name,
			errs.InvalidOption("n", n, fmt.Sprintf("1 to %d, less than the permit has", has-1))))
	}
	if err := x.Err(); err != nil {
		return s.c.session.Error(fmt.Errorf("release of a part of %q: %w", s.name, err))
	}
	kept := has - int64(n)
	p.weight.Store(kept)
	ctx, cancel := session.ToRelease(ctx)
	defer cancel()
	held, err := session.Ask(ctx, s.c.session, nil, func(ctx context.Context) (held int64, err error) {
		unsure, err := script.Repeat(ctx, false, func() (err error) {
			held, err = s.runRelease(ctx, p.Lease.Owner, kept, "")
			return err
		})
		if unsure {
			s.c.waiters.PollAll(s.queueKey)
		}
		return held, err
	})
	if err == nil && held == 0 {
		err = s.c.session.Error(fmt.Errorf("release of a part of %q: %w", s.name, errs.ErrLost))
	}
	return err
}
