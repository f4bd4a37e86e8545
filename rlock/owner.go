package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
)

// owner is one outermost acquisition and its re-entries. On the server it is one field of the lock's hash.
//
// The id of an owner is never used again, not even by the same goroutine for the same lock. Otherwise the release of a
// first hold, of unknown outcome, could arrive after a second acquisition by the same id, and remove the second hold
// (TestAcquire_EachTime_IsANewOwner). The label is part of the id: a key or field of its own could outlive the hold, or
// be missing while the hold lasts.
type owner struct {
	hold.Holding
	lock      *single
	writeHold *owner // the write hold under which the owner reads; nil: none
	token     int64  // set before the first handle is made; 0: none
	// turnsUntil is after lockCohorts.base: no turn of the tenure begins later, as this owner or as another owner. Guarded
	// by lockCohorts.mu.
	turnsUntil time.Duration
	// keepUntil is in ns after session.Base: the lock is not released before; see UnlockAfter. 0: no limit.
	keepUntil atomic.Int64
	once      *onceRun // of a Once; nil for other kinds
}

func (l *single) newOwner(ctx context.Context, d time.Duration, label string) *owner {
	own := &owner{lock: l}
	own.Lease = lease.Lease{Name: l.name, Owner: l.c.keeper.NewOwner(label), Renew: l.kind.layout.renew, Ctx: ctx,
		Longest: d}
	// Each vote's deadline allows for drift, not the majority's, because each server has a clock of its own.
	own.Lease.Drift = l.kind.allowsDrift
	own.Lease.Key = l.leaseKey(own.Lease.Owner)
	if l.kind.layout.extraRenewKeys != nil {
		more := l.kind.layout.extraRenewKeys(l, own.Lease.Owner)
		own.Lease.More = &more
	}
	if l.kind == kindOnce {
		own.once = &onceRun{}
	}
	own.Begin(l.c.keeper, own)
	return own
}

// leaseKey returns the key by which the watchdog knows an owner's hold.
func (l *single) leaseKey(owner string) string {
	if l.kind.layout.leaseKey != nil {
		return l.kind.layout.leaseKey(l, owner)
	}
	return l.key
}

// Owner is the text under which the server knows a holder: "<connectionID>:<n>", and ":<label>" if the lock has one. It
// can be sent to another process, which joins the hold with [Lock.WithOwner].
type Owner string

// ours reports whether o is an owner of this library, and not of Redisson or another program.
func (o Owner) ours() bool { return lease.Ours(string(o)) }

// Label returns the label of the lock that the owner acquired; "" if it had none, or if the owner is not one of this
// library.
func (o Owner) Label() string {
	parts := strings.SplitN(string(o), ":", 3)
	if len(parts) < 3 || !o.ours() {
		return ""
	}
	label, err := url.PathUnescape(parts[2])
	if err != nil {
		return parts[2]
	}
	return label
}

// sentOwner is the text of an owner that another process sent.
type sentOwner struct{ owner Owner }

// WithOwner returns ctx with an owner of this lock, which another process sent (see [Hold.Owner]). Acquiring the lock
// under it joins that owner's hold at once, without waiting. The joiner gets a hold of its own, with its own lease. The
// lock is free when the last hold or join is released. If the owner is one of this very client, it is re-entered.
//
// Use only the text of [Hold.Owner]. The callers of a process that follow each other may share an owner. After
// Hold.Owner no other caller gets the same owner. The same text from [Lock.Inspect] or [NotAcquiredError] may belong to
// a later caller when it is used.
//
// Acquiring returns ErrLost if that owner does not hold the lock any more, or has left it by [Hold.UnlockAfter]. It
// returns ErrInvalidOption if the lock is not a Reentrant one, or if the text is not an owner of this library: the
// unlock of a Java holder would delete the lock under its joiners.
//
// A joiner that dies keeps the lock taken no longer than its own lease lasts. So does an owner that dies while it is
// joined. The server's clock decides.
func (l *Lock) WithOwner(ctx context.Context, owner Owner) context.Context {
	return l.form.withOwner(ctx, owner)
}

func (l *single) withOwner(ctx context.Context, owner Owner) context.Context {
	return &ownerContext{ctx, l.ownKey, sentOwner{owner}}
}

type ownerContext struct {
	context.Context
	key   any // an ownerKey
	owner sentOwner
}

func (x *ownerContext) Value(key any) any {
	if key == x.key {
		return x.owner
	}
	return x.Context.Value(key)
}

// Label implements hold.Resource.
func (o *owner) Label() string { return Owner(o.Lease.Owner).Label() }

// hasLabel reports whether the owner has the label. It is called for each turn, mostly with "", so that case only
// counts the colons of the text.
func (o *owner) hasLabel(label string) bool {
	if label == "" {
		return strings.Count(o.Lease.Owner, ":") == 1
	}
	return o.Label() == label
}

// Object returns the lock, for the debug page.
func (o *owner) Object() any { return o.lock }

