package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// Session is the part that the clients of all packages share. The fields are set by New and Start and not changed
// afterwards. It is safe for concurrent use.
type Session struct {
	Inflight
	Options // as given, with the defaults filled in
	Hub     *pubsub.Hub
	Inner   accessor.Hub[*pubsub.Subscription] // methods of Hub that are not exported
	Runner  *script.Runner
	Base    time.Time // the time of New

	packageName  string // the public package
	evictable    string // in a log line: the keys that the server may evict
	failureLog   failureLog
	recentErrors errs.RecentErrors
	holds        Holds // nil: the client keeps nothing
	waitObserver atomic.Pointer[errs.Observer]

	// The goroutines besides calls, until Close.
	closing Once
	ctx     context.Context // ends at Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	// closed when the check for eviction has ended; nil before it begins; guarded by Inflight.mu
	evictionChecked chan struct{}
}

// New makes a session on hub, which still belongs to the caller. It sends nothing. The errors of the session begin with
// packageName, the name of the public package. evictable names the package's keys that the server may evict, for a log
// line. The error is ErrInvalidOption for a nil hub, a hub without a client, or options out of bounds, and ErrClosed
// for a hub that is closed.
func New(hub *pubsub.Hub, packageName, evictable string, opts Options) (*Session, error) {
	if hub == nil || hub.Client() == nil {
		return nil, errs.Edge(packageName,
			errs.InvalidOption("hub", "nil, or without a client", "a hub made by pubsub.Dial or pubsub.New"))
	}
	if err := opts.check(); err != nil {
		return nil, errs.Edge(packageName, err)
	}
	inner := accessor.Of[accessor.Hub[*pubsub.Subscription]](hub)
	if inner.Context().Err() != nil {
		return nil, errs.Edge(packageName, fmt.Errorf("hub: %w", errs.ErrClosed))
	}
	session := &Session{
		Options: opts, Hub: hub, Inner: inner, Base: time.Now(), packageName: packageName, evictable: evictable,
	}
	session.Runner = session.NewRunner(opts.CallTimeout)
	session.failureLog.lastLines = map[string]failureLine{}
	session.Inflight.hub = inner.Context()
	session.ctx, session.cancel = context.WithCancel(inner.Context())
	return session, nil
}

// NewRunner makes a runner whose requests last for callTimeout at most. The requests of the session's own Runner last
// for CallTimeout.
func (s *Session) NewRunner(callTimeout time.Duration) *script.Runner {
	return s.Inner.NewRunner(callTimeout)
}

// Error returns err with the name of the package in front.
func (s *Session) Error(err error) error { return errs.Edge(s.packageName, err) }

// RecentErrors are the last errors of the client. Tell and Complain add to them.
func (s *Session) RecentErrors() *errs.RecentErrors { return &s.recentErrors }

// Key returns the main key of an object, and an error if the name cannot be used.
func (s *Session) Key(name string) (string, error) {
	key := s.KeyPrefix + name
	if name == "" {
		return key, s.Error(fmt.Errorf("%w: it is empty", errs.ErrInvalidName))
	}
	return key, s.Error(keyname.Check(key))
}

// Enter counts a call for which Close waits, or a hold. Leave counts it out. The error is ErrClosed if the client or
// its hub is closed.
func (s *Session) Enter() error { return s.Error(s.Inflight.Enter()) }

// Usable returns nil if a request may be sent. Otherwise it returns the first of: bad, the error of the object;
// ErrClosed; the first error of arguments, the errors of the call's arguments.
func (s *Session) Usable(bad error, arguments ...error) error {
	if bad == nil && s.Closed() {
		bad = errs.ErrClosed
	}
	return s.Error(cmp.Or(bad, cmp.Or(arguments...)))
}

// Context returns a context that ends at Close, and with the hub.
func (s *Session) Context() context.Context { return s.ctx }

// Background runs fn on a goroutine, unless Close has begun, and reports whether it does. ctx ends at Close, and Close
// waits for fn.
func (s *Session) Background(fn func(ctx context.Context)) bool {
	return s.IfOpen(func() { // Close may be waiting for the goroutines already
		s.running.Go(func() { fn(s.ctx) })
	})
}

// Finish runs fn on a goroutine, also if Close has begun. It is for work that a call leaves behind and that must be
// done. Close waits for fn as for a call under way.
func (s *Session) Finish(fn func()) {
	s.Join()
	go func() {
		defer s.Leave()
		fn()
	}()
}

// ErrPatience is the cause of a context that ended after Bound.
var ErrPatience = errors.New("no answer within the retry timeout")

// Bound is the maximum duration of a call that does not wait for other holders, whatever its context allows. So its
// caller soon learns of a server that does not answer. Callers often have a deadline that is meant for more than this
// one call.
func (s *Session) Bound() time.Duration { return s.RetryTimeout }

// Bounded returns a child of ctx that ends after Bound.
func (s *Session) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.Bound(), ErrPatience)
}

// giveBackCallTimeouts is GiveBackBound in call timeouts.
const giveBackCallTimeouts = 5

// GiveBackBound is the maximum duration of a release whose caller has set no end, or has left. By default it is longer
// than Bound: the release is not repeated later, and units that were not given back stay taken.
func (s *Session) GiveBackBound() time.Duration {
	return giveBackCallTimeouts * min(s.CallTimeout, math.MaxInt64/giveBackCallTimeouts)
}

// GiveBack repeats run until it is answered, for GiveBackBound at most. Only the values of ctx are used, because its
// caller may have left.
func (s *Session) GiveBack(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.GiveBackBound())
	defer cancel()
	_, err := script.Repeat(ctx, false, func() error { return run(ctx) })
	return err
}

// Do runs a call that may be repeated, until ctx ends, for Bound at most.
func (s *Session) Do(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	reply, err := s.Runner.DoWithin(ctx, call, s.Bound(), ErrPatience)
	if err == nil {
		s.Answered()
	}
	return reply, err
}

// Ask runs run, a read or an intervention, until ctx ends, for Bound at most. The server remembers repeated
// interventions for twice that time. bad is the error of the object.
func Ask[T any](ctx context.Context, session *Session, bad error,
	run func(context.Context) (T, error)) (result T, err error) {
	if err := session.Usable(bad); err != nil {
		return result, err
	}
	ctx, cancel := session.Bounded(ctx)
	defer cancel()
	if result, err = run(ctx); err != nil {
		var none T
		return none, session.Error(err)
	}
	session.Answered()
	return result, nil
}

// Answered is called after a success. The first success of a client starts a check whether the server may evict the
// package's keys. Later calls cost the read of a bool.
//
// The check has a connection of its own, and rueidis takes no context while it makes a connection: a server that falls
// silent holds the check up for 5 s. So it does not run with Background, for which Close waits even after the end of
// its ctx.
func (s *Session) Answered() {
	if s.Runner.EvictionAsked() {
		return
	}
	s.IfOpen(func() {
		checked := make(chan struct{})
		s.evictionChecked = checked
		go func() {
			defer close(checked)
			ctx, cancel := context.WithTimeout(s.ctx, evictionTimeout)
			defer cancel()
			if policy := s.Runner.EvictionPolicy(ctx); policy != "" {
				s.Logger.Warn("redlatch: the server evicts keys when its memory is full, "+s.evictable+
					" among them; set maxmemory-policy to noeviction", "maxmemory-policy", policy)
			}
		}()
	})
}

// evictionTimeout bounds the check for eviction.
const evictionTimeout = 5 * time.Second
