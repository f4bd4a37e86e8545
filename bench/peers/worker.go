package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/rpc"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// roleEnv makes this program, or its test binary, one of the processes of a measurement: a Worker that is called on its
// standard input and output (net/rpc). The end of its input ends it.
const roleEnv = "REDLATCH_BENCH_WORKER"

// Worker is a process of a measurement. Its methods are called by the process that measures.
type Worker struct {
	locker Locker
	setup  Setup
	stop   chan struct{} // ends Run
	end    chan struct{} // ends etcd
	etcd   sync.WaitGroup
}

// stream is the input and the output of a process.
type stream struct {
	io.Reader
	io.WriteCloser
}

// work is the main function of a worker process.
func work(in io.Reader, out io.WriteCloser) error {
	w := &Worker{stop: make(chan struct{}), end: make(chan struct{})}
	server := rpc.NewServer()
	if err := server.Register(w); err != nil {
		return err
	}
	server.ServeConn(stream{in, out})
	close(w.end)
	w.etcd.Wait()
	return nil
}

// Opening names the peer that a process opens, and its Setup.
type Opening struct {
	Peer  string
	Setup Setup
}

// Open opens a peer.
func (w *Worker) Open(o Opening, _ *struct{}) error {
	p, err := peerNamed(o.Peer)
	if err != nil {
		return err
	}
	w.setup = o.Setup
	w.locker, err = p.Open(context.Background(), o.Setup)
	return err
}

// Serve starts a node of etcd, and says where.
func (w *Worker) Serve(_ struct{}, endpoint *string) error {
	ready, failed := make(chan string, 1), make(chan error, 1)
	w.etcd.Go(func() {
		failed <- serveEtcd(func(at string) error { ready <- at; return nil }, w.end)
	})
	select {
	case *endpoint = <-ready:
		return nil
	case err := <-failed:
		return err
	}
}

// Stop ends Run.
func (w *Worker) Stop(struct{}, *struct{}) error {
	close(w.stop)
	return nil
}

// Part is what one process does of a setting.
type Part struct {
	Setting setting
	First   int64 // number of the first worker of this process
	Workers int   // of this process
	Arena   string
}

// Answer is what it says when it is done.
type Answer struct {
	Outcome load.Outcome
	GaveUp  int64
	Broken  string // a promise that did not hold
}

// stuck is how long after the end a call may still take that does not wait for another worker.
const stuck = 3 * time.Second

// Run has the workers of this process acquire until Stop.
func (w *Worker) Run(o Part, a *Answer) error {
	// A deadline that is far away: without one some peers make one of their own.
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	shared, err := openArena(o.Arena)
	if err != nil {
		return err
	}
	defer shared.Close()
	spec := load.Spec{Workers: o.Workers, First: o.First, Acquire: w.locker.Lock, Watch: shared.Watch,
		Alone: o.Setting.queued()}
	var gaveUp atomic.Int64
	if spec.Alone {
		spec.Name = func(int) string { return "bench:one" }
		spec.Think = time.Millisecond
	} else {
		spec.Name = func(i int) string { return "bench:own:" + strconv.FormatInt(o.First+int64(i), 10) }
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
		// The work of the holder is the same for all peers, on a connection of its own, and not counted.
		c, err := oneConnection(w.setup.Redis)
		if err != nil {
			return err
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
			for start := time.Now(); time.Since(start) < 100*time.Microsecond; { //nolint:revive // to keep the processor
			}
			return nil
		}
	}
	done := make(chan load.Outcome, 1)
	go func() { done <- load.Run(ctx, spec) }()
	<-w.stop
	cancel()
	a.Outcome, a.GaveUp = <-done, gaveUp.Load()
	if c, ok := w.locker.(*calls); ok {
		if broken := c.broken(context.Background()); broken != nil {
			a.Broken = broken.Error()
		}
	}
	return nil
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

// child is a worker process.
type child struct {
	cmd *exec.Cmd
	*rpc.Client
}

func startChild() (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), roleEnv+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{cmd, rpc.NewClient(stream{out, in})}, cmd.Start()
}

// patience is how long an answer may take. A child that gives none is killed.
const patience = 20 * time.Second

// hear waits for the answer to a call.
func (c *child) hear(call *rpc.Call) error {
	defer time.AfterFunc(patience, func() { c.cmd.Process.Kill() }).Stop()
	if <-call.Done; call.Error != nil {
		return fmt.Errorf("worker process: %s, within %v: %w", call.ServiceMethod, patience, call.Error)
	}
	return nil
}

// end has the child leave, and waits for it.
func (c *child) end() {
	c.Close()
	defer time.AfterFunc(2*time.Second, func() { c.cmd.Process.Kill() }).Stop()
	c.cmd.Wait()
}

// children are the processes of one measurement.
type children []*child

func startChildren(n int) (cs children, err error) {
	for range n {
		c, err := startChild()
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

// call calls a method of each, all at the same time.
func (cs children) call(method string, args any) error {
	var calls []*rpc.Call
	for _, c := range cs {
		calls = append(calls, c.Go("Worker."+method, args, &struct{}{}, nil))
	}
	return cs.hear(calls)
}

// hear waits for an answer of each.
func (cs children) hear(calls []*rpc.Call) error {
	for i, call := range calls {
		if err := cs[i].hear(call); err != nil {
			return err
		}
	}
	return nil
}
