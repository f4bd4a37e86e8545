// Package accessor gives packages of this module, and the debug page (package redlatchdebug), access to unexported
// parts of the types of the public packages.
//
// Each public package registers the accessors of its types in an init. Otherwise the types would have exported methods
// that are of no use to users, or the page would have to be part of the package that everybody links.
//
// The hub is not an alias of a type in an internal package either: go doc and pkg.go.dev show no methods of an alias,
// so that users would find no documentation of Subscribe and Close.
package accessor

import (
	"context"
	"reflect"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// types are those that an accessor takes and returns.
type types struct{ of, as reflect.Type }

var accessors = map[types]func(any) any{}

// Register registers the accessor that returns the I of a C. Only init functions call it.
func Register[C, I any](get func(C) I) {
	accessors[types{reflect.TypeFor[C](), reflect.TypeFor[I]()}] = func(c any) any { return get(c.(C)) }
}

// Of returns the I of c. The package of C has called Register for both types.
func Of[I, C any](c C) I { return accessors[types{reflect.TypeFor[C](), reflect.TypeFor[I]()}](c).(I) }

// Hub is what the packages of this module use of a pubsub.Hub besides its exported methods. S is *pubsub.Subscription.
type Hub[S any] interface {
	// Context ends when the hub is closed, with cause ErrClosed.
	Context() context.Context
	// PublishCommand is the command that reaches the hub's subscribers, PUBLISH or SPUBLISH. A script that publishes must
	// use it.
	PublishCommand() string
	// Watch calls fn for every invalidation until stop is called: with the keys that were changed or removed, or with nil
	// when any key may have been (after FLUSHALL, or when a connection was lost, and with it what the server tracked for
	// it). An invalidation is a hint, never proof. fn runs on the connection's reader: it must return at once and must not
	// call the client. observed is false if the hub's client does not observe invalidations; then fn is never called.
	Watch(fn func(keys []string)) (stop func(), observed bool)
	// TrySubscribe is Subscribe for a channel to which the process is subscribed already. It sends nothing and never
	// waits. ok is false if the process is not subscribed to the channel now.
	TrySubscribe(channel string) (s S, ok bool)
	// NewRunner makes a runner whose requests last for callTimeout at most. The runners of a hub share what is known of
	// its client and server.
	NewRunner(callTimeout time.Duration) *script.Runner
	RecentErrors() *errs.RecentErrors
}

// Subscription is what they use of a pubsub.Subscription.
type Subscription interface {
	// Ready returns a channel for a select that treats messages as mere wake-ups: it receives a value if a message or gap
	// has come since it last did. Ready drops the messages themselves, so it is called for every select, and not together
	// with Next.
	Ready() <-chan struct{}
	// Live reports whether the server has confirmed the subscription, on a connection that is not known to be lost.
	Live() bool
	// Discard is Close for a channel that will not be wanted again: the hub unsubscribes at once.
	Discard()
}

// Limits is what the debug page asks a client of rate limits.
type Limits interface {
	// Refused returns what the server refused lately of limiters whose names or keys match, the newest first.
	Refused(match func(name string) bool) []Refused
	// Answering returns the limiters that have a policy answer in place of the server.
	Answering() []Answering
}

// Refused is a limit that had too few units left for a request.
type Refused struct {
	Limiter   any // a *ratelimit.Limiter
	Name, Key string
	Algorithm string
	Burst     int64     // the most that can pass at once
	N         int64     // units that were refused
	At        time.Time // when that was asked
	Passes    time.Time // when so many, or of AllowAtMost one, could pass if no other request came
}

// Answering is a limiter whose policy answered last at a time.
type Answering struct {
	Name, Policy string
	Last         time.Time
}
