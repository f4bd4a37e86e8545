// Package lease is the watchdog: it renews what is held, and tells holders when it no longer is.
//
// # Deadlines
//
// A lease's deadline is
//
//	(monotonic time before the request that confirmed it was sent) + lease - Margin(lease)
//
// and moves only when the server confirms a renewal. A renewal in flight moves nothing: a holder cut off from the
// server must stop before the server lets somebody else in, and the server started counting no earlier than the send.
//
// # Renewal
//
// One goroutine keeps the time of all leases of a client. Every third of its length a lease is renewed, on an absolute
// schedule; what is due at about the same time for the same node's slot goes into one script call of at most batchSize
// leases. A failed call says nothing about the leases in it, and is repeated until their deadlines; one lease's
// failure never touches another's.
//
// A renewal script has KEYS = the leases' keys (Key and More of each) and ARGV = owner, lease in ms for each; it
// replies one integer for each: 1 renewed, 0 the owner holds nothing there, -1 not known (an error on that key alone), -3 the
// user may not read that key, -2 the key holds another type: the lease is over, and was not released.
// Lease -1 asks only whether it is held, and for how long: 1 + ms left, 1 without end. (0 asks only whether it is held; nothing
// here does.)
//
// While a slot is being migrated its keys may be on two nodes, for as long as that takes, and the server refuses what uses
// both (TRYAGAIN; also if a key that is not there is among them). Then each lease is renewed alone, and one of several keys
// key by key: KEYS = one of them, ARGV = owner, lease, which it is (from 1); the script does what is to be done there, and
// replies the same. The lease is renewed if every key says so, twice (see askByKey).
//
// # Sleep
//
// The monotonic clock of most systems stands still while the machine is suspended, or its virtual machine stopped; the
// server's goes on. A deadline is then later than the server's end of the lease, by the length of the sleep:
//
//	holder                                    server
//	granted for 60 s, trusted until 60 s
//	10 s later it falls asleep for 20 s
//	wakes at 10 s of its clock                30 s left
//	                                          lets somebody else in when the holder's clock says 40 s
//	stops at 60 s
//
// That it slept shows in nothing but the wall clock, which has run ahead; but that may have been set. So a jump ends
// nothing, and is not believed either: everything is renewed or asked about at once, and until the answer Until is earlier by
// the jump. A renewal that is confirmed counts from its own send. What is not renewed is asked how long it has left, and
// that, counted from before the question was sent, less the margin, is its deadline from then on. If the clock was only set,
// this is what the deadline was. What was sent before the jump was noticed is no answer.
//
// A jump is noticed within a tick, and by Until at once. While the server does not answer, the hold's contexts last until
// the deadline as it was: what is acted on then has to ask Until.
//
// # The race with release
//
// A lease is removed before its release is sent, and the answer of a renewal that was under way then is dropped. The
// renewal itself may still reach the server after the release: it names an owner that is never used again, finds
// nothing, and changes nothing.
package lease

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	// batchSize bounds the server time of one renewal call: 128 keys are some 100 µs.
	batchSize = 128
	// maxFlights bounds the renewal calls under way, and so the engine's goroutines.
	maxFlights = 32
	// earliest bounds how much too early a renewal may go, to travel with others.
	earliest = 100 * time.Millisecond
	// tick is how often the wall clock is looked at while anything is held.
	tick = time.Second
	// wallJump is how far the wall clock may run ahead of the monotonic one between two looks before it is taken for
	// a suspended machine, whose leases ran on while its monotonic clock stood still. Beside it wallSlew of the time between
	// the looks: a clock that is corrected gently runs up to 500 ppm fast, and nobody looks while nothing is held.
	wallJump = 500 * time.Millisecond
	wallSlew = 1000
)

