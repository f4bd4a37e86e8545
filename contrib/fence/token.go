package redlatchfence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Token is a fencing token: a positive number below 1<<53, which Lua and JSON represent exactly. A greater one belongs
// to a later holder.
type Token int64

const (
	greatest    = Token(1)<<53 - 1
	longestName = 1024
)

var (
	// ErrStale: the guard has seen a greater token, so another holder has the lock or has had it since. Nothing was
	// written, and the same act is never admitted again. Acquire the lock again, and begin with what is read under it.
	ErrStale = errors.New("redlatchfence: the fencing token is stale")
	// ErrInvalid: an argument or a field is wrong; the text names it and its value. Nothing was sent.
	ErrInvalid = errors.New("redlatchfence: invalid argument")
)

// Guard remembers the greatest token of each resource. A resource is named by 1 to 1024 bytes of UTF-8 without NUL.
type Guard interface {
	// Advance makes token the greatest that was seen for the resource, unless a greater one was: ErrStale. After it has
	// returned nil every smaller token is refused. Call it when the lock is acquired, before anything is read.
	Advance(ctx context.Context, resource string, token Token) error
}

// Exclusive is a Guard that can keep others out while an act lasts, as Memory and Files can.
type Exclusive interface {
	Guard
	// Do advances, and calls act if that succeeds. Until act has returned, no other call for the resource is admitted. It
	// returns ErrStale, act's error, or ctx's if ctx has ended or ends while it waits for another act. An act that calls
	// the guard for the same resource waits for itself.
	Do(ctx context.Context, resource string, token Token, act func(ctx context.Context) error) error
}

// Of returns the token of a hold, such as an *rlock.Hold or an *rsemaphore.Permit. ErrInvalid if it has none: only the
// holds of a Fenced lock have, and the permits of a Fenced semaphore.
func Of(hold interface{ Token() (token int64, ok bool) }) (Token, error) {
	token, ok := hold.Token()
	if !ok {
		return 0, invalid("the hold's token", "missing", "that of a Fenced lock or semaphore")
	}
	return Token(token), Token(token).Check()
}

// Check returns ErrInvalid unless the token is 1 to 1<<53 - 1.
func (t Token) Check() error {
	if t < 1 || t > greatest {
		return invalid("token", int64(t), "1 to 1<<53 - 1")
	}
	return nil
}

type tokenKey struct{}

// NewContext returns a copy of ctx with a token, which Transport and the interceptors of grpcfence send. It is not
// checked before it is sent.
func NewContext(ctx context.Context, token Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}

// FromContext returns the token of ctx: on a server that of the request, for a guard of what the request changes.
func FromContext(ctx context.Context) (token Token, ok bool) {
	token, ok = ctx.Value(tokenKey{}).(Token)
	return token, ok
}

func invalid(field string, value any, must string) error {
	return fmt.Errorf("%w: %s is %v, must be %s", ErrInvalid, field, value, must)
}

func stale(resource string, token Token) error {
	return fmt.Errorf("%w: %.64q has seen a greater one than %d", ErrStale, resource, token)
}

// admissible returns ErrInvalid for a name or a token that no guard accepts.
func admissible(resource string, token Token) error {
	if resource == "" || len(resource) > longestName || !utf8.ValidString(resource) || strings.Contains(resource, "\x00") {
		return invalid("resource", fmt.Sprintf("%.64q (%d bytes)", resource, len(resource)),
			"1 to 1024 bytes of UTF-8 without NUL")
	}
	return token.Check()
}
