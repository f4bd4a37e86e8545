package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/longrun"
)

// A soak is steady work of every primitive for hours, in pieces, while one fault after the other strikes. In each piece
// the promises must hold, and the memory, goroutines, connections and keys must not grow.

const (
	longestPiece = 20 * time.Minute
	warmUp       = 90 * time.Second // until closed orders, which are remembered for a minute, are as many as later
	shortGrowth  = 5 * time.Minute  // a shorter piece shows no growth
	overlap      = int64(10 * time.Second)
)

// piece is a part of a soak: its clients and servers are its own.
type piece struct {
	Deployment string
	Seed       uint64
	Length     time.Duration
	Faults     int
	Grants     int // of locks and permits
	Undecided  int // histories that porcupine did not decide in time
	Series     []*series
	Failed     []string `json:",omitempty"`
}

// series is one measure over the time of a piece, from the end of its warm-up on.
type series struct {
	Name, Unit string
	Values     []float64
}

// thirds are the medians of each third.
func (x *series) thirds() (list [3]float64) {
	n := len(x.Values)
	for i := range list {
		if part := slices.Sorted(slices.Values(x.Values[i*n/3 : (i+1)*n/3])); len(part) > 0 {
			list[i] = part[len(part)/2]
		}
	}
	return list
}

func (p piece) summary() string {
	if len(p.Failed) > 0 {
		return "FAILED: " + strings.Join(p.Failed, "; ")
	}
	return fmt.Sprintf("%d grants under %d faults", p.Grants, p.Faults)
}

// sampled is how a client says what it uses.
const sampled = "sample"

// sample says what this process uses, again and again.
func (c *client) sample(ctx context.Context) {
	for ctx.Err() == nil {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		c.say(event{Of: sampled, Do: sampled, N: int64(m.HeapAlloc), V: int64(runtime.NumGoroutine())})
		rest(ctx, time.Second)
	}
}

// pieces is how many pieces of at most longestPiece a soak has, as many on each deployment.
func pieces(length time.Duration, deployments int) int {
	round := longestPiece * time.Duration(deployments)
	return deployments * int((length+round-1)/round)
}

// soak adds pieces of that length together to the results.
func (p plan) soak(ctx context.Context, length time.Duration, run *longrun.Run[piece], out io.Writer) error {
	before, err := run.Each(ctx, nil, nil, nil)
	if err != nil {
		return err
	}
	n := pieces(length, len(p.deployments))
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf("piece %03d, %s", len(before)+i+1, p.deployments[i%len(p.deployments)]))
	}
	all, err := run.Each(ctx, items, piece.summary, func(ctx context.Context, item string) (piece, error) {
		i := slices.Index(items, item)
		return p.piece(ctx, p.deployments[i%len(p.deployments)], length/time.Duration(n), uint64(len(before)+i), run.Progress)
	})
	if err != nil {
		return err
	}
	failed := 0
	fmt.Fprint(out, "| piece | minutes | grants | faults | measure | first third | second | last |\n"+
		"|---|--:|--:|--:|---|--:|--:|--:|\n")
	for _, item := range items {
		x := all[item]
		for _, m := range x.Series {
			third := m.thirds()
			fmt.Fprintf(out, "| %s | %.0f | %d | %d | %s, %s | %.1f | %.1f | %.1f |\n", item, x.Length.Minutes(), x.Grants,
				x.Faults, m.Name, m.Unit, third[0], third[1], third[2])
		}
		if len(x.Failed) > 0 {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d pieces failed; their histories are in %s", failed, n, p.failures)
	}
	return nil
}

