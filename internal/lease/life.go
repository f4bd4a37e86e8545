package lease

import (
	"context"
	"sync"
	"time"
)

// Life is the public side of one handle of a claim: whether it lasts, why it ended, and the contexts that end with it.
// The zero value lasts. It is safe for concurrent use.
type Life struct {
	mu       sync.Mutex
	why      error
	done     chan struct{} // made when first asked for
	contexts map[int32]ending
	next     int32
	endless  *endless // made when first needed
	counted  bool     // among those that a client's Close waits for
}

// endless is the context of all parents without an end.
type endless struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// ending is how one context is cancelled, and how its own end is no longer listened for.
type ending struct {
	cancel context.CancelCauseFunc
	deaf   func() bool
}

// End ends it, and its contexts with why as their cause; the first reason counts.
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
	contexts, shared := l.contexts, l.endless
	l.contexts = nil
	l.mu.Unlock()
	if shared != nil {
		shared.cancel(why)
	}
	for _, c := range contexts {
		c.deaf()
		c.cancel(why)
	}
}

// Err is why it is over, nil while it lasts.
func (l *Life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// Done returns a channel that is closed when it is over.
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

// Context returns a child of parent that ends with it, and has ended if it is over.
func (l *Life) Context(parent context.Context) context.Context {
	if parent.Done() == nil {
		return &lasting{l.shared(), parent}
	}
	ctx, cancel := context.WithCancelCause(parent)
	l.mu.Lock()
	if why := l.why; why != nil {
		l.mu.Unlock()
		cancel(why)
		return ctx
	}
	defer l.mu.Unlock()
	if l.contexts == nil {
		l.contexts = map[int32]ending{}
	}
	id := l.next
	l.next++
	// a long life may see many short parents: forget them as they end
	deaf := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		delete(l.contexts, id)
		l.mu.Unlock()
	})
	l.contexts[id] = ending{cancel, deaf}
	return ctx
}

// shared is the context of all parents that cannot end: there may be many in a long life, one for each request that
// somebody works on after its end, and nothing says when they are through.
func (l *Life) shared() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endless == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		if l.why != nil {
			cancel(l.why)
		}
		l.endless = &endless{ctx, cancel}
	}
	return l.endless.ctx
}

// lasting is a life's shared context with the values of a parent, whose own end, if it has one, nobody is told of.
type lasting struct {
	context.Context
	parent context.Context
}

func (x *lasting) Deadline() (time.Time, bool) { return x.parent.Deadline() }

// Value asks the shared context first: package context finds by a value of it what its children hang on, and its cause.
func (x *lasting) Value(key any) any {
	if v := x.Context.Value(key); v != nil {
		return v
	}
	return x.parent.Value(key)
}

// Count notes that the client has counted it in.
func (l *Life) Count() {
	l.mu.Lock()
	l.counted = true
	l.mu.Unlock()
}

// Uncount reports, once, whether the client is to count it out.
func (l *Life) Uncount() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	counted := l.counted
	l.counted = false
	return counted
}
