package rlock

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

// owner is one outermost acquisition and its re-entries: one field of the lock's hash. Its id is never used again.
type owner struct {
	lock  *Lock
	claim lease.Claim
	lease time.Duration // of the first acquisition

	mu      sync.Mutex
	count   int // handles alive, and re-entries under way
	handles map[*handle]struct{}
	ended   error // why it is over
}

func (l *Lock) newOwner(d time.Duration) *owner {
	own := &owner{lock: l, lease: d, count: 1}
	own.claim = lease.Claim{Name: l.name, Key: l.key, Owner: l.c.newOwner(), Renew: renewScript, Ended: own.lost}
	return own
}

// enter counts a re-entry in and returns the count wanted on the server, or why there is nothing to re-enter.
func (o *owner) enter() (want int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil || o.count == 0 {
		return 0, ErrLost
	}
	o.count++
	return o.count, nil
}

// exit counts one handle, or one failed re-entry (nil), out and returns the remaining count.
func (o *owner) exit(h *handle) (remaining int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.handles, h)
	o.count--
	return o.count
}

// handle makes the handle of an acquisition that was counted in before.
func (o *owner) handle(auto bool) *Hold {
	h := &handle{owner: o, auto: auto, began: time.Now(), done: make(chan struct{}), released: make(chan struct{})}
	o.mu.Lock()
	if o.handles == nil {
		o.handles = map[*handle]struct{}{}
	}
	o.handles[h] = struct{}{}
	ended := o.ended
	o.mu.Unlock()
	if ended != nil { // lost between the grant and here
		h.end(ended)
	}
	return newHold(h)
}

// lost is the watchdog's word that the hold is over.
func (o *owner) lost(why error) {
	o.lock.c.observer.Ended(o.lock.name, why)
	o.end(why)
}

func (o *owner) end(why error) {
	o.mu.Lock()
	if o.ended == nil {
		o.ended = why
	}
	handles := make([]*handle, 0, len(o.handles))
	for h := range o.handles {
		handles = append(handles, h)
	}
	o.mu.Unlock()
	for _, h := range handles {
		h.end(why)
	}
}

func (o *owner) why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended == nil {
		return ErrLost
	}
	return o.ended
}

// abandoned reports whether nobody will ever use the owner.
func (o *owner) abandoned() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended == ErrNotAcquired
}

// ownerKey is the context key of the owner of one lock: a hold's context says nothing about other locks.
type ownerKey struct {
	client *Client
	name   string
}

func ownerIn(ctx context.Context, l *Lock) *owner {
	own, _ := ctx.Value(ownerKey{l.c, l.name}).(*owner)
	return own
}

// holdContext is a context of a hold. It refers to the Hold, which therefore counts as in use for as long as any of
// its contexts does.
type holdContext struct {
	context.Context
	hold *Hold
}

func (x *holdContext) Value(key any) any {
	if k, ok := key.(ownerKey); ok {
		if l := x.hold.h.owner.lock; k.client == l.c && k.name == l.name {
			return x.hold.h.owner
		}
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
