package session

import (
	"context"
)

// Tell tells an observer of an event. A nil one costs nothing; a panic is logged. It is called without a mutex held,
// because an observer may call the client.
func Tell[E any](ctx context.Context, s *Session, observer func(context.Context, E), e E) {
	if observer == nil {
		return
	}
	defer s.guard()
	observer(ctx, e)
}

// Follow is Tell for an observer that returns the context under which goes on what the event begins. It is ctx without
// an observer, and if the observer returns nil or panics.
func Follow[E any](ctx context.Context, s *Session, observer func(context.Context, E) context.Context,
	e E) (next context.Context) {
	if observer == nil {
		return ctx
	}
	next = ctx // after a panic
	defer s.guard()
	if n := observer(ctx, e); n != nil {
		next = n
	}
	return next
}

// Both returns an observer that tells f and then g, either of which may be nil; nil if both are.
func Both[E any](f, g func(context.Context, E)) func(context.Context, E) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(ctx context.Context, e E) { f(ctx, e); g(ctx, e) }
}

// Chain is Both for observers that return a context: g gets the one that f returned.
func Chain[E any](f, g func(context.Context, E) context.Context) func(context.Context, E) context.Context {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(ctx context.Context, e E) context.Context {
		if next := f(ctx, e); next != nil {
			ctx = next
		}
		if next := g(ctx, e); next != nil {
			ctx = next
		}
		return ctx
	}
}

// guard logs a panic of an observer.
func (s *Session) guard() {
	if p := recover(); p != nil {
		s.Logger.Error("redlatch: observer panicked", "panic", p)
	}
}
