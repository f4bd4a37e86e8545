package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/pubsub"
)

// Session is what every client has, whatever it is a client for. The fields are set by New and Start and not changed
// afterwards. It is safe for concurrent use.
type Session struct {
	Inflight
	Options // as given, with the defaults filled in
	Hub     *pubsub.Hub
	Inner   accessor.Hub[*pubsub.Subscription] // of Hub
	Runner  *script.Runner
	Base    time.Time // when it was made
	Keeper            // its zero value without Start

	pkg, keeps string
	complaints complaints
	recent     errs.RecentErrors
	background
}

// Keeper is what a session has that keeps leases and waits.
type Keeper struct {
	Engine  *lease.Engine
	Waiters *wait.Waiters
	Retrier *Retrier
	ID      string       // the connection id: the first half of every owner
	Seed    [16]byte     // the same as it is
	owners  atomic.Int64 // the second half of the last owner
}

// background is what runs besides the calls of a session, until it is closed.
type background struct {
	closing Once
	ctx     context.Context // of what runs there; ends at Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	// closed when the question about eviction has ended; nil until it is asked; guarded by Inflight.mu
	eviction chan struct{}
}

// New makes a session on a hub, which stays the caller's. It sends nothing. pkg is the name of the public package,
// which its errors begin with. keeps says what the package keeps in keys that the server may evict. The error is
// ErrInvalidOption for a nil hub, a hub without a client, or options out of bounds, ErrClosed for a hub that is closed.
func New(h *pubsub.Hub, pkg, keeps string, o Options) (*Session, error) {
	if h == nil || h.Client() == nil {
		return nil, errs.Edge(pkg,
			errs.InvalidOption("hub", "nil, or without a client", "a hub made by pubsub.Dial or pubsub.New"))
	}
	if err := o.check(); err != nil {
		return nil, errs.Edge(pkg, err)
	}
	inner := accessor.Of[accessor.Hub[*pubsub.Subscription]](h)
	if inner.Context().Err() != nil {
		return nil, errs.Edge(pkg, fmt.Errorf("hub: %w", errs.ErrClosed))
	}
	s := &Session{Options: o, Hub: h, Inner: inner, Base: time.Now(), pkg: pkg, keeps: keeps}
	s.Runner = s.NewRunner(o.CallTimeout)
	s.complaints.last = map[string]complaint{}
	s.Inflight.hub = inner.Context()
	s.ctx, s.cancel = context.WithCancel(inner.Context())
	return s, nil
}

// NewRunner makes a runner for calls of which one request lasts at most so long; those of the session's own last for
// CallTimeout.
func (s *Session) NewRunner(callTimeout time.Duration) *script.Runner {
	r := script.NewRunner(s.Hub.Client(), callTimeout)
	if dials := s.Inner.Dials(); dials != nil {
		r.HeedDials(dials)
	}
	r.Lacks = s.Inner.Lacks()
	return r
}

// Start gives the session what clients need that hold something for a time, or wait. It fills in what is missing in o.
// It reports renewals, waits and wake-ups to the Observer.
func (s *Session) Start(o lease.Config) {
	s.ID, s.Seed = lease.NewConnectionID(o.Heartbeats.Trust, s.Hub.Client().Mode() == rueidis.ClientModeCluster)
	s.Retrier = NewRetrier()
	s.Waiters = wait.NewWaiters(s.Hub, s.PollCap, func(ctx context.Context, name string, byMessage bool) {
		s.Tell(ctx, errs.Event{Kind: errs.EventWoken, Name: name, ByMessage: byMessage})
	}, func(ctx context.Context, name string) { s.Tell(ctx, errs.Event{Kind: errs.EventWaiting, Name: name}) })
	s.Waiters.Unclaimed = s.Retrier.Kick
	s.Waiters.Silence = wait.NewSilence(s.Hub.Client(), s.CallTimeout, s.Logger)
	o.ConnectionID, o.Client, o.Runner, o.Log, o.Replicas, o.ReplicasWait = s.ID, s.Hub.Client(), s.Runner, s.Logger,
		s.MinReplicas, s.ReplicaTimeout
	o.Renewed = func(ctx context.Context, name string, err error) {
		s.Tell(ctx, errs.Event{Kind: errs.EventRenewed, Name: name, Err: err})
	}
	s.Engine = lease.New(o)
}

// Error is err with the name of the package in front.
func (s *Session) Error(err error) error { return errs.Edge(s.pkg, err) }

// RecentErrors are the last errors of the client. Tell and Complain add to them.
func (s *Session) RecentErrors() *errs.RecentErrors { return &s.recent }

// Key is the main key of an object, and why the name cannot be used.
func (s *Session) Key(name string) (string, error) {
	key := s.KeyPrefix + name
	if name == "" {
		return key, s.Error(fmt.Errorf("%w: it is empty", errs.ErrInvalidName))
	}
	return key, s.Error(keyname.Check(key))
}

