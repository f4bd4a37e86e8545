package pubsub

import (
	"cmp"
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
	// rueidisotel.NewClient. New does not use it. The context that a hook receives ends with its call; work that goes on
	// for longer needs context.WithoutCancel of it. Defaults to rueidis.NewClient.
	NewClient func(rueidis.ClientOption) (rueidis.Client, error)
	// Strict makes Dial fail (ErrInvalidOption) if a server may evict keys when its memory is full, that is, if its
	// maxmemory-policy is not noeviction, or if it refuses INFO. Eviction can take a lock from its holder, and ends a
	// sale. Without Strict each package logs a warning at its first use. New refuses Strict, because New sends nothing.
	Strict bool
	// Durable makes Dial fail (ErrInvalidOption) if a server may forget writes that it has confirmed:
	//
	//   - It keeps no append-only file (appendonly), so a restart restores only the last snapshot.
	//   - It is a primary that needs no replica (min-replicas-to-write is 0). Such a primary goes on granting when it is
	//     cut off and another server was promoted.
	//
	// A server that refuses INFO is refused. Dial does not check a replica behind Sentinel, nor a server that it cannot
	// reach. It reads the settings once. New refuses Durable, because New sends nothing.
	Durable bool
	// Grace is how long a channel stays subscribed after its last Subscription was closed. Defaults to 10 s.
	Grace time.Duration
	// CallTimeout bounds Publish, and the check of the server by Dial. Defaults to 5 s.
	CallTimeout time.Duration
	// Buffer is the number of messages that wait for a subscriber that does not call Next in time, 2 to 1,048,576. When it
	// is full the oldest messages are dropped, and a Gap stands in their place. Make it as large as the largest burst.
	// Defaults to 128.
	Buffer int
	// Logger receives these lines:
	//
	//   - one when subscriptions are lost, and one when all of them are back;
	//   - one when a channel is refused, and one when it is subscribed after all;
	//   - one for each command that the server refuses, and that the clients can do without (Stats.Lacks).
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
	// Observer is called with the events of subscriptions, for metrics. Defaults to none.
	Observer Observer

	invalidations *invalidations // nil unless Dial has made a client of a Cluster with client-side caching
	dials         *errs.Dials    // nil: the connections are not counted
	solo          *script.Solo   // nil: solo calls share the connections of others
	lacks         *errs.Lacks    // nil: New makes an empty list
}

// Observer is called with the events of a client's subscriptions. It is redlatch.Observer, which is one type for all
// packages.
type Observer = errs.Observer

// Hub receives push messages for the whole process. A process needs one for each server. It is safe for concurrent use.
type Hub struct {
	// The client.
	client     rueidis.Client
	ownsClient bool // Dial made the client, and Close closes it
	runner     *script.Runner
	opts       Options // with the defaults filled in
	cluster    bool    // channels are sharded, and each node has a link

	// The end. ctx ends at Close. The clients of the other packages refuse calls after that, and their waiting calls have
	// children of it.
	ctx        context.Context
	cancel     context.CancelCauseFunc
	wg         sync.WaitGroup
	firstClose closeResult

	numsubChecked sync.Once // see checkNumsub
	recentErrors  errs.RecentErrors
	liveTopics    atomic.Int32 // confirmed topics: with 0, TrySubscribe returns false without the mutex

	// mu guards the fields below and the fields of topics and links. Only unlock releases it. rueidis' reader goroutine
	// takes mu, so nothing that can block runs under it: the reader would wait, and with it the reply for which the holder
	// of mu waits. For the same reason a message is delivered without waiting for its subscriber
	// (TestSubscription_Slow_HasAGapAndDelaysNoOther).
	mu      sync.Mutex
	closed  bool
	topics  map[string]*topicState
	routes  routes
	outages outageLog
	notices noticeQueue
}

// routes are the connections of a hub.
type routes struct {
	links map[string]*link  // by node address; "" where one connection serves all channels
	nodes map[uint16]string // in a Cluster: the addresses of nodes by slot, as far as they are known
}

// outageLog is the state of the log lines on refused and lost subscriptions: each is logged once, and once when it is
// over.
type outageLog struct {
	refusalLogged  bool   // no topic was confirmed since the logged refusal
	refusedChannel string // the channel of the last logged refusal; "" if it was confirmed since
	lossLogged     bool   // not all topics of a logged loss are confirmed again
	lostTopics     int    // topics whose isLost is set
}

// closeResult is the result of the first Close.
type closeResult struct {
	done chan struct{} // closed when the first Close returns
	err  error         // read after done is closed
}

