package redlatchprom

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Options of a Collector. The zero value is good.
type Options struct {
	// Class makes the label class of a name, such as the part before its first colon. kind is lock, semaphore, counter, stock,
	// redpacket or limiter. It runs where the event happens, for every event, so it must return at once. "" counts as "other".
	// Defaults to "all" for every name.
	Class func(kind, name string) string
	// MaxClasses is how many classes of each kind get series of their own, the first that come; later ones count as "other".
	// Defaults to 50, also if it is not positive.
	MaxClasses int
	// WaitBuckets and HoldBuckets are the upper bounds, in seconds, of the histograms of waiting (and of calls) and of holding.
	// Default to 16 bounds from 250 us to 100 s, and from 1 ms to an hour.
	WaitBuckets, HoldBuckets []float64
}

// Collector is a prometheus.Collector of what the clients do that it observes. It is safe for concurrent use. Its metrics begin at
// 0 when it is made.
type Collector struct {
	class classes
	all   []prometheus.Collector

	acquisitions, releases, losses, renewals, wakeups, takeovers  *prometheus.CounterVec
	claims, units, localAnswers, writes, failures                 *prometheus.CounterVec
	confirmed, refused, dropped, cut                              *prometheus.CounterVec
	acquireTime, holdTime, awaitTime, claimTime, counterWriteTime *prometheus.HistogramVec

	mu         sync.Mutex
	locks      []*rlock.Client
	semaphores []*rsemaphore.Client
	stocks     []*stock.Client
	packets    []*redpacket.Client
	hubs       []*pubsub.Hub
}

var (
	waitBuckets = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30, 100}
	holdBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 300, 1200, 3600}
)

// What is asked of Stats at each scrape.
var (
	heldDesc       = prometheus.NewDesc("redlatch_held", "Holds of locks and acquisitions of permits that last.", []string{"kind"}, nil)
	waitingDesc    = prometheus.NewDesc("redlatch_waiting", "Calls that wait for what was refused to them, or to a call before them.", []string{"kind"}, nil)
	pendingDesc    = prometheus.NewDesc("redlatch_pending_releases", "Releases that the server has not confirmed, and that go on in the background.", []string{"kind"}, nil)
	handOversDesc  = prometheus.NewDesc("redlatch_handovers_total", "Waits that ended because a release named the waiter.", []string{"kind"}, nil)
	sharedDesc     = prometheus.NewDesc("redlatch_shared_calls_total", "Script calls that several requests of this process could share.", []string{"kind"}, nil)
	requestsDesc   = prometheus.NewDesc("redlatch_shared_requests_total", "Requests that were made in shared calls.", []string{"kind"}, nil)
	channelsDesc   = prometheus.NewDesc("redlatch_subscriptions", "Channels that are wanted, by state: confirmed by the server and up, or pending.", []string{"state"}, nil)
	connectionDesc = prometheus.NewDesc("redlatch_subscription_connections", "Connections for subscriptions, also those that are being made.", nil, nil)

	asked = []*prometheus.Desc{heldDesc, waitingDesc, pendingDesc, handOversDesc, sharedDesc, requestsDesc, channelsDesc, connectionDesc}
)

// New returns a Collector that observes nothing yet: see [Collector.Instrument].
func New(o Options) *Collector {
	if o.MaxClasses <= 0 {
		o.MaxClasses = 50
	}
	if o.WaitBuckets == nil {
		o.WaitBuckets = waitBuckets
	}
	if o.HoldBuckets == nil {
		o.HoldBuckets = holdBuckets
	}
	c := &Collector{class: classes{of: o.Class, most: o.MaxClasses, known: map[string]map[string]struct{}{}}}
	c.class.fresh = c.begin
	c.acquisitions = c.counter("acquisitions", "Acquisitions of locks and permits that ended, by result: acquired, or an error.", "kind", "class", "result")
	c.acquireTime = c.histogram("acquire", "How long acquisitions took, waiting included.", o.WaitBuckets, "kind", "class", "acquired")
	c.releases = c.counter("releases", "Unlocks and releases of permits, by result: released, or an error.", "kind", "class", "result")
	c.holdTime = c.histogram("hold", "How long locks and permits were held that were released.", o.HoldBuckets, "kind", "class")
	c.losses = c.counter("losses", "Holds and permits that ended without a release, by cause: lost, overwritten, max_hold or closed.", "kind", "class", "cause")
	c.renewals = c.counter("renewals", "Renewals of leases, by result: confirmed or failed. A failure is not final.", "kind", "class", "result")
	c.wakeups = c.counter("wakeups", "Wake-ups of waiters, by message or timer.", "kind", "class", "by")
	c.takeovers = c.counter("takeovers", "Holds of crashed processes that this one removed from locks it waits for.", "class")
	c.awaitTime = c.histogram("await", "How long calls of Await of latches and barriers took, by result: reached, or an error.", o.WaitBuckets, "class", "result")
	c.claims = c.counter("claims", "Claims that the server answered, by outcome: granted, replayed, sold_out and others, or an error.", "kind", "class", "outcome")
	c.units = c.counter("claimed_units", "Units of stocks, or cents of red packets, that were granted.", "kind", "class")
	c.claimTime = c.histogram("claim", "How long claims took for which the server was asked.", o.WaitBuckets, "kind", "class")
	c.localAnswers = c.counter("local_answers", "Claims that the process answered without the server, because the stock is sold out, by outcome.", "class", "outcome")
	c.writes = c.counter("writes", "Writes of counters, by result: written, or an error.", "class", "result")
	c.counterWriteTime = c.histogram("write", "How long writes of counters took.", o.WaitBuckets, "class")
	c.failures = c.counter("background_failures", "Work in the background that failed for good, or is repeated anyway: units that stay sold or taken.", "kind", "class")
	c.confirmed = c.counter("subscription_confirmations", "Subscriptions that the server confirmed, by again: after the channel was down.", "again")
	c.refused = c.counter("subscription_refusals", "Subscriptions that the server refused.")
	c.cut = c.counter("subscription_connection_losses", "Connections with subscriptions that ended, or could not be made.")
	c.dropped = c.counter("messages_dropped", "Messages that were dropped because a subscriber was slow.")
	for _, v := range []*prometheus.CounterVec{c.refused, c.cut, c.dropped} {
		v.WithLabelValues() // 0 is there from the start
	}
	return c
}

