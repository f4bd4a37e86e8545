package accessor

import (
	"context"

	"github.com/redlatch/redlatch/internal/errs"
)

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
	// Dials counts the connections that the client makes; nil: they are not counted.
	Dials() *errs.Dials
	RecentErrors() *errs.RecentErrors
	// Lacks are what its server is known to lack.
	Lacks() *errs.Lacks
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
