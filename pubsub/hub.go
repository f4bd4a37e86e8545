package pubsub

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	defaultGrace       = 10 * time.Second
	defaultCallTimeout = 5 * time.Second
	defaultBuffer      = 128

	minBuffer = 2 // a gap, and the newest message
	maxBuffer = 1 << 20
)

// Options of a Hub. The zero value has all defaults.
type Options struct {
	// NewClient makes the client of Dial. It is for a constructor that adds hooks or tracing, such as
	// rueidisotel.NewClient. New does not use it. The context that a hook sees ends with its call: what goes on for longer
	// takes context.WithoutCancel of it. Defaults to rueidis.NewClient.
	NewClient func(rueidis.ClientOption) (rueidis.Client, error)
	// Strict makes Dial fail (ErrInvalidOption) if a server may evict keys when its memory is full, that is, if its
	// maxmemory-policy is not noeviction, or if it refuses INFO. Eviction can take a lock from its holder, and ends a
	// sale. Without Strict each package logs a warning when it is first used. New refuses Strict, because it asks nothing.
	Strict bool
	// Durable makes Dial fail (ErrInvalidOption) if a server may forget what it has confirmed: if it keeps no append-only
	// file (appendonly), so that a restart brings back what the last snapshot has; or if it is a primary that needs no
	// replica (min-replicas-to-write is 0), which goes on granting when it is cut off and another was promoted. A server
	// that refuses INFO is refused; one that cannot be reached, and a replica behind Sentinel, is not asked. The settings
	// are looked at once. New refuses Durable, because it asks nothing.
	Durable bool
	// Grace is how long a channel stays subscribed after its last Subscription was closed. Defaults to 10 s.
	Grace time.Duration
	// CallTimeout bounds Publish, and the question that a Cluster is asked at the start. Defaults to 5 s.
	CallTimeout time.Duration
	// Buffer is how many messages wait for a subscriber that does not call Next in time, 2 to 1,048,576. When it is full
	// the oldest are dropped, and a Gap stands in their place. Make it as large as the largest burst. Defaults to 128.
	Buffer int
	// Logger gets one line when subscriptions are lost, and one when all of them are back; one line when a channel is
	// refused, and one when it is subscribed after all; and one for each command that the server refuses and that can be
	// done without (Stats.Lacks). Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is called with what happens, for metrics. Defaults to none.
	Observer Observer

	inv   *invalidations // of a client that Dial has made
	dials *errs.Dials    // likewise
	lacks *errs.Lacks    // likewise
}

// Observer is called with what happens to the subscriptions of a client. It is redlatch.Observer, which is one type
// for all packages.
type Observer = errs.Observer

// Hub receives push messages for the whole process. A process needs one for each server. It is safe for concurrent use.
type Hub struct {
	client   rueidis.Client
	owned    bool          // made by Dial: closed with the hub
	plain    bool          // and it is one of rueidis, with nothing around it
	shutDown chan struct{} // closed when the first Close returns
	leftOpen error         // its result; read after shutDown is closed
	runner   *script.Runner
	inv      *invalidations
	grace    time.Duration
	buffer   int
	log      *slog.Logger
	observer Observer
	publish  string
	dials    *errs.Dials // nil: not known

	recent errs.RecentErrors
	lacks  *errs.Lacks

	cluster   bool // sharded channels: one link per node
	failsOver bool // a node that is connected to may be, or become, a replica

	// ctx ends at Close. The clients of the other packages let no call in after that, and what waits in them has a child
	// of it.
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	probe  sync.Once    // for countListeners
	live   atomic.Int32 // confirmed topics: lets TrySubscribe say no without the mutex

	// mu guards everything below and the fields of topics and links. It is let go of by unlock only. It is taken on
	// rueidis' reader goroutine, so nothing that can block is done under it: the reader would wait, and with it the reply
	// for which the holder of mu waits. For the same reason a message is handed over without waiting for its subscriber
	// (TestSubscription_Slow_HasAGapAndDelaysNoOther).
	mu      sync.Mutex
	closed  bool
	refused bool   // a refusal was logged, and nothing was confirmed since
	shunned string // the channel whose refusal was logged last, if it was not confirmed since
	lost    bool   // a loss was logged, and some of what was subscribed then is not back
	missing int    // topics that were confirmed and are down
	topics  map[string]*topic
	links   map[string]*link // by node address; "" where one connection serves all
	nodes   map[uint16]string
	notes   []note // for unlock
	telling bool   // some goroutine is about them
}

