package cells

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/stage"
)

const (
	contended = "lock" // the only one, which all workers of all clients want
	workers   = 3      // of each client
	lookEvery = 5 * time.Millisecond
	// backAgain is how long after a fault all has to work again, and how long a client may take to end.
	backAgain = 15 * time.Second
)

// rivalFaults are the faults of a contest. Those that befall a holder are of their own: who is struck must hold the
// lock. In place of a primary, foreign befalls a server that is not Redis.
var rivalFaults = slices.Concat([]fault{
	named("none"),
	{name: "holder killed", what: "the client that holds the lock is killed (SIGKILL), another takes its place",
		inflict: func(s *scene, rnd *rand.Rand) {
			s.replace(s.holder(rnd))
		}},
	{name: "holder paused", what: "the client that holds the lock is stopped (SIGSTOP) for 1.5 leases and goes on",
		inflict: func(s *scene, rnd *rand.Rand) {
			k := s.places[s.holder(rnd)]
			k.signal(syscall.SIGSTOP)
			time.Sleep(lease * 3 / 2)
			k.signal(syscall.SIGCONT)
		}},
	silenced("requests lost", "nothing that the holder's client sends arrives, for 1.5 leases", redistest.Up),
	silenced("replies lost", "nothing that is sent to the holder's client arrives, for 1.5 leases", redistest.Down),
	silenced("network lost", "both", redistest.Up, redistest.Down),
	{name: "lost reply", what: "a client's connection is cut when the server has run its call and before it answers",
		inflict: func(s *scene, rnd *rand.Rand) {
			s.proxied(rnd, 400*time.Millisecond, func(p *redistest.Proxy) {
				for range 3 {
					p.Trap(&redistest.Trap{Match: writes, Fate: redistest.LoseReply})
				}
			})
		}},
}, some("server paused", "server stalls", "server killed", "restart empty", "FLUSHALL", "clock forward", "clock back",
	"failover",
	"failover that forgets", "split brain"))

// foreign are faults of servers that are not Redis.
var foreign = map[string]func(s *scene){
	"server paused": func(s *scene) {
		s.d.foreign.Pause(s.st)
		time.Sleep(lease * 3 / 2)
		s.d.foreign.Resume(s.st)
	},
	"server stalls": func(s *scene) {
		s.d.foreign.Pause(s.st)
		time.Sleep(600 * time.Millisecond)
		s.d.foreign.Resume(s.st)
	},
	"server killed": func(s *scene) {
		s.d.foreign.Kill(s.st)
		time.Sleep(100 * time.Millisecond)
		s.d.foreign.Revive(s.st)
		time.Sleep(500 * time.Millisecond)
	},
	"FLUSHALL": func(s *scene) {
		s.wipe(func() { s.d.foreign.Wipe(s.st) })
		time.Sleep(500 * time.Millisecond)
	},
}

// ofClients are the faults that befall clients and their network, whatever they connect to.
var ofClients = []string{"none", "holder killed", "holder paused", "requests lost", "replies lost", "network lost"}

func named(name string) fault {
	return faults[slices.IndexFunc(faults, func(f fault) bool { return f.name == name })]
}

func some(names ...string) (list []fault) {
	for _, n := range names {
		list = append(list, named(n))
	}
	return list
}

// writes matches the calls that acquire, renew and release.
func writes(words []string) bool {
	return len(words) > 0 && (words[0] == "SET" || words[0] == "set" || redistest.IsScript(words))
}

func silenced(name, what string, lost ...redistest.Direction) fault {
	return fault{name: name, what: what, inflict: func(s *scene, rnd *rand.Rand) {
		k := s.places[s.holder(rnd)]
		for _, d := range lost {
			for _, p := range k.proxies {
				p.BlackHole(d)
			}
			if k.wire != nil {
				k.wire.BlackHole(d)
			}
		}
		time.Sleep(lease * 3 / 2)
		for _, p := range k.proxies {
			p.Heal()
		}
		if k.wire != nil {
			k.wire.Heal()
		}
	}}
}

