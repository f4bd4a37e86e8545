package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/bench/internal/results"
)

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	if strings.HasSuffix(word, "s") {
		word += "e"
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// oneLine makes a text fit for a cell.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return s
}

// inWindows are the workloads of which a measurement, or a turn, is one window.
var inWindows = []string{uncontended, claiming, contended}

// emptyWindows is in how many windows of a turn redlatch served nothing.
func emptyWindows(r results.Row, ours bool) int {
	if n, _ := r.Value("empty_windows"); ours {
		return int(n)
	}
	return 0
}

// worst says of each setting what its slowest window served, next to the median, and the longest wait: medians hide
// stalls. empty is in how many windows redlatch served no worker.
func worst(rows []results.Row) (lines []string, empty int) {
	var order []string
	windows, stalls, longest := map[string][]float64{}, map[string][]float64{}, map[string]float64{}
	for _, r := range rows {
		p, err := peerNamed(r.Peer)
		ours := err == nil && p.Module == redlatchPeer.Module
		share, parts := r.Value("worst_window")
		if r.Workload != contended { // whose windows are shorter than a stall of the machine
			if parts {
				lines = append(lines,
					fmt.Sprintf("%s, %s: slowest window %.2f of the median, longest wait %s", r.Workload, r.Peer, share,
						micros(r.Max)))
			}
			empty += emptyWindows(r, ours)
		}
		if !slices.Contains(inWindows, r.Workload) || r.OpsPerSec < 0 {
			continue
		}
		k := fmt.Sprintf("%s, %s, %s, %s", r.Workload, r.Peer, plural(r.Processes, "process"), plural(r.Workers, "worker"))
		if windows[k] == nil {
			order = append(order, k)
		}
		windows[k] = append(windows[k], r.OpsPerSec)
		longest[k] = max(longest[k], r.Max)
		if parts {
			stalls[k] = append(stalls[k], share)
		}
		if r.Ops == 0 && ours {
			empty++
		}
	}
	for _, k := range order {
		all := windows[k]
		slices.Sort(all)
		line := fmt.Sprintf("%s: slowest of %d windows %.0f/s, median %.0f/s, longest wait %s", k, len(all), all[0],
			all[len(all)/2], micros(longest[k]))
		if within := stalls[k]; len(within) > 0 {
			line += fmt.Sprintf(", slowest part of one %.2f of its median", slices.Min(within))
		}
		lines = append(lines, line)
	}
	return lines, empty
}

// contended has workers in several processes want one lock (workload c2: under it one INCR, then a think time, without
// which a lock that lets its last holder take it again at once would look best).
func (b *bench) contended(ctx context.Context, p Peer, round, procs, workers int) (row results.Row, err error) {
	row = results.Blank(contended, procs, workers, p.Name, round)
	s, err := startRedis()
	if err != nil {
		return row, err
	}
	defer s.stop()
	shared, err := newArena(b.dir)
	if err != nil {
		return row, err
	}
	defer shared.Close()
	cs, err := startChildren(procs)
	if err != nil {
		return row, err
	}
	defer cs.end()
	if _, err := cs.all(func(int) order {
		return order{Do: "open", Duration: b.cfg.WarmUp, Peer: p.Name, Setup: b.setup(s.addr, b.cfg.Lease)}
	}); err != nil {
		return row, err
	}
	first := 0
	for i, c := range cs {
		n := (workers*(i+1))/procs - first // as even as it can be
		if err := c.tell(order{Do: "contend", Peer: p.Name, Workers: n, First: int64(first), Think: b.cfg.Think,
			Arena: shared.path}); err != nil {
			return row, err
		}
		first += n
	}
	time.Sleep(b.cfg.Warm)
	before, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	rates := windows(shared, b.cfg.forWorkers(workers), b.cfg.Window/2)
	row.Seconds, row.Extra = lasted(rates), inExtra(rates)
	after, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	if row.Conns, err = s.connections(ctx); err != nil {
		return row, err
	}
	row.Conns -= int64(procs) // that of the INCR
	if _, _, err := cs.stop(&row, shared); err != nil {
		return row, err
	}
	row.Overlaps, row.Lost = shared.broken()
	if p.Etcd {
		row.Conns = results.NotTaken
	} else {
		perOp(&row, before, after, "incr")
	}
	return row, nil
}

// stop ends the children's work, and enters what they and the shared page say of it into the row.
func (cs children) stop(row *results.Row, shared *arena) (sum load.Outcome, answers []answer, err error) {
	if answers, err = cs.all(func(int) order { return order{Do: "stop"} }); err != nil {
		return sum, nil, err
	}
	sum = together(answers)
	sum.Ops = shared.acquisitions()
	outcome(row, sum)
	row.OpsPerSec = float64(sum.Ops) / row.Seconds
	return sum, answers, nil
}

// together adds up what the processes say.
func together(answers []answer) (sum load.Outcome) {
	for _, a := range answers {
		sum.Waits.Merge(a.Outcome.Waits)
		sum.Shares = append(sum.Shares, a.Outcome.Shares...)
		sum.Unfinished += a.Outcome.Unfinished
		sum.Errors += a.Outcome.Errors
		if sum.FirstError == "" {
			sum.FirstError = a.Outcome.FirstError
		}
	}
	return sum
}

