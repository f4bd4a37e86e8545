package session

import (
	"context"
	"sync"
	"time"
)

// Life is the public side of one handle of a lease: whether it lasts, why it ended, and the contexts that end with it.
// The zero value lasts. It is safe for concurrent use.
type Life struct {
	mu       sync.Mutex
	why      error
	done     chan struct{}                // made when first asked for
	contexts map[<-chan struct{}]*derived // made when first needed; see Context
}

// derived is a context that ends with a life, and with all parents of one Done channel.
type derived struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	stopAfter func() bool // stops the function that runs at ctx's own end; nil if ctx has no end of its own
}

// End ends the life and its contexts, with why as their cause. The first reason counts.
func (l *Life) End(why error) {
	l.mu.Lock()
	if l.why != nil {
		l.mu.Unlock()
		return
	}
	l.why = why
	if l.done != nil {
		close(l.done)
	}
	contexts := l.contexts
	l.contexts = nil
	l.mu.Unlock()
	for _, s := range contexts {
		if s.stopAfter != nil {
			s.stopAfter()
		}
		s.cancel(why)
	}
}

// Err returns why the life is over, nil while it lasts.
func (l *Life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// Done returns a channel that is closed when the life is over.
func (l *Life) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.why != nil {
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
	s := l.contexts[done]
	l.mu.Unlock()
	if s != nil {
		return &lasting{s.ctx, parent, l}
	}
	base := parent
	if done == nil {
		base = context.Background() // the values of one parent must not be kept for all
	}
	s = &derived{}
	s.ctx, s.cancel = context.WithCancelCause(base) // not under mu: parent may be code outside this library
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		s.cancel(l.why)
		return &lasting{s.ctx, parent, l}
	}
	if other := l.contexts[done]; other != nil {
		s.cancel(nil)
		return &lasting{other.ctx, parent, l}
	}
	if l.contexts == nil {
		l.contexts = map[<-chan struct{}]*derived{}
	}
	own := s.ctx.Done() // the channel of contexts derived from s.ctx, which end with this life already
	l.contexts[done], l.contexts[own] = s, s
	if done != nil { // a long life may see many short parents: forget them as they end
		s.stopAfter = context.AfterFunc(s.ctx, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.contexts, done)
			delete(l.contexts, own)
		})
	}
	return &lasting{s.ctx, parent, l}
}

// lasting is a shared context with the values of one of its parents.
type lasting struct {
	context.Context
	parent context.Context
	life   *Life
}

func (x *lasting) Deadline() (time.Time, bool) { return x.parent.Deadline() }

// Value asks the shared context only for the keys of package context itself, which lead to the children and to the
// cause. The other values of the shared context are those of its first parent, so all other keys go to x's own parent.
// Value asks only one of the two: lives nest, as re-entries do, and each level would otherwise double the cost of a
// look-up.
func (x *lasting) Value(key any) any {
	if bare.Value(key) != nil {
		return x.Context.Value(key)
	}
	if key == (lifeKey{x.life}) {
		return true
	}
	return x.parent.Value(key)
}

// bare is a cancelled context without values. A key under which it has a value is a key of package context.
var bare = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// lifeKey is the key by which a context says that it ends with a life, also where its other values are hidden.
type lifeKey struct{ of *Life }

// ends reports whether ctx ends with the life.
func (l *Life) ends(ctx context.Context) bool { return ctx.Value(lifeKey{l}) != nil }