// Engine is the watchdog of one client.
type Engine struct {
	base    time.Time
	runner  *script.Runner
	cluster bool
	log     *slog.Logger
	renewed func(ctx context.Context, name string, err error) // observer

	ctx     context.Context
	cancel  context.CancelFunc
	kick    chan struct{}
	wg      sync.WaitGroup
	flight  chan struct{} // slots for calls under way
	tracker *tracker      // nil in a Cluster
	client  rueidis.Client
	watched bool // Cluster: the client's own invalidations are observed
	unwatch func()

	replicas     int
	replicasWait time.Duration
	heart        *heart // nil: no heartbeats

	mu       sync.Mutex
	entries  map[entry]*Lease // the watchdog map: the owners here, chained
	due      leases
	wakeAt   instant // when the goroutine will look next; zero while it is looking
	asked    instant // what the last kick was for; zero if there was none since it looked
	wall     func() time.Time
	lastWall time.Time
	lastMono time.Time // when that was read
	woke     instant   // when the machine was last seen to have slept
	slept    time.Duration
}

// entry is the key of the watchdog map. It stands for connectionID:key: an engine is that of one connection id, which
// would only make the map larger.
type entry string

// Config is what an engine works with.
type Config struct {
	Client rueidis.Client
	Runner *script.Runner
	Log    *slog.Logger
	// Watch, if set, observes the invalidations of Client: used in a Cluster, see tracker.
	Watch func(fn func(keys []string)) (stop func(), observed bool)
	// Replicas > 0: a renewal counts as confirmed only when so many replicas have it within ReplicasWait. Otherwise a
	// failover could bring back the shorter lease of before.
	Replicas     int
	ReplicasWait time.Duration
	Heartbeats   Heartbeats
	// Renewed, if set, is called after every renewal attempt of a lease, with its Values, and nil or why it failed.
	Renewed func(ctx context.Context, name string, err error)
}

// New starts an engine.
func New(o Config) *Engine {
	e := &Engine{
		base:   time.Now().Add(-time.Hour), // no instant is zero
		client: o.Client, runner: o.Runner, cluster: o.Client.Mode() == rueidis.ClientModeCluster, log: o.Log, renewed: o.Renewed,
		kick: make(chan struct{}, 1), flight: make(chan struct{}, maxFlights), entries: map[entry]*Lease{}, wall: time.Now,
	}
	e.replicas, e.replicasWait = o.Replicas, o.ReplicasWait
	if e.renewed == nil {
		e.renewed = func(context.Context, string, error) {}
	}
	if o.Heartbeats.Interval > 0 {
		e.heart = &heart{Heartbeats: o.Heartbeats}
	}
	e.lastWall, e.lastMono = e.wall(), time.Now()
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if !e.cluster {
		e.tracker = &tracker{e: e, client: o.Client}
	} else if o.Watch != nil {
		stop, observed := o.Watch(e.invalidated)
		e.watched, e.unwatch = observed, stop
	}
	e.wg.Add(1)
	go e.run()
	return e
}

