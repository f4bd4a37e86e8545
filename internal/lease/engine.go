// Package lease is the watchdog: it renews what is held, and tells holders when it no longer is.
//
// # Deadlines
//
// A claim's deadline is
//
//	(monotonic time before the request that confirmed it was sent) + lease - Margin(lease)
//
// and moves only when the server confirms a renewal. A renewal in flight moves nothing: a holder cut off from the
// server must stop before the server lets somebody else in, and the server started counting no earlier than the send.
//
// # Renewal
//
// One goroutine keeps the time of all claims of a client. Every third of its lease a claim is renewed, on an absolute
// schedule; what is due at about the same time for the same node's slot goes into one script call of at most batchSize
// claims. A failed call says nothing about the claims in it, and is repeated until their deadlines; one claim's
// failure never touches another's.
//
// A renewal script has KEYS = the claims' keys (Key and More of each) and ARGV = owner, lease in ms for each; it
// replies one integer for each: 1 renewed, 0 the owner holds nothing there, -1 not known (an error on that key alone), -3 the
// user may not read that key, -2 the key holds another type: the claim is over, and was not released.
// Lease -1 asks only whether it is held, and for how long: 1 + ms left, 1 without end. (0 asks only whether it is held; nothing
// here does.)
//
// While a slot is being migrated its keys may be on two nodes, for as long as that takes, and the server refuses what uses
// both (TRYAGAIN; also if a key that is not there is among them). Then each claim is renewed alone, and one of several keys
// key by key: KEYS = one of them, ARGV = owner, lease, which it is (from 1); the script does what is to be done there, and
// replies the same. The claim is renewed if every key says so, twice (see askByKey).
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
// A claim is removed before its release is sent, and the answer of a renewal that was under way then is dropped. The
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
	entries  map[entry]*Claim // the watchdog map: the owners here, chained
	due      claims
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
	// Renewed, if set, is called after every renewal attempt of a claim, with its Values, and nil or why it failed.
	Renewed func(ctx context.Context, name string, err error)
}

