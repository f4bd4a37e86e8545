package lease

import (
	"container/heap"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	// batchSize bounds the server time of one renewal call: 128 keys take some 100 µs.
	batchSize = 128
	// batchRecords bounds the records of one call, unless one lease has more: 1,000 take some 0.8 ms.
	batchRecords = 1000
	// trackedKeys bounds the keys of a renewal call that makes the server track them. Redis 7.0 enters all keys of a
	// script at each read in it, which grows with their square: 384 keys take it 12 ms, and 0.28 ms without tracking.
	trackedKeys = 64
	// maxCalls bounds the renewal calls under way, and so the engine's goroutines.
	maxCalls = 32
	// minReplyTimeout and maxReplyTimeout bound replyTimeout. script.Runner awaits no reply for longer.
	minReplyTimeout = 500 * time.Millisecond
	maxReplyTimeout = 15 * time.Second
	// maxSlowCalls bounds the calls of a Cluster that are under way without a place among maxCalls: see occupySlot.
	maxSlowCalls = 512
	// maxEarly bounds how early a renewal may be sent, together with others.
	maxEarly = 100 * time.Millisecond
)

// Engine is the watchdog of one client.
type Engine struct {
	connectionID unique.Handle[string] // the connection id
	log          *slog.Logger

	// The server.
	runner  *script.Runner
	renewal script.Call // what all renewals have in common
	tracker *tracker    // nil: keys are not tracked

	// The goroutines of check and of calls.
	ctx            context.Context
	cancel         context.CancelFunc
	wg             sync.WaitGroup
	callPlaces     chan struct{} // places of calls under way
	slowCallPlaces chan struct{} // in a Cluster: places of calls that have been under way for long

	// The leases. mu guards the fields below.
	mu         sync.Mutex
	entries    map[entry]*Lease // the watchdog map: the leases of each key, linked by sibling
	leases     Heap[*Lease]     // all registered leases, the next event first
	callQueue  Heap[*leaseList] // leases that wait for a call
	clock      clock
	heartbeats heartbeatState
	wakeAt     instant     // when check runs next; forever: nothing was registered yet
	timer      *time.Timer // runs check
}

// entry is the key of the watchdog map: connectionID:key. There is one entry for each process and name, with the leases
// of all its owners. The id is a handle of one word, because a held lock must cost less than 1 KiB;
// TestHolds_Thousands_CostLittle in rlock shows the cost.
type entry struct {
	connection unique.Handle[string]
	key        string
}

func (e *Engine) entry(key string) entry { return entry{e.connectionID, key} }

// Config are the parts and options of an engine.
type Config struct {
	// ConnectionID is the first half of every owner of the engine's leases.
	ConnectionID string
	Client       rueidis.Client
	Runner       *script.Runner
	Log          *slog.Logger
	// Watch, if set, observes the invalidations of Client. It is used in a Cluster: see tracker.
	Watch func(fn func(keys []string)) (stop func(), observed bool)
	// Replicas > 0: a renewal counts as confirmed only if so many replicas have it within ReplicasWait. Otherwise a
	// failover could bring back the shorter lease of before.
	Replicas     int
	ReplicasWait time.Duration
	Heartbeats   Heartbeats
}

// New makes an engine. It does nothing before the first lease.
func New(config Config) *Engine {
	engine := &Engine{
		connectionID: unique.Make(config.ConnectionID),
		log:          config.Log, entries: map[entry]*Lease{}, clock: newClock(), wakeAt: forever,
		runner: config.Runner, renewal: script.Call{Replicas: config.Replicas, ReplicasWait: config.ReplicasWait},
		heartbeats: heartbeatState{Heartbeats: config.Heartbeats, grouped: config.Client.Mode() == rueidis.ClientModeCluster},
		callPlaces: make(chan struct{}, maxCalls), slowCallPlaces: make(chan struct{}, maxSlowCalls),
	}
	engine.ctx, engine.cancel = context.WithCancel(context.Background())
	engine.timer = time.AfterFunc(time.Hour, engine.check)
	engine.timer.Stop() // until wakeBy
	engine.tracker = newTracker(engine, config)
	return engine
}

// Stop ends the engine and waits for its goroutines, except the tracker's, which no longer affects leases. Leases that
// are still registered end with errs.ErrClosed.
func (e *Engine) Stop() {
	e.tracker.stop()
	e.mu.Lock() // check adds to wg, which must not happen during Wait
	e.cancel()
	e.timer.Stop()
	e.mu.Unlock()
	e.wg.Wait()
	remaining := e.all()
	for _, lease := range remaining {
		e.Lost(lease, errs.ErrClosed)
	}
}

// Find returns the registered lease of that owner on that key, or nil.
func (e *Engine) Find(key, owner string) *Lease {
	return e.First(key, func(lease *Lease) bool { return lease.Owner == owner })
}