// holder is the place of the client that has held the lock for some time and looks at it still, or, if none comes in
// three leases, any.
func (s *scene) holder(rnd *rand.Rand) int {
	for end := time.Now().Add(3 * lease); time.Now().Before(end); time.Sleep(lookEvery) {
		s.mu.Lock()
		last := event{}
		for _, e := range slices.Backward(s.events) {
			if e.Do == "look" || e.Do == "leave" || e.Do == "stop" {
				last = e
				break
			}
		}
		s.mu.Unlock()
		if last.Do != "look" || last.To-last.Return < int64(5*lookEvery) || now()-last.To > int64(5*lookEvery) {
			continue
		}
		if i := slices.IndexFunc(s.places[:], func(p *process) bool { return p.number == last.Client }); i >= 0 {
			return i
		}
	}
	return rnd.IntN(parties)
}

// contend is the main function of a client that uses a library's lock.
func (c *client) contend(ctx context.Context, libraries []Library) error {
	i := slices.IndexFunc(libraries, func(l Library) bool { return l.Name == c.Library })
	if i < 0 {
		return fmt.Errorf("no library %q", c.Library)
	}
	s := Setup{Addrs: c.Addrs, Set: c.Set, Each: c.Each, Through: c.Through, Lease: lease}
	for c.locker == nil {
		if ctx.Err() != nil { // the servers are away until the end
			return nil
		}
		var err error
		if c.locker, err = libraries[i].Open(ctx, s); err != nil {
			rest(ctx, 50*time.Millisecond)
		}
	}
	defer c.locker.Close()
	done := make(chan struct{}, workers)
	for n := range workers {
		rnd := rand.New(rand.NewPCG(c.Seed, uint64(c.Client<<8|n)))
		go func() {
			for ctx.Err() == nil {
				c.hold(ctx, rnd)
				rest(ctx, time.Duration(1+rnd.IntN(20))*time.Millisecond)
			}
			done <- struct{}{}
		}()
	}
	for range workers {
		<-done
	}
	return nil
}

// hold waits for the lock, keeps it for some time, for longer than its lease now and then, and gives it back. As long
// as it holds it, it looks again and again what the library says of it, and writes down when it looked: that is when it
// may have acted as the holder. The instant is from before the look. A client that is stopped in between and finds the
// lock lost when it goes on has not acted in the meantime; one whose library then says that it holds the lock has.
func (c *client) hold(ctx context.Context, rnd *rand.Rand) {
	e := event{Of: contended, Do: "take", ID: c.next(), N: 1, Call: now(), Patience: time.Minute}
	h, err := c.locker.Lock(ctx, c.Prefix+contended)
	e.Return, e.Out = now(), outcome(err)
	e.To = e.Return
	c.say(e)
	if err != nil {
		return
	}
	keep := time.Duration(rnd.IntN(12)) * time.Millisecond
	if rnd.IntN(16) == 0 {
		keep = time.Duration(float64(lease) * (0.3 + 2.2*rnd.Float64()))
	}
	var reported bool
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		at := now()
		if reported = !h.Held(); reported {
			break
		}
		e.To = at
		c.say(event{Of: e.Of, Do: "look", ID: e.ID, Return: e.Return, To: at})
		if at-e.Return > int64(keep) || ctx.Err() != nil {
			break
		}
		select {
		case <-tick.C:
		case <-h.Lost():
		}
	}
	e.Do, e.Call = "leave", now()
	in, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	err = h.Release(in)
	e.Return, e.Out = now(), outcome(err)
	if reported {
		e.Out = "lost"
	}
	c.say(e)
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrBusy):
		return "not_acquired"
	case errors.Is(err, ErrGone):
		return "gone"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "unavailable"
}