// New makes a hub on a client that the caller has built. The caller closes the client after the hub. New does not see
// the client's options, so it cannot refuse what [Dial] refuses. Nothing is sent until the hub is used.
func New(c rueidis.Client, o Options) (*Hub, error) {
	if c == nil {
		return nil, fmt.Errorf("pubsub: %w", errs.InvalidOption("client", nil, "a rueidis.Client"))
	}
	if o.Strict {
		return nil, fmt.Errorf("pubsub: %w", errs.InvalidOption("Strict", true, "false: only Dial asks the server"))
	}
	if o.Durable {
		return nil, fmt.Errorf("pubsub: %w", errs.InvalidOption("Durable", true, "false: only Dial asks the server"))
	}
	if o.Grace < 0 {
		return nil, fmt.Errorf("pubsub: %w", errs.InvalidOption("Grace", o.Grace, "0 or more"))
	}
	if o.CallTimeout < 0 {
		return nil, fmt.Errorf("pubsub: %w", errs.InvalidOption("CallTimeout", o.CallTimeout, "0 or more"))
	}
	if o.Buffer != 0 && (o.Buffer < minBuffer || o.Buffer > maxBuffer) {
		return nil, fmt.Errorf("pubsub: %w",
			errs.InvalidOption("Buffer", o.Buffer, fmt.Sprintf("0 (the default), or %d to %d", minBuffer, maxBuffer)))
	}
	if o.Buffer == 0 {
		o.Buffer = defaultBuffer
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = defaultCallTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	h := &Hub{
		shutDown: make(chan struct{}),
		client:   c, runner: script.NewRunner(c, o.CallTimeout), inv: o.inv, grace: o.Grace, buffer: o.Buffer, log: o.Logger,
		observer: o.Observer, publish: "PUBLISH",
		topics: map[string]*topic{}, links: map[string]*link{}, nodes: map[uint16]string{},
	}
	if h.dials = o.dials; h.dials != nil {
		h.runner.HeedDials(h.dials)
	}
	if h.lacks = o.lacks; h.lacks == nil {
		h.lacks = errs.NewLacks(o.Logger)
	}
	h.runner.Lacks = h.lacks
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	h.failsOver = c.Mode() != rueidis.ClientModeStandalone
	if c.Mode() == rueidis.ClientModeCluster {
		h.cluster, h.publish = true, "SPUBLISH"
	}
	return h, nil
}

// Client returns the client that the hub works with.
func (h *Hub) Client() rueidis.Client { return h.client }

// Publish sends payload to the subscribers of channel and returns how many connections got it. In a Cluster it counts
// only the connections to the node that was asked. The message is sent once: after ErrUnknownOutcome it may have been
// delivered.
func (h *Hub) Publish(ctx context.Context, channel, payload string) (receivers int64, err error) {
	if err := checkChannel(channel); err != nil {
		return 0, err
	}
	if h.isClosed() {
		return 0, fmt.Errorf("pubsub: hub: %w", errs.ErrClosed)
	}
	m, err := h.runner.Attempt(ctx, script.Call{
		Script: script.Plain(h.publish), Keys: []string{channel}, Args: []string{payload}, Once: true,
	})
	if err != nil {
		return 0, fmt.Errorf("pubsub: %w", err)
	}
	return m.AsInt64()
}

func checkChannel(channel string) error {
	// the rules for braces in keys do not bind channels: any name that is not empty can be hashed
	if err := keyname.Shape(channel); err != nil &&
		(channel == "" || len(channel) > keyname.MaxLen || !utf8.ValidString(channel)) {
		return fmt.Errorf("pubsub: channel: %w", err)
	}
	return nil
}

func (h *Hub) isClosed() bool {
	h.mu.Lock()
	defer h.unlock()
	return h.closed
}

// Subscribe subscribes to channel and returns when the server has confirmed: at once if the process is subscribed
// already, and once there is a connection again if it is lost. If ctx ends first, or the server refuses, nothing is
// left behind; the error wraps ctx's cause or the server's refusal. The caller closes the subscription.
func (h *Hub) Subscribe(ctx context.Context, channel string) (*Subscription, error) {
	if err := checkChannel(channel); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("pubsub: subscribe to %q: %w", channel, context.Cause(ctx))
	}
	h.mu.Lock()
	if h.closed {
		h.unlock()
		return nil, fmt.Errorf("pubsub: hub: %w", errs.ErrClosed)
	}
	t := h.topics[channel]
	if t == nil {
		t = &topic{hub: h, name: channel, subs: map[*Subscription]struct{}{}, answer: newAnswer()}
		h.topics[channel] = t
		h.route(t)
	}
	s := t.join()
	live, answer := t.live, t.answer
	h.unlock()
	if live {
		return s, nil
	}
	select {
	case <-answer.given:
		if answer.err != nil {
			s.Close()
			return nil, fmt.Errorf("pubsub: subscribe to %q: %w", channel, answer.err)
		}
		return s, nil
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("pubsub: subscribe to %q: %w", channel, context.Cause(ctx))
	case <-h.ctx.Done():
		return nil, fmt.Errorf("pubsub: hub: %w", errs.ErrClosed)
	}
}

