package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// A soak is steady work for a long time, with something going wrong now and then. What the processes and the servers
// use must not grow.

// background are the faults of a soak: none takes anything from anybody for good.
var background = []string{"client paused", "server stalls", "delay", "lost reply", "lost request", "reset",
	"lost messages", "SCRIPT FLUSH", "CLIENT KILL"}

// series is one measure over the time of a soak.
type series struct {
	name, unit string
	values     []float64
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

// soak runs for that long. The error says what has grown.
func (p plan) soak(ctx context.Context, length time.Duration, out, progress io.Writer) error {
	d, err := setUp(p.deployments[0], false)
	if err != nil {
		return err
	}
	defer d.st.Clear()
	s := &scene{plan: p, d: d, st: &stage{}, prefix: "soak:", long: true, seed: p.seed, ended: map[int]int64{},
		began: now()}
	defer s.st.Clear()
	s.chosen = p.on(d.name)
	var all []*series
	err = s.st.Try(func() { all = s.steady(ctx, length, progress) })
	if err != nil {
		return err
	}
	var grown []string
	fmt.Fprintf(out, "%-26s %12s %12s %12s\n", "", "first third", "second", "last")
	for _, x := range all {
		n := len(x.values) / 3
		a, b, c := median(x.values[:n]), median(x.values[n:2*n]), median(x.values[2*n:])
		fmt.Fprintf(out, "%-26s %12.1f %12.1f %12.1f\n", x.name+", "+x.unit, a, b, c)
		if c > 1.5*a {
			grown = append(grown, x.name)
		}
	}
	if grown != nil {
		return fmt.Errorf("grown by more than half: %s", strings.Join(grown, ", "))
	}
	return nil
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// steady has the clients work, and looks at everybody about a hundred times.
func (s *scene) steady(ctx context.Context, length time.Duration, progress io.Writer) []*series {
	s.stage(ctx)
	all := []*series{
		{name: "heap of a client", unit: "MiB"}, {name: "goroutines of a client", unit: "number"},
		{name: "connections of a server", unit: "number"}, {name: "memory of a server", unit: "MiB"},
		{name: "keys of a server", unit: "number"},
	}
	rnd := rand.New(rand.NewPCG(s.seed, 2))
	faulty, stop := context.WithCancel(ctx)
	broke := make(chan error, 1)
	go func() {
		broke <- s.st.Try(func() {
			for faulty.Err() == nil {
				rest(faulty, 3*time.Second)
				name := background[rnd.IntN(len(background))]
				f := faults[slices.IndexFunc(faults, func(f fault) bool { return f.name == name })]
				f.inflict(s, rnd)
			}
		})
	}()
	every := max(length/100, time.Second)
	rest(ctx, 30*time.Second) // until what is remembered for a while is there
	s.drain()
	for begin := time.Now(); time.Since(begin) < length && ctx.Err() == nil; {
		rest(ctx, every)
		for i, v := range s.look() {
			all[i].values = append(all[i].values, v)
		}
		fmt.Fprintf(progress, "\r%v of %v ", time.Since(begin).Round(time.Second), length)
	}
	fmt.Fprintln(progress)
	stop()
	s.must(<-broke)
	s.finish(patience)
	s.must(ctx.Err())
	if len(s.died) > 0 {
		s.must(errors.New(strings.Join(s.died, "; ")))
	}
	return all
}

// drain takes what was said.
func (s *scene) drain() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.events
	s.events = nil
	return list
}

// look is what is used now.
func (s *scene) look() []float64 {
	var heap, routines, samples float64
	for _, e := range s.drain() {
		if e.Do == sampled {
			heap, routines, samples = heap+float64(e.N)/(1<<20), routines+float64(e.V), samples+1
		}
	}
	list := s.d.primaries()
	var connections, memory, keys float64
	for _, n := range list {
		connections += figure(s, n, "clients", "connected_clients:")
		memory += figure(s, n, "memory", "used_memory:") / (1 << 20)
		size, _ := n.TryAsk(s.st, "DBSIZE")
		v, _ := strconv.ParseFloat(size, 64)
		keys += v
	}
	of, servers := max(samples, 1), max(float64(len(list)), 1)
	return []float64{heap / of, routines / of, connections / servers, memory / servers, keys / servers}
}

func figure(s *scene, n *redistest.Server, section, field string) float64 {
	info, _ := n.TryAsk(s.st, "INFO", section)
	_, text, _ := strings.Cut(info, "\n"+field)
	text, _, _ = strings.Cut(text, "\r")
	v, _ := strconv.ParseFloat(text, 64)
	return v
}