// round is a library under one fault.
type round struct {
	Library, Fault, Deployment string
	Seed                       uint64
	Release                    string `json:",omitempty"`
	NotRun                     string `json:",omitempty"` // why
	Injected, Acquired         int
	// Violations are holds of which the library still said that they were held when another worker had got the lock.
	// Longest is for how long it went on saying so, from the first look after that to the last.
	Violations int
	Longest    time.Duration
	Shown      []string `json:",omitempty"` // the first of them, and what porcupine says where there is none
	Undecided  bool     `json:",omitempty"`
	// Reported are losses of which the library let the holder know, Late those that the answer to the release brought,
	// Never those that nothing brought: another client had got the lock, or all keys had been deleted.
	Reported, Late, Never int
	Stall                 time.Duration // the longest time in which it was free though waited for, beyond a lease
	Wait                  time.Duration // the longest
	Again                 time.Duration // from the last fault until it had been acquired three times
	Notes                 []string      `json:",omitempty"`

	evidence map[Kind][]event // of the first of each
}

// compete plays a round.
func (s *scene) compete(ctx context.Context, r *round) {
	s.st, s.ended, s.began = &stage.Stage{}, map[int]int64{}, now()
	s.chosen = []primitive{{name: contended, works: took}}
	defer s.st.Clear()
	var judged span
	if err := s.st.Try(func() { judged = s.perform(ctx, r) }); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Notes = append(r.Notes, s.died...)
	slices.SortStableFunc(s.events, func(a, b event) int { return cmp.Compare(a.at(), b.at()) })
	r.judge(record{events: s.events, ended: s.ended, lease: lease}, judged, s.d.name != five)
}

func (s *scene) perform(ctx context.Context, r *round) (judged span) {
	s.clients()
	s.must(wrapped("before the fault", s.working(0, parties, patience)))
	judged.from = now()
	rest(ctx, s.quiet)
	rnd := rand.New(rand.NewPCG(s.seed, 1))
	for end := time.Now().Add(s.duration); ; {
		if s.f.on == nil {
			s.holder(rnd) // it is held, for some time
		}
		if befall := foreign[s.f.name]; befall != nil && s.d.foreign != nil {
			befall(s)
		} else {
			s.f.inflict(s, rnd)
		}
		r.Injected++
		over := time.Now().After(end)
		if s.f.once {
			over = s.f.on != nil || r.Injected == 3
		}
		if over || ctx.Err() != nil {
			break
		}
		rest(ctx, time.Duration(100+rnd.IntN(300))*time.Millisecond)
	}
	s.mu.Lock()
	healed, from := time.Now(), len(s.events)
	s.mu.Unlock()
	if err := s.working(from, 3, backAgain); err != nil {
		r.Notes = append(r.Notes, "after the fault "+err.Error())
	}
	r.Again = time.Since(healed)
	rest(ctx, s.quiet)
	judged.to = now()
	s.finish(backAgain)
	return judged
}

// judge counts.
func (r *round) judge(h record, judged span, wipes bool) {
	uses, left := h.uses(), map[string]event{}
	r.judgeUses(h, uses)
	if r.Violations == 0 {
		switch err := linear(h); {
		case errors.Is(err, history.ErrUndecided):
			r.Undecided = true
		case err != nil:
			r.Shown = append(r.Shown, fmt.Sprintf("no lock can have this history: %v", err))
		}
	}
	for _, e := range h.all("leave") {
		left[e.ID] = e
	}
	for _, e := range h.all("take") {
		r.Wait = max(r.Wait, time.Duration(min(e.Return, judged.to)-e.Call))
		if e.Out != "ok" {
			continue
		}
		r.Acquired++
		l, ok := left[e.ID]
		if !ok || l.Call > judged.to { // killed, or ended with its client
			continue
		}
		gone := wipes && slices.ContainsFunc(h.all("wiped"), func(w event) bool {
			return w.Call > e.Return && w.Return < l.Call
		})
		r.judgeLoss(h, uses, e, l, gone)
	}
	free := h.unheld(judged)
	if r.Stall = max(0, time.Duration(free.to-free.from)-h.lease); r.Stall > noticeable {
		r.show(Stalls, h.near(free))
	}
}

// judgeLoss counts the loss of what e acquired and l left, if there was one. gone: the server was emptied meanwhile.
func (r *round) judgeLoss(h record, uses []use, e, l event, gone bool) {
	all := []string{e.ID}
	got := slices.IndexFunc(uses, func(u use) bool { return u.id != e.ID && u.from > e.Return && u.from < l.Call })
	if got >= 0 {
		all = append(all, uses[got].id)
	}
	switch {
	case l.Out == "lost":
		r.Reported++
	case l.Out == "gone":
		r.Late++
	case got >= 0 || gone:
		r.Never++
	default:
		return
	}
	r.show(AnyLoss, h.of(all...))
	if l.Out != "lost" {
		r.show(Unreported, h.of(all...))
	}
}