// begin makes the series of rare events: a counter that begins at 1 has not increased, and no alert sees it.
func (c *Collector) begin(kind, class string) {
	switch kind {
	case kindLock, kindSemaphore:
		for _, cause := range []string{"lost", "overwritten", "max_hold", "closed"} {
			c.losses.WithLabelValues(kind, class, cause)
		}
	case kindStock, kindLimiter:
		c.failures.WithLabelValues(kind, class)
	}
	if kind == kindLock {
		c.takeovers.WithLabelValues(class)
	}
}

func (c *Collector) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "redlatch_" + name + "_total", Help: help}, labels)
	c.all = append(c.all, v)
	return v
}

func (c *Collector) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "redlatch_" + name + "_seconds", Help: help, Buckets: buckets}, labels)
	c.all = append(c.all, v)
	return v
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, v := range c.all {
		v.Describe(to)
	}
	for _, d := range asked {
		to <- d
	}
}

// Collect implements prometheus.Collector. It asks the clients and hubs that are watched for their Stats, and no server.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, v := range c.all {
		v.Collect(to)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	count := func(d *prometheus.Desc, v int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	holders := func(kind string, s rlock.Stats) {
		gauge(heldDesc, s.Held, kind)
		gauge(waitingDesc, s.Waiting, kind)
		gauge(pendingDesc, s.PendingReleases, kind)
		count(handOversDesc, s.HandOvers, kind)
		count(sharedDesc, s.SharedCalls, kind)
		count(requestsDesc, s.SharedRequests, kind)
	}
	holders("lock", sum(c.locks, func(l *rlock.Client) rlock.Stats { return l.Stats() }))
	holders("semaphore", sum(c.semaphores, func(s *rsemaphore.Client) rlock.Stats { return rlock.Stats(s.Stats()) }))
	var calls stock.Stats
	for _, s := range c.stocks {
		n := s.Stats()
		calls.SharedCalls, calls.SharedRequests = calls.SharedCalls+n.SharedCalls, calls.SharedRequests+n.SharedRequests
	}
	count(sharedDesc, calls.SharedCalls, "stock")
	count(requestsDesc, calls.SharedRequests, "stock")
	calls = stock.Stats{}
	for _, p := range c.packets {
		n := p.Stats()
		calls.SharedCalls, calls.SharedRequests = calls.SharedCalls+n.SharedCalls, calls.SharedRequests+n.SharedRequests
	}
	count(sharedDesc, calls.SharedCalls, "redpacket")
	count(requestsDesc, calls.SharedRequests, "redpacket")
	var hubs pubsub.Stats
	for _, h := range c.hubs {
		n := h.Stats()
		hubs.Channels, hubs.Confirmed, hubs.Connections = hubs.Channels+n.Channels, hubs.Confirmed+n.Confirmed, hubs.Connections+n.Connections
	}
	gauge(channelsDesc, hubs.Confirmed, "confirmed")
	gauge(channelsDesc, hubs.Channels-hubs.Confirmed, "pending")
	gauge(connectionDesc, hubs.Connections)
}

// sum adds up the Stats of clients.
func sum[C any](clients []C, stats func(C) rlock.Stats) (all rlock.Stats) {
	for _, c := range clients {
		s := stats(c)
		all.Held += s.Held
		all.Waiting += s.Waiting
		all.PendingReleases += s.PendingReleases
		all.HandOvers += s.HandOvers
		all.SharedCalls += s.SharedCalls
		all.SharedRequests += s.SharedRequests
	}
	return all
}

// Watch has every scrape ask the clients of red, and its hub, for their Stats. It asks them for as long as the Collector is there:
// what a closed client has counted does not go. Several clients are added up.
func (c *Collector) Watch(red *redlatch.Client) {
	c.WatchHub(red.Hub())
	c.WatchLocks(red.Locks())
	c.WatchSemaphores(red.Semaphores())
	c.WatchStocks(red.Stocks())
	c.WatchRedPackets(red.RedPackets())
}

// WatchLocks is Watch for a program that uses the packages alone, and so are the next four.
func (c *Collector) WatchLocks(l *rlock.Client) { watch(c, &c.locks, l) }

// WatchSemaphores is Watch for one client.
func (c *Collector) WatchSemaphores(s *rsemaphore.Client) { watch(c, &c.semaphores, s) }

// WatchStocks is Watch for one client.
func (c *Collector) WatchStocks(s *stock.Client) { watch(c, &c.stocks, s) }

// WatchRedPackets is Watch for one client.
func (c *Collector) WatchRedPackets(p *redpacket.Client) { watch(c, &c.packets, p) }

// WatchHub is Watch for a hub.
func (c *Collector) WatchHub(h *pubsub.Hub) { watch(c, &c.hubs, h) }

func watch[T any](c *Collector, to *[]T, v T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to = append(*to, v)
}