// New makes a hub on a client that the caller has built. The caller closes the client after the hub. New does not know
// the client's options, so it cannot refuse the options that [Dial] refuses. Nothing is sent until the hub is used.
func New(client rueidis.Client, opts Options) (*Hub, error) {
	if client == nil {
		return nil, fmt.Errorf("pubsub: %w", errs.InvalidOption("client", nil, "a rueidis.Client"))
	}
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	opts.Buffer, opts.Grace = cmp.Or(opts.Buffer, defaultBuffer), cmp.Or(opts.Grace, defaultGrace)
	opts.CallTimeout, opts.Logger = cmp.Or(opts.CallTimeout, defaultCallTimeout), cmp.Or(opts.Logger, slog.Default())
	opts.lacks = cmp.Or(opts.lacks, errs.NewLacks(opts.Logger))
	hub := &Hub{
		client: client, opts: opts,
		cluster:    client.Mode() == rueidis.ClientModeCluster,
		firstClose: closeResult{done: make(chan struct{})},
		topics:     map[string]*topicState{},
		routes:     routes{links: map[string]*link{}, nodes: map[uint16]string{}},
	}
	hub.runner = hub.newRunner(opts.CallTimeout)
	hub.ctx, hub.cancel = context.WithCancelCause(context.Background())
	return hub, nil
}

// check refuses options that New cannot keep, and options out of bounds.
func (o *Options) check() error {
	switch {
	case o.Strict:
		return errs.InvalidOption("Strict", true, "false: only Dial asks the server")
	case o.Durable:
		return errs.InvalidOption("Durable", true, "false: only Dial asks the server")
	case o.Grace < 0:
		return errs.InvalidOption("Grace", o.Grace, "0 or more")
	case o.CallTimeout < 0:
		return errs.InvalidOption("CallTimeout", o.CallTimeout, "0 or more")
	case o.Buffer != 0 && (o.Buffer < minBuffer || o.Buffer > maxBuffer):
		return errs.InvalidOption("Buffer", o.Buffer, fmt.Sprintf("0 (the default), or %d to %d", minBuffer, maxBuffer))
	}
	return nil
}

// newRunner makes a runner on the hub's client. The runners of a hub share what is known of the client.
func (h *Hub) newRunner(callTimeout time.Duration) *script.Runner {
	runner := script.NewRunner(h.client, callTimeout)
	if h.opts.dials != nil {
		runner.HeedDials(h.opts.dials)
	}
	runner.Lacks, runner.Solo = h.opts.lacks, h.opts.solo
	return runner
}

