package session

import "context"

// guard logs a panic of an observer's function. Those all begin with a context and a name; the numbers below are those of their
// other arguments.
func (s *Session) guard() {
	if p := recover(); p != nil {
		s.Logger.Error("redlatch: observer panicked", "panic", p)
	}
}

// Guard0 is Guard1 for no argument.
func Guard0(s *Session, f func(context.Context, string)) func(context.Context, string) {
	if f == nil {
		return func(context.Context, string) {}
	}
	return func(ctx context.Context, name string) { defer s.guard(); f(ctx, name) }
}

// Guard1 returns f guarded: never nil, and its panics are logged.
func Guard1[A any](s *Session, f func(context.Context, string, A)) func(context.Context, string, A) {
	if f == nil {
		return func(context.Context, string, A) {}
	}
	return func(ctx context.Context, name string, a A) { defer s.guard(); f(ctx, name, a) }
}

// Guard2 is Guard1 for two arguments.
func Guard2[A, B any](s *Session, f func(context.Context, string, A, B)) func(context.Context, string, A, B) {
	if f == nil {
		return func(context.Context, string, A, B) {}
	}
	return func(ctx context.Context, name string, a A, b B) { defer s.guard(); f(ctx, name, a, b) }
}

// Guard3 is Guard1 for three arguments.
func Guard3[A, B, C any](s *Session, f func(context.Context, string, A, B, C)) func(context.Context, string, A, B, C) {
	if f == nil {
		return func(context.Context, string, A, B, C) {}
	}
	return func(ctx context.Context, name string, a A, b B, c C) { defer s.guard(); f(ctx, name, a, b, c) }
}

// Guard4 is Guard1 for four arguments.
func Guard4[A, B, C, D any](s *Session, f func(context.Context, string, A, B, C, D)) func(context.Context, string, A, B, C, D) {
	if f == nil {
		return func(context.Context, string, A, B, C, D) {}
	}
	return func(ctx context.Context, name string, a A, b B, c C, d D) { defer s.guard(); f(ctx, name, a, b, c, d) }
}

// Follow0 returns f guarded, for a function that returns the context of what follows: ctx if f is nil, panics or returns nil.
func Follow0(s *Session, f func(context.Context, string) context.Context) func(context.Context, string) context.Context {
	if f == nil {
		return func(ctx context.Context, _ string) context.Context { return ctx }
	}
	return func(ctx context.Context, name string) (next context.Context) {
		defer s.follow(&next, ctx)
		return f(ctx, name)
	}
}

// Follow1 is Follow0 for one argument.
func Follow1[A any](s *Session, f func(context.Context, string, A) context.Context) func(context.Context, string, A) context.Context {
	if f == nil {
		return func(ctx context.Context, _ string, _ A) context.Context { return ctx }
	}
	return func(ctx context.Context, name string, a A) (next context.Context) {
		defer s.follow(&next, ctx)
		return f(ctx, name, a)
	}
}

// Follow2 is Follow0 for two arguments.
func Follow2[A, B any](s *Session, f func(context.Context, string, A, B) context.Context) func(context.Context, string, A, B) context.Context {
	if f == nil {
		return func(ctx context.Context, _ string, _ A, _ B) context.Context { return ctx }
	}
	return func(ctx context.Context, name string, a A, b B) (next context.Context) {
		defer s.follow(&next, ctx)
		return f(ctx, name, a, b)
	}
}

// follow is guard for a function that returns a context: without one the call goes on under ctx.
func (s *Session) follow(next *context.Context, ctx context.Context) {
	if p := recover(); p != nil {
		s.Logger.Error("redlatch: observer panicked", "panic", p)
	}
	if *next == nil {
		*next = ctx
	}
}

// Both0 is Both1 for no argument.
func Both0(f, g func(context.Context, string)) func(context.Context, string) {
	if f == nil || g == nil {
		return either(f == nil, f, g)
	}
	return func(ctx context.Context, name string) { f(ctx, name); g(ctx, name) }
}

// Both1 returns a function that calls f and then g, either of which may be nil; nil if both are.
func Both1[A any](f, g func(context.Context, string, A)) func(context.Context, string, A) {
	if f == nil || g == nil {
		return either(f == nil, f, g)
	}
	return func(ctx context.Context, name string, a A) { f(ctx, name, a); g(ctx, name, a) }
}

// Both2 is Both1 for two arguments.
func Both2[A, B any](f, g func(context.Context, string, A, B)) func(context.Context, string, A, B) {
	if f == nil || g == nil {
		return either(f == nil, f, g)
	}
	return func(ctx context.Context, name string, a A, b B) { f(ctx, name, a, b); g(ctx, name, a, b) }
}

// Both3 is Both1 for three arguments.
func Both3[A, B, C any](f, g func(context.Context, string, A, B, C)) func(context.Context, string, A, B, C) {
	if f == nil || g == nil {
		return either(f == nil, f, g)
	}
	return func(ctx context.Context, name string, a A, b B, c C) { f(ctx, name, a, b, c); g(ctx, name, a, b, c) }
}

// Both4 is Both1 for four arguments.
func Both4[A, B, C, D any](f, g func(context.Context, string, A, B, C, D)) func(context.Context, string, A, B, C, D) {
	if f == nil || g == nil {
		return either(f == nil, f, g)
	}
	return func(ctx context.Context, name string, a A, b B, c C, d D) {
		f(ctx, name, a, b, c, d)
		g(ctx, name, a, b, c, d)
	}
}

// Chain0 returns a function that calls f, and then g with the context that f returned; nil if both are.
func Chain0(f, g func(context.Context, string) context.Context) func(context.Context, string) context.Context {
	if f == nil || g == nil {
		return either(f == nil, f, g)
	}
	return func(ctx context.Context, name string) context.Context {
		ctx = or(f(ctx, name), ctx)
		return or(g(ctx, name), ctx)
	}
}

// Chain1 is Chain0 for one argument.
func Chain1[A any](f, g func(context.Context, string, A) context.Context) func(context.Context, string, A) context.Context {
	if f == nil || g == nil {
		return either(f == nil, f, g)
	}
	return func(ctx context.Context, name string, a A) context.Context {
		ctx = or(f(ctx, name, a), ctx)
		return or(g(ctx, name, a), ctx)
	}
}

// Chain2 is Chain0 for two arguments.
func Chain2[A, B any](f, g func(context.Context, string, A, B) context.Context) func(context.Context, string, A, B) context.Context {
	if f == nil || g == nil {
		return either(f == nil, f, g)
	}
	return func(ctx context.Context, name string, a A, b B) context.Context {
		ctx = or(f(ctx, name, a, b), ctx)
		return or(g(ctx, name, a, b), ctx)
	}
}

// or is next, or ctx if there is none.
func or(next, ctx context.Context) context.Context {
	if next == nil {
		return ctx
	}
	return next
}

func either[F any](second bool, f, g F) F {
	if second {
		return g
	}
	return f
}