// First returns the lease of key that was registered last, of those for which match is true; nil: there is none. match
// must not block.
func (e *Engine) First(key string, match func(*Lease) bool) *Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	for lease := e.entries[e.entry(key)]; lease != nil; lease = lease.sibling {
		if match(lease) {
			return lease
		}
	}
	return nil
}

// Holds reports whether anything is registered for key.
func (e *Engine) Holds(key string) bool {
	return e.First(key, func(*Lease) bool { return true }) != nil
}

// Names returns the names that are held, once for each owner in use.
func (e *Engine) Names() (names []string) {
	for _, lease := range e.all() { // InUse has locks of its own
		if lease.Of.InUse() {
			names = append(names, lease.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Count returns the number of registered leases.
func (e *Engine) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.leases)
}

// Unrenewed reports whether a registered lease is not renewed.
func (e *Engine) Unrenewed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.leases, func(lease *Lease) bool { return !lease.schedule.isRenewed() })
}

// all returns the registered leases.
func (e *Engine) all() []*Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.leases)
}

// rescheduled moves a registered lease to its place in the heap, after a change of its next event. Called with mu held.
func (e *Engine) rescheduled(lease *Lease) {
	heap.Fix(&e.leases, int(lease.index))
	e.wakeBy(lease.nextEvent())
}

// wakeBy makes check run at latest then. Called with mu held.
//
// The wake-up outlives the lease for which it was set, even if the lease is removed before. Otherwise lock and unlock
// in a loop would set the timer every time: without the lease check would be due in an hour, and the next lease would
// need it earlier again (TestWatchdog_AddAndRemoveInALoop_StaysAsleep).
func (e *Engine) wakeBy(latest instant) {
	if latest.Before(e.wakeAt) {
		e.wakeAt = latest
		e.timer.Reset(latest.Sub(e.clock.now()))
	}
}

// check ends the leases that are over, sends the calls that are due, and sets the timer for the next check.
func (e *Engine) check() {
	e.mu.Lock()
	if e.ctx.Err() != nil {
		e.mu.Unlock()
		return
	}
	e.wg.Add(1)
	defer e.wg.Done()
	now, slept := e.clock.read()
	if slept > 0 {
		e.clockJump(now, slept)
	}
	ended := e.takeDue(now)
	untrusted, beatGroups, next := e.checkHeartbeats(now)
	if len(e.leases) > 0 {
		next = min(next, e.leases[0].nextEvent(), now.Add(clockCheckInterval))
	}
	e.wakeAt = next
	e.timer.Reset(next.Sub(now))
	e.mu.Unlock()
	e.notifyEnded("redlatch: hold ended", ended)
	e.notifyExpired(untrusted)
	for _, group := range beatGroups {
		e.sendHeartbeat(group)
	}
	e.sendQueued()
}

// clockJump makes every lease due for a renewal or a look, because the machine may have slept for that long: see the
// package comment. Called with mu held.
func (e *Engine) clockJump(now instant, slept time.Duration) {
	e.heartbeats.wakeUp(now, slept)
	e.log.Warn("redlatch: the wall clock ran ahead of the monotonic clock; renewing every hold now",
		"holds", len(e.leases))
	for _, lease := range e.leases {
		lease.trust.sleep(slept)
		lease.schedule.renewAt, lease.schedule.checkAt = now, now // also leases that are never renewed: they may be over
	}
	heap.Init(&e.leases)
}

// takeDue removes and returns the leases that are over, and queues the leases that are due for their calls. Called with
// mu held.
func (e *Engine) takeDue(now instant) (ended []leaseEvent) {
	batches := map[batchKey][]leaseRequest{}
	defer func() {
		for key, leases := range batches {
			e.enqueue(key, leases)
		}
	}()
	for len(e.leases) > 0 {
		lease := e.leases[0]
		length, due := lease.schedule.dueRequest(now)
		switch {
		case !now.Before(lease.trust.deadline):
			e.remove(lease)
			ended = append(ended, leaseEvent{lease, errs.ErrLost})
		case !lease.maxAt.IsZero() && !now.Before(lease.maxAt):
			e.remove(lease)
			lease.state = endedByMaxHold
			ended = append(ended, leaseEvent{lease, errs.ErrMaxHold})
		case due:
			lease.schedule.inFlight, lease.schedule.checkAt = true, 0
			key := batchKey{script: lease.Renew, untracked: lease.Untracked}
			if e.runner.Apart() {
				key.slot = keyname.Slot(lease.Key)
			}
			batches[key] = append(batches[key], leaseRequest{lease, length})
			heap.Fix(&e.leases, 0)
		default:
			return ended
		}
	}
	return ended
}

// leaseEvent is an event of a lease. err is nil, or the reason why it ended or was not renewed.
type leaseEvent struct {
	lease *Lease
	err   error
}

// notifyEnded calls Ended of leases that are over. Called without mu.
func (e *Engine) notifyEnded(message string, ended []leaseEvent) {
	for _, event := range ended {
		e.log.Warn(message, "name", event.lease.Name, "owner", event.lease.Of.Shown(), "error", event.err)
		event.lease.Of.Ended(event.err)
	}
}
