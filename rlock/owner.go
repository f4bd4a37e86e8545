package rlock

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

// doubt is what requests of an acquisition that were never answered may leave behind on the server, also after the
// release.
type doubt struct {
	until time.Time // they do not run later than this
	entry string    // of the queue, "" if it was never asked for
}

var noDoubt = &doubt{}

// owner is one outermost acquisition and its re-entries: one field of the lock's hash. Its id is never used again.
type owner struct {
	lock  *single
	lease lease.Lease
	under *owner // of the write hold under which it reads

	doubt *doubt // set before the first handle is made
	token int64  // likewise; 0: none

	mu        sync.Mutex
	count     int32   // handles alive, and re-entries under way
	releasing bool    // the last release is under way
	again     bool    // and was overtaken by the reply of a try that had been given up
	handles   *handle // chained
	ended     error   // why it is over

	keep time.Duration // after its client's base: no release before; see UnlockAfter

	// the outermost acquisition's, which is mostly the only one: kept here to be one piece of memory
	first handle
}

func (l *single) newOwner(ctx context.Context, d time.Duration, label string) *owner {
	own := &owner{lock: l, count: 1, doubt: noDoubt}
	own.lease = lease.Lease{Name: l.name, Owner: l.c.session.NewOwner(label), Renew: l.kind.renew, Ended: own.lost, Ctx: ctx, Of: own, Longest: d}
	own.lease.Drift = l.kind.votes
	own.lease.Key = l.leaseKey(own.lease.Owner)
	if l.kind.more != nil {
		more := l.kind.more(l, own.lease.Owner)
		own.lease.More = &more
	}
	return own
}

// leaseKey is the key under which the watchdog knows an owner's hold.
func (l *single) leaseKey(owner string) string {
	if l.kind.leaseKey != nil {
		return l.kind.leaseKey(l, owner)
	}
	return l.key
}

// Owner is the text under which the server knows a holder: "<connectionID>:<n>", and ":<label>" where the lock has
// one. It can be sent to another process, which joins the hold with [Lock.WithOwner].
type Owner string

// Ours reports whether it is an owner of this library, not one of Redisson's.
func (o Owner) Ours() bool { return lease.Ours(string(o)) }

// Label is the label of the Lock that the owner acquired, "" if it had none or the owner is not one of this library.
func (o Owner) Label() string {
	parts := strings.SplitN(string(o), ":", 3)
	if len(parts) < 3 || !o.Ours() {
		return ""
	}
	label, err := url.PathUnescape(parts[2])
	if err != nil {
		return parts[2]
	}
	return label
}

// named is an owner that another process sent.
type named struct{ owner Owner }

// WithOwner returns ctx naming an owner of this lock, which another process sent (see [Hold.Owner]). Acquiring the
// lock under it joins that owner's hold, at once and without waiting: the joiner gets a hold of its own, with its own
// lease, and the lock is free when the last hold or join is released. An owner of this very client is re-entered.
//
// Acquiring fails with ErrLost if that owner does not hold the lock any more, or has left it by [Hold.UnlockAfter], and
// with ErrInvalidOption if the text is not an owner of this library (a Java holder's unlock would delete the lock under its
// joiners) or the lock is not a Reentrant one.
//
// A joiner that dies keeps the lock taken for no longer than its own lease, and so does an owner that dies while it is
// joined; the server's clock decides.
func (l *Lock) WithOwner(ctx context.Context, o Owner) context.Context {
	return l.form.withOwner(ctx, o)
}

func (l *single) withOwner(ctx context.Context, o Owner) context.Context {
	return &ownerContext{ctx, l.ownKey, named{o}}
}

type ownerContext struct {
	context.Context
	key   any // an ownerKey
	owner named
}

func (x *ownerContext) Value(key any) any {
	if key == x.key {
		return x.owner
	}
	return x.Context.Value(key)
}

// enter counts a re-entry in and returns the count wanted on the server, or why there is nothing to re-enter.
func (o *owner) enter() (want int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.ended, ErrLost) {
		return 0, o.ended // with ErrWrongType, if its key was overwritten
	}
	if o.ended != nil || o.count == 0 {
		return 0, ErrLost
	}
	o.count++
	return int(o.count), nil
}

// exit counts one handle, or one failed re-entry (nil), out and returns the remaining count. If that is 0, a handle's
// release begins, which finish ends.
func (o *owner) exit(h *handle) (remaining int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at := &o.handles; *at != nil; at = &(*at).beside {
		if *at == h {
			*at = h.beside
			break
		}
	}
	if o.count--; o.count == 0 && o.ended == nil {
		o.ended = ErrReleased
		o.releasing = h != nil
	}
	return int(o.count)
}

