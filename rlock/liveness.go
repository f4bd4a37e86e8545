package rlock

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// aliveKey is where a client of that connection id has its heartbeats for the keys of a slot group. Groups are fixed sixteenths of the
// slots, not nodes: all processes agree on them, though they see slots move at different times.
func (c *Client) aliveKey(group int, id string) string { return lease.BeatKey(c.clustered, group, id) }

// aliveOf is where the holder or waiter of that id has its heartbeats for a lock; "" if it has none.
func (c *Client) aliveOf(key, owner string) string {
	if lease.TrustIn(owner) == 0 {
		return ""
	}
	return c.saidBy(key, owner)
}

// saidBy is where the process of an owner says who it is, with heartbeats or without; "" if it is not of this library.
func (c *Client) saidBy(key, owner string) string {
	if !lease.Ours(owner) {
		return ""
	}
	return c.aliveKey(lease.SlotGroup(c.clustered, key), owner[:36])
}

// monitor takes locks that this process waits for from processes that are gone:
//
//  1. While a client with Liveness holds anything, it moves the expiry of one key on, every heartbeat; in a Cluster one for each
//     sixteenth of the slots in which it holds something. Its connection id says for how long it is trusted after one: three
//     heartbeats.
//
//  2. Each of its holds lasts until (before the last confirmed heartbeat was sent, or since when the hold may exist) + trust -
//     margin, if its lease does not end before (lease.Heartbeats).
//
//  3. While any acquisition waits, the monitor looks every half heartbeat at the lock and at the keys of its holders. A hold that
//     it has seen for the trust, by its own clock, with the key unchanged or missing all the time, it removes, by owner, as
//     ForceUnlock does. Owners are never used again, so it hits nobody else.
//
//  4. Before that it asks whether the lock is kept by UnlockAfter (keptKey).
//
//     holder                                monitor of a waiter
//     heartbeat sent  <- trusted from here
//     heartbeat runs on the server
//     (cut off)                           sees the changed key: counts from here, which is later
//     trust - margin over: the hold ends
//     trust over without a change: removes the hold, hands the lock over
//
// It watches for a change of the key, not for its expiry. By expiry, a server's clock that steps forward, an eviction or a DEL would
// take every lock from living holders (TestALivingHolderIsNeverTakenFrom). Whether a holder has heartbeats is told by the whole
// shape of its owner: the value of a Plain lock may be any text of another program
// (TestAPlainLockOfAnotherProgramIsNeverTakenWhateverItsValue).
type monitor struct {
	c *Client

	mu      sync.Mutex
	watched map[watchKey]*watch
	running bool

	beats map[string]*beatSeen // the goroutine's own; by key
}

type watchKey struct {
	key  string
	kind *kind
}

// watch is one lock.
type watch struct {
	l       *single
	waiters int
	holds   map[string]time.Time // field of the hash -> when it was first seen; the goroutine's own
}

type beatSeen struct {
	lease.Beat
	since  time.Time // when it was first seen so
	asked  time.Time // when the last look was sent that was answered
	wanted bool      // in this round
}

// lookers is how many looks are under way at a time.
const lookers = 16

func newMonitor(c *Client) *monitor {
	return &monitor{c: c, watched: map[watchKey]*watch{}, beats: map[string]*beatSeen{}}
}

// watch has l watched until unwatch.
func (m *monitor) watch(l *single) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := watchKey{l.key, l.kind}
	w := m.watched[k]
	if w == nil {
		w = &watch{l: l, holds: map[string]time.Time{}}
		m.watched[k] = w
	}
	w.waiters++
	if !m.running {
		m.running = m.c.session.Background(m.run)
	}
}

func (m *monitor) unwatch(l *single) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := watchKey{l.key, l.kind}
	if w := m.watched[k]; w.waiters == 1 {
		delete(m.watched, k)
	} else {
		w.waiters--
	}
}

func (m *monitor) run(ctx context.Context) {
	tick := time.NewTicker(m.c.heartbeat / 2) // so that it is three of them on average
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.mu.Lock()
		watches := make([]*watch, 0, len(m.watched))
		for _, w := range m.watched {
			watches = append(watches, w)
		}
		if len(watches) == 0 {
			m.running = false
			clear(m.beats)
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		m.round(ctx, watches)
	}
}

