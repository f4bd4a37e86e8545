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
	done     chan struct{}               // made when first asked for
	contexts map[<-chan struct{}]*shared // made when first needed; see Context
}

// shared is what ends with a life and with all parents of one Done channel.
type shared struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	deaf   func() bool // has its own end no longer listened for; nil where that cannot come
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
	contexts := l.contexts
	l.contexts = nil
	l.mu.Unlock()
	for _, s := range contexts {
		if s.deaf != nil {
			s.deaf()
		}
		s.cancel(why)
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
//
// Nothing says when the caller is through with it, and a life may be long, as that of a leader with a context for each
// job. So nothing is kept for each call: parents with the same Done channel, such as one and what has more values than it,
// end together and share one child that is cancelled. Parents without an end share one, too.
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
		base = context.Background() // the values of one parent need not stay for all
	}
	s = &shared{}
	s.ctx, s.cancel = context.WithCancelCause(base) // not under mu: parent may be anybody's code
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
		l.contexts = map[<-chan struct{}]*shared{}
	}
	own := s.ctx.Done() // of what is derived from it: it ends with this life already
	l.contexts[done], l.contexts[own] = s, s
	if done != nil { // a long life may see many short parents: forget them as they end
		s.deaf = context.AfterFunc(s.ctx, func() {
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

// Value asks the shared context for what package context asks for only, to find what the children hang on, and the cause. All
// other values there are those of the parent that came first. It asks one of the two: where lives nest, as re-entries do, each
// would otherwise double the cost of a look-up.
func (x *lasting) Value(key any) any {
	if key == endKey {
		return x.Context.Value(key)
	}
	if key == (lifeKey{x.life}) {
		return true
	}
	return x.parent.Value(key)
}

// lifeKey finds out whether a context ends with a life, also where its other values are hidden.
type lifeKey struct{ of *Life }

// ends reports whether ctx ends with it.
func (l *Life) ends(ctx context.Context) bool { return ctx.Value(lifeKey{l}) != nil }

// endKey is the key for which package context asks a parent. It is not exported; whoever asks for a cause asks for it.
var endKey = func() any {
	ended, end := context.WithCancel(context.Background())
	end()
	k := &keyOf{Context: ended}
	context.Cause(k)
	return k.key
}()

// keyOf notes the key that it is asked for.
type keyOf struct {
	context.Context
	key any
}

func (k *keyOf) Value(key any) any {
	k.key = key
	return nil
}