// handle makes the handle of an acquisition that was counted in before.
func (o *owner) handle(auto bool) *Hold {
	o.mu.Lock()
	h := &o.first
	if h.owner != nil {
		h = &handle{}
	}
	h.owner, h.auto, h.began = o, auto, time.Since(o.lock.c.base)
	h.life.Count()
	h.beside, o.handles = o.handles, h
	ended := o.ended
	o.mu.Unlock()
	if ended != nil { // lost between the grant and here
		h.end(ended)
	}
	return newHold(h)
}

// lost is the watchdog's word that the hold is over. It may come again: a hold that Close has ended stays with the watchdog
// until Unlock, and can be lost before that. ended does not tell: it is set for a hold that was dropped.
func (o *owner) lost(why error) {
	if o.lease.Tell() {
		o.lock.c.observer.Ended(o.lease.Values(), o.lock.name, why)
	}
	o.end(why)
}

func (o *owner) end(why error) {
	o.mu.Lock()
	if o.ended == nil {
		o.ended = why
	}
	var handles []*handle
	for h := o.handles; h != nil; h = h.beside {
		handles = append(handles, h)
	}
	o.mu.Unlock()
	for _, h := range handles {
		h.end(why)
	}
}

// InUse reports whether there is a handle; an owner that was dropped stays with the watchdog until its lease is over.
func (o *owner) InUse() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count > 0
}

// longest is for how long from now the server may have the lock, whatever is done.
func (o *owner) longest() time.Duration { return o.lock.c.engine.Longest(&o.lease, 0) }

// through reports whether the last of its holds has been given to Unlock, in good time.
func (o *owner) through() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended == ErrReleased
}

func (o *owner) why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended == nil {
		return ErrLost
	}
	return o.ended
}

// unwanted reports whether nobody uses the owner, or ever will, so that a grant that comes now is to be given back. A
// closed client's holds, and those past MaxHold, are in use until Unlock. While its release is under way the answer is no:
// another one beside it would find the owner first, and the release, finding nothing, would say that it was lost. It is
// made afterwards (see finish).
func (o *owner) unwanted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.releasing {
		o.again = true
		return false
	}
	return o.ended == ErrNotAcquired || o.ended == ErrReleased || errors.Is(o.ended, ErrLost)
}

// rest is for how long the lock is not to be released yet.
func (o *owner) rest() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keep == 0 {
		return 0
	}
	return o.keep - time.Since(o.lock.c.base)
}

// giveUp sends the release of an owner that is through once, or, before its time, has the lock end then.
func (o *owner) giveUp(ctx context.Context, entry string) (releaseStatus, error) {
	if rest := o.rest(); rest > 0 {
		return o.lock.runKeep(ctx, o.lease.Owner, (rest + time.Millisecond).Truncate(time.Millisecond))
	}
	return o.lock.runRelease(ctx, o.lease.Owner, 0, entry)
}

// finish ends a release, and reports whether a grant came to light in between.
func (o *owner) finish() (again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releasing = false
	return o.again
}

// ownerKey is the context key of the owner of one lock: a hold's context says nothing about other locks.
type ownerKey struct {
	client *Client
	name   string
	sided  bool // both sides of a read-write lock are one lock here
}

// ownerIn is the owner of l that ctx carries: one of this process, or the text of one, or neither.
func ownerIn(ctx context.Context, l *single) (*owner, Owner) {
	switch v := ctx.Value(l.ownKey).(type) {
	case *owner:
		return v, Owner(v.lease.Owner)
	case named:
		if c := l.c.engine.Find(l.leaseKey(string(v.owner)), string(v.owner)); c != nil {
			return c.Of.(*owner), v.owner
		}
		return nil, v.owner
	}
	return nil, ""
}

// holdContext is a context of a hold. It refers to the Hold, which therefore counts as in use for as long as any of
// its contexts does.
type holdContext struct {
	context.Context
	hold *Hold
}

func (x *holdContext) Value(key any) any {
	if k, ok := key.(lifeKey); ok && k.of == x.hold.life() {
		return true
	}
	if p := x.hold.parts; p != nil {
		if own := p.owner(key); own != nil {
			return own
		}
	} else if own := x.hold.h.owner; key == own.lock.ownKey {
		return own
	}
	return x.Context.Value(key)
}

// Detach returns ctx without the owners it carries: what runs under it is nobody's re-entry, and waits for the locks
// its starter holds like everybody else. It ends when ctx ends; add context.WithoutCancel for work that must outlive
// the hold.
func Detach(ctx context.Context) context.Context { return detached{ctx} }

type detached struct{ context.Context }

func (d detached) Value(key any) any {
	if _, ok := key.(ownerKey); ok {
		return nil
	}
	return d.Context.Value(key)
}