// round looks at all locks, then at the heartbeats of their holders, and removes the holds of those that are gone.
func (m *monitor) round(ctx context.Context, watches []*watch) {
	ctx, cancel := context.WithTimeout(ctx, max(m.c.heartbeat, m.c.opts.CallTimeout))
	defer cancel()
	states := make([]inspectReply, len(watches))
	var each errgroup.Group
	each.SetLimit(lookers)
	for i, w := range watches {
		each.Go(func() error {
			if r, err := m.c.runInspect(ctx, w.l.key, false); err == nil {
				states[i] = r
			}
			return nil
		})
	}
	each.Wait()
	for i, w := range watches {
		m.see(w, states[i].fields)
	}
	for key, b := range m.beats {
		if !b.wanted {
			delete(m.beats, key)
			continue
		}
		b.wanted = false
		each.Go(func() error {
			sent := time.Now()
			if seen, err := lease.Look(ctx, m.c.runner, key); err == nil {
				if b.asked.IsZero() || !seen.Same(b.Beat) {
					b.since = time.Now()
				}
				if b.asked.IsZero() || seen != (lease.Beat{}) {
					b.Beat = seen
				}
				b.asked = sent
			}
			return nil
		})
	}
	each.Wait()
	for i, w := range watches {
		if gone := m.gone(w); len(gone) > 0 {
			m.takeOver(ctx, w.l, states[i], gone)
		}
	}
}

// see notes the holders of a lock, and which heartbeats to look at. fields is nil if the server could not be asked.
func (m *monitor) see(w *watch, fields map[string]string) {
	if fields == nil {
		return // what was seen stays: a hold that is still there when it can be asked again was there all the time
	}
	for field := range w.holds {
		if _, ok := fields[field]; !ok {
			delete(w.holds, field)
		}
	}
	now := time.Now()
	for field := range fields {
		if strings.HasSuffix(field, "!") || field == "mode" {
			continue
		}
		alive := m.c.aliveOf(w.l.key, field)
		if alive == "" || strings.HasPrefix(field, m.c.session.ID) {
			continue
		}
		if _, ok := w.holds[field]; !ok {
			w.holds[field] = now
		}
		b := m.beats[alive]
		if b == nil {
			b = &beatSeen{}
			m.beats[alive] = b
		}
		b.wanted = true
	}
}

// gone are the holds whose process has not been heard of for too long, counted from when the hold was first seen.
func (m *monitor) gone(w *watch) (fields []string) {
	for field, first := range w.holds {
		b := m.beats[m.c.aliveOf(w.l.key, field)]
		if b == nil || b.asked.IsZero() {
			continue
		}
		since := b.since
		if first.After(since) {
			since = first
		}
		if b.asked.Sub(since) >= lease.TrustIn(field) {
			fields = append(fields, field)
		}
	}
	return fields
}

// takeOver removes holds, and wakes the waiters or hands the lock over.
func (m *monitor) takeOver(ctx context.Context, l *single, r inspectReply, gone []string) {
	fields := make(map[string]string, len(gone))
	for _, field := range gone {
		kept := keptKey(l.key, strings.TrimSuffix(field, ":write"))
		n, err := m.c.runner.Attempt(ctx, script.Call{
			Script: script.Plain("exists"), Keys: []string{kept},
			Command: func(b rueidis.Builder) rueidis.Completed { return b.Exists().Key(kept).Build() },
		})
		if v, bad := n.AsInt64(); err == nil && bad == nil && v == 0 {
			fields[field] = r.fields[field]
		}
	}
	if len(fields) == 0 {
		return
	}
	removed, err := l.evict(ctx, fields)
	if err != nil || removed == 0 {
		return // next time, or it was over anyway
	}
	for field := range fields {
		l.c.session.Logger.Warn("redlatch: took a lock from a process without a heartbeat", "name", l.name, "owner", strings.TrimSuffix(field, ":write"))
	}
	l.c.observe(context.WithoutCancel(ctx), Event{Kind: EventTakenOver, Name: l.name, Holds: int(removed)})
}
