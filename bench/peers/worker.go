package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// roleEnv makes this program, or its test binary, one of the processes of a measurement. It reads orders from standard
// input, a line of JSON each, and answers them on standard output; the end of its input ends it.
const roleEnv = "REDLATCH_BENCH_ROLE"

const (
	workerRole = "worker"
	etcdRole   = "etcd"
)

// order is what a worker process has to do: open a peer, run a setting until the next order, or stop.
type order struct {
	Do      string
	Peer    string  `json:",omitempty"`
	Setup   Setup   `json:",omitzero"`
	Setting setting `json:",omitzero"`
	First   int64   `json:",omitempty"` // number of the first worker of this process
	Workers int     `json:",omitempty"` // of this process
	Arena   string  `json:",omitempty"`
}

// answer is what it says when it is done.
type answer struct {
	Error    string       `json:",omitempty"`
	Outcome  load.Outcome `json:",omitzero"`
	GaveUp   int64        `json:",omitempty"`
	Endpoint string       `json:",omitempty"`
	Broken   string       `json:",omitempty"` // a promise that did not hold
}

// work is the main function of a process with a role.
func work(role string, in io.Reader, out io.Writer) error {
	answers := json.NewEncoder(out)
	switch role {
	case etcdRole:
		stop := make(chan struct{})
		go func() { io.Copy(io.Discard, in); close(stop) }()
		return serveEtcd(func(endpoint string) error { return answers.Encode(answer{Endpoint: endpoint}) }, stop)
	case workerRole:
		w := &worker{orders: json.NewDecoder(in)}
		// A deadline that is far away: without one some peers make one of their own.
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		for {
			var o order
			if err := w.orders.Decode(&o); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			a, err := w.carryOut(ctx, o)
			if err != nil {
				a.Error = err.Error()
			}
			if err := answers.Encode(a); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%s=%q is not a role", roleEnv, role)
}

type worker struct {
	orders *json.Decoder
	locker Locker
	setup  Setup
}

func (w *worker) carryOut(ctx context.Context, o order) (a answer, err error) {
	switch {
	case o.Do == "open":
		p, err := peerNamed(o.Peer)
		if err != nil {
			return a, err
		}
		w.setup = o.Setup
		w.locker, err = p.Open(ctx, o.Setup)
		return a, err
	case o.Do == "run" && w.locker != nil:
		return w.run(ctx, o)
	}
	return a, fmt.Errorf("order %q at the wrong time", o.Do)
}

// stuck is how long after the end a call may still take that does not wait for another worker.
const stuck = 3 * time.Second

// run has the workers of this process acquire, until the next order, whatever it is.
func (w *worker) run(ctx context.Context, o order) (a answer, err error) {
	shared, err := openArena(o.Arena)
	if err != nil {
		return a, err
	}
	defer shared.Close()
	spec := load.Spec{Workers: o.Workers, First: o.First, Acquire: w.locker.Lock, Watch: shared.Watch,
		Alone: o.Setting.queued()}
	var gaveUp atomic.Int64
	if spec.Alone {
		spec.Name = func(int) string { return "bench:one" }
		spec.Think = time.Millisecond
	} else {
		spec.Name = func(i int) string { return "bench:own:" + strconv.Itoa(i) }
		spec.Cycle = true
		spec.Acquire = func(run context.Context, name string) (load.Release, error) {
			call, cancel := context.WithCancel(context.WithoutCancel(run)) // the end of the run cuts nothing off
			defer context.AfterFunc(run, func() { time.AfterFunc(stuck, cancel) })()
			defer cancel()
			call, cancel = context.WithTimeout(call, time.Hour)
			defer cancel()
			return w.locker.Lock(call, name)
		}
	}
	switch o.Setting.Workload {
	case contended:
		// What the holder does is the same for all peers, on a connection of its own, and not counted.
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{w.setup.Redis}, ForceSingleClient: true,
			DisableCache: true, PipelineMultiplex: -1})
		if err != nil {
			return a, err
		}
		defer c.Close()
		spec.Inside = func(ctx context.Context) error {
			return c.Do(ctx, c.B().Incr().Key("bench:inside").Build()).Error()
		}
	case impatient:
		spec.Acquire = asking(w.locker, o.Setting.Patience, func() {
			if shared.Counts() {
				gaveUp.Add(1)
			}
		})
		spec.Inside = func(context.Context) error { // to sleep would last a millisecond
			for start := time.Now(); time.Since(start) < 100*time.Microsecond; { //nolint:revive // it keeps the processor
			}
			return nil
		}
	}
	run, cancel := context.WithCancel(ctx)
	done := make(chan load.Outcome, 1)
	go func() { done <- load.Run(run, spec) }()
	var next order
	err = w.orders.Decode(&next)
	cancel()
	a.Outcome, a.GaveUp = <-done, gaveUp.Load()
	if c, ok := w.locker.(*calls); ok && err == nil {
		if broken := c.broken(ctx); broken != nil {
			a.Broken = broken.Error()
		}
	}
	return a, err
}

// asking acquires for a caller that gives up at a deadline, and then asks again at once.
func asking(l Locker, patience time.Duration, gaveUp func()) load.Acquire {
	return func(run context.Context, name string) (load.Release, error) {
		for {
			ctx, cancel := context.WithTimeout(run, patience/2+rand.N(patience))
			release, err := l.Lock(ctx, name)
			ended := ctx.Err() != nil
			cancel()
			if err == nil || run.Err() != nil || !ended && !errors.Is(err, context.DeadlineExceeded) {
				return release, err
			}
			gaveUp()
		}
	}
}

// child is a process of this program with a role.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	out    *json.Decoder
	ended  sync.Once
}

func startChild(role string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.orders, c.out = json.NewEncoder(c.in), json.NewDecoder(out)
	return c, c.cmd.Start()
}

// patience is how long an answer may take. A child that gives none is killed.
const patience = 20 * time.Second

func (c *child) hear() (a answer, err error) {
	defer time.AfterFunc(patience, func() { c.cmd.Process.Kill() }).Stop()
	if err := c.out.Decode(&a); err != nil {
		return a, fmt.Errorf("no answer from a worker process within %v: %w", patience, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("worker process: %s", a.Error)
	}
	return a, nil
}

// end has the child leave, and waits for it.
func (c *child) end() {
	c.ended.Do(func() {
		c.in.Close()
		defer time.AfterFunc(2*time.Second, func() { c.cmd.Process.Kill() }).Stop()
		c.cmd.Wait()
	})
}

// children are the processes of one measurement.
type children []*child

func startChildren(n int) (cs children, err error) {
	for range n {
		c, err := startChild(workerRole)
		if err != nil {
			cs.end()
			return nil, err
		}
		cs = append(cs, c)
	}
	return cs, nil
}

func (cs children) end() {
	var all sync.WaitGroup
	for _, c := range cs {
		all.Go(c.end)
	}
	all.Wait()
}

func (cs children) tell(o func(i int) order) error {
	for i, c := range cs {
		if err := c.orders.Encode(o(i)); err != nil {
			return fmt.Errorf("worker process: %w", err)
		}
	}
	return nil
}

// ask gives each its order, and waits for all answers.
func (cs children) ask(o order) (answers []answer, err error) {
	if err := cs.tell(func(int) order { return o }); err != nil {
		return nil, err
	}
	for _, c := range cs {
		a, err := c.hear()
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}
