package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
)

// primitive is something of the library that clients use in a cell.
type primitive struct {
	name    string
	quorum  bool // it is used on five servers, and nowhere else
	workers int  // of each client; 0: one
	pace    int  // milliseconds between two turns, on average
	setUp   func(ctx context.Context, red *redlatch.Client) error
	turn    func(ctx context.Context, c *client, rnd *rand.Rand)
	// what the server says in the end
	final func(ctx context.Context, red *redlatch.Client, say func(event)) (map[string]int64, error)
	// e is an answer, or a grant
	works func(e event) bool
	judge func(h record, v *verdict)
}

// What there is of everything.
const (
	permits   = 2
	weight    = 10
	units     = 120
	customers = 300
	shares    = 100
	cents     = 10_000
	rate      = 50 // a second
	burst     = 10
)

var primitives = []primitive{
	exclusive("reentrant", func(c *client, _ *rand.Rand) *rlock.Lock { return c.red[0].Locks().Reentrant("reentrant") }),
	exclusive("nonreentrant", func(c *client, _ *rand.Rand) *rlock.Lock {
		return c.red[0].Locks().NonReentrant("nonreentrant")
	}),
	exclusive("spin", func(c *client, _ *rand.Rand) *rlock.Lock {
		return c.red[0].Locks().Spin("spin", 5*time.Millisecond, 50*time.Millisecond)
	}),
	exclusive("fair", func(c *client, _ *rand.Rand) *rlock.Lock { return c.red[0].Locks().Fair("fair") }),
	exclusive("plain", func(c *client, _ *rand.Rand) *rlock.Lock { return c.red[0].Locks().Plain("plain") }),
	exclusive("fenced", func(c *client, _ *rand.Rand) *rlock.Lock { return c.red[0].Locks().Fenced("fenced") }),
	exclusive("multi", func(c *client, rnd *rand.Rand) *rlock.Lock {
		a, b := c.red[0].Locks().Reentrant("multi-a"), c.red[0].Locks().Fair("multi-b")
		if rnd.IntN(2) == 0 {
			a, b = b, a
		}
		l, err := rlock.Multi(a, b)
		if err != nil {
			panic(err)
		}
		return l
	}),
	{name: "election", pace: 20, turn: elect, works: took, judge: elected},
	quorum(),
	{name: "readwrite", workers: 2, pace: 6, turn: readWrite, works: took,
		judge: func(h record, v *verdict) {
			v.capacity(h, writer)
		}},
	{name: "semaphore", workers: 2, pace: 6, works: took, judge: func(h record, v *verdict) {
		v.capacity(h, permits)
	}, turn: func(ctx context.Context, c *client, rnd *rand.Rand) {
		n := 1 + rnd.IntN(permits)
		c.use(ctx, "semaphore", int64(n), rnd, func(ctx context.Context, wait, lease time.Duration) (holding, error) {
			return c.red[0].Semaphores().Semaphore("semaphore", permits).TryAcquire(ctx, n, wait, lease)
		})
	}},
	{name: "weighted", workers: 2, pace: 6, works: took, judge: func(h record, v *verdict) {
		v.capacity(h, weight)
	}, turn: func(ctx context.Context, c *client, rnd *rand.Rand) {
		n := 1 + rnd.Int64N(weight*2/3)
		c.use(ctx, "weighted", n, rnd, func(ctx context.Context, wait, lease time.Duration) (holding, error) {
			return c.red[0].Semaphores().WeightedSemaphore("weighted", weight).TryAcquire(ctx, int(n), wait, lease)
		})
	}},
	{name: "counting", pace: 12, turn: takeCounted, final: countingFinal, works: took, judge: anonymous},
	{name: "latch", pace: 5, turn: latch, works: passed, judge: together},
	{name: "barrier", pace: 5, turn: barrier, works: passed, judge: together},
	{name: "stock", pace: 15, setUp: openSale("stock", stock.Spec{Limit: units}), turn: buy,
		final: func(ctx context.Context, red *redlatch.Client, _ func(event)) (map[string]int64, error) {
			return sold(ctx, red, "stock")
		}, works: answered("claim"), judge: claims},
	{name: "ledger", pace: 25, setUp: openSale("ledger", stock.Spec{Limit: units, Ledger: true, Remember: time.Minute}),
		turn: sellOrders, final: moveAll, works: answered("order"), judge: ledgers},
	{name: "counter", pace: 15, turn: func(ctx context.Context, c *client, _ *rand.Rand) {
		e := event{Of: "counter", ID: c.next()}
		c.try(e)
		e.Do, e.Call = "count", now()
		k := c.red[0].Counters().Counter("counter", rcounter.CounterOptions{TTL: time.Hour})
		v, err := k.Incr(ctx)
		if c.Break == "uncounted" {
			v, err = k.Incr(ctx)
		}
		e.Return, e.V, e.Out = now(), v, reason(err)
		c.say(e)
	}, final: counted("counter"), works: answered("count"), judge: counts},
	{name: "addonce", pace: 15, turn: func(ctx context.Context, c *client, _ *rand.Rand) {
		e := event{Of: "addonce", ID: c.next()}
		c.try(e)
		e.Do, e.Call = "count", now()
		for range 5 { // it may be called again
			v, _, err := c.red[0].Counters().Counter("addonce",
				rcounter.CounterOptions{TTL: time.Hour, Remember: 10 * time.Second}).AddOnce(ctx, e.ID, 1)
			e.V, e.Out = v, reason(err)
			if !open(e.Out) {
				break
			}
		}
		e.Return = now()
		c.say(e)
	}, final: counted("addonce"), works: answered("count"), judge: counts},
	{name: "limiter", pace: 12, turn: func(ctx context.Context, c *client, _ *rand.Rand) {
		e := event{Of: "limiter", Do: "pass", Call: now()}
		a, err := c.red[0].Limiters().Limiter("limiter", ratelimit.LimiterOptions{Rate: rate, Burst: burst}).Allow(ctx, "", 1)
		e.Return, e.Out = now(), reason(err)
		if err == nil && !a.Allowed {
			e.Out = "limited"
		}
		c.say(e)
	}, works: answered("pass"), judge: rates},
	{name: "redpacket", pace: 20, setUp: func(ctx context.Context, red *redlatch.Client) error {
		return openOnce(ctx, func() error {
			_, err := red.RedPackets().Packet("redpacket").Send(ctx,
				redpacket.Spec{Total: cents, Shares: shares, OpenFor: 24 * time.Hour, Retain: time.Hour})
			return err
		})
	}, turn: func(ctx context.Context, c *client, rnd *rand.Rand) {
		e := event{Of: "redpacket", ID: fmt.Sprint("u", rnd.IntN(customers))}
		c.try(e)
		e.Do, e.Call = "claim", now()
		s, err := c.red[0].RedPackets().Packet("redpacket").Grab(ctx, e.ID)
		e.Return, e.Out, e.V, e.N = now(), reason(err), s.Ordinal, s.Cents
		if err == nil && !s.Won() {
			e.Out = s.Why
		}
		c.say(e)
	}, final: func(ctx context.Context, red *redlatch.Client, _ func(event)) (map[string]int64, error) {
		s, err := red.RedPackets().Packet("redpacket").Inspect(ctx)
		return map[string]int64{"sold": s.Taken, "cents": s.TakenCents, "limit": shares},
			gone(err, errors.Is(err, redpacket.ErrNoPacket))
	}, works: answered("claim"), judge: claims},
}