// Close ends the hub: every Next returns ErrClosed, the hub's connections are closed, and so is the client that Dial
// made. Close waits for all of that until ctx ends, and for the client 5 s at most. What is left then goes on in the
// background, and the error says so. With a server that does not answer Close lasts as long as rueidis takes to dial, 5
// s by default, even if ctx has no end. Later calls wait for the first until their own ctx ends, and return its result.
//
// Close the clients of the other packages first, because their Close waits for what they hold. On a closed hub their
// waiting calls end with ErrClosed, and later calls are refused with it. Only Unlock and Release are still sent, as
// long as there is a client.
func (h *Hub) Close(ctx context.Context) error {
	if !h.shut() {
		select {
		case <-h.shutDown:
		case <-ctx.Done():
			select {
			case <-h.shutDown: // there is a result, and of two that are ready a select takes either
			default:
				return fmt.Errorf("pubsub: close: an earlier call of Close is still under way: %w", context.Cause(ctx))
			}
		}
		return h.leftOpen
	}
	h.leftOpen = h.close(ctx)
	close(h.shutDown)
	return h.leftOpen
}

// close is the one Close.
func (h *Hub) close(ctx context.Context) error {
	h.cancel(errs.ErrClosed)
	done := make(chan error, 1)
	go func() {
		h.wg.Wait()
		if h.owned {
			done <- h.closeClient()
		} else {
			done <- nil
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("pubsub: close: connections are still being closed: %w", context.Cause(ctx))
	}
}

// closePatience is how long a client may take to close. rueidis's escape from a server that is silent takes a second.
const closePatience = 5 * time.Second

// closeClient waits for a bounded time: a Close of rueidis (1.0.79) never returns if a call has just counted itself in
// and not yet looked whether the connection is being closed. The call then leaves, and the PING stays unanswered that
// Close waits for (pipe.Close, pipe.Do). A call that is not awaited any more may be that one, so there is no end of
// it to wait for here. The connection itself is closed, after a second.
func (h *Hub) closeClient() error {
	closed := make(chan struct{})
	go func() {
		h.client.Close()
		close(closed)
	}()
	if h.plain {
		defer func() {
			for _, later := range closeAgain {
				time.AfterFunc(later, h.client.Close)
			}
		}()
	}
	patience := time.NewTimer(closePatience)
	defer patience.Stop()
	select {
	case <-closed:
		return nil
	case <-patience.C:
		return fmt.Errorf("pubsub: close: the client is still being closed after %v", closePatience)
	}
}

// closeAgain is when the client is closed once more. rueidis keeps a connection that is being made while its client is
// closed, for good (1.0.79: mux._pipe stores it afterwards). A call that is not awaited any more may make one, so
// there is no end of it to wait for here. After a second it is not looked at any more, because until then the client is
// kept in memory. What Options.NewClient made is closed once: it may not bear more
// (TestHub_CloseDuringADial_ClosesItsConnection).
var closeAgain = []time.Duration{50 * time.Millisecond, time.Second}

// shut ends all subscriptions and refuses new ones. It reports whether this is the first time.
func (h *Hub) shut() bool {
	h.mu.Lock()
	defer h.unlock()
	if h.closed {
		return false
	}
	h.closed = true
	for _, t := range h.topics {
		if t.grace != nil {
			t.grace.Stop()
		}
		for s := range t.subs {
			s.end()
		}
	}
	clear(h.topics)
	h.live.Store(0)
	return true
}

// route puts the topic onto the link of its node, and starts the link if there is none. Called with mu held.
func (h *Hub) route(t *topic) {
	addr := ""
	if h.cluster {
		t.slot = keyname.Slot(t.name)
		addr = h.nodes[t.slot] // "" while unknown: any node, which answers MOVED with the right one
	}
	l := h.links[addr]
	if l == nil {
		l = &link{hub: h, addr: addr, wakeup: make(chan struct{}, 1), want: map[string]*topic{}, have: map[string]*topic{},
			leaving: map[string]int{}}
		h.links[addr] = l
		h.wg.Add(1)
		go l.run()
	}
	t.link = l
	l.want[t.name] = t
	l.wake()
}