// judgeUses counts the uses that overlap.
func (r *round) judgeUses(h record, uses []use) {
	looks := map[string][]int64{}
	for _, e := range h.all("look") {
		looks[e.ID] = append(looks[e.ID], e.To)
	}
	for i, u := range uses {
		j := slices.IndexFunc(uses[i+1:], func(o use) bool { return o.from > u.from && o.from < u.to })
		if j < 0 {
			continue
		}
		o, first := uses[i+1+j], u.to
		for _, at := range looks[u.id] {
			if at > o.from {
				first = min(first, at)
			}
		}
		r.Violations++
		r.show(TwoHolders, h.of(u.id, o.id))
		r.Longest = max(r.Longest, time.Duration(u.to-first))
		if len(r.Shown) < 5 {
			r.Shown = append(r.Shown,
				fmt.Sprintf("%s of client %d got it %s after %s of client %d, which held it still at %s, and at %s for the "+
					"last time",
					o.id, o.client, ms(o.from-u.from), u.id, u.client, ms(first-u.from), ms(u.to-u.from)))
		}
	}
}

// show keeps what shows something, once.
func (r *round) show(k Kind, events []event) {
	if r.evidence == nil {
		r.evidence = map[Kind][]event{}
	}
	if r.evidence[k] == nil {
		r.evidence[k] = events
	}
}

// near are the last hold before a time in which no worker had the lock, a wait for it, and the first hold after it.
func (h record) near(free span) (list []event) {
	before, after, wait := use{}, use{}, event{}
	for _, u := range h.uses() {
		if u.from < free.from {
			before = u
		} else if after.id == "" && u.from >= free.to {
			after = u
		}
	}
	for _, e := range h.all("take") {
		if e.Call < free.to && e.Return > free.from && e.Return-e.Call > wait.Return-wait.Call {
			wait = e
		}
	}
	return h.of(before.id, wait.ID, after.id)
}

// unheld is the longest time in which no worker had the lock, as the holders were answered, while one waited for it.
func (h record) unheld(in span) (most span) {
	type edge struct {
		at         int64
		held, wait int
	}
	released := map[string]int64{}
	for _, e := range h.all("leave") {
		if e.Out == "ok" {
			released[e.ID] = e.Call
		}
	}
	var edges []edge
	add := func(from, to int64, held, wait int) {
		if from, to = max(from, in.from), min(to, in.to); from < to {
			edges = append(edges, edge{from, held, wait}, edge{to, -held, -wait})
		}
	}
	for _, u := range h.uses() {
		add(u.from, max(u.to, released[u.id]), 1, 0)
	}
	for _, e := range h.all("take") {
		add(e.Call, e.Return, 0, 1)
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	held, wait, free := 0, 0, int64(-1)
	for i, e := range edges {
		held, wait = held+e.held, wait+e.wait
		if i+1 < len(edges) && edges[i+1].at == e.at {
			continue
		}
		idle := held == 0 && wait > 0
		switch {
		case idle && free < 0:
			free = e.at
		case !idle && free >= 0:
			if e.at-free > most.to-most.from {
				most = span{free, e.at}
			}
			free = -1
		}
	}
	return most
}

// of is what was noted of some holds, of the looks the last only.
func (h record) of(ids ...string) (list []event) {
	for _, e := range h.events {
		if slices.Contains(ids, e.ID) && (e.Do != "look" || e.To == h.last(e.ID)) {
			list = append(list, e)
		}
	}
	return list
}

// last is when a holder looked for the last time.
func (h record) last(id string) (at int64) {
	for _, e := range h.all("look") {
		if e.ID == id {
			at = max(at, e.To)
		}
	}
	return at
}

// at is when an event was noted.
func (e event) at() int64 { return max(e.Call, e.Return, e.To) }
