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
	// trackedKeys bounds the keys of a renewal call that has them tracked. Redis 7.0 enters all keys of a script at each
	// read in it, which grows with their square: 384 keys take it 12 ms, and 0.28 ms where nothing is tracked.
	trackedKeys = 64
	// maxFlights bounds the renewal calls under way, and so the engine's goroutines.
	maxFlights = 32
	// shortest and longest bound for how long a reply is waited for: see patience. Longer than that no reply is awaited by
	// script.Runner.
	shortest = 500 * time.Millisecond
	longest  = 15 * time.Second
	// maxAside bounds the calls of a Cluster that are under way without a place among maxFlights: see place.
	maxAside = 512
	// earliest bounds how much too early a renewal may be sent, together with others.
	earliest = 100 * time.Millisecond
	// tick is how often the wall clock is looked at while anything is held.
	tick = time.Second
	// wallJump is how far the wall clock may run ahead of the monotonic one between two looks before the machine is taken
	// to have been suspended: its leases ran on while its monotonic clock stood still. A wallSlew-th of the time between
	// the looks is added: a clock that is corrected gently runs up to 500 ppm fast, and while nothing is held there are no
	// looks.
	wallJump = 500 * time.Millisecond
	wallSlew = 1000
)

// Engine is the watchdog of one client.
type Engine struct {
	connection unique.Handle[string] // its id
	base       time.Time             // what instants count from
	log        *slog.Logger
	renewed    func(ctx context.Context, name string, err error) // observer
	heart      *heart                                            // nil: no heartbeats
	server
	loop

	mu      sync.Mutex
	started bool
	entries map[entry]*Lease // the watchdog map: the owners here, chained
	due     Heap[*Lease]
	queue   Heap[*list] // what waits for a call
	sleep
}

// server is how an engine asks.
type server struct {
	runner       *script.Runner
	client       rueidis.Client
	cluster      bool
	replicas     int
	replicasWait time.Duration
	tracker      *tracker // nil in a Cluster
	watched      bool     // Cluster: the client's own invalidations are observed
	unwatch      func()
}

// loop is its goroutine, and those of calls.
type loop struct {
	ctx    context.Context
	cancel context.CancelFunc
	wakeup chan struct{}
	wg     sync.WaitGroup
	flight chan struct{} // places of calls under way
	aside  chan struct{} // where each slot has its calls: places of those that have been under way for long
}

// sleep is when the goroutine looks next, and whether the machine has slept. Guarded by Engine.mu.
type sleep struct {
	wakeAt   instant // when the goroutine will look next; zero while it is looking
	asked    instant // what the last wake-up was for; zero if there was none since it looked
	wall     func() time.Time
	lastWall time.Time
	lastMono time.Time // when that was read
	woke     instant   // when the machine was last seen to have slept
	slept    time.Duration
}

// entry is the key of the watchdog map: connectionID:key. There is one entry for each process and name, with the leases
// of all owners there. The id is a handle of one word, because a held lock must cost less than 1 KiB;
// TestHolds_Thousands_CostLittle in rlock shows what it costs.
type entry struct {
	connection unique.Handle[string]
	key        string
}

func (e *Engine) entry(key string) entry { return entry{e.connection, key} }

// Config is what an engine works with.
type Config struct {
	// ConnectionID is the first half of every owner whose leases the engine keeps.
	ConnectionID string
	Client       rueidis.Client
	Runner       *script.Runner
	Log          *slog.Logger
	// Watch, if set, observes the invalidations of Client: used in a Cluster, see tracker.
	Watch func(fn func(keys []string)) (stop func(), observed bool)
	// Replicas > 0: a renewal counts as confirmed only if so many replicas have it within ReplicasWait. Otherwise a
	// failover could bring back the shorter lease of before.
	Replicas     int
	ReplicasWait time.Duration
	Heartbeats   Heartbeats
	// Renewed, if set, is called after every renewal attempt of a lease, with its Values, and nil or why it failed.
	Renewed func(ctx context.Context, name string, err error)
}