// holding is what locks and permits have in common.
type holding interface {
	Done() <-chan struct{}
	Until() time.Time
}

// acquire waits for that long, and asks for a lease that is not renewed, or for 0.
type acquire func(ctx context.Context, wait, lease time.Duration) (holding, error)

// use acquires in some way, keeps it for some time, and gives it back.
func (c *client) use(ctx context.Context, of string, n int64, rnd *rand.Rand, take acquire) {
	wait, fixed := time.Duration(rnd.IntN(600))*time.Millisecond, time.Duration(0)
	if rnd.IntN(8) == 0 {
		fixed = lease / 2
	}
	in, cancel, wait := impatient(ctx, rnd, wait)
	defer cancel()
	e := event{Of: of, Do: "take", ID: c.next(), N: n, Call: now()}
	if in == ctx {
		e.Patience = wait
	}
	h, err := take(in, wait, fixed)
	e.Return, e.Out = now(), reason(err)
	if err != nil {
		c.say(e)
		return
	}
	e.To = until(h.Until())
	switch h := h.(type) {
	case *rlock.Hold:
		e.V, _ = h.Token()
	case leading:
		e.V = h.Token()
	}
	c.say(e)
	if e.V > 0 {
		c.say(event{Of: of, Do: "write", ID: e.ID, V: e.V, Call: now()})
	}
	keep := time.Duration(rnd.IntN(12)) * time.Millisecond
	if rnd.IntN(12) == 0 {
		keep = time.Duration(float64(lease) * (0.3 + rnd.Float64()))
	}
	t := time.NewTimer(keep)
	select {
	case <-t.C:
	case <-h.Done():
	case <-ctx.Done():
	}
	t.Stop()
	e.Do, e.Call = "leave", now()
	if e.V > 0 { // without a look at the hold: this is what a token is for
		c.say(event{Of: of, Do: "write", ID: e.ID, V: e.V, Call: now()})
	}
	e.To = min(e.Call, until(h.Until()))
	c.stop(e)
	ended, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*callTimeout)
	defer stop()
	switch h := h.(type) {
	case *rlock.Hold:
		err = h.Unlock(ended)
	case interface{ Release(context.Context) error }:
		err = h.Release(ended)
	}
	if c.Break == "late" { // works on though it has given it back
		rest(ctx, 30*time.Millisecond)
		e.To = now()
	}
	e.Return, e.Out = now(), reason(err)
	c.say(e)
}

