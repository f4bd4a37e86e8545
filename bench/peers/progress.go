package main

import (
	"fmt"
	"io"
	"time"

	"github.com/redlatch/redlatch/bench/internal/results"
)

// progress tells what runs, what came of it and how much is left.
type progress struct {
	w       io.Writer
	started time.Time
	total   time.Duration // as the steps estimate it
	done    time.Duration // of that
	steps   int
	n       int
	now     step
}

func (p *progress) start(steps []step) {
	p.started, p.steps = time.Now(), len(steps)
	for _, s := range steps {
		p.total += s.takes
	}
	fmt.Fprintf(p.w, "%d measurements, about %v\n", len(steps), p.total.Round(time.Second))
}

// left extrapolates from how well the estimates held so far.
func (p *progress) left() time.Duration {
	rest := p.total - p.done
	if p.done < 2*time.Second {
		return rest
	}
	return time.Duration(float64(rest) * float64(time.Since(p.started)) / float64(p.done))
}

func (p *progress) begin(s step) {
	p.n++
	p.now = s
	fmt.Fprintf(p.w, "[%3d/%d %3.0f%% left %-6v] round %d %-11s %-24s %-24s ", p.n, p.steps,
		100*float64(p.done)/float64(p.total),
		p.left().Round(time.Second), s.round, s.workload, s.what, s.peer)
}

func (p *progress) end(r results.Row) {
	p.done += p.now.takes
	if r.OpsPerSec >= 0 {
		fmt.Fprintf(p.w, "%8.0f/s ", r.OpsPerSec)
	}
	if r.P50 >= 0 {
		fmt.Fprintf(p.w, "p50 %-8s p99 %-8s ", micros(r.P50), micros(r.P99))
	}
	if r.Jain >= 0 && r.Workload == contended {
		fmt.Fprintf(p.w, "fair %.2f ", r.Jain)
	}
	if r.Commands >= 0 {
		fmt.Fprintf(p.w, "%.1f cmds ", r.Commands)
	}
	fmt.Fprint(p.w, r.Extra)
	if r.Overlaps+r.Lost > 0 {
		fmt.Fprintf(p.w, " BROKEN: %d overlaps, %d lost", r.Overlaps, r.Lost)
	}
	if r.Errors > 0 {
		fmt.Fprintf(p.w, " %d errors", r.Errors)
	}
	if r.Note != "" {
		fmt.Fprint(p.w, " ", r.Note)
	}
	fmt.Fprintln(p.w)
}

func micros(us float64) string {
	if us < 1000 {
		return fmt.Sprintf("%.0fus", us)
	}
	return fmt.Sprintf("%.1fms", us/1000)
}