// Stop ends the engine and waits for its goroutines, but for the tracker's, which asks nothing about leases any more.
// Leases still registered end with errs.ErrClosed.
func (e *Engine) Stop() {
	if e.unwatch != nil {
		e.unwatch()
	}
	e.cancel()
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

// Add registers l, granted by a request sent at sent, or by an earlier one since asked, whose answer was not seen. maxHold
// 0 is none. It reports false, and registers nothing, if l is over already.
func (e *Engine) Add(l *Lease, asked, sent time.Time, length time.Duration, auto bool, maxHold time.Duration) bool {
	l.start, l.asked = e.at(sent), e.at(asked)
	return e.add(l, sent, length, length, auto, maxHold)
}

// AddHanded is Add for a lease that was handed over: granted at any time from sent to now, with a length of written on the
// server, which is renewed once to its full length after a third of that, also if the lease is not auto.
func (e *Engine) AddHanded(l *Lease, sent time.Time, written, length time.Duration, auto bool, maxHold time.Duration) bool {
	// What is safe counts from sent, which may be long ago; all else from now.
	l.start, l.asked = e.now(), e.at(sent)
	if written < length {
		l.short, l.renewAt = written, e.at(sent).Add(written/3)
	}
	return e.add(l, sent, written, length, auto, maxHold)
}

func (e *Engine) at(t time.Time) instant { return instant(t.Sub(e.base)) }
func (e *Engine) now() instant           { return instant(time.Since(e.base)) }

func (e *Engine) add(l *Lease, sent time.Time, written, length time.Duration, auto bool, maxHold time.Duration) bool {
	now := e.now()
	l.length = length
	if e.heart != nil {
		l.district = uint8(District(e.cluster, l.Key))
	}
	if maxHold > 0 {
		l.maxAt = l.start.Add(maxHold)
	}
	if auto {
		l.auto = 1
	}
	if l.short == 0 {
		l.plan(now)
	}
	if e.tracks() && !l.Untracked {
		l.checkAt = l.start.Add(trackAfter)
	}
	at := entry(l.Key)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trust(l, sent, written)
	if e.over(l, now) {
		return false
	}
	l.state = registered
	l.schedule()
	l.beside = e.entries[at]
	e.entries[at] = l
	heap.Push(&e.due, l)
	next := l.next
	if e.heart != nil {
		next = min(next, e.heart.count(l, now))
	}
	e.wakeBy(next)
	return true
}

// Confirmed records that a request sent at sent left l with at least length on the server. It can only move the
// deadline forward. It reports false if l is over.
func (e *Engine) Confirmed(l *Lease, sent time.Time, length time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.state != registered {
		return false
	}
	e.confirm(l, sent, length)
	heap.Fix(&e.due, l.index)
	e.wakeBy(l.next)
	return true
}

func (e *Engine) confirm(l *Lease, sent time.Time, length time.Duration) {
	e.trust(l, sent, length)
	if e.at(sent).Before(l.looked) {
		l.checkAt = e.now() // see settle
	}
	l.schedule()
}

// trust moves the deadline to what a request sent at sent, which left l with length, is good for, if that is later.
func (e *Engine) trust(l *Lease, sent time.Time, length time.Duration) {
	d := e.at(sent).Add(length - l.margin(length))
	l.heard = e.now()
	l.deadline = max(l.deadline, d)
	if e.at(sent).Before(e.woke) {
		d = d.Add(-e.slept)
	}
	l.sure = max(l.sure, d)
}

// settle takes in how long l has left, less than a millisecond more: 0 without end.
//
// That may be less than what was confirmed: somebody has shortened the lease (PEXPIRE). Then the deadline is earlier, and a
// lease that is renewed is renewed now. It is no less if a confirmation came in between:
//
//	look: sent, reads 5 s left      Extend or re-entry: raises to 30 s, confirmed
//	look: answered
//
// so the lease is looked at again. It is, too, when an answer from before comes after:
//
//	Extend: sent, raises to 30 s    somebody shortens to 5 s     look: reads 5 s, answered
//	Extend: answered
func (e *Engine) settle(l *Lease, sent time.Time, left time.Duration, now instant) {
	if e.at(sent).Before(e.woke) {
		return
	}
	if left > 0 {
		safe := e.at(sent).Add(left - l.margin(left))
		switch shortened := e.at(sent).Add(left).Before(l.sure); {
		case shortened && l.heard.After(e.at(sent)):
			l.checkAt = now
			return
		case shortened:
			l.deadline, l.looked = safe, now
			if now.Add(left).Before(l.sure) { // and this is not just how long the answer took
				l.renewAt = now
			}
		default:
			l.deadline = max(l.sure, min(l.deadline, safe))
		}
	}
	l.sure = l.deadline
}

// Auto adds a handle that wants l renewed, with at least the given length. It reports false if l is over.
func (e *Engine) Auto(l *Lease, length time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.state != registered {
		return false
	}
	// While the raise after a hand-over is due, nothing else says which lease it is to be raised to, and when.
	if length > l.length || l.auto == 0 && l.short == 0 {
		l.length = length
	}
	l.auto++
	if l.short == 0 {
		l.renewAt = 0
		l.plan(e.now())
	}
	l.schedule()
	heap.Fix(&e.due, l.index)
	e.wakeBy(l.next)
	return true
}

// Manual takes back one Auto, or the one that Add was given: after the last, l's lease runs out.
func (e *Engine) Manual(l *Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.state == registered {
		l.auto--
		l.schedule()
		heap.Fix(&e.due, l.index)
	}
}

// EndAll tells the holders of everything registered that their hold is over, without letting go of it: it stays
// renewed until it is removed or the engine stops.
func (e *Engine) EndAll(why error) {
	e.mu.Lock()
	all := slices.Clone(e.due)
	e.mu.Unlock()
	for _, l := range all {
		l.Ended(why)
	}
}

// Remove takes l out, before its release is sent. It reports whether l was still held by the local clock; if not,
// Ended has been or is being called.
func (e *Engine) Remove(l *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.state != registered {
		return false
	}
	held := !e.over(l, e.now())
	e.remove(l)
	return held
}

// Longest raises l.Longest to d, and returns it.
func (e *Engine) Longest(l *Lease, d time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.Longest = max(l.Longest, d)
	return l.Longest
}

// Extend asks at once for what the watchdog asks for in its time, a lease of at least d, until it is answered or ctx or l is
// over. errs.ErrLost or errs.ErrOverwritten: the server says that l is not held, which ends it. Neither confirmed nor an error: l was over before
// that could be noted, see Ended.
func (e *Engine) Extend(ctx context.Context, l *Lease, d time.Duration) (confirmed bool, err error) {
	ctx, cancel := context.WithDeadline(ctx, e.Until(l)) // no answer is worth waiting for once it is over
	defer cancel()
	e.Longest(l, d)
	sent := time.Now()
	m, err := e.runner.Do(ctx, script.Call{
		Script: l.Renew, Keys: append([]string{l.Key}, l.More...), Args: []string{l.Owner, millis(d + time.Millisecond - 1)},
		Replicas: e.replicas, ReplicasWait: e.replicasWait,
	})
	if err != nil {
		return false, err
	}
	v, err := m.AsIntSlice()
	switch {
	case err != nil || len(v) != 1:
		return false, fmt.Errorf("renew on %q: unexpected reply %v, error %v", l.Key, v, err)
	case v[0] == notKnown:
		return false, fmt.Errorf("%w: renew on %q: the server could not (memory is full)", errs.ErrUnavailable, l.Key)
	case v[0] == denied:
		return false, fmt.Errorf("%w: renew on %q: the user may not read it", errs.ErrDenied, l.Key)
	case v[0] < 1:
		why := lossOf(v[0])
		e.Lost(l, why)
		return false, why
	}
	return e.Confirmed(l, sent, d), nil
}

// What a renewal script says of a lease, if it is not how long it has left.
const (
	notHeld     = 0
	notKnown    = -1
	overwritten = -2
	denied      = -3
)

// lossOf is how a lease is over of which a script said so.
func lossOf(verdict int64) error {
	if verdict == overwritten {
		return errs.ErrOverwritten
	}
	return errs.ErrLost
}

// Lost ends l with why, errs.ErrLost or errs.ErrOverwritten, because the server said so. It reports false if l was over
// already.
func (e *Engine) Lost(l *Lease, why error) bool {
	e.mu.Lock()
	live := l.state == registered
	if live {
		e.remove(l)
	}
	e.mu.Unlock()
	if live {
		l.Ended(why)
	}
	return live
}

func (e *Engine) remove(l *Lease) {
	l.state = over
	heap.Remove(&e.due, l.index)
	if e.heart != nil {
		e.heart.parts[l.district].leases--
	}
	at := entry(l.Key)
	switch first := e.entries[at]; {
	case first != l:
		for first.beside != l {
			first = first.beside
		}
		first.beside = l.beside
	case l.beside != nil:
		e.entries[at] = l.beside
	default:
		delete(e.entries, at) // a name nobody holds costs nothing
	}
	l.beside = nil
}

// Live reports whether l is registered and its deadline ahead.
func (e *Engine) Live(l *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return l.state == registered && !e.over(l, e.now())
}

// Trusted reports whether a lease that may exist since asked could still be added, as far as heartbeats go.
func (e *Engine) Trusted(key string, asked time.Time) bool {
	if e.heart == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now().Before(e.heart.trusted(&Lease{asked: e.at(asked), district: uint8(District(e.cluster, key))}))
}

// Until is l's deadline, or MaxHold's end, or that of its trust in heartbeats, if that is earlier; all of it without what is
// in doubt after a sleep.
func (e *Engine) Until(l *Lease) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	until := l.sure
	if e.heart != nil {
		until = min(until, e.heart.trusted(l).Add(-e.heart.parts[l.district].slept))
	}
	_, _, ahead := e.clocks()
	until = until.Add(-ahead)
	if !l.maxAt.IsZero() {
		until = min(until, l.maxAt)
	}
	return e.base.Add(time.Duration(until))
}