// New starts an engine.
func New(o Config) *Engine {
	e := &Engine{
		base:   time.Now().Add(-time.Hour), // no instant is zero
		client: o.Client, runner: o.Runner, cluster: o.Client.Mode() == rueidis.ClientModeCluster, log: o.Log, renewed: o.Renewed,
		kick: make(chan struct{}, 1), flight: make(chan struct{}, maxFlights), entries: map[entry]*Claim{}, wall: time.Now,
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

// Stop ends the engine and waits for its goroutines, but for the tracker's, which asks nothing about claims any more.
// Claims still registered end with errs.ErrClosed.
func (e *Engine) Stop() {
	if e.unwatch != nil {
		e.unwatch()
	}
	e.cancel()
	e.wg.Wait()
	e.mu.Lock()
	rest := slices.Clone(e.due)
	for _, c := range rest {
		e.remove(c)
	}
	e.mu.Unlock()
	for _, c := range rest {
		c.Ended(errs.ErrClosed)
	}
}

// Add registers c, granted by a request sent at sent, or by an earlier one since asked, whose answer was not seen. maxHold
// 0 is none. It reports false, and registers nothing, if c is over already.
func (e *Engine) Add(c *Claim, asked, sent time.Time, lease time.Duration, auto bool, maxHold time.Duration) bool {
	c.start, c.asked = e.at(sent), e.at(asked)
	return e.add(c, sent, lease, lease, auto, maxHold)
}

// AddHanded is Add for a claim that was handed over: granted at any time from sent to now, with a lease of written on the
// server, which is renewed once to the full lease after a third of it, also if the claim is not auto.
func (e *Engine) AddHanded(c *Claim, sent time.Time, written, lease time.Duration, auto bool, maxHold time.Duration) bool {
	// What is safe counts from sent, which may be long ago; all else from now.
	c.start, c.asked = e.now(), e.at(sent)
	if written < lease {
		c.short, c.renewAt = written, e.at(sent).Add(written/3)
	}
	return e.add(c, sent, written, lease, auto, maxHold)
}

func (e *Engine) at(t time.Time) instant { return instant(t.Sub(e.base)) }
func (e *Engine) now() instant           { return instant(time.Since(e.base)) }

func (e *Engine) add(c *Claim, sent time.Time, written, lease time.Duration, auto bool, maxHold time.Duration) bool {
	now := e.now()
	c.lease = lease
	if e.heart != nil {
		c.district = uint8(District(e.cluster, c.Key))
	}
	if maxHold > 0 {
		c.maxAt = c.start.Add(maxHold)
	}
	if auto {
		c.auto = 1
	}
	if c.short == 0 {
		c.plan(now)
	}
	if e.tracks() && !c.Untracked {
		c.checkAt = c.start.Add(trackAfter)
	}
	at := entry(c.Key)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trust(c, sent, written)
	if e.over(c, now) {
		return false
	}
	c.state = registered
	c.schedule()
	c.beside = e.entries[at]
	e.entries[at] = c
	heap.Push(&e.due, c)
	next := c.next
	if e.heart != nil {
		next = min(next, e.heart.count(c, now))
	}
	e.wakeBy(next)
	return true
}

// Confirmed records that a request sent at sent left c with at least lease on the server. It can only move the
// deadline forward. It reports false if c is over.
func (e *Engine) Confirmed(c *Claim, sent time.Time, lease time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.state != registered {
		return false
	}
	e.confirm(c, sent, lease)
	heap.Fix(&e.due, c.index)
	e.wakeBy(c.next)
	return true
}

func (e *Engine) confirm(c *Claim, sent time.Time, lease time.Duration) {
	e.trust(c, sent, lease)
	if e.at(sent).Before(c.looked) {
		c.checkAt = e.now() // see settle
	}
	c.schedule()
}

// trust moves the deadline to what a request sent at sent, which left c with lease, is good for, if that is later.
func (e *Engine) trust(c *Claim, sent time.Time, lease time.Duration) {
	d := e.at(sent).Add(lease - c.margin(lease))
	c.heard = e.now()
	c.deadline = max(c.deadline, d)
	if e.at(sent).Before(e.woke) {
		d = d.Add(-e.slept)
	}
	c.sure = max(c.sure, d)
}

// settle takes in how long c has left, less than a millisecond more: 0 without end.
//
// That may be less than what was confirmed: somebody has shortened the lease (PEXPIRE). Then the deadline is earlier, and a
// claim that is renewed is renewed now. It is no less if a confirmation came in between:
//
//	look: sent, reads 5 s left      Extend or re-entry: raises to 30 s, confirmed
//	look: answered
//
// so the claim is looked at again. It is, too, when an answer from before comes after:
//
//	Extend: sent, raises to 30 s    somebody shortens to 5 s     look: reads 5 s, answered
//	Extend: answered
func (e *Engine) settle(c *Claim, sent time.Time, left time.Duration, now instant) {
	if e.at(sent).Before(e.woke) {
		return
	}
	if left > 0 {
		safe := e.at(sent).Add(left - c.margin(left))
		switch shortened := e.at(sent).Add(left).Before(c.sure); {
		case shortened && c.heard.After(e.at(sent)):
			c.checkAt = now
			return
		case shortened:
			c.deadline, c.looked = safe, now
			if now.Add(left).Before(c.sure) { // and this is not just how long the answer took
				c.renewAt = now
			}
		default:
			c.deadline = max(c.sure, min(c.deadline, safe))
		}
	}
	c.sure = c.deadline
}

// Auto adds a handle that wants c renewed, with at least the given lease. It reports false if c is over.
func (e *Engine) Auto(c *Claim, lease time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.state != registered {
		return false
	}
	// While the raise after a hand-over is due, nothing else says which lease it is to be raised to, and when.
	if lease > c.lease || c.auto == 0 && c.short == 0 {
		c.lease = lease
	}
	c.auto++
	if c.short == 0 {
		c.renewAt = 0
		c.plan(e.now())
	}
	c.schedule()
	heap.Fix(&e.due, c.index)
	e.wakeBy(c.next)
	return true
}

// Manual takes back one Auto, or the one that Add was given: after the last, c's lease runs out.
func (e *Engine) Manual(c *Claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.state == registered {
		c.auto--
		c.schedule()
		heap.Fix(&e.due, c.index)
	}
}

// EndAll tells the holders of everything registered that their hold is over, without letting go of it: it stays
// renewed until it is removed or the engine stops.
func (e *Engine) EndAll(why error) {
	e.mu.Lock()
	all := slices.Clone(e.due)
	e.mu.Unlock()
	for _, c := range all {
		c.Ended(why)
	}
}

// Remove takes c out, before its release is sent. It reports whether c was still held by the local clock; if not,
// Ended has been or is being called.
func (e *Engine) Remove(c *Claim) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.state != registered {
		return false
	}
	held := !e.over(c, e.now())
	e.remove(c)
	return held
}

// Longest raises c.Longest to d, and returns it.
func (e *Engine) Longest(c *Claim, d time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.Longest = max(c.Longest, d)
	return c.Longest
}

// Extend asks at once for what the watchdog asks for in its time, a lease of at least d, until it is answered or ctx or c is
// over. errs.ErrLost or errs.ErrOverwritten: the server says that c is not held, which ends it. Neither confirmed nor an error: c was over before
// that could be noted, see Ended.
func (e *Engine) Extend(ctx context.Context, c *Claim, d time.Duration) (confirmed bool, err error) {
	ctx, cancel := context.WithDeadline(ctx, e.Until(c)) // no answer is worth waiting for once it is over
	defer cancel()
	e.Longest(c, d)
	sent := time.Now()
	m, err := e.runner.Do(ctx, script.Call{
		Script: c.Renew, Keys: append([]string{c.Key}, c.More...), Args: []string{c.Owner, millis(d + time.Millisecond - 1)},
		Replicas: e.replicas, ReplicasWait: e.replicasWait,
	})
	if err != nil {
		return false, err
	}
	v, err := m.AsIntSlice()
	switch {
	case err != nil || len(v) != 1:
		return false, fmt.Errorf("renew on %q: unexpected reply %v, error %v", c.Key, v, err)
	case v[0] == notKnown:
		return false, fmt.Errorf("%w: renew on %q: the server could not (memory is full)", errs.ErrUnavailable, c.Key)
	case v[0] == denied:
		return false, fmt.Errorf("%w: renew on %q: the user may not read it", errs.ErrDenied, c.Key)
	case v[0] < 1:
		why := lossOf(v[0])
		e.Lost(c, why)
		return false, why
	}
	return e.Confirmed(c, sent, d), nil
}

// What a renewal script says of a claim, if it is not how long it has left.
const (
	notHeld     = 0
	notKnown    = -1
	overwritten = -2
	denied      = -3
)

// lossOf is how a claim is over of which a script said so.
func lossOf(verdict int64) error {
	if verdict == overwritten {
		return errs.ErrOverwritten
	}
	return errs.ErrLost
}

// Lost ends c with why, errs.ErrLost or errs.ErrOverwritten, because the server said so. It reports false if c was over
// already.
func (e *Engine) Lost(c *Claim, why error) bool {
	e.mu.Lock()
	live := c.state == registered
	if live {
		e.remove(c)
	}
	e.mu.Unlock()
	if live {
		c.Ended(why)
	}
	return live
}

func (e *Engine) remove(c *Claim) {
	c.state = over
	heap.Remove(&e.due, c.index)
	if e.heart != nil {
		e.heart.parts[c.district].claims--
	}
	at := entry(c.Key)
	switch first := e.entries[at]; {
	case first != c:
		for first.beside != c {
			first = first.beside
		}
		first.beside = c.beside
	case c.beside != nil:
		e.entries[at] = c.beside
	default:
		delete(e.entries, at) // a name nobody holds costs nothing
	}
	c.beside = nil
}

// Live reports whether c is registered and its deadline ahead.
func (e *Engine) Live(c *Claim) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return c.state == registered && !e.over(c, e.now())
}

