package lease

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/internal/script"
)

// Monitor takes over from processes that are gone whatever the callers of this process wait for: see [Heartbeats] for
// why that is safe.
//
// While anything is watched the monitor looks every half interval at what is held, and at the heartbeats of its
// holders. It takes over a hold that it has seen for as long as the holder's process is trusted, by its own clock, with
// the key unchanged or missing all the time. Owners are never used again, so that hits no other hold.
//
//	holder                                monitor of a waiter
//	heartbeat sent  <- trusted from here
//	heartbeat runs on the server
//	(cut off)                             sees the changed key: counts from here, which is later
//	trust - margin over: the hold ends
//	                                      trust over without a change: takes the hold over
//
// The monitor watches for a change of the key, not for its expiry. By expiry, a server's clock that steps forward, an
// eviction or a DEL would take everything from living holders.
type Monitor struct {
	interval   time.Duration // of looks
	timeout    time.Duration // of one round
	runner     *script.Runner
	background func(fn func(ctx context.Context)) bool

	mu      sync.Mutex
	watched map[any]*watch
	running bool

	beats map[string]*beatSeen // the goroutine's own; by key
}

// Watched is something that is waited for. Its methods are called by one goroutine at a time.
type Watched interface {
	// Holds returns what processes with heartbeats hold of it, this one left out.
	Holds(ctx context.Context) ([]Hold, error)
	// TakeOver takes holds from processes that are gone, and gives them to the waiters.
	TakeOver(ctx context.Context, gone []Hold)
}

// Hold is what one owner holds.
type Hold struct {
	Owner string        // never used again
	Beat  string        // the key of its process's heartbeats
	Trust time.Duration // for how long that is trusted after one
	// Proven: the hold is taken over only if a heartbeat was seen, because the owner alone does not show that its process
	// has any.
	Proven bool
}

// watch is one thing that is waited for.
type watch struct {
	of      Watched
	waiters int
	left    time.Time             // when the last of them left
	holds   map[string]*heldSince // by owner; the goroutine's own
}

type heldSince struct {
	Hold
	first time.Time // when it was first seen
}

type beatSeen struct {
	Beat
	since  time.Time // when it was first seen so
	asked  time.Time // when the last look was sent that was answered
	found  bool      // some look found one
	wanted bool      // in this round
}

// lookers is how many looks are under way at a time.
const lookers = 16

// NewMonitor makes the monitor of a client with that interval of heartbeats. background runs a goroutine until the
// client is closed, and reports whether it does.
func NewMonitor(r *script.Runner, interval, callTimeout time.Duration,
	background func(fn func(ctx context.Context)) bool) *Monitor {
	return &Monitor{interval: interval / 2, // so that a process is followed after three heartbeats on average
		timeout: max(interval, callTimeout), runner: r, background: background, watched: map[any]*watch{},
		beats: map[string]*beatSeen{}}
}

// Watch has w watched until Unwatch, under a key that is the same for all waiters of the same thing. After the last
// Unwatch it is watched for a trust longer. Otherwise, where each caller waits for less than that, and others come, no
// caller would see a hold for long enough (TestLiveness_ImpatientCallers_FollowACrashedHolder).
func (m *Monitor) Watch(key any, w Watched) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.watched[key]
	if x == nil {
		x = &watch{of: w, holds: map[string]*heldSince{}}
		m.watched[key] = x
	}
	x.waiters++
	if !m.running {
		m.running = m.background(m.run)
	}
}

// Unwatch takes back one Watch.
func (m *Monitor) Unwatch(key any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.watched[key]
	x.waiters--
	x.left = time.Now()
}

// lingers is for how many looks something is watched after its last waiter has left.
const lingers = 6

func (m *Monitor) run(ctx context.Context) {
	tick := time.NewTicker(m.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.mu.Lock()
		watches := make([]*watch, 0, len(m.watched))
		for key, x := range m.watched {
			if x.waiters == 0 && time.Since(x.left) > lingers*m.interval {
				delete(m.watched, key)
				continue
			}
			watches = append(watches, x)
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

// round looks at everything that is watched, then at the heartbeats of the holders, and takes over the holds of
// processes that are gone.
func (m *Monitor) round(ctx context.Context, watches []*watch) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	var each errgroup.Group
	each.SetLimit(lookers)
	for _, x := range watches {
		each.Go(func() error {
			// Where the server could not be asked, what was seen stays: a hold that is still there later was there all the time.
			if holds, err := x.of.Holds(ctx); err == nil {
				x.recordHolds(holds)
			}
			return nil
		})
	}
	_ = each.Wait() // always nil
	for _, x := range watches {
		for _, h := range x.holds {
			if m.beats[h.Beat] == nil {
				m.beats[h.Beat] = &beatSeen{}
			}
			m.beats[h.Beat].wanted = true
		}
	}
	for key, b := range m.beats {
		if !b.wanted {
			delete(m.beats, key)
			continue
		}
		b.wanted = false
		each.Go(func() error {
			sent := time.Now()
			if seen, err := Look(ctx, m.runner, key); err == nil {
				b.recordLook(seen, sent)
			}
			return nil
		})
	}
	_ = each.Wait() // always nil
	for _, x := range watches {
		if expired := m.expired(x); len(expired) > 0 {
			x.of.TakeOver(ctx, expired)
		}
	}
}

// recordHolds records what is held, and keeps since when.
func (x *watch) recordHolds(holds []Hold) {
	now, there := time.Now(), make(map[string]*heldSince, len(holds))
	for _, h := range holds {
		first := now
		if before := x.holds[h.Owner]; before != nil {
			first = before.first
		}
		there[h.Owner] = &heldSince{h, first}
	}
	x.holds = there
}

// recordLook records the reply to a look that was sent at sent.
func (b *beatSeen) recordLook(seen Beat, sent time.Time) {
	if b.asked.IsZero() || !seen.Same(b.Beat) {
		b.since = time.Now()
	}
	if seen != (Beat{}) {
		b.Beat, b.found = seen, true
	}
	b.asked = sent
}

// expired returns the holds whose process has not been heard of for too long, counted from when the hold was first
// seen.
func (m *Monitor) expired(x *watch) (holds []Hold) {
	for _, h := range x.holds {
		b := m.beats[h.Beat]
		if b == nil || b.asked.IsZero() || h.Proven && !b.found {
			continue
		}
		since := b.since
		if h.first.After(since) {
			since = h.first
		}
		if b.asked.Sub(since) >= h.Trust {
			holds = append(holds, h.Hold)
		}
	}
	return holds
}