func (b *bench) handover(ctx context.Context, p Peer, round, clients int) (row results.Row, err error) {
	row = results.Blank(handingOver, 1, clients, p.Name, round)
	s, err := startRedis()
	if err != nil {
		return row, err
	}
	defer s.stop()
	cs, err := startChildren(1)
	if err != nil {
		return row, err
	}
	defer cs.end()
	if _, err := cs[0].ask(order{Do: "open", Duration: b.cfg.WarmUp, Peer: p.Name,
		Setup: b.setup(s.addr, b.cfg.Lease)}); err != nil {
		return row, err
	}
	if clients > 1 {
		if _, err := cs[0].ask(order{Do: "open other", Duration: b.cfg.WarmUp, Peer: p.Name}); err != nil {
			return row, err
		}
	}
	before, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	a, err := cs[0].ask(order{Do: "handover", Peer: p.Name, Workers: b.cfg.Pairs, Duration: b.cfg.Handover,
		OneShare: clients == 1})
	if err != nil {
		return row, err
	}
	after, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	outcome(&row, a.Outcome)
	if strings.Contains(row.Note, context.DeadlineExceeded.Error()) {
		row.Note = fmt.Sprintf("%s: for %v and more after its release", stuckNote, stuck)
	}
	row.Seconds = b.cfg.Handover.Seconds()
	if !p.Etcd {
		perOp(&row, before, after)
	}
	return row, nil
}

// crashAfter is how long the waiters have waited when the holder is killed: less than any peer waits before it renews.
const crashAfter = 150 * time.Millisecond

// crash kills the holder of some locks that another process waits for, and measures from the kill.
func (b *bench) crash(_ context.Context, p Peer, round int) (row results.Row, err error) {
	row = results.Blank(crashed, 2, b.cfg.Victims, p.Name, round)
	s, err := startRedis()
	if err != nil {
		return row, err
	}
	defer s.stop()
	cs, err := startChildren(2)
	if err != nil {
		return row, err
	}
	defer cs.end()
	opened, err := cs.all(func(int) order {
		return order{Do: "open", Duration: b.cfg.WarmUp, Peer: p.Name, Setup: b.setup(s.addr, b.cfg.Crash)}
	})
	if err != nil {
		return row, err
	}
	lease := opened[0].Lease
	holder, waiter := cs[0], cs[1]
	if _, err := holder.ask(order{Do: "hold", Workers: b.cfg.Victims}); err != nil {
		return row, err
	}
	since := time.Now()
	limit := 5*lease + 5*time.Second
	if err := waiter.tell(order{Do: "await", Workers: b.cfg.Victims, Duration: limit}); err != nil {
		return row, err
	}
	time.Sleep(crashAfter)
	holder.kill()
	killed := time.Now()
	var o load.Outcome
	for {
		a, err := waiter.hear(limit + patience)
		if err != nil {
			if strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
				err = fmt.Errorf("%s: nothing within %v of the holder's death", stuckNote, limit)
			}
			return row, err
		}
		if !a.Got {
			break
		}
		o.Waits.Add(time.Since(killed))
		o.Ops++
	}
	outcome(&row, o)
	row.Seconds = time.Since(killed).Seconds()
	row.Extra = fmt.Sprintf("lease_ms=%d left_ms=%d", lease.Milliseconds(), (lease - killed.Sub(since)).Milliseconds())
	return row, nil
}

// renewal holds locks and does nothing, and measures what that costs, and whether they are still held in the end.
func (b *bench) renewal(ctx context.Context, p Peer, round int) (row results.Row, err error) {
	row = results.Blank(renewing, 1, b.cfg.Held, p.Name, round)
	s, err := startRedis()
	if err != nil {
		return row, err
	}
	defer s.stop()
	cs, err := startChildren(2)
	if err != nil {
		return row, err
	}
	defer cs.end()
	opened, err := cs.all(func(int) order {
		return order{Do: "open", Duration: b.cfg.WarmUp, Peer: p.Name, Setup: b.setup(s.addr, b.cfg.Renewal)}
	})
	if err != nil {
		return row, err
	}
	hold, err := cs[0].ask(order{Do: "hold", Workers: b.cfg.Held})
	if err != nil {
		return row, err
	}
	before, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	start := time.Now()
	time.Sleep(b.cfg.Renewal)
	after, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	row.Seconds = time.Since(start).Seconds()
	time.Sleep(min(b.cfg.Renewal/10, 500*time.Millisecond)) // and now no first lease is left
	free, err := cs[1].ask(order{Do: "probe", Workers: min(b.cfg.Held, 20)})
	if err != nil {
		return row, err
	}
	row.Ops = int64(b.cfg.Held)
	row.Extra = fmt.Sprintf("lease_ms=%d goroutines=%d bytes_per_lock=%d", opened[0].Lease.Milliseconds(),
		hold.Goroutines, hold.Heap/int64(b.cfg.Held))
	if !p.Etcd {
		// a rate for each lock, whatever the length of the lease: what one lease's time costs it
		leases := row.Seconds / opened[0].Lease.Seconds()
		row.Commands = float64(after.Since(before)) / float64(b.cfg.Held) / leases
		row.Scripts = float64(after.Scripts(before)) / float64(b.cfg.Held) / leases
		row.Extra += fmt.Sprintf(" commands_per_s=%.1f scripts_per_s=%.1f", float64(after.Since(before))/row.Seconds,
			float64(after.Scripts(before))/row.Seconds)
	}
	if free.Count > 0 {
		row.Lost = free.Count
		row.Note = fmt.Sprintf("not renewed: of %d locks looked at, %d were given to another process while held",
			min(b.cfg.Held, 20), free.Count)
	}
	return row, nil
}
