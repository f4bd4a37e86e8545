package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Nearly every call that is the only one of its client goes over the connection of solo calls.
func init() { script.SoloAfter = 1 }

// world is one run.
type world struct {
	*oracle
	plan    Plan
	net     *network
	nodes   []*node
	objects []*object
	acts    sync.WaitGroup
	aside   sync.WaitGroup // what is done for crashed clients

	cmu     sync.Mutex
	clients []*client // by place
	past    []*client
	held    []func() // what crashed clients held: kept from the garbage collector, which is not in the bubble
	log     []string
}

// object is one lock, sale or the like.
type object struct {
	kind  *kind
	name  string
	parts []*resource
	calls callLog   // of a kind that is not a lock
	shop  *shop     // of a sale
	once  *onceBook // of a Once
}

// client is one process.
type client struct {
	place, life int
	host        *host
	red         *redlatch.Client
	reds        []*redlatch.Client // of each server
	locks       []*rlock.Client
	names       []string      // what the owners of its locks begin with
	ready       chan struct{} // closed: it has connected
	gone        chan struct{} // closed: it has crashed
	tried       chan struct{} // closed: it connects no more
}

// rough is until when something was done to the client's traffic.
func (c *client) rough() time.Time {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	return c.host.rough
}

func (c *client) dead() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// Result is what came of a run.
type Result struct {
	Violations []string
	Figures    Figures
	Log        []string // what happened
	Wire       []Wire   // if the plan has it kept
}

// Run runs a plan in a bubble of its own, with a fault planted if there is a mutant.
func Run(t *testing.T, p Plan, m *Mutant) (r Result) {
	p.Wired = p.Wired || slices.ContainsFunc(p.Kinds, func(kind string) bool {
		return kind == "stock" || kind == "sale"
	})
	synctest.Test(t, func(*testing.T) {
		w := &world{plan: p, oracle: &oracle{began: time.Now()}}
		w.net = &network{seed: p.Seed, shortest: p.Shortest, longest: p.Longest, note: w.note, wired: p.Wired}
		w.build(m)
		w.run()
		w.end()
		r = w.result()
		for range 100 {
			time.Sleep(time.Second)
			if synctest.Wait(); len(others()) == 0 {
				return
			}
		}
		r.Violations = append(r.Violations, fmt.Sprintf("%d goroutines are left", len(others())))
		r.Log = append(r.Log, others()...)
	})
	return r
}

// others are the goroutines of the bubble but this one and that which made it.
func others() (stacks []string) {
	b := make([]byte, 1<<20)
	all := strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n")
	for _, s := range all[1:] {
		if strings.Contains(s, "synctest bubble") && !strings.Contains(s, "testingSynctestTest(") &&
			!strings.Contains(s, "testing/synctest.Test(0x") {
			stacks = append(stacks, s)
		}
	}
	return stacks
}

func (w *world) note(format string, args ...any) {
	w.cmu.Lock()
	defer w.cmu.Unlock()
	w.log = append(w.log, w.oracle.at(time.Now())+"  "+fmt.Sprintf(format, args...))
}

func (w *world) build(m *Mutant) {
	for i := range w.plan.Servers {
		w.nodes = append(w.nodes, newNode(fmt.Sprint("server", i), w.plan.Drift[i], w.plan.Durable, m))
		w.nodes[i].mute = w.plan.Mute
		if w.plan.Wired {
			w.nodes[i].turn = make(chan struct{}, 1)
		}
	}
	for i := range w.plan.Clients {
		w.clients = append(w.clients, w.client(i, 0))
	}
	for i, name := range w.plan.Kinds {
		o := &object{kind: kindOf(name), name: fmt.Sprintf("%s-%d", name, i)}
		w.objects = append(w.objects, o)
		o.kind.make(w, o)
	}
	if w.plan.Crowd {
		granted := w.granted // clients are connected already, and what it looks at is made by now
		for _, n := range w.nodes {
			n.granted.Store(&granted)
		}
	}
}

