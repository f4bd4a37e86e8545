package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

const (
	parties  = 3               // clients that work at the same time
	patience = 2 * time.Minute // for what takes a healthy machine a second
)

// cell is one fault on one deployment.
type cell struct {
	Deployment, Fault string
	Seed              uint64
	NotRun            string `json:",omitempty"` // why
	// a replica took over unasked: the machine stood still for a second
	Stalled   bool `json:",omitempty"`
	Took      time.Duration
	Injected  int
	Recovered time.Duration // from the last fault until every primitive worked again
	Rows      []row
	Failed    []string `json:",omitempty"`
}

// row is one primitive in a cell.
type row struct {
	Primitive string
	Promised  string
	Answers   int
	Worst     time.Duration
	Idle      time.Duration // the longest time without a holder, or between two answers
	ToNew     int           `json:",omitempty"` // answers to a client of this version after one to a client of the old
	ToOld     int           `json:",omitempty"`
	Undecided bool          `json:",omitempty"` // porcupine took too long
	Excused   []string      `json:",omitempty"` // wrong, and not promised otherwise
	Wrong     []string      `json:",omitempty"`
}

// scene is a cell that is being played.
type scene struct {
	plan
	d      *deployment
	f      fault
	st     *redistest.Stage // for this cell
	long   bool             // a soak
	prefix string
	seed   uint64
	began  int64
	struck []*redistest.Server

	places  [parties]*process
	proxies [parties]map[string]*redistest.Proxy

	mu      sync.Mutex
	last    int // number of the last process
	events  []event
	granted int // of a soak
	ended   map[int]int64
	isOld   map[int]bool // which processes are of the old version
	died    []string

	judgedUntil int64 // of a soak
}

// process is one client.
type process struct {
	number  int
	old     bool // of the old version
	cmd     *exec.Cmd
	in      io.WriteCloser
	heard   chan struct{} // closed when all it said has been heard
	proxies map[string]*redistest.Proxy
	said    *strings.Builder // errors
}

// signal signals the process and all that it has started.
func (p *process) signal(sig syscall.Signal) { syscall.Kill(-p.cmd.Process.Pid, sig) }

// anyone is one of the clients.
func (s *scene) anyone(rnd *rand.Rand) *process { return s.places[rnd.IntN(parties)] }

// start has a new process work in a place. It is of the old version, if there is one and old is set.
func (s *scene) start(place int, old bool) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if old = old && s.oldProgram != ""; old {
		program = s.oldProgram
	}
	s.mu.Lock()
	s.last++
	p := &process{number: s.last, old: old, cmd: exec.Command(program), heard: make(chan struct{}),
		said: &strings.Builder{}}
	p.proxies = s.proxies[place]
	s.isOld[p.number] = old
	s.mu.Unlock()
	p.cmd.Env = append(plain(), roleEnv+"=client")
	p.cmd.Stderr = p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	s.st.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.signal(syscall.SIGKILL)
			p.cmd.Wait()
		}
	})
	go s.hear(p, out)
	o := s.d.entry
	o.Client, o.Place, o.Places, o.Prefix, o.Seed, o.Began, o.Break = p.number, place, parties, s.prefix, s.seed, s.began,
		s.broken
	o.Soak = s.long
	o.Through = map[string]string{}
	for addr, through := range p.proxies {
		o.Through[addr] = through.Addr()
	}
	for _, x := range s.chosen {
		o.Primitives = append(o.Primitives, x.name)
	}
	if s.f.wait {
		o.MinReplicas = 1
	}
	o.Safe = s.f.safe
	s.places[place] = p
	return json.NewEncoder(p.in).Encode(o)
}

// hear notes what a client says, until its end.
func (s *scene) hear(p *process, out io.Reader) {
	defer close(p.heard)
	for d := json.NewDecoder(bufio.NewReader(out)); ; {
		var e event
		if d.Decode(&e) != nil {
			return
		}
		s.note(e)
	}
}

// note adds what the program itself has seen.
func (s *scene) note(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	if took(e) {
		s.granted++
	}
}

// kill kills a client, and returns when all it said has been heard.
func (s *scene) kill(p *process) {
	p.signal(syscall.SIGKILL)
	<-p.heard // first: Wait closes the pipe, with what was not read yet
	p.cmd.Wait()
	s.mu.Lock()
	s.ended[p.number] = now()
	s.mu.Unlock()
}

// replace kills a client and starts another, of the other version.
func (s *scene) replace(place int) {
	s.kill(s.places[place])
	if err := s.start(place, !s.places[place].old); err != nil {
		s.st.Fatalf("start a client: %v", err)
	}
	time.Sleep(300 * time.Millisecond)
}