// clocks reads both clocks, and says how much further the wall clock has run than the other since it was last noted, if that
// is worth mentioning. The wall clock is never used as a time here, only as a witness that more time has passed than the
// monotonic clock saw. Called with mu held.
func (e *Engine) clocks() (wall, mono time.Time, ahead time.Duration) {
	wall, mono = e.wall(), time.Now()
	passed := mono.Sub(e.lastMono)
	ahead = wall.Round(0).Sub(e.lastWall.Round(0)) - passed // Round(0) drops the monotonic reading
	if ahead <= wallJump+passed/wallSlew {
		ahead = 0
	}
	return wall, mono, ahead
}

// Find returns the registered lease of that owner on that key, or nil.
func (e *Engine) Find(key, owner string) *Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := e.entries[entry(key)]; l != nil; l = l.beside {
		if l.Owner == owner {
			return l
		}
	}
	return nil
}

// Holds reports whether anything is registered for key.
func (e *Engine) Holds(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.entries[entry(key)] != nil
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

// All returns the leases registered.
func (e *Engine) All() []*Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.due)
}

// wakeBy has the goroutine look again by t. Called with mu held. Removing a lease leaves an early wake-up behind, also
// if it was removed before the goroutine got to look: lock and unlock in a loop then disturb it every trackAfter or so,
// not every time.
func (e *Engine) wakeBy(t instant) {
	if !e.wakeAt.IsZero() && t.Before(e.wakeAt) {
		e.wakeAt, e.asked = 0, t
		select {
		case e.kick <- struct{}{}:
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
		case <-e.kick:
		case <-e.ctx.Done():
			return
		}
	}
}