// client connects one: in the background, because the network may not let it.
func (w *world) client(place, life int) *client {
	c := &client{place: place, life: life,
		host:  w.net.host(fmt.Sprintf("client%d.%d", place, life)),
		ready: make(chan struct{}), gone: make(chan struct{}), tried: make(chan struct{})}
	w.aside.Go(func() {
		defer close(c.tried)
		for pause := 50 * time.Millisecond; !c.dead(); pause *= 2 {
			if err := c.connect(w); err == nil {
				close(c.ready)
				return
			}
			time.Sleep(min(pause, time.Second))
		}
	})
	return c
}

func (c *client) connect(w *world) error {
	replicas := 0
	if w.plan.Durable {
		replicas = 1
	}
	for len(c.locks) < len(w.nodes) {
		o := c.host.option(w.nodes[len(c.locks)])
		o.DisableAutoPipelining = w.plan.Alone
		red, err := redlatch.Open(context.Background(), o, redlatch.Options{
			MinReplicas: replicas, Logger: slog.New(slog.DiscardHandler),
			Hub: func(o *pubsub.Options) { o.Grace = time.Millisecond },
			Locks: func(o *rlock.Options) {
				o.WatchdogTimeout, o.PollCap, o.Liveness, o.Heartbeat = watchdog, pollCap, w.plan.Beating, heartbeat
				if w.plan.MaxHold {
					o.MaxHold = time.Minute
				}
			},
			Sales:     func(o *stock.Options) { o.Books = w.books(c) },
			Elections: func(o *election.Options) { o.WatchdogTimeout, o.PollCap = watchdog, pollCap },
			Semaphores: func(o *rsemaphore.Options) {
				o.WatchdogTimeout, o.PollCap, o.Liveness, o.Heartbeat, o.Observer = watchdog, pollCap, w.plan.Living, heartbeat,
					w.takenOver
			},
		})
		if err != nil {
			return err
		}
		c.reds, c.locks = append(c.reds, red), append(c.locks, red.Locks())
	}
	c.red = c.reds[0]
	return c.warm()
}

// takenOver counts the permits that clients took from others.
func (w *world) takenOver(_ context.Context, e redlatch.Event) context.Context {
	if e.Kind == redlatch.EventTakenOver {
		w.note("%d of %s taken over", e.N, e.Name)
		w.count(func(f *Figures) { f.TakenOver += int(e.N) })
	}
	return nil
}

// warm has the client learn the servers' clocks. Before that its requests have no instant after which they are refused,
// as documented, and one that comes seconds late may do what no caller asks for any more.
func (c *client) warm() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*calls)
	defer cancel()
	nothing := func(context.Context) error { return nil }
	for i, l := range c.locks {
		if err = l.Reentrant(fmt.Sprint("warm-", c.host.name, i)).Do(ctx, nothing); err != nil {
			return err
		}
	}
	for _, l := range c.locks {
		c.names = append(c.names, accessor.Of[*hold.Keeper](l).ID)
	}
	c.names = append(c.names, accessor.Of[*hold.Keeper](c.red.Elections()).ID)
	return c.red.Semaphores().Semaphore("warm-"+c.host.name, 1).Do(ctx, 1, nothing)
}

// close ends a client's clients.
func (c *client) close(ctx context.Context) (err error) {
	<-c.tried // one that crashed while it connected has parts of itself
	for _, red := range c.reds {
		err = errors.Join(err, red.Close(ctx))
	}
	return err
}