// impatient makes half of the calls give up after 0 to 5 ms, seldom after up to 50: by their waitTime, the deadline of
// their context, or its cancellation.
func impatient(ctx context.Context, rnd *rand.Rand,
	wait time.Duration) (context.Context, context.CancelFunc, time.Duration) {
	if rnd.IntN(2) == 0 {
		return ctx, func() {}, wait
	}
	brief := time.Duration(rnd.IntN(5000)) * time.Microsecond
	if rnd.IntN(5) == 0 {
		brief *= 10
	}
	switch rnd.IntN(3) {
	case 0:
		ctx, cancel := context.WithTimeout(ctx, brief)
		return ctx, cancel, time.Second
	case 1:
		ctx, cancel := context.WithCancel(ctx)
		t := time.AfterFunc(brief, cancel)
		return ctx, func() { t.Stop(); cancel() }, time.Second
	}
	return ctx, func() {}, brief
}

// stop says that what e gives back is not used any more. If the client is killed before the server has answered,
// nothing else says so.
func (c *client) stop(e event) {
	c.say(event{Of: e.Of, Do: "stop", ID: e.ID, Call: e.Call, To: e.To, V: e.V})
}

func exclusive(name string, of func(c *client, rnd *rand.Rand) *rlock.Lock) primitive {
	return primitive{
		name: name, workers: 3, pace: 6, works: took, judge: func(h record, v *verdict) { v.exclusion(h) },
		turn: func(ctx context.Context, c *client, rnd *rand.Rand) { c.lock(ctx, name, 1, rnd, of(c, rnd)) },
	}
}

func (c *client) lock(ctx context.Context, name string, n int64, rnd *rand.Rand, l *rlock.Lock) {
	if c.Break == "steal" && rnd.IntN(3) == 0 { // releases what it does not own
		_, _ = l.ForceUnlock(ctx)
	}
	c.use(ctx, name, n, rnd, func(ctx context.Context, wait, lease time.Duration) (holding, error) {
		return l.TryLock(ctx, wait, lease)
	})
}

func quorum() primitive {
	p := exclusive("quorum", func(c *client, _ *rand.Rand) *rlock.Lock {
		var members []*rlock.Lock
		for _, red := range c.red {
			members = append(members, red.Locks().Reentrant("quorum"))
		}
		l, err := rlock.Quorum(members...)
		if err != nil {
			panic(err)
		}
		return l
	})
	p.quorum = true
	return p
}

const writer = 1000 // more than readers there are: a writer takes as much as all of them

func readWrite(ctx context.Context, c *client, rnd *rand.Rand) {
	l := c.red[0].Locks().ReadWrite("readwrite")
	if rnd.IntN(4) == 0 {
		c.lock(ctx, "readwrite", writer, rnd, l.Write())
		return
	}
	c.lock(ctx, "readwrite", 1, rnd, l.Read())
}

// roundAt is how long a round of latches and barriers is that begins so long after the cell. Where a short one never
// works, because the machine is busy, a longer one does.
func roundAt(after time.Duration) time.Duration {
	switch {
	case after < 15*time.Second:
		return 500 * time.Millisecond
	case after < 30*time.Second:
		return time.Second
	}
	return 3 * time.Second
}

// reusedRounds is after how many rounds a soak uses a name again, because a barrier is remembered for an hour. The
// latch of a round that was not passed is gone by then.
const reusedRounds = 64

// round is one round of latches and barriers.
type round struct {
	id     string
	name   string // of the latch or barrier
	length time.Duration
}

// nextRound waits until the next round begins. Rounds begin at the same time in all clients.
func (c *client) nextRound(ctx context.Context) round {
	gone := time.Duration(now() - c.Began)
	length := roundAt(gone)
	if c.Soak {
		length = roundAt(0)
	}
	begin := (gone/length + 1) * length
	rest(ctx, begin-time.Duration(now()-c.Began))
	id := fmt.Sprint(begin.Milliseconds())
	if c.Soak {
		return round{id, fmt.Sprint(begin / length % reusedRounds), length}
	}
	return round{id, id, roundAt(begin)}
}