// Send implements hold.Resource: it sends the release once.
//
//   - Before the instant of UnlockAfter it makes the lock end at that instant (keep.lua), and makes waiters send
//     requests (look.lua).
//   - With an answer of a Once it stores the answer, too, and gives it to all waiters (once_store.lua).
//   - The first release of a tenure also requests the next tenure, if callers wait (cohort.go). A repeated release
//     (again) does not, because it may be the second run of the first: the lease of the next tenure counts from the
//     first send, so a grant by a later run would be trusted for too long.
//   - Otherwise the release removes the owner. The script hands the lock over, or publishes the release.
//
// Afterwards a waiter of this process is woken, unless a message notifies it anyway. Before Send, hold.Handle has
// ended the hold's contexts, so that no work continues under it, and has removed the owner from the watchdog.
func (o *owner) Send(ctx context.Context, again bool) (gone bool, err error) {
	lock, client := o.lock, o.lock.c
	if o.once.hasAnswer() {
		return o.sendAnswer(ctx)
	}
	var status releaseStatus
	var next *lockContender
	rest := time.Duration(0)
	if keepUntil := o.keepUntil.Load(); keepUntil != 0 {
		rest = time.Duration(keepUntil) - time.Since(client.session.Base)
	}
	if rest <= 0 && !again && o.Follows() {
		next = client.cohorts.endTenure(o)
	}
	switch {
	case rest > 0:
		status, err = lock.runKeep(ctx, o.Lease.Owner, rest)
		o.Gone() // the waiting callers request the next tenure, and learn the end of this hold
		if err == nil && status == releaseDone {
			lock.runLook(ctx)
		}
	case next != nil:
		status, err = next.awaitRelease(ctx)
	default:
		status, err = lock.runRelease(ctx, o.Lease.Owner, o.Entry())
	}
	if err == nil {
		client.waiters.Wake(lock.key)
	}
	return status == releaseGone, err
}

// batchKey is equal for all owners that one call can release.
type batchKey struct {
	client *Client
	key    string
}

// BatchKey implements hold.Resource. One call can release all owners that leave the queue of a Fair lock, in which
// each waiter has an entry.
func (o *owner) BatchKey() any {
	if !o.lock.kind.waiting.enqueuesWhenRefused || o.keepUntil.Load() != 0 {
		return nil
	}
	return batchKey{o.lock.c, o.lock.key}
}

// SendAll implements hold.Resource.
func (o *owner) SendAll(ctx context.Context, all []*hold.Holding) error {
	lock := o.lock
	request := releaseRequest{owner: o.Lease.Owner}
	for _, other := range all {
		if own := other.Lease.Of.(*owner); own != o {
			request.alsoLeaving = append(request.alsoLeaving, own.Lease.Owner)
		}
		request.entry = cmp.Or(request.entry, other.Entry())
	}
	_, err := lock.sendRelease(ctx, request)
	if err == nil {
		lock.c.waiters.Wake(lock.key)
	}
	return err
}

// ownerKey is the context key of one lock's owner. A hold's context carries nothing for other locks.
type ownerKey struct {
	client *Client
	name   string
	sided  bool // the key stands for both sides of a read-write lock
}

// carriedOwner is the owner of a lock that a context carries.
type carriedOwner struct {
	own  *owner // an owner of this process; nil: none
	turn int32  // of own
	id   Owner  // of any process; "": the context carries no owner
}

// ownerIn returns the owner of lock that ctx carries. It returns ErrLost if ctx carries a hold of the lock that has
// ended. The owner may still hold the lock through the handles of a re-entry or of other readers. The ended hold must
// not use them: a goroutine that kept its context would overtake the waiting writers for as long as those readers
// follow each other.
func ownerIn(ctx context.Context, lock *single) (carriedOwner, error) {
	switch carried := ctx.Value(lock.ownKey).(type) {
	case *hold.Handle:
		switch why := carried.Err(); {
		case errors.Is(why, errs.ErrLost):
			return carriedOwner{}, fmt.Errorf("re-enter %q: %w", lock.name, why) // has ErrWrongType, too, if overwritten
		case why != nil:
			return carriedOwner{}, fmt.Errorf("re-enter %q: %w", lock.name, errs.ErrLost)
		}
		own := ownerOf(carried)
		return carriedOwner{own, carried.Turn(), Owner(own.Lease.Owner)}, nil
	case sentOwner:
		if held := lock.c.engine.Find(lock.leaseKey(string(carried.owner)), string(carried.owner)); held != nil {
			own := held.Of.(*owner)
			return carriedOwner{own, own.Turn(), carried.owner}, nil
		}
		return carriedOwner{id: carried.owner}, nil
	}
	return carriedOwner{}, nil
}

// holdContext is a context of a hold. It refers to the Hold, so the Hold stays in use for as long as any of its
// contexts does. The watchdog refers to the handle behind the Hold only, for two reasons:
//
//   - A hold that is used only through its context must not be collected, because its renewal would end.
//   - A forgotten hold must be collected, because it would be renewed forever (the suite of internal/contract forgets a
//     hold).
type holdContext struct {
	context.Context
	hold *Hold
}

func (x *holdContext) Value(key any) any {
	if _, ok := key.(carriedKey); ok {
		return x
	}
	if parts := x.hold.parts; parts != nil {
		if handle := parts.handle(key); handle != nil {
			return handle
		}
	} else if key == ownerOf(x.hold.h).lock.ownKey {
		return x.hold.h
	}
	return x.Context.Value(key)
}

// Detach returns ctx without the owners that it carries. An acquisition under it re-enters nothing: it waits for the
// locks that its starter holds. It ends when ctx ends; add context.WithoutCancel for work that must outlive the hold.
func Detach(ctx context.Context) context.Context { return detached{ctx} }

type detached struct{ context.Context }

func (d detached) Value(key any) any {
	switch key.(type) {
	case ownerKey, carriedKey:
		return nil
	}
	return d.Context.Value(key)
}
