package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/bench/internal/processes"
	"github.com/redlatch/redlatch/internal/redistest"
)

// patience is how long an answer may take.
const patience = 90 * time.Second

// scene is a server, or those of a Quorum, and a herd that is connected to it.
type scene struct {
	cfg    config
	herd   *processes.Group[order, answer]
	server string // as the herd reaches it; of several, with commas
	redis  []rueidis.Client
	close  []func()
}

// usage is that of all servers together.
func (s *scene) usage(ctx context.Context) (sum load.Usage, err error) {
	for _, c := range s.redis {
		u, err := load.ServerUsage(ctx, c)
		if err != nil {
			return sum, err
		}
		sum = sum.Plus(u)
	}
	return sum, nil
}

func (s *scene) end() {
	for _, f := range slices.Backward(s.close) {
		f()
	}
}

// measure makes one row.
func (cfg config) measure(name string, n int) (r row, err error) {
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
	s, err := cfg.set(k, n)
	defer s.end()
	if err != nil {
		return r, err
	}
	r = row{kind: name, processes: n}
	if k.part != nil {
		return r, s.contend(&r)
	}
	return r, s.wake(k, &r)
}

// launch starts a server.
func (s *scene) launch() error {
	server, stop, err := redistest.Launch(func(host, port, dir string) []string {
		return []string{"--port", port, "--bind", host, "--dir", dir, "--save", "", "--appendonly", "no", "--logfile",
			filepath.Join(dir, "log")}
	})
	if err != nil {
		return err
	}
	s.close = append(s.close, stop)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: server.Addrs, ForceSingleClient: true,
		DisableCache: true, PipelineMultiplex: -1})
	if err != nil {
		return err
	}
	s.redis = append(s.redis, c)
	s.close = append(s.close, c.Close)
	through := server.Addr()
	if s.cfg.delay > 0 {
		if through, stop, err = load.Delay(through, s.cfg.delay); err != nil {
			return err
		}
		s.close = append(s.close, stop)
	}
	s.server = strings.TrimPrefix(s.server+","+through, ",")
	return nil
}

// set starts the servers and the processes, and has them connect.
func (cfg config) set(k kind, n int) (s *scene, err error) {
	s = &scene{cfg: cfg}
	for range max(k.servers, 1) {
		if err := s.launch(); err != nil {
			return s, err
		}
	}
	if k.servers > 1 {
		time.Sleep(votingLease + 2*time.Second) // a server counts whole seconds
	}
	if s.herd, err = processes.Start[order, answer](n, patience, roleEnv+"=waiter", "GOMAXPROCS=1",
		"GOGC=400"); err != nil {
		return s, err
	}
	s.close = append(s.close, s.herd.Stop)
	if err := s.herd.Send(func(i int) order { return s.order(k, n, i) }); err != nil {
		return s, err
	}
	_, err = s.herd.Receive()
	return s, err
}

func (s *scene) order(k kind, n, i int) order {
	return order{Do: "open", Kind: k.name, Server: s.server, Index: i, Processes: n, Waiters: s.cfg.waiters,
		Permits: s.cfg.permits, Hold: s.cfg.hold}
}

// contend has all processes acquire and release.
func (s *scene) contend(r *row) error {
	ctx, cfg := context.Background(), s.cfg
	windows := int(cfg.duration / cfg.window)
	from := time.Now().Add(cfg.warm + time.Duration(r.processes)*10*time.Millisecond)
	to := from.Add(time.Duration(windows) * cfg.window)
	if err := s.herd.Send(func(int) order {
		return order{Do: "run", From: from.UnixNano(), Window: cfg.window, Windows: windows}
	}); err != nil {
		return err
	}
	time.Sleep(time.Until(from))
	before, err := s.usage(ctx)
	if err != nil {
		return err
	}
	time.Sleep(time.Until(to))
	after, err := s.usage(ctx)
	if err != nil {
		return err
	}
	if err := s.herd.Send(func(int) order { return order{Do: "stop"} }); err != nil {
		return err
	}
	answers, err := s.herd.Receive()
	if err != nil {
		return err
	}
	sums := make([]int64, windows)
	var waits load.Histogram
	for _, a := range answers {
		var own int64
		for i, n := range a.Windows {
			sums[i] += n
			own += n
		}
		if own == 0 {
			r.unserved++
		}
		r.acquired += own
		r.note(a)
		waits.Merge(a.Waits)
	}
	r.seconds = to.Sub(from).Seconds()
	r.p50, r.longest = waits.Quantile(0.5), waits.Max
	slices.Sort(sums)
	if median := sums[len(sums)/2]; median > 0 {
		r.worst = float64(sums[0]) / float64(median)
	}
	r.cost(before, after)
	return nil
}

// wake has all processes wait for an event, several times. What is counted begins with the event.
func (s *scene) wake(k kind, r *row) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	own, err := open(s.server)
	if err != nil {
		return err
	}
	defer own.close()
	o := s.order(k, r.processes, -1)
	var sum load.Usage
	var waits load.Histogram
	for range s.cfg.rounds {
		if err := k.setUp(ctx, own, o); err != nil {
			return err
		}
		if err := s.herd.Send(func(int) order { return order{Do: "await"} }); err != nil {
			return err
		}
		time.Sleep(s.cfg.settle + time.Duration(r.processes)*10*time.Millisecond)
		before, err := s.usage(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := k.end(ctx, own, o); err != nil {
			return err
		}
		answers, err := s.herd.Receive()
		if err != nil {
			return err
		}
		after, err := s.usage(ctx)
		if err != nil {
			return err
		}
		for _, a := range answers {
			r.acquired++
			r.note(a)
			awake := time.Unix(0, a.Awake).Sub(began)
			waits.Add(awake)
			r.seconds += awake.Seconds() / float64(len(answers))
		}
		sum = sum.Plus(after.Minus(before))
	}
	r.p50, r.longest, r.worst = waits.Quantile(0.5), waits.Max, -1
	r.cost(load.Usage{}, sum)
	return nil
}

func (r *row) note(a answer) {
	r.errors += a.Errors
	if r.first == "" {
		r.first = a.First
	}
}

// cost spreads what the server did over the acquisitions.
func (r *row) cost(before, after load.Usage) {
	n := float64(max(r.acquired, 1))
	r.scripts = float64(after.Scripts(before)) / n
	r.commands = float64(after.Since(before)) / n
	r.scriptCPU = float64(after.ScriptTime(before).Microseconds()) / n
	r.serverCPU = (after.CPU - before.CPU) * 1e6 / n
}