// deploy has the clients end in good order, one after the other, and one of the other version take each place. Each
// client waits until every primitive has worked once since the client before it began.
func (s *scene) deploy() {
	for place := range parties {
		p := s.places[place]
		p.in.Close()
		s.end(p, patience)
		s.mu.Lock()
		from := len(s.events)
		s.mu.Unlock()
		s.must(s.start(place, !p.old))
		s.must(wrapped("in the deploy", s.working(from, 1, patience)))
	}
}

// finish has every client end in good order.
func (s *scene) finish(limit time.Duration) {
	for _, p := range s.places {
		p.in.Close()
	}
	for _, p := range s.places {
		s.end(p, limit)
	}
}

// end returns when a client has ended whose input is closed.
func (s *scene) end(p *process, limit time.Duration) {
	late := time.AfterFunc(limit, func() { p.signal(syscall.SIGKILL) })
	<-p.heard
	err := p.cmd.Wait()
	if !late.Stop() {
		s.died = append(s.died, fmt.Sprintf("client %d did not end", p.number))
	} else if err != nil {
		s.died = append(s.died, fmt.Sprintf("client %d: %v: %.2000s", p.number, err, p.said))
	}
}

// working waits until each primitive has worked so often since the event of number from, in clients of each version
// that is there.
func (s *scene) working(from, often int, limit time.Duration) error {
	type worker struct {
		primitive string
		old       bool
	}
	n, versions := map[worker]int{}, map[bool]bool{}
	for _, p := range s.places {
		versions[p.old] = true
	}
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		for ; from < len(s.events); from++ {
			e := s.events[from]
			if i := slices.IndexFunc(s.chosen, func(p primitive) bool {
				return p.name == e.Of
			}); i >= 0 && s.chosen[i].works(e) {
				n[worker{e.Of, s.isOld[e.Client]}]++
			}
		}
		s.mu.Unlock()
		var missing []string
		for _, p := range s.chosen {
			for old := range versions {
				if n[worker{p.name, old}] < often {
					missing = append(missing, p.name+map[bool]string{true: " in an old client"}[old])
				}
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("in %v not %d times: %s", limit, often, strings.Join(missing, ", "))
		}
	}
}

// play plays the cell.
func (s *scene) play(ctx context.Context) (c cell) {
	c = cell{Deployment: s.d.name, Fault: s.f.name, Seed: s.seed}
	s.st, s.ended, s.isOld, s.began = &redistest.Stage{}, map[int]int64{}, map[int]bool{}, now()
	defer s.st.Clear()
	start := time.Now()
	var finals map[string]map[string]int64
	var endless []string
	failed := s.st.Try(func() { finals, endless = s.act(ctx, &c) })
	c.Took = time.Since(start)
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed != nil {
		c.Failed = append(c.Failed, failed.Error())
	}
	c.Failed = append(c.Failed, s.died...)
	for _, key := range endless {
		if strings.Contains(key, "counting-") && promised(s.f, s.d.name, "counting") == wrongly {
			continue // a Release makes a count that is gone anew, as Redisson's does, and so without an end
		}
		c.Failed = append(c.Failed, "a key has no end: "+key)
	}
	for _, p := range s.chosen {
		h := record{events: p.events(s.events), ended: s.ended, final: finals[p.name], lease: lease}
		r := s.judged(p, h)
		r.compare(p, h, s.isOld)
		if len(r.Wrong) > 0 {
			c.Failed = append(c.Failed, p.name+": "+r.Wrong[0])
		}
		c.Rows = append(c.Rows, r)
	}
	return c
}

// events returns the events of the primitive among all.
func (p primitive) events(all []event) []event {
	return slices.DeleteFunc(slices.Clone(all), func(e event) bool { return e.Of != p.name })
}

// judged judges h, the record of a primitive.
func (s *scene) judged(p primitive, h record) row {
	r := row{Primitive: p.name, Promised: promised(s.f, s.d.name, p.name)}
	for _, e := range h.events {
		if p.works(e) {
			r.Answers++
		}
		if e.Call > 0 && e.Out == "ok" && e.Do != "leave" {
			r.Worst = max(r.Worst, time.Duration(e.Return-e.Call))
		}
	}
	var v verdict
	p.judge(h, &v)
	r.Undecided = v.Undecided
	switch {
	case r.Promised == survives || r.Promised == refuses:
		r.Wrong = append(r.Wrong, v.Wrong...)
	case r.Promised == token && v.Longest > lease && s.f.keys == lost:
		r.Wrong = append(r.Wrong, fmt.Sprintf("two held for %v, longer than a lease: neither learned of it", v.Longest))
	default:
		r.Excused = v.Wrong
	}
	r.Wrong = append(r.Wrong, v.Unguarded...)
	return r
}