// piece plays one piece.
func (p plan) piece(ctx context.Context, on string, length time.Duration, number uint64, progress io.Writer,
) (x piece, err error) {
	d, err := setUp(on, false)
	if err != nil {
		return x, err
	}
	defer d.st.Clear()
	// No replica takes over: what a failover loses is in the cells, and a busy machine stands still for a second.
	for _, n := range d.nodes {
		_, _ = n.TryAsk(d.st, "CONFIG", "SET", "cluster-node-timeout", "60000")
	}
	s := &scene{plan: p, d: d, st: &redistest.Stage{}, prefix: "soak:", long: true, seed: p.seed + number,
		ended: map[int]int64{}, isOld: map[int]bool{}, began: now()}
	defer s.st.Clear()
	s.chosen = p.on(on)
	x = piece{Deployment: on, Seed: s.seed, Length: length}
	if err := s.st.Try(func() { s.steady(ctx, &x, progress) }); err != nil {
		return x, err
	}
	return x, p.keep(s, cell{Deployment: on, Fault: fmt.Sprintf("soak %d", number+1), Failed: x.Failed})
}

// lasting are the faults of a soak: none takes anything from anybody for good, so every promise stands. A rolling
// deploy would replace the clients that are measured.
func (s *scene) lasting() (list []fault) {
	for _, f := range faults {
		applies, _ := f.appliesTo(s.d.name, "")
		if applies && f.keys == kept && !f.once && !f.wires && !f.clock && f.name != "none" && f.name != deployed &&
			f.lacks(s.d) == "" {
			list = append(list, f)
		}
	}
	return list
}

// strike has faults befall the clients, one after the other, until ctx ends.
func (s *scene) strike(ctx context.Context, count *int) error {
	rnd := rand.New(rand.NewPCG(s.seed, 2))
	return s.st.Try(func() {
		for list := s.lasting(); ctx.Err() == nil; *count++ {
			switch f := list[rnd.IntN(len(list))]; f.name {
			case "client killed": // the others are measured from the beginning to the end
				s.replace(parties - 1)
			default:
				f.inflict(s, rnd)
			}
			rest(ctx, 3*time.Second)
		}
	})
}

// steady has the clients work for the length of the piece, and looks at everybody about a hundred times.
func (s *scene) steady(ctx context.Context, x *piece, progress io.Writer) {
	own := s.stage(ctx)
	for i, name := range []string{"grants", "heap of a client", "goroutines of a client", "connections of a server",
		"memory of a server", "keys of a server"} {
		x.Series = append(x.Series, &series{Name: name,
			Unit: []string{"a second", "MiB", "number", "number", "MiB", "number"}[i]})
	}
	faulty, stop := context.WithCancel(ctx)
	defer stop()
	broke := make(chan error, 1)
	go func() { broke <- s.strike(faulty, &x.Faults) }()
	reigns, began, looked := s.d.reigns(), time.Now(), time.Now()
	for len(x.Failed) == 0 && time.Since(began) < x.Length {
		rest(ctx, max(x.Length/100, 2*time.Second))
		s.must(ctx.Err())
		values := s.look(x, time.Since(looked))
		looked = time.Now()
		for i, v := range values { // a server that stands still has no figures
			if time.Since(began) > min(warmUp, x.Length/4) && (i == 0 || v > 0) {
				x.Series[i].Values = append(x.Series[i].Values, v)
			}
		}
		s.judgeRecent(x, now()-overlap)
		fmt.Fprintf(progress, "\r%v of %v ", time.Since(began).Round(time.Second), x.Length)
	}
	fmt.Fprintln(progress)
	stop()
	s.must(<-broke)
	s.finish(patience)
	s.must(s.d.healthy(patience))
	if s.d.reigns() != reigns {
		s.must(errors.New("a replica took over, because the machine stood still; run the same command again"))
	}
	finals, endless := s.finals(ctx, own[0]), s.endless()
	s.judgeRecent(x, now())
	x.Failed = append(x.Failed, s.died...)
	for _, key := range endless {
		x.Failed = append(x.Failed, "a key has no end: "+key)
	}
	for _, p := range s.chosen {
		if p.isWhole() {
			x.judge(s, p, record{events: p.events(s.events), ended: s.ended, final: finals[p.name], lease: lease})
		}
	}
	if len(x.Failed) == 0 { // and so it was not broken off
		x.Failed = x.grown()
	}
}

