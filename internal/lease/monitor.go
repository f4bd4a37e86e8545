package lease

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/internal/script"
)

// Monitor takes over from dead processes, whatever the callers of this process wait for. [Heartbeats] has the reason
// why that is safe.
//
// While anything is watched the monitor reads the holds every half interval, and the heartbeats of their holders. It
// takes over a hold that it has seen for as long as the holder's process is trusted, by its own clock, with the key
// unchanged or missing all the time. Owners are never used again, so no other hold is affected.
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
	interval   time.Duration // between two looks
	timeout    time.Duration // of lookOnce
	runner     *script.Runner
	background func(fn func(ctx context.Context)) bool

	mu      sync.Mutex
	watches map[any]*watchState
	running bool

	beats map[string]*beatSeen // by key; used by run alone
}

// Watched is an object with waiters. Its methods are called by one goroutine at a time.
type Watched interface {
	// Holds returns the holds of processes with heartbeats, except this process.
	Holds(ctx context.Context) ([]Hold, error)
	// TakeOver takes holds from dead processes, and serves the waiters.
	TakeOver(ctx context.Context, deadHolds []Hold)
}

// Hold is the hold of one owner.
type Hold struct {
	Owner string        // never used again
	Beat  string        // the key of the heartbeats of its process
	Trust time.Duration // how long the process is trusted after a heartbeat
	// Proven is set if the hold may be taken over only after a heartbeat was seen, because the owner alone does not show
	// that its process has heartbeats.
	Proven bool
}

// watchState is the state of one watched object.
type watchState struct {
	target     Watched
	waiters    int
	lastLeftAt time.Time             // when the last waiter left
	holds      map[string]*heldSince // by owner; used by run alone
}

// heldSince is a hold with the time of its first look.
type heldSince struct {
	Hold
	firstSeenAt time.Time
}

// beatSeen is the state of one process's heartbeats.
type beatSeen struct {
	Beat
	unchangedSince time.Time // when Beat was first seen
	lookSentAt     time.Time // when the last look with a reply was sent
	found          bool      // some look has found a beat
	needed         bool      // by a hold in this lookOnce
}

// maxParallelLooks is the maximum number of looks under way.
const maxParallelLooks = 16

// NewMonitor makes the monitor of a client with that interval of heartbeats. background runs a goroutine until the
// client is closed, and reports whether it does.
func NewMonitor(runner *script.Runner, interval, callTimeout time.Duration,
	background func(fn func(ctx context.Context)) bool) *Monitor {
	return &Monitor{interval: interval / 2, // so that on average a process is followed after three heartbeats
		timeout: max(interval, callTimeout), runner: runner, background: background, watches: map[any]*watchState{},
		beats: map[string]*beatSeen{}}
}

// Watch watches target until Unwatch. key is equal for all waiters of the same object. After the last Unwatch the
// object is watched for a trust longer. Otherwise callers that each wait for less than a trust, one after the other,
// would never see a hold for long enough (TestLiveness_ImpatientCallers_FollowACrashedHolder).
func (m *Monitor) Watch(key any, target Watched) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.watches[key]
	if state == nil {
		state = &watchState{target: target, holds: map[string]*heldSince{}}
		m.watches[key] = state
	}
	state.waiters++
	if !m.running {
		m.running = m.background(m.run)
	}
}

// Unwatch ends one Watch.
func (m *Monitor) Unwatch(key any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.watches[key]
	state.waiters--
	state.lastLeftAt = time.Now()
}

// lingerLooks is the number of looks for which an object is watched after its last waiter has left.
const lingerLooks = 6

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
		watches := make([]*watchState, 0, len(m.watches))
		for key, state := range m.watches {
			if state.waiters == 0 && time.Since(state.lastLeftAt) > lingerLooks*m.interval {
				delete(m.watches, key)
				continue
			}
			watches = append(watches, state)
		}
		if len(watches) == 0 {
			m.running = false
			clear(m.beats)
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		m.lookOnce(ctx, watches)
	}
}

// lookOnce reads the holds of all watched objects, then the heartbeats of the holders, and takes over the holds of dead
// processes.
func (m *Monitor) lookOnce(ctx context.Context, watches []*watchState) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	var looks errgroup.Group
	looks.SetLimit(maxParallelLooks)
	for _, state := range watches {
		looks.Go(func() error {
			// After a failed look the earlier results stay: a hold that is still there later was there all the time.
			if holds, err := state.target.Holds(ctx); err == nil {
				state.recordHolds(holds)
			}
			return nil
		})
	}
	_ = looks.Wait() // always nil
	for _, state := range watches {
		for _, hold := range state.holds {
			if m.beats[hold.Beat] == nil {
				m.beats[hold.Beat] = &beatSeen{}
			}
			m.beats[hold.Beat].needed = true
		}
	}
	for key, beat := range m.beats {
		if !beat.needed {
			delete(m.beats, key)
			continue
		}
		beat.needed = false
		looks.Go(func() error {
			sent := time.Now()
			if seen, err := Look(ctx, m.runner, key); err == nil {
				beat.recordLook(seen, sent)
			}
			return nil
		})
	}
	_ = looks.Wait() // always nil
	for _, state := range watches {
		if expired := m.expired(state); len(expired) > 0 {
			state.target.TakeOver(ctx, expired)
		}
	}
}

// recordHolds records the current holds, and keeps their firstSeenAt.
func (x *watchState) recordHolds(holds []Hold) {
	now, there := time.Now(), make(map[string]*heldSince, len(holds))
	for _, hold := range holds {
		first := now
		if before := x.holds[hold.Owner]; before != nil {
			first = before.firstSeenAt
		}
		there[hold.Owner] = &heldSince{hold, first}
	}
	x.holds = there
}

// recordLook records the reply to a look that was sent at sent.
func (b *beatSeen) recordLook(seen Beat, sent time.Time) {
	if b.lookSentAt.IsZero() || !seen.Same(b.Beat) {
		b.unchangedSince = time.Now()
	}
	if seen != (Beat{}) {
		b.Beat, b.found = seen, true
	}
	b.lookSentAt = sent
}

// expired returns the holds whose process sent no heartbeat for too long, counted from the first look at the hold.
func (m *Monitor) expired(state *watchState) (holds []Hold) {
	for _, hold := range state.holds {
		beat := m.beats[hold.Beat]
		if beat == nil || beat.lookSentAt.IsZero() || hold.Proven && !beat.found {
			continue
		}
		since := beat.unchangedSince
		if hold.firstSeenAt.After(since) {
			since = hold.firstSeenAt
		}
		if beat.lookSentAt.Sub(since) >= hold.Trust {
			holds = append(holds, hold.Hold)
		}
	}
	return holds
}