// Trusted reports whether a claim that may exist since asked could still be added, as far as heartbeats go.
func (e *Engine) Trusted(key string, asked time.Time) bool {
	if e.heart == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now().Before(e.heart.trusted(&Claim{asked: e.at(asked), district: uint8(District(e.cluster, key))}))
}

// Until is c's deadline, or MaxHold's end, or that of its trust in heartbeats, if that is earlier; all of it without what is
// in doubt after a sleep.
func (e *Engine) Until(c *Claim) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	until := c.sure
	if e.heart != nil {
		until = min(until, e.heart.trusted(c).Add(-e.heart.parts[c.district].slept))
	}
	_, _, ahead := e.clocks()
	until = until.Add(-ahead)
	if !c.maxAt.IsZero() {
		until = min(until, c.maxAt)
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

// Find returns the registered claim of that owner on that key, or nil.
func (e *Engine) Find(key, owner string) *Claim {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := e.entries[entry(key)]; c != nil; c = c.beside {
		if c.Owner == owner {
			return c
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
func (e *Engine) Names(inUse func(*Claim) bool) (names []string) {
	for _, c := range e.All() { // inUse has locks of its own
		if inUse(c) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

// All returns the claims registered.
func (e *Engine) All() []*Claim {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.due)
}

// wakeBy has the goroutine look again by t. Called with mu held. Removing a claim leaves an early wake-up behind, also
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
	var ended, unheard []*Claim
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
		for _, c := range e.due {
			c.sure = c.sure.Add(-ahead)
			c.renewAt, c.checkAt = now, now // also those that are never renewed: their leases may be over
			c.schedule()
		}
		heap.Init(&e.due)
	}
	for len(e.due) > 0 {
		c := e.due[0]
		switch {
		case !now.Before(c.deadline):
			e.remove(c)
			ended, whys = append(ended, c), append(whys, errs.ErrLost)
			continue
		case !c.maxAt.IsZero() && !now.Before(c.maxAt):
			e.remove(c)
			ended, whys = append(ended, c), append(whys, errs.ErrMaxHold)
			continue
		}
		if lease, ok := c.wanted(now); ok {
			c.inFlight, c.checkAt = true, 0
			k := batchKey{script: c.Renew, untracked: c.Untracked}
			if e.cluster {
				k.slot = keyname.Slot(c.Key)
			}
			batches[k] = append(batches[k], asked{c, lease, c.term()})
			c.schedule()
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
	for i, c := range ended {
		e.log.Warn("redlatch: hold ended", "name", c.Name, "owner", c.owner(), "why", whys[i])
		c.Ended(whys[i])
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

// asked is one claim in a call.
type asked struct {
	*Claim
	lease time.Duration
	term  time.Duration // the claim's lease, whatever is asked for
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
		args = append(args, a.Owner, millis(a.lease))
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

// askByKey renews a claim whose keys are apart: each alone, and all of them twice.
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
		args := []string{a.Owner, millis(a.lease), strconv.Itoa(n + 1)}
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

// ask makes one call of a renewal script, on n claims.
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

// answer takes in what a call said of each claim. err: nothing is known of any.
func (e *Engine) answer(batch []asked, verdicts []int64, sent time.Time, err error) {
	var lost []*Claim
	var whys []error
	var events []event
	now := e.now()
	e.mu.Lock()
	for i, a := range batch {
		c := a.Claim
		if c.state != registered {
			continue // released or ended meanwhile: the answer is about nothing any more
		}
		c.inFlight = false
		why := err
		switch {
		case err != nil:
		case verdicts[i] >= 1:
			c.retrying = false
			switch {
			case a.lease > 0:
				c.short = 0
				c.plan(now)
				e.trust(c, sent, a.lease)
			case a.lease == howLong:
				e.settle(c, sent, time.Duration(verdicts[i]-1)*time.Millisecond, now)
			}
			if e.at(sent).Before(e.woke) {
				c.renewAt, c.checkAt = now, now
			} else if c.doubted() {
				c.checkAt = now // it has a lease beyond that of its renewals
			}
			c.schedule()
		case verdicts[i] == notKnown:
			why = errKey
		case verdicts[i] == denied:
			why = errDenied
		default:
			e.remove(c)
			why = lossOf(verdicts[i])
			lost, whys = append(lost, c), append(whys, why)
		}
		if c.state == registered {
			if why != nil {
				c.retrying = true
				if again := now.Add(retryPause(c.term(), err)); a.lease > 0 {
					c.renewAt = again
				} else {
					c.checkAt = again
				}
				c.schedule()
			}
			heap.Fix(&e.due, c.index)
			e.wakeBy(c.next)
		}
		if why != errNoSlot && (a.lease > 0 || why != nil) { // a look that finds nothing amiss is no renewal
			events = append(events, event{c, why})
		}
	}
	e.mu.Unlock()
	for i, c := range lost {
		e.log.Warn("redlatch: hold lost: the server no longer knows it", "name", c.Name, "owner", c.owner(), "why", whys[i])
		c.Ended(whys[i])
	}
	for _, ev := range events {
		e.renewed(ev.claim.Values(), ev.claim.Name, ev.err)
	}
}

type event struct {
	claim *Claim
	err   error
}

// retryPause is short, because a third of the lease is all there is before the next scheduled try, and long enough
// not to hammer a server that refuses at once.
func retryPause(lease time.Duration, err error) time.Duration {
	if err == errNoSlot {
		// long enough that a stopped server with a hundred thousand holds does not keep a processor busy, and still
		// maxFlights*batchSize claims each time
		return 20 * time.Millisecond
	}
	return min(max(lease/60, time.Millisecond), 250*time.Millisecond)
}