// pass ends what is over, sends what is due, and returns how long it is until it should look next.
func (e *Engine) pass() time.Duration {
	var ended, unheard []*Lease
	var whys []error
	var beats []int
	batches := map[batchKey][]asked{}
	e.mu.Lock()
	wall, mono, ahead := e.clocks()
	e.lastWall, e.lastMono = wall, mono
	now := e.at(mono)
	if ahead > 0 {
		e.woke, e.slept = now, ahead
		if e.heart != nil {
			e.heart.wake(now, ahead)
		}
		e.log.Warn("redlatch: the wall clock ran ahead of the monotonic clock; renewing every hold now", "holds", len(e.due))
		for _, l := range e.due {
			l.sure = l.sure.Add(-ahead)
			l.renewAt, l.checkAt = now, now // also those that are never renewed: their leases may be over
			l.schedule()
		}
		heap.Init(&e.due)
	}
	for len(e.due) > 0 {
		l := e.due[0]
		switch {
		case !now.Before(l.deadline):
			e.remove(l)
			ended, whys = append(ended, l), append(whys, errs.ErrLost)
			continue
		case !l.maxAt.IsZero() && !now.Before(l.maxAt):
			e.remove(l)
			ended, whys = append(ended, l), append(whys, errs.ErrMaxHold)
			continue
		}
		if length, ok := l.wanted(now); ok {
			l.inFlight, l.checkAt = true, 0
			k := batchKey{script: l.Renew, untracked: l.Untracked}
			if e.cluster {
				k.slot = keyname.Slot(l.Key)
			}
			batches[k] = append(batches[k], asked{l, length, l.term()})
			l.schedule()
			heap.Fix(&e.due, 0)
			continue
		}
		break
	}
	next := now.Add(time.Hour)
	if e.heart != nil {
		unheard, beats, next = e.listen(now)
	}
	if len(e.due) > 0 {
		next = min(next, e.due[0].next, now.Add(tick))
	}
	if e.asked.After(now) && e.asked.Before(next) {
		next = e.asked
	}
	e.wakeAt, e.asked = next, 0
	e.mu.Unlock()
	for i, l := range ended {
		e.log.Warn("redlatch: hold ended", "name", l.Name, "owner", l.owner(), "why", whys[i])
		l.Ended(whys[i])
	}
	e.mute(unheard)
	for _, d := range beats {
		e.pulsate(d)
	}
	for _, list := range batches {
		for batch := range slices.Chunk(list, batchSize) {
			e.send(batch)
		}
	}
	return next.Sub(now)
}