// New makes an engine. Its goroutine starts with the first lease.
func New(o Config) *Engine {
	e := &Engine{
		connection: unique.Make(o.ConnectionID),
		base:       time.Now().Add(-time.Hour), // no instant is zero
		log:        o.Log, renewed: o.Renewed, entries: map[entry]*Lease{},
		server: server{client: o.Client, runner: o.Runner, cluster: o.Client.Mode() == rueidis.ClientModeCluster,
			replicas: o.Replicas, replicasWait: o.ReplicasWait},
		loop: loop{wakeup: make(chan struct{}, 1), flight: make(chan struct{}, maxFlights),
			aside: make(chan struct{}, maxAside)},
		sleep: sleep{wall: time.Now},
	}
	if e.renewed == nil {
		e.renewed = func(context.Context, string, error) {}
	}
	if o.Heartbeats.Interval > 0 {
		e.heart = &heart{Heartbeats: o.Heartbeats}
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if !e.cluster {
		e.tracker = &tracker{e: e, client: o.Client}
	} else if o.Watch != nil {
		stop, observed := o.Watch(e.invalidated)
		e.watched, e.unwatch = observed, stop
	}
	return e
}

// start is called with mu held, when something is registered: a client that holds nothing has no goroutine.
func (e *Engine) start() {
	if e.started || e.ctx.Err() != nil {
		return
	}
	e.started = true
	e.lastWall, e.lastMono = e.wall(), time.Now()
	e.wg.Add(1)
	go e.run()
}

// Stop ends the engine and waits for its goroutines, but for the tracker's, which asks nothing about leases any more.
// Leases still registered end with errs.ErrClosed.
func (e *Engine) Stop() {
	if e.unwatch != nil {
		e.unwatch()
	}
	e.mu.Lock() // start adds to wg, which must not happen during Wait
	e.cancel()
	e.mu.Unlock()
	e.wg.Wait()
	e.mu.Lock()
	rest := slices.Clone(e.due)
	for _, l := range rest {
		e.remove(l)
	}
	e.mu.Unlock()
	for _, l := range rest {
		l.Ended(errs.ErrClosed)
	}
}

func (e *Engine) at(t time.Time) instant { return instant(t.Sub(e.base)) }

func (e *Engine) time(i instant) time.Time { return e.base.Add(time.Duration(i)) }

func (e *Engine) now() instant { return instant(time.Since(e.base)) }

// Find returns the registered lease of that owner on that key, or nil.
func (e *Engine) Find(key, owner string) *Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := e.entries[e.entry(key)]; l != nil; l = l.sibling {
		if l.Owner == owner {
			return l
		}
	}
	return nil
}

// First returns the lease of key that was registered last, of those of which match is true; nil: there is none. match
// must not block.
func (e *Engine) First(key string, match func(*Lease) bool) *Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := e.entries[e.entry(key)]; l != nil; l = l.sibling {
		if match(l) {
			return l
		}
	}
	return nil
}

// Holds reports whether anything is registered for key.
func (e *Engine) Holds(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.entries[e.entry(key)] != nil
}

// Names returns the names held, each as often as it has owners that are in use.
func (e *Engine) Names(inUse func(*Lease) bool) (names []string) {
	for _, l := range e.All() { // inUse has locks of its own
		if inUse(l) {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Count returns how many leases are registered.
func (e *Engine) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.due)
}

// Unrenewed reports whether a lease is registered that is not to be renewed.
func (e *Engine) Unrenewed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.due, func(l *Lease) bool { return l.auto == 0 })
}

// All returns the leases registered.
func (e *Engine) All() []*Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.due)
}