// latch counts a latch down that all clients count down once, and waits for it.
func latch(ctx context.Context, c *client, _ *rand.Rand) {
	r := c.nextRound(ctx)
	e := event{Of: "latch", ID: r.id, V: int64(c.Place)}
	in, cancel := context.WithTimeout(ctx, r.length*4/5) // all are there for the next
	defer cancel()
	l := c.red[0].Semaphores().CountDownLatch("latch-" + r.name)
	e.Do, e.Call = "pass", now()
	if _, err := l.TrySetCount(in, int64(c.Places), 20*time.Second); err != nil {
		e.Return, e.Out = now(), reason(err)
		c.say(e)
		return
	}
	arrived := e
	arrived.Do = "arrive"
	c.say(arrived)
	_, err := l.CountDownBy(in, fmt.Sprint(c.Place))
	if err == nil {
		err = l.Await(in)
	}
	e.Return, e.Out = now(), reason(err)
	c.say(e)
}

func barrier(ctx context.Context, c *client, _ *rand.Rand) {
	r := c.nextRound(ctx)
	e := event{Of: "barrier", ID: r.id, V: int64(c.Place)}
	in, cancel := context.WithTimeout(ctx, r.length*4/5) // all are there for the next
	defer cancel()
	e.Do, e.Call = "arrive", now()
	c.say(e)
	_, err := c.red[0].Semaphores().CyclicBarrier("barrier-"+r.name, c.Places).Await(in)
	e.Do, e.Return, e.Out = "pass", now(), reason(err)
	c.say(e)
}

// try says what is sent next: who is killed meanwhile has no other word for it.
func (c *client) try(e event) {
	e.Do, e.Call = "try", now()
	c.say(e)
}

// buy buys a unit of a sale without a ledger.
func buy(ctx context.Context, c *client, rnd *rand.Rand) {
	e := event{Of: "stock", ID: fmt.Sprint("u", rnd.IntN(customers))}
	c.try(e)
	user := e.ID
	if c.Break == "newid" {
		e.ID = fmt.Sprint("u", rnd.IntN(5))
		user = e.ID + "-" + c.next()
	}
	e.Do, e.Call = "claim", now()
	a, err := c.red[0].Sales().Sale("stock").Buy(ctx, stock.Order{User: user})
	e.Return, e.Out = now(), answerOf(a, err)
	if a.Won() {
		e.Out, e.V = "ok", a.Lines[0].Ordinal
	}
	c.say(e)
}

func openSale(name string, spec stock.Spec) func(ctx context.Context, red *redlatch.Client) error {
	spec.OpenFor, spec.Retain = 24*time.Hour, time.Hour
	return func(ctx context.Context, red *redlatch.Client) error {
		return openOnce(ctx, func() error { return red.Sales().Sale(name).Open(ctx, spec) })
	}
}

func sold(ctx context.Context, red *redlatch.Client, name string) (map[string]int64, error) {
	s, err := red.Sales().Sale(name).Inspect(ctx)
	return map[string]int64{"sold": s.Items[""].Sold, "limit": s.Items[""].Limit}, goneSale(err)
}

func goneSale(err error) error { return gone(err, errors.Is(err, stock.ErrNoStock)) }

// openOnce opens something, again and again while the outcome is not known: a busy machine takes longer than the call
// timeout of clients. Then it may be open already.
func openOnce(ctx context.Context, open func() error) error {
	for again := false; ; again = true {
		err := open()
		switch {
		case again && errors.Is(err, redlatch.ErrAlreadyOpen):
			return nil
		case ctx.Err() != nil, !errors.Is(err, redlatch.ErrUnknownOutcome) && !errors.Is(err, redlatch.ErrUnavailable) &&
			!errors.Is(err, redpacket.ErrSending):
			return err
		}
		rest(ctx, 50*time.Millisecond)
	}
}

func counted(name string) func(ctx context.Context, red *redlatch.Client, say func(event)) (map[string]int64, error) {
	return func(ctx context.Context, red *redlatch.Client, _ func(event)) (map[string]int64, error) {
		v, err := red.Counters().Counter(name, rcounter.CounterOptions{}).Get(ctx)
		return map[string]int64{"value": v}, err
	}
}

// errGone: the server no longer has it.
var errGone = errors.New("it is not there, or not all of it")

// gone is err, which says as much if absent.
func gone(err error, absent bool) error {
	if absent && err == nil {
		err = errors.New("absent")
	}
	if absent || errors.Is(err, errs.ErrCorrupt) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

func took(e event) bool   { return e.Do == "take" && e.Out == "ok" }
func passed(e event) bool { return e.Do == "pass" && e.Out == "ok" }

// answered tells answers of one kind, whatever they say.
func answered(do string) func(e event) bool {
	return func(e event) bool { return e.Do == do && !open(e.Out) }
}