// asked is one lease in a call.
type asked struct {
	*Lease
	length time.Duration // asked for: howLong for a look
	term   time.Duration // the lease's length, whatever is asked for
}

type batchKey struct {
	script    *script.Script
	slot      uint16
	untracked bool
}

// send renews one batch on a goroutine of its own, so that the clock is never held up by the network. Without a free
// slot the batch is put back, to be retried within moments.
func (e *Engine) send(batch []asked) {
	select {
	case e.flight <- struct{}{}:
	default:
		e.answer(batch, nil, time.Time{}, errNoSlot)
		return
	}
	var conn script.Conn
	if !batch[0].Untracked {
		conn = e.tracked()
	}
	e.wg.Add(1)
	go func() {
		defer func() { <-e.flight; e.wg.Done() }()
		shortest := batch[0].term
		for _, a := range batch {
			shortest = min(shortest, a.term)
		}
		// two tries fit between the moment a renewal is due and half of what is left of the lease
		ctx, cancel := context.WithTimeout(e.ctx, shortest/6)
		defer cancel()
		e.deliver(ctx, conn, batch)
	}()
}

// deliver renews one batch, together if the server lets it.
func (e *Engine) deliver(ctx context.Context, conn script.Conn, batch []asked) {
	keys := make([]string, 0, len(batch)*(1+len(batch[0].More)))
	args := make([]string, 0, 2*len(batch))
	for _, a := range batch {
		keys = append(append(keys, a.Key), a.More...)
		args = append(args, a.Owner, millis(a.length))
	}
	sent := time.Now()
	verdicts, err := e.ask(ctx, conn, batch[0].Renew, keys, args, len(batch))
	var re *rueidis.RedisError
	if apart := errors.As(err, &re) && re.IsTryAgain(); apart && len(batch) > 1 {
		// All at the same time: one may be at a node that does not answer. Their number is bounded with the batch's.
		var wg sync.WaitGroup
		for i := range batch {
			wg.Go(func() { e.deliver(ctx, conn, batch[i:i+1]) })
		}
		wg.Wait()
		return
	} else if apart && len(keys) > 1 {
		sent = time.Now()
		verdicts, err = e.askByKey(ctx, conn, batch[0], keys)
	}
	e.answer(batch, verdicts, sent, err)
}