// wakeBy has the goroutine look again by t. Called with mu held.
//
// The wake-up outlives the lease for which it was set, also if the lease is removed before the goroutine looks.
// Otherwise lock and unlock in a loop would wake the goroutine every time: it finds nothing, goes to sleep for an hour,
// and the next lease has to wake it again. So they disturb it every trackAfter or so
// (TestWatchdog_AddAndRemoveInALoop_StaysAsleep).
func (e *Engine) wakeBy(t instant) {
	if !e.wakeAt.IsZero() && t.Before(e.wakeAt) {
		e.wakeAt, e.asked = 0, t
		select {
		case e.wakeup <- struct{}{}:
		default:
		}
	}
}

func (e *Engine) run() {
	defer e.wg.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(e.pass())
		select {
		case <-timer.C:
		case <-e.wakeup:
		case <-e.ctx.Done():
			return
		}
	}
}

// pass ends what is over, sends what is due, and returns how long to sleep until the next look.
func (e *Engine) pass() time.Duration {
	e.mu.Lock()
	wall, mono, ahead := e.clocks()
	e.lastWall, e.lastMono = wall, mono
	now := e.at(mono)
	if ahead > 0 {
		e.jump(now, ahead)
	}
	ended := e.takeDue(now)
	var unheard []*Lease
	var beats []int
	next := now.Add(time.Hour)
	if e.heart != nil {
		unheard, beats, next = e.checkHeartbeats(now)
	}
	if len(e.due) > 0 {
		next = min(next, e.due[0].next, now.Add(tick))
	}
	if e.asked.After(now) && e.asked.Before(next) {
		next = e.asked
	}
	e.wakeAt, e.asked = next, 0
	e.mu.Unlock()
	e.end("redlatch: hold ended", ended)
	e.notifyExpired(unheard)
	for _, g := range beats {
		e.sendHeartbeat(g)
	}
	e.launch()
	return next.Sub(now)
}

// jump has every lease renewed or asked about now, because the machine may have slept for that long: see the package
// comment. Called with mu held.
func (e *Engine) jump(now instant, slept time.Duration) {
	e.woke, e.slept = now, slept
	if e.heart != nil {
		e.heart.wake(now, slept)
	}
	e.log.Warn("redlatch: the wall clock ran ahead of the monotonic clock; renewing every hold now", "holds", len(e.due))
	for _, l := range e.due {
		l.sure = l.sure.Add(-slept)
		l.renewAt, l.checkAt = now, now // also those that are never renewed: their leases may be over
		l.schedule()
	}
	heap.Init(&e.due)
}

// takeDue removes the leases that are over, and has those that are due wait for their calls. Called with mu held.
func (e *Engine) takeDue(now instant) (ended []event) {
	batches := map[batchKey][]asked{}
	defer func() {
		for k, leases := range batches {
			e.enqueue(k, leases)
		}
	}()
	for len(e.due) > 0 {
		l := e.due[0]
		length, due := l.wanted(now)
		switch {
		case !now.Before(l.deadline):
			e.remove(l)
			ended = append(ended, event{l, errs.ErrLost})
		case !l.maxAt.IsZero() && !now.Before(l.maxAt):
			e.remove(l)
			l.state = exceeded
			ended = append(ended, event{l, errs.ErrMaxHold})
		case due:
			l.inFlight, l.checkAt = true, 0
			k := batchKey{script: l.Renew, untracked: l.Untracked}
			if e.runner.Apart() {
				k.slot = keyname.Slot(l.Key)
			}
			batches[k] = append(batches[k], asked{l, length})
			l.schedule()
			heap.Fix(&e.due, 0)
		default:
			return ended
		}
	}
	return ended
}

// event is what happened to a lease: err is nil, or why it ended or was not renewed.
type event struct {
	lease *Lease
	err   error
}

// end tells the holders of leases that are over. Called without mu.
func (e *Engine) end(message string, ended []event) {
	for _, ev := range ended {
		e.log.Warn(message, "name", ev.lease.Name, "owner", ev.lease.Called(), "error", ev.err)
		ev.lease.Ended(ev.err)
	}
}
