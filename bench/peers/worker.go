package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// roleEnv makes this program, or its test binary, one of the processes of a measurement. It then reads orders from
// standard input, a line of JSON each, and answers them on standard output; the end of its input ends it.
const roleEnv = "REDLATCH_BENCH_ROLE"

const (
	workerRole = "worker"
	etcdRole   = "etcd"
)

// order is what a worker process has to do.
type order struct {
	Do    string
	Peer  string `json:",omitempty"`
	Mode  string `json:",omitempty"` // of claims; which queue; how to give up
	Setup Setup

	Workers  int           `json:",omitempty"` // goroutines, pairs or names
	First    int64         `json:",omitempty"` // number of the first worker of this process
	Duration time.Duration `json:",omitempty"`
	Think    time.Duration `json:",omitempty"`
	Arena    string        `json:",omitempty"`
	OneShare bool          `json:",omitempty"` // handover: both sides share one client
	Name     string        `json:",omitempty"`
	Patience time.Duration `json:",omitempty"` // of impatient
}

// answer is what it says when it is done; Got answers come before that, while it awaits locks.
type answer struct {
	Error      string        `json:",omitempty"`
	Outcome    load.Outcome  `json:",omitzero"`
	Seconds    float64       `json:",omitempty"`
	Got        bool          `json:",omitempty"`
	Count      int64         `json:",omitempty"`
	Goroutines int           `json:",omitempty"`
	Heap       int64         `json:",omitempty"`
	Lease      time.Duration `json:",omitempty"`
	Endpoint   string        `json:",omitempty"`
	Broken     string        `json:",omitempty"` // a promise that did not hold
}

// work is the main function of a process with a role.
func work(role string, in io.Reader, out io.Writer) error {
	w := &workerProcess{orders: json.NewDecoder(in), answers: json.NewEncoder(out)}
	switch role {
	case etcdRole:
		stop := make(chan struct{})
		go func() { io.Copy(io.Discard, in); close(stop) }()
		return serveEtcd(func(endpoint string) { w.answer(answer{Endpoint: endpoint}) }, stop)
	case workerRole:
		// Far away, but there: without a deadline some peers make one of their own.
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
			w.answer(a)
		}
	}
	return fmt.Errorf("%s=%q is not a role", roleEnv, role)
}

type workerProcess struct {
	orders  *json.Decoder
	mu      sync.Mutex
	answers *json.Encoder

	locker Locker
	other  Locker // a second client, of handover
	setup  Setup
	claims *claimer
	kept   []load.Release // of locks that are held to the end: a program that holds a lock can release it
}

func (w *workerProcess) keep(r load.Release) {
	w.mu.Lock()
	w.kept = append(w.kept, r)
	w.mu.Unlock()
}

func (w *workerProcess) answer(a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.answers.Encode(a); err != nil {
		os.Exit(1) // no process listens any more
	}
}

func (w *workerProcess) carryOut(ctx context.Context, o order) (answer, error) {
	if w.locker == nil && w.claims == nil && o.Do != "open" && o.Do != "open claims" {
		return answer{}, fmt.Errorf("order %q before one to open", o.Do)
	}
	switch o.Do {
	case "open":
		p, err := peerNamed(o.Peer)
		if err != nil {
			return answer{}, err
		}
		w.setup = o.Setup
		w.locker, err = p.Open(ctx, o.Setup)
		if err != nil {
			return answer{}, err
		}
		a := answer{Lease: o.Setup.Lease}
		if l, ok := w.locker.(leaser); ok {
			a.Lease = l.Lease()
		}
		return a, nil
	case "open other": // before what it costs is counted
		p, err := peerNamed(o.Peer)
		if err == nil {
			w.other, err = p.Open(ctx, w.setup)
		}
		return answer{}, err
	case "open claims":
		var err error
		w.claims, err = openClaims(ctx, o.Mode, o.Setup)
		return answer{}, err
	case "alone":
		return w.alone(ctx, o)
	case "contend":
		return w.contend(ctx, o)
	case "queue":
		return w.queue(ctx, o)
	case "give up":
		return w.giveUp(ctx, o)
	case "handover":
		other := w.locker
		if !o.OneShare {
			if w.other == nil {
				return answer{}, errors.New("handover between two clients before the second was opened")
			}
			other = w.other
		}
		out := handover(ctx, w.locker, other, o)
		return answer{Outcome: out}, nil
	case "hold":
		return w.hold(ctx, o)
	case "await":
		return w.await(ctx, o)
	case "probe":
		return w.probe(ctx, o)
	case "claim":
		return w.claims.run(ctx, o)
	}
	return answer{}, fmt.Errorf("no order %q", o.Do)
}

// timed runs f until d is over.
func timed(ctx context.Context, d time.Duration, f func(ctx context.Context) load.Outcome) answer {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	start := time.Now()
	out := f(ctx)
	return answer{Outcome: out, Seconds: time.Since(start).Seconds()}
}

// stuck is how long after the end of its time a call is given up that should not have to wait for anything.
const stuck = 3 * time.Second

// stuckNote is said of a peer then.
const stuckNote = "a waiter slept on a free lock"

// alone locks and unlocks with every worker on a lock of its own. A call that never returns, as one peer's does when a
// reply is late, is among the unfinished.
func (w *workerProcess) alone(ctx context.Context, o order) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Duration+stuck)
	defer cancel()
	return timed(ctx, o.Duration, func(run context.Context) load.Outcome {
		return load.Run(run, load.Spec{
			Workers: o.Workers, Name: own, Cycle: true,
			Acquire: func(_ context.Context, name string) (load.Release, error) {
				return w.locker.Lock(ctx, name) // the end of the run cuts nothing off
			},
		})
	}), nil
}

func own(i int) string { return "bench:own:" + strconv.Itoa(i) }

// contend has all workers of all processes want one lock, until the next order, whatever it is.
func (w *workerProcess) contend(ctx context.Context, o order) (answer, error) {
	shared, err := openArena(o.Arena)
	if err != nil {
		return answer{}, err
	}
	defer shared.Close()
	// What is done under the lock is the same for all peers and counted apart, on a connection of its own.
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{w.setup.Redis}, ForceSingleClient: true, DisableCache: true, PipelineMultiplex: -1,
	})
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	run, cancel := context.WithCancel(ctx)
	done := make(chan load.Outcome, 1)
	go func() {
		done <- load.Run(run, load.Spec{
			Workers: o.Workers, First: o.First, Think: o.Think,
			Name:    func(int) string { return "bench:contended" },
			Acquire: w.locker.Lock,
			Inside: func(ctx context.Context) error {
				return c.Do(ctx, c.B().Incr().Key("bench:inside").Build()).Error()
			},
			Section:   newSection(shared, o.First, o.Workers),
			Recording: func() bool { return shared.phase() == measuring },
		})
	}()
	var next order
	err = w.orders.Decode(&next)
	cancel()
	return answer{Outcome: <-done}, err
}
