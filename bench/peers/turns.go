package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/bench/internal/results"
)

// processSet is the processes of all peers at one time, idle but for one, which change every tenth of a second:
// differences between peers that are smaller than what the machine's mood changes within seconds can be seen only so.
type processSet struct {
	servers map[string]*redisServer
	members map[string]*child
	failed  map[string]error // those who cannot take part
	left    int              // steps
}

// inTurns are the steps of a round of uncontended: every peer has its turns, with each number of goroutines.
func (b *bench) inTurns(round int, workload string, peers []Peer, r *rand.Rand) []step {
	var all []member
	for _, p := range peers {
		all = append(all, member{p.Name, order{Do: "open", Peer: p.Name}, p.Etcd})
	}
	return b.turns(round, workload, order{Do: "alone"}, r, all, all)
}

func (b *bench) claimsInTurns(round int, r *rand.Rand) []step {
	var all, counting []member
	for _, m := range claimModes {
		next := member{m.Name, order{Do: "open claims", Mode: m.Name}, false}
		all = append(all, next)
		if m.Name == claimFloor || m.Name == counterUp {
			counting = append(counting, next)
		}
	}
	return b.turns(round, claiming, order{Do: "claim"}, r, all, counting)
}

type member struct {
	name string
	open order
	etcd bool
}

// turns are those of all, who are opened together. With numbers of goroutines between the lowest and the highest only
// those of between have any.
func (b *bench) turns(round int, workload string, do order, r *rand.Rand, all, between []member) []step {
	c := &processSet{}
	lowest, highest := slices.Min(b.cfg.Goroutines), slices.Max(b.cfg.Goroutines)
	warm := do
	warm.Workers, warm.Duration = highest, min(b.cfg.Slice, 50*time.Millisecond)
	var steps []step
	for _, goroutines := range b.cfg.Goroutines {
		do := do
		do.Workers, do.Duration = goroutines, b.cfg.Slice
		order := slices.Clone(all)
		if goroutines != lowest && goroutines != highest {
			order = slices.Clone(between)
		}
		for turn := range b.cfg.turns() {
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			for _, m := range order {
				number := (round-1)*b.cfg.turns() + turn + 1
				steps = append(steps, step{
					round: round, workload: workload, what: plural(goroutines, "goroutine"), peer: m.name,
					takes: b.cfg.Slice + 15*time.Millisecond,
					run: func(ctx context.Context) (results.Row, error) {
						row := results.Blank(workload, 1, goroutines, m.name, number)
						c.open(ctx, b, all, warm)
						if err := c.failed[m.name]; err != nil {
							return row, err
						}
						return c.turn(ctx, m, row, do)
					},
					after: c.done,
				})
			}
		}
	}
	c.left = len(steps)
	if len(steps) > 0 {
		steps[0].takes += time.Duration(len(all)) * opening
	}
	return steps
}

// opening is about what it takes to start a server and a process, and to warm up.
const opening = 100 * time.Millisecond

// open starts everybody and has each warm up.
func (c *processSet) open(ctx context.Context, b *bench, all []member, warm order) {
	if c.failed != nil {
		return
	}
	c.servers, c.members, c.failed = map[string]*redisServer{}, map[string]*child{}, map[string]error{}
	for _, m := range all {
		if err := c.openOne(ctx, b, m, warm); err != nil {
			c.failed[m.name] = err
		}
	}
}

func (c *processSet) openOne(ctx context.Context, b *bench, m member, warm order) error {
	s, err := startRedis()
	if err != nil {
		return err
	}
	c.servers[m.name] = s
	child, err := startChild(workerRole)
	if err != nil {
		return err
	}
	c.members[m.name] = child
	m.open.Setup, m.open.Duration = b.setup(s.addr, b.cfg.Lease), b.cfg.WarmUp
	if _, err := child.ask(m.open); err != nil {
		return err
	}
	if _, err := child.ask(warm); err != nil {
		return err
	}
	return ctx.Err()
}

func (c *processSet) turn(ctx context.Context, m member, row results.Row, do order) (results.Row, error) {
	s := c.servers[m.name]
	before, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	a, err := c.members[m.name].ask(do)
	if err != nil {
		c.failed[m.name] = err // it has no more turns: every one would take as long as our patience
		return row, err
	}
	after, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	outcome(&row, a.Outcome)
	if row.Unfinished > 0 {
		row.Errors += row.Unfinished
		row.Note = fmt.Sprintf("%s: %s, for %v and more, on locks that no other worker wants", stuckNote,
			plural(int(row.Unfinished), "worker"), stuck)
	}
	row.Seconds, row.OpsPerSec = a.Seconds, float64(a.Outcome.Ops)/a.Seconds
	if !m.etcd {
		perOp(&row, before, after)
	}
	if a.Broken != "" {
		row.Lost, row.Note = 1, oneLine(a.Broken)
	}
	return row, nil
}

// done ends the processes after the last step.
func (c *processSet) done() {
	if c.left--; c.left > 0 {
		return
	}
	var all children
	for _, m := range c.members {
		all = append(all, m)
	}
	all.end()
	for _, s := range c.servers {
		s.stop()
	}
}

// outcome fills in what the workers saw.
func outcome(row *results.Row, o load.Outcome) {
	row.Ops, row.Unfinished, row.Errors = o.Ops, o.Unfinished, o.Errors
	if o.Waits.Count > 0 {
		us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
		row.P50, row.P99, row.Max = us(o.Waits.Quantile(0.5)), us(o.Waits.Quantile(0.99)), us(o.Waits.Max)
	}
	if len(o.Shares) > 0 {
		row.Jain, row.Least, row.Most = load.Jain(o.Shares), slices.Min(o.Shares), slices.Max(o.Shares)
	}
	if o.FirstError != "" {
		row.Note = oneLine(o.FirstError)
	}
}

// perOp fills in what the server did for row.Ops.
func perOp(row *results.Row, before, after load.Usage, except ...string) {
	if row.Ops == 0 {
		return
	}
	ops := float64(row.Ops)
	row.Commands = float64(after.Since(before, except...)) / ops
	row.Scripts = float64(after.Scripts(before)) / ops
	row.CPU = (after.CPU - before.CPU) * 1e6 / ops
}
