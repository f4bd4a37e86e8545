// Command ratelimited-workers shows a semaphore in front of a service that breaks when too many call it at once. Worker
// processes share a few slots. One worker is killed while it holds some of them. Its slots come back after one lease,
// by themselves.
//
//	go -C docs/examples run ./ratelimited-workers                      embedded server, nothing else needed
//	go -C docs/examples run ./ratelimited-workers -redis 127.0.0.1:6379
//
// The program ends with status 1 if the service was ever called by more than -slots at once, or if the throughput did
// not recover.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rsemaphore"
)

type config struct {
	redis, service string
	workers, slots int
	lease, phase   time.Duration
	worker         int // which one this process is; 0: the parent
}

func main() {
	var c config
	flag.StringVar(&c.redis, "redis", "", "`address` of a Redis or Valkey server; empty: one is embedded")
	flag.IntVar(&c.workers, "workers", 8, "worker processes")
	flag.IntVar(&c.slots, "slots", 5, "calls that the service can serve at once")
	flag.DurationVar(&c.lease, "lease", 2*time.Second, "how long a killed worker's slots stay taken")
	flag.DurationVar(&c.phase, "phase", 3*time.Second, "how long to measure, before the kill and after the lease")
	flag.StringVar(&c.service, "service", "", "`URL` of the service (given to the workers)")
	flag.IntVar(&c.worker, "worker", 0, "be worker `n` (started by the parent)")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	switch {
	case c.workers < 2 || c.slots < 1 || c.phase <= 0:
		err = fmt.Errorf("-workers is %d, must be 2 or more; -slots is %d, must be 1 or more; -phase is %v, must be "+
			"more than 0", c.workers, c.slots, c.phase)
	case c.worker > 0:
		err = work(ctx, c)
	default:
		err = run(ctx, c, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ratelimited-workers:", err)
		os.Exit(1)
	}
}

// connect makes the semaphore that all processes share. Its permits are renewed while their holder lives.
func connect(c config, label string) (*rsemaphore.Semaphore, func(), error) {
	option := rueidis.ClientOption{InitAddress: []string{c.redis}, DisableCache: true, ForceSingleClient: true}
	red, err := redlatch.Open(context.Background(), option, redlatch.Options{Semaphores: func(o *rsemaphore.Options) {
		o.WatchdogTimeout = c.lease
	}})
	if err != nil {
		return nil, nil, err
	}
	return red.Semaphores().Semaphore("fragile-service", c.slots).WithLabel(label), func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := red.Close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "ratelimited-workers:", err)
		}
	}, nil
}

func run(ctx context.Context, c config, out io.Writer) error {
	if c.redis == "" {
		server, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer server.Close()
		server.ClockTTL(true)
		c.redis = server.Addr()
	}
	service, err := startService(c.slots)
	if err != nil {
		return err
	}
	defer service.close()
	c.service = service.url
	slots, closeSlots, err := connect(c, "parent")
	if err != nil {
		return err
	}
	defer closeSlots()
	crew := map[string]*process{}
	defer func() {
		for _, p := range crew {
			p.stop()
		}
	}()
	for i := range c.workers {
		p, err := startWorker(ctx, c, i+1)
		if err != nil {
			return err
		}
		crew[label(i+1)] = p
	}
	fmt.Fprintf(out, "%d workers share %d slots to a service that breaks when more call it at once\n", c.workers, c.slots)

	before := service.rate(c.phase)
	fmt.Fprintf(out, "all at work:        %4.0f calls/s\n", before)
	victim, held, err := busiest(ctx, slots)
	if err != nil {
		return err
	}
	crew[victim].kill()
	killed := time.Now()
	delete(crew, victim)
	fmt.Fprintf(out, "%s is killed, holding %d of the slots for up to %v\n", victim, held, c.lease)

	var without float64
	for {
		without = max(without, service.rate(c.lease/4))
		left, err := heldBy(ctx, slots, victim)
		if err != nil {
			return err
		}
		if left == 0 {
			break
		}
		fmt.Fprintf(out, "one lease not over: %4.0f calls/s, %s still has %d\n", without, victim, left)
		without = 0
	}
	fmt.Fprintf(out, "its slots are back after %.1f s\n", time.Since(killed).Seconds())
	var after float64
	for n := 0; n < 10 && after < before/2; n++ { // a busy machine has bad moments
		after = max(after, service.rate(c.phase))
	}
	fmt.Fprintf(out, "the others at work: %4.0f calls/s\n", after)

	peak, broken := service.peak.Load(), service.broken.Load()
	fmt.Fprintf(out, "the service never had more than %d calls at once; %d were turned away\n", peak, broken)
	return verdict(c.slots, peak, broken, before, after)
}

// verdict says what was wrong, or nil. A rate of 0 before is an error: no rate after it could be too low.
func verdict(slots int, peak, broken int64, before, after float64) error {
	switch {
	case broken > 0 || peak > int64(slots):
		return fmt.Errorf("%d calls at once, and only %d slots", peak, slots)
	case before == 0:
		return errors.New("no worker called the service")
	case after < before/2:
		return fmt.Errorf("throughput did not recover: %.0f calls/s before, %.0f after", before, after)
	}
	return nil
}

// busiest is the worker that holds the most slots, found by the labels of what is held.
func busiest(ctx context.Context, slots *rsemaphore.Semaphore) (worker string, held int, err error) {
	for held == 0 {
		state, err := slots.Inspect(ctx)
		if err != nil {
			return "", 0, err
		}
		count := map[string]int{}
		for _, permit := range state.Permits {
			count[permit.Label]++
			if n := count[permit.Label]; n > held {
				worker, held = permit.Label, n
			}
		}
	}
	return worker, held, nil
}

func heldBy(ctx context.Context, slots *rsemaphore.Semaphore, worker string) (n int, err error) {
	state, err := slots.Inspect(ctx)
	for _, permit := range state.Permits {
		if permit.Label == worker {
			n++
		}
	}
	return n, err
}

func label(worker int) string { return "worker " + strconv.Itoa(worker) }

// process is a worker, seen by the parent.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser // its end tells the worker to stop
}

func startWorker(ctx context.Context, c config, n int) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-worker", strconv.Itoa(n), "-redis", c.redis, "-service", c.service,
		"-slots", strconv.Itoa(c.slots), "-lease", c.lease.String())
	cmd.Stderr = os.Stderr
	p := &process{cmd: cmd}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		p.stop()
		return nil, fmt.Errorf("%s did not start: %w", label(n), err)
	}
	return p, nil
}

func (p *process) stop() {
	p.in.Close()
	p.cmd.Wait()
}

// kill is what the kernel does when memory is short: no deferred call runs, nothing is released.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}
