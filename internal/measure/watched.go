package measure

import (
	"sync"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Watched are clients that are asked for their Stats. The zero value has none. It is safe for concurrent use.
type Watched struct {
	mu         sync.Mutex
	locks      []*rlock.Client
	semaphores []*rsemaphore.Client
	stocks     []*stock.Client
	packets    []*redpacket.Client
	counters   []*rcounter.Client
	limiters   []*ratelimit.Client
	hubs       []*pubsub.Hub
}

// Add adds every client that has Stats to tell, and the hub.
func (w *Watched) Add(red *redlatch.Client) {
	w.AddHub(red.Hub())
	w.AddLocks(red.Locks())
	w.AddSemaphores(red.Semaphores())
	w.AddStocks(red.Stocks())
	w.AddRedPackets(red.RedPackets())
	w.AddCounters(red.Counters())
	w.AddLimiters(red.Limiters())
}

// AddLocks adds one client, and so do the next six.
func (w *Watched) AddLocks(l *rlock.Client) { add(w, &w.locks, l) }

// AddSemaphores adds one client.
func (w *Watched) AddSemaphores(s *rsemaphore.Client) { add(w, &w.semaphores, s) }

// AddStocks adds one client.
func (w *Watched) AddStocks(s *stock.Client) { add(w, &w.stocks, s) }

// AddRedPackets adds one client.
func (w *Watched) AddRedPackets(p *redpacket.Client) { add(w, &w.packets, p) }

// AddCounters adds one client.
func (w *Watched) AddCounters(c *rcounter.Client) { add(w, &w.counters, c) }

// AddLimiters adds one client.
func (w *Watched) AddLimiters(l *ratelimit.Client) { add(w, &w.limiters, l) }

// AddHub adds a hub.
func (w *Watched) AddHub(h *pubsub.Hub) { add(w, &w.hubs, h) }

func add[T any](w *Watched, to *[]T, v T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*to = append(*to, v)
}

// Each calls f with every value of the instruments in Asked. Several clients of a kind are added up.
func (w *Watched) Each(f func(i *Instrument, v int64, labels ...string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sharedCounts := func(kind string, s rlock.Stats) {
		f(SharedCalls, s.SharedCalls, kind)
		f(SharedRequests, s.SharedRequests, kind)
	}
	holders := func(kind string, s rlock.Stats) {
		f(Held, int64(s.Held), kind)
		f(Waiting, int64(s.Waiting), kind)
		f(PendingReleases, int64(s.PendingReleases), kind)
		f(HandOvers, s.HandOvers, kind)
		sharedCounts(kind, s)
	}
	holders(Lock, sum(w.locks, func(l *rlock.Client) rlock.Stats { return l.Stats() }))
	holders(Semaphore, sum(w.semaphores, func(s *rsemaphore.Client) rlock.Stats { return rlock.Stats(s.Stats()) }))
	sharedCounts(Stock, sum(w.stocks, func(s *stock.Client) rlock.Stats { return tallied(s.Stats()) }))
	sharedCounts(RedPacket, sum(w.packets, func(p *redpacket.Client) rlock.Stats {
		return tallied(stock.Stats(p.Stats()))
	}))
	sharedCounts(CounterOf, sum(w.counters, func(c *rcounter.Client) rlock.Stats {
		return tallied(stock.Stats(c.Stats()))
	}))
	sharedCounts(Limiter, sum(w.limiters, func(l *ratelimit.Client) rlock.Stats {
		return tallied(stock.Stats(l.Stats()))
	}))
	var hubs pubsub.Stats
	lacks := map[string]int64{}
	for _, h := range w.hubs {
		n := h.Stats()
		hubs.Channels, hubs.Confirmed, hubs.Connections = hubs.Channels+n.Channels, hubs.Confirmed+n.Confirmed,
			hubs.Connections+n.Connections
		for _, l := range n.Lacks {
			lacks[l.Command]++
		}
	}
	f(Subscriptions, int64(hubs.Confirmed), "confirmed")
	f(Subscriptions, int64(hubs.Channels-hubs.Confirmed), "pending")
	f(Connections, int64(hubs.Connections))
	for _, command := range errs.LackedCommands() { // 0 of most, for alerts
		f(Lacks, lacks[command], command)
	}
}

// tallied is what clients have to tell that only share calls.
func tallied(s stock.Stats) rlock.Stats {
	return rlock.Stats{SharedCalls: s.SharedCalls, SharedRequests: s.SharedRequests}
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