// NewOwner is an id that was never used. A label becomes part of it: there it needs no key of its own, lives exactly
// as long as the hold, and changes nothing for Redisson, which only compares owners.
func (s *Session) NewOwner(label string) string {
	var room [64]byte // made in one piece of memory
	id := string(strconv.AppendInt(append(append(room[:0], s.ID...), ':'), s.owners.Add(1), 10))
	if label != "" {
		id += ":" + url.PathEscape(label)
		if head, ok := strings.CutSuffix(id, ":write"); ok {
			id = head + ":%77rite" // Redisson's mark of a writer
		}
	}
	return id
}

// Enter counts in a call that Close waits for, or a hold; Leave counts it out. ErrClosed: the client is closed, or its
// hub.
func (s *Session) Enter() error { return s.Error(s.Inflight.Enter()) }

// Usable returns why nothing may be asked: bad, which is what is wrong with the object, or ErrClosed, or the first
// error of arguments, which is what is wrong with the call's.
func (s *Session) Usable(bad error, arguments ...error) error {
	if bad == nil && s.Closed() {
		bad = errs.ErrClosed
	}
	return s.Error(cmp.Or(bad, cmp.Or(arguments...)))
}

// Context ends at Close, and with the hub.
func (s *Session) Context() context.Context { return s.ctx }

// Background runs fn on a goroutine, unless Close has begun. ctx ends at Close, which waits for fn.
func (s *Session) Background(fn func(ctx context.Context)) bool {
	return s.IfOpen(func() { // Close may be waiting for the background already
		s.running.Go(func() { fn(s.ctx) })
	})
}

// Finish runs fn on a goroutine, also if Close has begun: a call leaves it behind, and it has to be done. Close waits
// for it as for a call under way.
func (s *Session) Finish(fn func()) {
	s.Join()
	go func() {
		defer s.Leave()
		fn()
	}()
}

// ErrPatience is the cause of the end of a call that lasted for Bound.
var ErrPatience = errors.New("no answer within the retry timeout")

// Bound is how long a call lasts at most that does not wait for others, whatever its context allows. So the callers of
// a server that is away, which often have a deadline for much more than this one call, learn of it soon.
func (s *Session) Bound() time.Duration { return s.RetryTimeout }

// Bounded is ctx, ended after Bound.
func (s *Session) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.Bound(), ErrPatience)
}

// giveBackFor is how many call timeouts what gives back is repeated for whose caller has set no end, or has left.
const giveBackFor = 5

// GiveBackBound is that time. It is longer than Bound by default: the call is not made again, and what was not given
// back stays taken.
func (s *Session) GiveBackBound() time.Duration {
	return giveBackFor * min(s.CallTimeout, math.MaxInt64/giveBackFor)
}

// GiveBack repeats f until it is answered, for GiveBackBound at most. ctx gives the values only, because its caller may
// have left.
func (s *Session) GiveBack(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.GiveBackBound())
	defer cancel()
	_, err := script.Repeat(ctx, false, func() error { return f(ctx) })
	return err
}

// Do runs a call that may be repeated, until ctx ends, for Bound at most.
func (s *Session) Do(ctx context.Context, call script.Call) (rueidis.RedisMessage, error) {
	m, err := s.Runner.DoWithin(ctx, call, s.Bound(), ErrPatience)
	if err == nil {
		s.Answered()
	}
	return m, err
}

// Ask runs f, a question or an intervention, until ctx ends, for Bound at most: what is repeated there is remembered on
// the server for twice that time. bad is what is wrong with the object.
func Ask[T any](ctx context.Context, s *Session, bad error, f func(context.Context) (T, error)) (v T, err error) {
	if err := s.Usable(bad); err != nil {
		return v, err
	}
	ctx, cancel := s.Bounded(ctx)
	defer cancel()
	if v, err = f(ctx); err != nil {
		var none T
		return none, s.Error(err)
	}
	s.Answered()
	return v, nil
}

// Answered is called after a success. With the first of a client's life it looks whether the server may evict what
// the package keeps; to the others it costs the read of a bool.
//
// The question has a connection of its own, and rueidis heeds no context while it makes one: a server that falls silent
// holds the question up for 5 s. So it is not among what runs in the background, for which Close waits whatever its ctx
// says.
func (s *Session) Answered() {
	if s.Runner.EvictionAsked() {
		return
	}
	s.IfOpen(func() {
		ended := make(chan struct{})
		s.eviction = ended
		go func() {
			defer close(ended)
			ctx, cancel := context.WithTimeout(s.ctx, evictionTimeout)
			defer cancel()
			if policy := s.Runner.EvictionPolicy(ctx); policy != "" {
				s.Logger.Warn("redlatch: the server evicts keys when its memory is full, "+s.keeps+
					" among them; set maxmemory-policy to noeviction", "maxmemory-policy", policy)
			}
		}()
	})
}

// evictionTimeout bounds the question.
const evictionTimeout = 5 * time.Second
