package measure

import (
	"sync"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Watched are clients that are asked for their Stats. The zero value has none. It is safe for concurrent use.
type Watched struct {
	mu    sync.Mutex
	stats map[string][]func() rlock.Stats // by kind
	hubs  []*pubsub.Hub
}

// Add adds every client that has Stats to tell, and the hub.
func (w *Watched) Add(red *redlatch.Client) {
	w.AddHub(red.Hub())
	w.AddLocks(red.Locks())
	w.AddSemaphores(red.Semaphores())
}

// AddLocks adds one client, and so does AddSemaphores.
func (w *Watched) AddLocks(l *rlock.Client) { w.add(Lock, l.Stats) }

// AddSemaphores adds one client.
func (w *Watched) AddSemaphores(s *rsemaphore.Client) {
	w.add(Semaphore, func() rlock.Stats { return rlock.Stats(s.Stats()) })
}

func (w *Watched) add(kind string, stats func() rlock.Stats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stats == nil {
		w.stats = map[string][]func() rlock.Stats{}
	}
	w.stats[kind] = append(w.stats[kind], stats)
}

// AddHub adds a hub.
func (w *Watched) AddHub(h *pubsub.Hub) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hubs = append(w.hubs, h)
}

// Each calls f with every value of the instruments in Asked. Several clients of a kind are added up.
func (w *Watched) Each(f func(i *Instrument, v int64, labels ...string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range []string{Lock, Semaphore} {
		var all rlock.Stats
		for _, stats := range w.stats[kind] {
			s := stats()
			all.Held += s.Held
			all.Waiting += s.Waiting
			all.PendingReleases += s.PendingReleases
			all.HandOvers += s.HandOvers
		}
		f(Held, int64(all.Held), kind)
		f(Waiting, int64(all.Waiting), kind)
		f(PendingReleases, int64(all.PendingReleases), kind)
		f(HandOvers, all.HandOvers, kind)
	}
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