// grown says what grew from the second third to the last, by the least values of each: a busy machine has more calls
// under way, and so more goroutines, but what leaks stays. Clients that reconnect have a few connections more.
func (p *piece) grown() (list []string) {
	for _, m := range p.Series[1:] {
		n := len(m.Values)
		if p.Length < shortGrowth || n < 3 {
			continue
		}
		before, last := slices.Min(m.Values[n/3:2*n/3]), slices.Min(m.Values[2*n/3:])
		most := 1.1 * before
		if m.Unit == "number" {
			most += 20
		}
		if last > most {
			list = append(list, fmt.Sprintf("%s grew from %.1f to %.1f, %s", m.Name, before, last, m.Unit))
		}
	}
	return list
}

// isWhole reports that a primitive is judged by what the server says in the end, so all of its events are kept. Of the
// others, the events of the last seconds are enough.
func (p primitive) isWhole() bool { return p.final != nil && p.name != "counting" }

// judgeRecent judges the answers since the last look, and some before, and forgets what is older. Answers after until
// wait for the next look: an event of another client that belongs to them may still be in a pipe.
func (s *scene) judgeRecent(x *piece, until int64) {
	whole := map[string]bool{}
	for _, p := range s.chosen {
		whole[p.name] = p.isWhole()
	}
	s.mu.Lock()
	recent, ended, since := slices.Clone(s.events), maps.Clone(s.ended), s.judgedUntil-overlap
	s.judgedUntil = until
	s.mu.Unlock()
	for _, p := range s.chosen {
		if p.isWhole() {
			continue
		}
		x.judge(s, p, record{ended: ended, lease: lease, events: slices.DeleteFunc(slices.Clone(recent),
			func(e event) bool {
				answer := e.Do == "take" || e.Do == "pass" || e.Do == "look"
				return e.Of != p.name || answer && (e.Return <= since || e.Return > until)
			})})
	}
	if len(x.Failed) > 0 {
		return // the history shows why
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = slices.DeleteFunc(s.events, func(e event) bool { return !whole[e.Of] && e.Call < until-2*overlap })
}

func (p *piece) judge(s *scene, of primitive, h record) {
	r := s.judged(of, h)
	if r.Undecided {
		p.Undecided++
	}
	for _, wrong := range r.Wrong {
		p.Failed = append(p.Failed, of.name+": "+wrong)
	}
}

// look is what was granted in the time since the last look, and what is used now. The last client may have been
// replaced, so the others are measured.
func (s *scene) look(x *piece, since time.Duration) []float64 {
	var heap, routines, samples float64
	s.mu.Lock()
	granted := s.granted - x.Grants
	x.Grants = s.granted
	for _, e := range s.events {
		if e.Do == sampled && e.Client < parties {
			heap, routines, samples = heap+float64(e.N)/(1<<20), routines+float64(e.V), samples+1
		}
	}
	s.events = slices.DeleteFunc(s.events, func(e event) bool { return e.Do == sampled })
	s.mu.Unlock()
	list := s.d.primaries()
	var connections, memory, keys float64
	for _, n := range list {
		connections += figure(s, n, "clients", "connected_clients:")
		// The backlog grows to its bound, and is none of the clients'.
		memory += (figure(s, n, "memory", "used_memory:") - figure(s, n, "memory", "mem_replication_backlog:")) / (1 << 20)
		size, _ := n.TryAsk(s.st, "DBSIZE")
		v, _ := strconv.ParseFloat(size, 64)
		keys += v
	}
	of, servers := max(samples, 1), max(float64(len(list)), 1)
	return []float64{float64(granted) / since.Seconds(), heap / of, routines / of, connections / servers, memory / servers,
		keys / servers}
}

func figure(s *scene, n *redistest.Server, section, field string) float64 {
	info, _ := n.TryAsk(s.st, "INFO", section)
	_, text, _ := strings.Cut(info, "\n"+field)
	text, _, _ = strings.Cut(text, "\r")
	v, _ := strconv.ParseFloat(text, 64)
	return v
}
