package hold

import (
	"context"
	"sync"
	"time"
)

// Life is the state of one handle of a lease that its user sees: whether it lasts, the reason of its end, and the
// contexts that end with it. The zero value lasts. It is safe for concurrent use.
type Life struct {
	mu        sync.Mutex
	endReason error
	done      chan struct{}                      // made by the first call of Done
	contexts  map[<-chan struct{}]*sharedContext // made when first needed; see Context
}

// sharedContext is a context that ends with a life, and with all parents that have the same Done channel.
type sharedContext struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	stopAfter func() bool // stops the function that runs at ctx's own end; nil if ctx has no end of its own
}

// End ends the life and its contexts, with reason as their cause. Only the first call counts.
func (l *Life) End(reason error) {
	l.mu.Lock()
	if l.endReason != nil {
		l.mu.Unlock()
		return
	}
	l.endReason = reason
	if l.done != nil {
		close(l.done)
	}
	contexts := l.contexts
	l.contexts = nil
	l.mu.Unlock()
	for _, shared := range contexts {
		if shared.stopAfter != nil {
			shared.stopAfter()
		}
		shared.cancel(reason)
	}
}

// Err returns the reason of the life's end, and nil while it lasts.
func (l *Life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endReason
}

// Done returns a channel that is closed when the life is over.
func (l *Life) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.endReason != nil {
			close(l.done)
		}
	}
	return l.done
}

// Context returns a child of parent that ends when the life ends. If the life is over, the child has ended.
//
// Nothing says when the caller has finished with the child, and a life may be long: a leader may make a context for
// each job. So nothing is kept for each call. Parents with the same Done channel, such as a context and a child of it
// that only adds values, end together. They share one cancelled child. Parents without an end share one, too.
func (l *Life) Context(parent context.Context) context.Context {
	done := parent.Done()
	l.mu.Lock()
	shared := l.contexts[done]
	l.mu.Unlock()
	if shared != nil {
		return &valueContext{shared.ctx, parent, l}
	}
	base := parent
	if done == nil {
		base = context.Background() // the values of one parent must not be kept for all
	}
	shared = &sharedContext{}
	shared.ctx, shared.cancel = context.WithCancelCause(base) // not under mu: parent may be code outside this library
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endReason != nil {
		shared.cancel(l.endReason)
		return &valueContext{shared.ctx, parent, l}
	}
	if other := l.contexts[done]; other != nil {
		shared.cancel(nil)
		return &valueContext{other.ctx, parent, l}
	}
	if l.contexts == nil {
		l.contexts = map[<-chan struct{}]*sharedContext{}
	}
	own := shared.ctx.Done() // the channel of contexts derived from s.ctx, which end with this life already
	l.contexts[done], l.contexts[own] = shared, shared
	if done != nil { // a long life may see many short parents: forget them as they end
		shared.stopAfter = context.AfterFunc(shared.ctx, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.contexts, done)
			delete(l.contexts, own)
		})
	}
	return &valueContext{shared.ctx, parent, l}
}

// valueContext is a shared context with the values of one of its parents.
type valueContext struct {
	context.Context
	parent context.Context
	life   *Life
}

func (x *valueContext) Deadline() (time.Time, bool) { return x.parent.Deadline() }

// Value asks the shared context only for the keys of package context itself, which lead to the children and to the
// cause. The other values of the shared context are those of its first parent, so all other keys go to x's own parent.
// Value asks only one of the two: lives nest, as re-entries do, and each level would otherwise double the cost of a
// look-up.
func (x *valueContext) Value(key any) any {
	if bareContext.Value(key) != nil {
		return x.Context.Value(key)
	}
	if key == (lifeKey{x.life}) {
		return true
	}
	return x.parent.Value(key)
}

// bareContext is a cancelled context without values. A key under which it has a value is a key of package context.
var bareContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// lifeKey is the key by which a context says that it ends with a life, also where its other values are hidden.
type lifeKey struct{ of *Life }

// endsContext reports whether ctx ends with the life.
func (l *Life) endsContext(ctx context.Context) bool { return ctx.Value(lifeKey{l}) != nil }