// run plays the plan, and looks around every 25 ms until all is over.
func (w *world) run() {
	for _, c := range w.clients {
		<-c.ready
	}
	for _, o := range w.objects {
		o.kind.open(w, o)
	}
	calm := w.plan.calm()
	began := time.Now()
	steps := w.plan.Steps
	w.figures.Runs = 1
	done := make(chan struct{})
	finished := false
	pace := 25 * time.Millisecond
	if w.plan.Crowd {
		pace = time.Millisecond
	}
	settled := time.Time{}
	for {
		next := time.Since(began) + pace
		if len(steps) > 0 && steps[0].At < next {
			next = steps[0].At
		}
		time.Sleep(next - time.Since(began))
		synctest.Wait() // no client runs in this moment
		if w.plan.Crowd {
			w.lookAtProgress(began)
		} else {
			w.look(calm)
		}
		for len(steps) > 0 && steps[0].At <= time.Since(began) {
			s := steps[0]
			if steps = steps[1:]; s.fault() {
				w.figures.Faults++
				w.inject(s)
			} else {
				w.figures.Steps++
				w.act(s)
			}
		}
		if len(steps) == 0 && !finished {
			finished = true
			go func() { w.acts.Wait(); close(done) }()
		}
		select {
		case <-done:
			if w.plan.Crowd && settled.IsZero() {
				settled = time.Now().Add(settling)
			}
			if time.Now().Before(settled) {
				break
			}
			w.recover(began)
			return
		default:
		}
		if time.Since(began) > 2*time.Minute {
			w.violated("some calls do not end")
			for _, c := range slices.Clone(w.clients) {
				w.crash(c, false)
			}
			<-done
			return
		}
	}
}

// recover waits until nothing is done to anybody, and has the kinds look at what they promised.
func (w *world) recover(began time.Time) {
	for time.Since(began) < w.plan.length() || time.Now().Before(w.disturbed.Add(recovery)) {
		time.Sleep(100 * time.Millisecond)
	}
	for _, c := range w.clients {
		<-c.ready
	}
	w.net.mu.Lock()
	for _, c := range w.clients {
		c.host.traps = nil // a fault that no call has sprung would befall the questions that follow
	}
	w.net.mu.Unlock()
	for _, o := range w.objects {
		o.kind.verdict(w, o)
	}
}

// act has a client do a step.
func (w *world) act(s Step) {
	o, c := w.objects[s.On], w.clients[s.Who]
	w.acts.Go(func() {
		select {
		case <-c.ready:
			o.kind.act(w, o, c, s)
		case <-c.gone:
		}
	})
}

// crash ends a client without a word. What it has sent may arrive.
func (w *world) crash(c *client, again bool) {
	w.net.mu.Lock()
	c.host.dead = true
	for l := range c.host.links {
		l.reset(mix(w.plan.Seed, uint64(l.number))%2 == 0)
	}
	w.net.mu.Unlock()
	close(c.gone)
	w.past = append(w.past, c)
	w.aside.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.close(ctx) // it was killed: what it leaves is part of the test
	})
	if again {
		w.clients[c.place] = w.client(c.place, c.life+1)
	}
}

// end closes everybody, and looks at what is left of anything.
func (w *world) end() {
	for _, c := range w.clients {
		if c.dead() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		if err := c.close(ctx); err != nil {
			w.violated("client %d: close: %v", c.place, err)
		}
		cancel()
	}
	w.aside.Wait()
	for _, forget := range w.held {
		forget()
	}
	for _, n := range w.nodes {
		for k, ttl := range n.left() {
			if ttl == 0 {
				w.violated("%s: %s has no end", n.name, k)
			}
		}
	}
	w.figures.Simulated = time.Since(w.began)
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	time.Sleep(70*time.Minute + max(0, time.Until(w.stuck)))
	for _, n := range w.nodes {
		if s := n.channels(); s != "" {
			w.violated("%s: a client still listens to%s", n.name, s)
		}
		for k := range n.left() {
			if !slices.ContainsFunc(lasting, func(part string) bool { return strings.Contains(k, part) }) {
				w.violated("%s: %s is still there an hour after everybody has closed", n.name, k)
			}
		}
	}
	w.verdict(w.plan.calm())
}

// lasting are parts of the keys that outlast their use, as documented: the last token of a fenced lock, sales until
// their retention is over, what is remembered of a latch, and a barrier's generations.
var lasting = []string{"redisson_lock_token:", "rc:{", ":latch", ":barrier"}

func (w *world) result() Result {
	r := Result{Violations: w.violations, Figures: w.figures, Log: w.log, Wire: w.net.wire}
	for _, n := range w.nodes {
		n.m.Close()
	}
	return r
}
