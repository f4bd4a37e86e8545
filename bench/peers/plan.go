package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/bench/internal/results"
)

// step is one measurement: one peer, once. Several workloads keep their processes from one step to the next (see
// processSet).
type step struct {
	round    int
	workload string
	what     string // of the workload, for the display
	peer     string
	takes    time.Duration // about
	run      func(ctx context.Context) (results.Row, error)
	after    func() // once the step is over, whatever came of it
}

// bench is one run of the whole.
type bench struct {
	cfg    Config
	dir    string // for the arenas
	etcd   *child
	etcdAt string
}

// plan lists the steps in the order in which they are run: round by round, so that whatever else the machine does
// meets all peers alike, and in another order of peers each time, so that none always comes after the same one.
func (b *bench) plan() []step {
	var steps []step
	rounds := 0
	for _, w := range b.cfg.Workloads {
		rounds = max(rounds, b.cfg.rounds(w))
	}
	for round := 1; round <= rounds; round++ {
		for _, w := range workloads {
			if !slices.Contains(b.cfg.Workloads, w.Name) || round > b.cfg.rounds(w.Name) {
				continue
			}
			r := rand.New(rand.NewPCG(uint64(round), 0))
			peers := slices.DeleteFunc(b.chosen(), func(p Peer) bool { return !p.in(w.Name) })
			r.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
			switch w.Name {
			case uncontended:
				steps = append(steps, b.inTurns(round, w.Name, peers, r)...)
			case claiming:
				steps = append(steps, b.claimsInTurns(round, r)...)
			case impatient:
				steps = append(steps, b.impatientSteps(round, peers)...)
			default:
				peers = slices.DeleteFunc(peers, func(p Peer) bool { return p.AloneOnly })
				steps = append(steps, b.oneByOne(round, w.Name, peers)...)
			}
		}
	}
	return steps
}

func (b *bench) chosen() []Peer {
	var out []Peer
	for _, p := range peers {
		if slices.Contains(b.cfg.Peers, p.Name) {
			out = append(out, p)
		}
	}
	return out
}

// setupTakes is about how long a server and its processes take to start.
const setupTakes = 240 * time.Millisecond

func (b *bench) oneByOne(round int, workload string, peers []Peer) []step {
	if workload == renewing {
		peers = slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool { return !p.Renews })
	}
	var steps []step
	add := func(what string, takes time.Duration,
		measure func(ctx context.Context, p Peer, round int) (results.Row, error)) {
		for _, p := range peers {
			steps = append(steps, step{
				round: round, workload: workload, what: what, peer: p.Name, takes: takes,
				run: func(ctx context.Context) (results.Row, error) { return measure(ctx, p, round) },
			})
		}
	}
	switch workload {
	case contended:
		for _, procs := range b.cfg.Processes {
			if procs == 1 && round > b.cfg.RoundsOfOne {
				continue
			}
			for _, waiters := range b.cfg.Waiters {
				procs := min(procs, waiters)
				add(plural(procs, "process")+", "+plural(waiters, "worker"), setupTakes+b.cfg.Warm+b.cfg.forWorkers(waiters),
					func(ctx context.Context, p Peer, round int) (results.Row, error) {
						return b.contended(ctx, p, round, procs, waiters)
					})
			}
		}
	case handingOver:
		for _, clients := range []int{2, 1} {
			add(plural(clients, "client"), setupTakes+b.cfg.Handover+longestWait,
				func(ctx context.Context, p Peer, round int) (results.Row, error) {
					return b.handover(ctx, p, round, clients)
				})
		}
	case permits, sharing, inOrder:
		q := queues[workload]
		for _, delay := range b.cfg.Away {
			what := fmt.Sprintf("%d workers", q.workers)
			if delay > 0 {
				what += fmt.Sprintf(", %v away", delay)
			}
			add(what, setupTakes+b.cfg.Warm+b.cfg.Queued, func(ctx context.Context, p Peer, round int) (results.Row, error) {
				return b.queued(ctx, p, round, workload, delay)
			})
		}
	case crashed:
		add(fmt.Sprintf("%d locks", b.cfg.Victims), setupTakes+b.cfg.Crash+crashAfter, b.crash)
	case renewing:
		add(fmt.Sprintf("%d locks", b.cfg.Held), setupTakes+b.cfg.Renewal+time.Second, b.renewal)
	}
	return steps
}

// run takes the steps and returns what was measured. A step that fails is a row with a note; the run goes on.
func (b *bench) run(ctx context.Context, show *progress) ([]results.Row, error) {
	steps := b.plan()
	if slices.ContainsFunc(b.chosen(), func(p Peer) bool { return p.Etcd }) {
		if err := b.startEtcd(); err != nil {
			return nil, err
		}
		defer b.etcd.end()
	}
	show.start(steps)
	var rows []results.Row
	for i, s := range steps {
		if ctx.Err() != nil { // what there is, is worth having
			for _, rest := range steps[i:] {
				if rest.after != nil {
					rest.after()
				}
			}
			return rows, errors.New("interrupted")
		}
		show.begin(s)
		row, err := s.run(ctx)
		if s.after != nil {
			s.after()
		}
		if err != nil {
			row.Note, row.Errors = oneLine(err.Error()), max(row.Errors, 1)
		}
		rows = append(rows, row)
		show.end(row)
	}
	return rows, nil
}

func (b *bench) startEtcd() error {
	var err error
	if b.etcd, err = startChild(etcdRole); err != nil {
		return err
	}
	a, err := b.etcd.hear(30 * time.Second)
	if err != nil {
		b.etcd.kill()
		b.etcd.end()
		return fmt.Errorf("etcd: %w", err)
	}
	b.etcdAt = a.Endpoint
	return nil
}

func (b *bench) setup(addr string, lease time.Duration) Setup {
	return Setup{Redis: addr, Etcd: b.etcdAt, Lease: lease, Warm: b.cfg.WarmUp}
}
