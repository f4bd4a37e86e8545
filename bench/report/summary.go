package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/bench/internal/results"
)

// Names that bench/peers gives.
const (
	ours       = "redlatch"
	floor      = "raw scripts"
	setnx      = "raw SET NX"
	claimFloor = "raw INCR"
	counterUp  = "Counter.Incr"

	plainLock   = "rlock.Plain"
	permit      = "rsemaphore.Permit"
	permitFloor = "raw permit scripts"
)

// setting is what is measured in turns.
type setting struct {
	workload           string
	processes, workers int
}

// summary is a run, cell by cell.
type summary struct {
	file  *results.File
	rows  map[setting]map[string][]results.Row // by peer
	peers []string                             // in the order of the facts, locks before claims

	// the run with Redisson, of large numbers, elsewhere, and on one processor; nil if there is none
	redisson, scale, places, onOne *summary
}

func summarise(f *results.File) *summary {
	s := &summary{file: f, rows: map[setting]map[string][]results.Row{}}
	for _, r := range f.Rows {
		k := setting{r.Workload, r.Processes, r.Workers}
		if s.rows[k] == nil {
			s.rows[k] = map[string][]results.Row{}
		}
		s.rows[k][r.Peer] = append(s.rows[k][r.Peer], r)
	}
	for _, x := range f.Facts {
		for _, kind := range []string{"peer ", "claims "} {
			if name, ok := strings.CutPrefix(x.Name, kind); ok {
				s.peers = append(s.peers, name)
			}
		}
	}
	return s
}

// wakes is how a peer's waiters learn that they may go on: push, poll or spin.
func (s *summary) wakes(peer string) string {
	how, _, _ := strings.Cut(s.file.Fact("peer "+peer), ",")
	return how
}

// settings returns those of a workload, few processes and workers first.
func (s *summary) settings(workload string) []setting {
	var out []setting
	for k := range s.rows {
		if k.workload == workload {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b setting) int {
		return cmp.Or(cmp.Compare(a.processes, b.processes), cmp.Compare(a.workers, b.workers))
	})
	return out
}

// metric is one column of the results; ok is false where it was not taken.
type metric func(r results.Row) (v float64, ok bool)

func column(of func(r results.Row) float64) metric {
	return func(r results.Row) (float64, bool) {
		v := of(r)
		return v, v >= 0
	}
}

var (
	rate      = column(func(r results.Row) float64 { return r.OpsPerSec })
	p50       = column(func(r results.Row) float64 { return r.P50 })
	p99       = column(func(r results.Row) float64 { return r.P99 })
	longest   = column(func(r results.Row) float64 { return r.Max })
	jain      = column(func(r results.Row) float64 { return r.Jain })
	least     = column(func(r results.Row) float64 { return float64(r.Least) })
	most      = column(func(r results.Row) float64 { return float64(r.Most) })
	commands  = column(func(r results.Row) float64 { return r.Commands })
	scripts   = column(func(r results.Row) float64 { return r.Scripts })
	serverCPU = column(func(r results.Row) float64 { return r.CPU })
	conns     = column(func(r results.Row) float64 { return float64(r.Conns) })
)

func extra(name string) metric {
	return func(r results.Row) (float64, bool) { return r.Value(name) }
}

// usable are rows that measured something.
func usable(rows []results.Row) []results.Row {
	var out []results.Row
	for _, r := range rows {
		if r.Seconds > 0 && (r.Ops > 0 || r.Unfinished > 0) {
			out = append(out, r)
		}
	}
	return out
}

// spread is a metric over the rounds.
type spread struct {
	median, low, high float64
	n                 int
}

func spreadOf(values []float64) (spread, bool) {
	if len(values) == 0 {
		return spread{}, false
	}
	slices.Sort(values)
	n := len(values)
	mid := (values[(n-1)/2] + values[n/2]) / 2
	return spread{mid, values[0], values[n-1], n}, true
}

func (s *summary) of(k setting, peer string, m metric) (spread, bool) {
	var values []float64
	for _, r := range usable(s.rows[k][peer]) {
		if v, ok := m(r); ok {
			values = append(values, v)
		}
	}
	return spreadOf(values)
}

// median is the median alone, and ok as of.
func (s *summary) median(k setting, peer string, m metric) (float64, bool) {
	v, ok := s.of(k, peer, m)
	return v.median, ok
}

// ratio is the metric of peer over that of base, round by round: what the machine did in a round was done to both.
func (s *summary) ratio(k setting, peer, base string, m metric) (spread, bool) {
	byRound := map[int]float64{}
	for _, r := range usable(s.rows[k][base]) {
		if v, ok := m(r); ok && v > 0 {
			byRound[r.Round] = v
		}
	}
	var values []float64
	for _, r := range usable(s.rows[k][peer]) {
		if b := byRound[r.Round]; b > 0 {
			if v, ok := m(r); ok {
				values = append(values, v/b)
			}
		}
	}
	return spreadOf(values)
}

// in are the peers of a setting, in the usual order.
func (s *summary) in(k setting) []string {
	var out []string
	for _, p := range s.peers {
		if len(s.rows[k][p]) > 0 && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// sorted are the peers of a setting by a metric, the best first; those without it are left out.
func (s *summary) sorted(k setting, m metric, high bool) []string {
	type at struct {
		peer string
		v    float64
	}
	var all []at
	for _, p := range s.in(k) {
		if v, ok := s.median(k, p, m); ok {
			all = append(all, at{p, v})
		}
	}
	slices.SortStableFunc(all, func(a, b at) int {
		if high {
			return cmp.Compare(b.v, a.v)
		}
		return cmp.Compare(a.v, b.v)
	})
	out := make([]string, len(all))
	for i, x := range all {
		out[i] = x.peer
	}
	return out
}

// rival reports whether a peer is a lock that a user could take in redlatch's place.
func rival(peer string) bool { return !isOurs(peer) && !strings.HasPrefix(peer, "raw ") }

// best is the first peer of sorted that keep wants.
func (s *summary) best(k setting, m metric, high bool, keep func(peer string) bool) (string, bool) {
	for _, p := range s.sorted(k, m, high) {
		if keep(p) {
			return p, true
		}
	}
	return "", false
}