// askByKey renews a lease whose keys are apart: each alone, and all of them twice.
//
// Once would not do, because between two calls others may act on what the first has not seen to yet. A write hold with an
// end of its own, in the second key, that has just passed:
//
//	ours      raises the first key: it is held
//	another   finds the end passed, and takes the hold out of both keys
//	ours      finds no end in the second key, as most write holds have none
//
// The second time the first key says that nothing is held. What it says then is true from the first time on, and what is
// made from the keys since then lasts as long as they were raised to.
func (e *Engine) askByKey(ctx context.Context, conn script.Conn, a asked, keys []string) (verdicts []int64, err error) {
	least := int64(1)
	for i := range 2 * len(keys) {
		n := i % len(keys)
		args := []string{a.Owner, millis(a.length), strconv.Itoa(n + 1)}
		if verdicts, err = e.ask(ctx, conn, a.Renew, keys[n:n+1], args, 1); err != nil || verdicts[0] < 1 {
			return verdicts, err
		}
		if v := verdicts[0]; v > 1 && (v < least || least == 1) {
			least = v
		}
	}
	return []int64{least}, nil
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// ask makes one call of a renewal script, on n leases.
func (e *Engine) ask(ctx context.Context, conn script.Conn, s *script.Script, keys, args []string, n int) (verdicts []int64, err error) {
	m, err := e.runner.Attempt(ctx, script.Call{
		Script: s, Keys: keys, Args: args, Tracked: conn, Replicas: e.replicas, ReplicasWait: e.replicasWait,
	})
	if unmet := errors.Is(err, errs.ErrNotReplicated); err == nil || unmet {
		var bad error
		if verdicts, bad = m.AsIntSlice(); bad != nil {
			err = bad
		} else if unmet {
			// "not held" is true all the same; "renewed" is not to be relied on
			for i, v := range verdicts {
				if v >= 1 {
					verdicts[i] = -1
				}
			}
			err = nil
		}
	}
	if err == nil && len(verdicts) != n {
		err = errBadReply
	}
	return verdicts, err
}

// answer takes in what a call said of each lease. err: nothing is known of any.
func (e *Engine) answer(batch []asked, verdicts []int64, sent time.Time, err error) {
	var lost []*Lease
	var whys []error
	var events []event
	now := e.now()
	e.mu.Lock()
	for i, a := range batch {
		l := a.Lease
		if l.state != registered {
			continue // released or ended meanwhile: the answer is about nothing any more
		}
		l.inFlight = false
		why := err
		switch {
		case err != nil:
		case verdicts[i] >= 1:
			l.retrying = false
			switch {
			case a.length > 0:
				l.short = 0
				l.plan(now)
				e.trust(l, sent, a.length)
			case a.length == howLong:
				e.settle(l, sent, time.Duration(verdicts[i]-1)*time.Millisecond, now)
			}
			if e.at(sent).Before(e.woke) {
				l.renewAt, l.checkAt = now, now
			} else if l.doubted() {
				l.checkAt = now // it has a lease beyond that of its renewals
			}
			l.schedule()
		case verdicts[i] == notKnown:
			why = errKey
		case verdicts[i] == denied:
			why = errDenied
		default:
			e.remove(l)
			why = lossOf(verdicts[i])
			lost, whys = append(lost, l), append(whys, why)
		}
		if l.state == registered {
			if why != nil {
				l.retrying = true
				if again := now.Add(retryPause(l.term(), err)); a.length > 0 {
					l.renewAt = again
				} else {
					l.checkAt = again
				}
				l.schedule()
			}
			heap.Fix(&e.due, l.index)
			e.wakeBy(l.next)
		}
		if why != errNoSlot && (a.length > 0 || why != nil) { // a look that finds nothing amiss is no renewal
			events = append(events, event{l, why})
		}
	}
	e.mu.Unlock()
	for i, l := range lost {
		e.log.Warn("redlatch: hold lost: the server no longer knows it", "name", l.Name, "owner", l.owner(), "why", whys[i])
		l.Ended(whys[i])
	}
	for _, ev := range events {
		e.renewed(ev.lease.Values(), ev.lease.Name, ev.err)
	}
}

type event struct {
	lease *Lease
	err   error
}

// retryPause is short, because a third of the lease is all there is before the next scheduled try, and long enough
// not to hammer a server that refuses at once.
func retryPause(length time.Duration, err error) time.Duration {
	if err == errNoSlot {
		// long enough that a stopped server with a hundred thousand holds does not keep a processor busy, and still
		// maxFlights*batchSize leases each time
		return 20 * time.Millisecond
	}
	return min(max(length/60, time.Millisecond), 250*time.Millisecond)
}