// compare measures the idle time, and counts how often one version followed the other.
func (r *row) compare(p primitive, h record, isOld map[int]bool) {
	answers := slices.DeleteFunc(slices.Clone(h.events), func(e event) bool { return !p.works(e) })
	slices.SortFunc(answers, func(a, b event) int { return cmp.Compare(a.Return, b.Return) })
	r.Idle = h.idle(answers)
	for i := 1; i < len(answers); i++ {
		switch before, after := isOld[answers[i-1].Client], isOld[answers[i].Client]; {
		case before && !after:
			r.ToNew++
		case !before && after:
			r.ToOld++
		}
	}
}

// stage opens what is opened once, and starts the clients. It returns a client of the program's own.
func (s *scene) stage(ctx context.Context) []*redlatch.Client {
	in, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	own, err := s.d.open(in, s.prefix)
	s.st.Cleanup(func() { disconnect(own) })
	s.must(err)
	for _, p := range s.chosen {
		if p.setUp != nil {
			s.must(p.setUp(in, own[0]))
		}
	}
	s.clients()
	s.must(wrapped("before the fault", s.working(0, 1, patience)))
	return own
}

// clients starts the clients behind their proxies.
func (s *scene) clients() {
	if s.f.safe {
		for _, n := range s.d.nodes {
			s.ask(n, "CONFIG", "SET", "min-replicas-to-write", "1")
		}
	}
	for place := range parties {
		s.proxies[place] = map[string]*redistest.Proxy{}
		for _, n := range s.d.nodes {
			p := redistest.NewProxy(s.st, n)
			s.proxies[place][n.Addr()], s.proxies[place][s.d.seenAs(n)] = p, p
		}
		if s.f.wires && s.d.name == sentinel {
			for _, a := range s.d.entry.Addrs {
				s.proxies[place][a] = redistest.NewProxy(s.st, &redistest.Server{Addrs: []string{a}})
			}
		}
		s.must(s.start(place, s.f.name == deployed || (uint64(place)+s.seed)%2 == 0))
	}
}

// act starts the clients, lets the fault befall them, and looks at what is left.
func (s *scene) act(ctx context.Context, c *cell) (map[string]map[string]int64, []string) {
	reigns := s.d.reigns()
	own := s.stage(ctx)
	in, cancel := context.WithTimeout(ctx, 10*patience)
	defer cancel()

	rest(ctx, s.quiet)
	rnd := rand.New(rand.NewPCG(s.seed, 1))
	for end := time.Now().Add(s.duration); ; {
		s.f.inflict(s, rnd)
		c.Injected++
		if s.f.once || ctx.Err() != nil || time.Now().After(end) {
			break
		}
		rest(ctx, time.Duration(100+rnd.IntN(300))*time.Millisecond)
	}
	s.mu.Lock()
	healed, from := time.Now(), len(s.events)
	s.mu.Unlock()
	s.must(wrapped("after the fault", s.working(from, 3, patience)))
	c.Recovered = time.Since(healed)
	s.must(ctx.Err())
	s.finish(patience)
	s.must(s.d.healthy(patience))
	if (s.f.keys == kept || s.f.keys == repeated) && s.d.reigns() != reigns {
		s.f.keys, c.Stalled = older, true
	}

	return s.finals(in, own[0]), s.endless()
}

// finals are what the servers say of the primitives in the end.
func (s *scene) finals(ctx context.Context, own *redlatch.Client) map[string]map[string]int64 {
	finals := map[string]map[string]int64{}
	for _, p := range s.chosen {
		if p.final == nil || s.long && !p.isWhole() {
			continue
		}
		var f map[string]int64
		var err error
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			if f, err = p.final(ctx, own, s.note); err == nil || errors.Is(err, errGone) || time.Now().After(end) {
				break
			}
		}
		if errors.Is(err, errGone) && promised(s.f, s.d.name, p.name) != survives {
			continue
		}
		s.must(wrapped(p.name, err))
		finals[p.name] = f
	}
	return finals
}

const endlessScript = `local list = {}
for _, k in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', k) == -1 then list[#list + 1] = k end
end
return table.concat(list, '\n')`

// endless are the keys that have no expiry.
func (s *scene) endless() (list []string) {
	for _, n := range s.d.primaries() {
		keys, err := n.TryAsk(s.st, "EVAL", endlessScript, "0")
		if err == nil && keys != "" {
			list = append(list, strings.Split(keys, "\n")...)
		}
	}
	return list
}

func (s *scene) must(err error) {
	if err != nil {
		s.st.Fatalf("%v", err)
	}
}

func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