// publishCommand returns the command whose messages reach the hub's subscribers.
func (h *Hub) publishCommand() string {
	if h.cluster {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// Client returns the client that the hub uses.
func (h *Hub) Client() rueidis.Client { return h.client }

// Publish sends payload to the subscribers of channel and returns the number of connections that received it. In a
// Cluster it counts only the connections to the node that got the command. The message is sent once: after
// ErrUnknownOutcome it may have been delivered.
func (h *Hub) Publish(ctx context.Context, channel, payload string) (receivers int64, err error) {
	if err := checkChannel(channel); err != nil {
		return 0, err
	}
	if h.isClosed() {
		return 0, fmt.Errorf("pubsub: hub: %w", errs.ErrClosed)
	}
	reply, err := h.runner.Attempt(ctx, script.Call{
		Script: script.Plain(h.publishCommand()), Keys: []string{channel}, Args: []string{payload}, Once: true,
	})
	if err != nil {
		return 0, fmt.Errorf("pubsub: %w", err)
	}
	return reply.AsInt64()
}

func checkChannel(channel string) error {
	// the rules for braces in keys do not apply to channels: any name that is not empty has a slot
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

// Subscribe subscribes to channel and returns when the server has confirmed. It returns at once if the process is
// subscribed already. If the connection is lost, Subscribe waits for the next. If ctx ends first, or the server
// refuses, nothing is left behind, and the error wraps ctx's cause or the server's refusal. The caller closes the
// subscription.
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
	topic := h.topics[channel]
	if topic == nil {
		topic = &topicState{
			hub: h, name: channel, subscriptions: map[*Subscription]struct{}{}, nextReply: newAwaitedReply(),
		}
		h.topics[channel] = topic
		h.route(topic)
	}
	sub := topic.addSubscription()
	live, reply := topic.live, topic.nextReply
	h.unlock()
	if live {
		return sub, nil
	}
	select {
	case <-reply.received:
		if reply.err != nil {
			sub.Close()
			return nil, fmt.Errorf("pubsub: subscribe to %q: %w", channel, reply.err)
		}
		return sub, nil
	case <-ctx.Done():
		sub.Close()
		return nil, fmt.Errorf("pubsub: subscribe to %q: %w", channel, context.Cause(ctx))
	case <-h.ctx.Done():
		return nil, fmt.Errorf("pubsub: hub: %w", errs.ErrClosed)
	}
}

// Close ends the hub: every Next returns ErrClosed, and Close closes the hub's connections, and the client that Dial
// made. It waits for all of them until ctx ends, and for the client 5 s at most. Connections that are open then are
// closed in the background, and the error says so. If the server does not answer, Close lasts as long as rueidis takes
// to dial, 5 s by default, even if ctx has no end. Later calls wait for the first until their own ctx ends, and return
// its result.
//
// Close the clients of the other packages first, because their Close waits for their holds. On a closed hub their
// waiting calls end with ErrClosed, and later calls are refused with it. Only Unlock and Release are still sent, as
// long as there is a client.
func (h *Hub) Close(ctx context.Context) error {
	if !h.endSubscriptions() {
		select {
		case <-h.firstClose.done:
		case <-ctx.Done():
			select {
			case <-h.firstClose.done: // select chooses at random among ready cases, and a result goes first
			default:
				return fmt.Errorf("pubsub: close: an earlier call of Close is still in progress: %w", context.Cause(ctx))
			}
		}
		return h.firstClose.err
	}
	h.firstClose.err = h.close(ctx)
	close(h.firstClose.done)
	return h.firstClose.err
}

// close is the first Close.
func (h *Hub) close(ctx context.Context) error {
	h.cancel(errs.ErrClosed)
	done := make(chan error, 1)
	go func() {
		h.wg.Wait()
		if h.ownsClient {
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

// closeClientTimeout bounds the Close of a client. rueidis takes a second to give up on a silent server.
const closeClientTimeout = 5 * time.Second

// closeClient waits for a bounded time, because a Close of rueidis (1.0.79) may never return (pipe.Close, pipe.Do):
//
//	a call                                    Close
//	counts itself in
//	                                          marks the connection as closing, sends PING, waits
//	finds the mark, leaves                    the PING stays unanswered
//
// A call that is no longer awaited may be such a call, so closeClient cannot wait for its end first. The connection
// itself is closed, after a second.
func (h *Hub) closeClient() error {
	closed := make(chan struct{})
	go func() {
		h.opts.solo.Close()
		h.client.Close()
		close(closed)
	}()
	if h.opts.NewClient == nil {
		defer func() {
			for _, delay := range closeAgainAfter {
				time.AfterFunc(delay, h.client.Close)
			}
		}()
	}
	timeout := time.NewTimer(closeClientTimeout)
	defer timeout.Stop()
	select {
	case <-closed:
		return nil
	case <-timeout.C:
		return fmt.Errorf("pubsub: close: the client is still being closed after %v", closeClientTimeout)
	}
}

// closeAgainAfter are the delays after which the client is closed once more. rueidis never closes a connection that is
// being made while its client is closed (1.0.79: mux._pipe stores it afterwards). A call that is no longer awaited may
// make such a connection, so Close cannot wait for the end of that call first. The last delay is short, because until
// then the client stays in memory. A client of Options.NewClient is closed only once: it may not tolerate a second
// Close (TestHub_CloseDuringADial_ClosesItsConnection).
var closeAgainAfter = []time.Duration{50 * time.Millisecond, time.Second}

// endSubscriptions ends all subscriptions, and makes the hub refuse new ones. It reports whether this is the first
// call.
func (h *Hub) endSubscriptions() bool {
	h.mu.Lock()
	defer h.unlock()
	if h.closed {
		return false
	}
	h.closed = true
	for _, topic := range h.topics {
		if topic.graceTimer != nil {
			topic.graceTimer.Stop()
		}
		for sub := range topic.subscriptions {
			sub.end()
		}
	}
	clear(h.topics)
	h.liveTopics.Store(0)
	return true
}

// route puts the topic onto the link of its node, and starts the link if there is none. Called with mu held.
func (h *Hub) route(topic *topicState) {
	addr := ""
	if h.cluster {
		topic.slot = keyname.Slot(topic.name)
		addr = h.routes.nodes[topic.slot] // "" while unknown: any node, whose MOVED names the right node
	}
	nodeLink := h.routes.links[addr]
	if nodeLink == nil {
		nodeLink = &link{
			hub: h, addr: addr, wakeup: make(chan struct{}, 1),
			wanted: map[string]*topicState{}, requested: map[string]*topicState{}, unsubscribing: map[string]int{},
		}
		h.routes.links[addr] = nodeLink
		h.wg.Add(1)
		go nodeLink.run()
	}
	topic.link = nodeLink
	nodeLink.wanted[topic.name] = topic
	nodeLink.wake()
}
