package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/rpc"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// bench is what is measured, and for how long.
type bench struct {
	Peers, Workloads *regexp.Regexp // nil: all
	Rounds           int
	Warm             time.Duration // before it counts
	Duration         time.Duration

	settings []setting // if not the package's
	etcdAt   string
}

// step is one measurement.
type step struct {
	setting
	peer  Peer
	round int
}

// plan lists the steps round by round, so that a change of the machine's speed meets all peers alike, and in another
// order of peers each time.
func (b *bench) plan() (steps []step) {
	all := settings
	if b.settings != nil {
		all = b.settings
	}
	chosen := func(p *regexp.Regexp, name string) bool { return p == nil || p.MatchString(name) }
	for round := 1; round <= b.Rounds; round++ {
		r := rand.New(rand.NewPCG(uint64(round), 0))
		for _, s := range all {
			if !chosen(b.Workloads, s.Workload) {
				continue
			}
			for _, i := range r.Perm(len(peers)) {
				if p := peers[i]; chosen(b.Peers, p.Name) && slices.Contains(p.Workloads, s.Workload) {
					steps = append(steps, step{s, p, round})
				}
			}
		}
	}
	return steps
}

// run takes all steps. A step that fails becomes a row with a note, and the run goes on.
func (b *bench) run(ctx context.Context, log io.Writer) (f results, err error) {
	steps := b.plan()
	if f.Facts, err = facts(ctx, steps); err != nil {
		return f, err
	}
	if slices.ContainsFunc(steps, func(s step) bool { return s.peer.Name == etcd }) {
		c, err := startChild()
		if err != nil {
			return f, err
		}
		defer c.end()
		if err := c.hear(c.Go("Worker.Serve", struct{}{}, &b.etcdAt, nil)); err != nil {
			return f, err
		}
	}
	for i, s := range steps {
		if ctx.Err() != nil {
			return f, errors.New("interrupted")
		}
		row, err := b.measure(ctx, s)
		if err != nil {
			row.Note, row.Errors = oneLine(err.Error()), max(row.Errors, 1)
		}
		f.Rows = append(f.Rows, row)
		fmt.Fprintf(log, "%d/%d %s, %s, %s: %.0f/s %s\n", i+1, len(steps), s.Workload, s.setting, s.peer.Name, row.Rate,
			row.broken())
	}
	f.Facts = append(f.Facts, fact{"load after", loadAverage()})
	return f, nil
}

// measure takes one step, on a server and in processes of its own.
func (b *bench) measure(ctx context.Context, s step) (row Row, err error) {
	row = Row{Workload: s.Workload, Setting: s.setting.String(), Peer: s.peer.Name, Round: s.round}
	server, err := startRedis(s.Workload == clustered)
	if err != nil {
		return row, err
	}
	defer server.stop()
	shared, err := newArena()
	if err != nil {
		return row, err
	}
	defer os.Remove(shared.path)
	defer shared.Close()
	cs, err := startChildren(s.Processes)
	if err != nil {
		return row, err
	}
	defer cs.end()
	setup := Setup{Redis: server.addr, Etcd: b.etcdAt, Lease: 10 * time.Second}
	if err := cs.call("Open", Opening{s.peer.Name, setup}); err != nil {
		return row, err
	}
	answers, runs := make([]Answer, len(cs)), make([]*rpc.Call, len(cs))
	for i, c := range cs {
		first, next := s.Workers*i/s.Processes, s.Workers*(i+1)/s.Processes
		runs[i] = c.Go("Worker.Run", Part{s.setting, int64(first), next - first, shared.path}, &answers[i], nil)
	}
	time.Sleep(b.Warm)
	before, err := server.calls(ctx)
	if err != nil {
		return row, err
	}
	b.count(&row, shared)
	after, err := server.calls(ctx)
	if err != nil {
		return row, err
	}
	if err := errors.Join(cs.call("Stop", struct{}{}), cs.hear(runs)); err != nil {
		return row, err
	}
	row.fill(answers)
	if s.queued() {
		overlaps, lost := shared.Broken()
		row.Overlaps, row.Lost = int(overlaps), int(lost)
	}
	if s.Workload != impatient {
		row.IdleMillis = 0
	}
	if s.peer.Name != etcd && row.Ops > 0 {
		row.Commands = float64(after.Since(before, except(s.Workload)...)) / float64(row.Ops)
		row.Scripts = float64(after.Scripts(before)) / float64(row.Ops)
	}
	return row, nil
}

// except is the commands of a workload that are not the peer's.
func except(workload string) []string {
	if workload == contended {
		return []string{"incr"}
	}
	return nil
}

// count lets the run count for b.Duration.
func (b *bench) count(row *Row, shared *arena) {
	shared.Begin()
	start := time.Now()
	time.Sleep(b.Duration)
	idle := shared.End()
	row.Seconds = time.Since(start).Seconds()
	row.IdleMillis = float64(idle) / 1e6
}

// fill enters what the processes say.
func (r *Row) fill(answers []Answer) {
	var sum load.Outcome
	for _, a := range answers {
		sum.Waits.Merge(a.Outcome.Waits)
		sum.Shares = append(sum.Shares, a.Outcome.Shares...)
		r.Ops += int(a.Outcome.Ops)
		r.Unfinished += int(a.Outcome.Unfinished)
		r.Errors += int(a.Outcome.Errors)
		r.GaveUp += float64(a.GaveUp) / r.Seconds
		if note := a.Outcome.FirstError + a.Broken; note != "" && r.Note == "" {
			r.Note = oneLine(note)
		}
		if a.Broken != "" {
			r.Lost++
		}
	}
	r.Rate = float64(r.Ops) / r.Seconds
	r.P50, r.P99 = micros(sum.Waits.Quantile(0.5)), micros(sum.Waits.Quantile(0.99))
	r.Jain = load.Jain(sum.Shares)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// oneLine makes a text fit for a cell.
func oneLine(s string) string {
	s = strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "/")
	return s[:min(len(s), 200)]
}
