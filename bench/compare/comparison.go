package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// units are what is compared. Of all of them less is better.
var units = []string{"ns/op", "p50-us", "p99-us", "cmds/op", "scripts/op", "B/op", "allocs/op"}

// metric is one figure of one benchmark.
type metric struct{ bench, unit string }

// comparison is what both sides measured: before and after, by round.
type comparison struct {
	order  []metric
	values map[metric][2]map[int]float64
}

// add reads the lines of a run: a name, how often it ran, then numbers with their units.
func (c *comparison) add(side, round int, text string) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := words[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 { // GOMAXPROCS, which is the same for both
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i]
			}
		}
		for i := 2; i+1 < len(words); i += 2 {
			v, err := strconv.ParseFloat(words[i], 64)
			if err != nil || !slices.Contains(units, words[i+1]) {
				continue
			}
			m := metric{strings.TrimPrefix(name, "Benchmark"), words[i+1]}
			if c.values == nil {
				c.values = map[metric][2]map[int]float64{}
			}
			if _, known := c.values[m]; !known {
				c.order = append(c.order, m)
				c.values[m] = [2]map[int]float64{{}, {}}
			}
			c.values[m][side][round] = v
		}
	}
}

// verdict is what came of one figure.
type verdict struct {
	metric
	old, new         float64 // medians
	ratio, low, high float64 // of the rounds: median and extremes
	p                float64
	rounds           int
}

// judge compares the rounds that both sides have; ok is false if there are none.
func (c *comparison) judge(m metric) (v verdict, ok bool) {
	var before, after, ratios []float64
	for round, b := range c.values[m][0] {
		a, both := c.values[m][1][round]
		if !both {
			continue
		}
		before, after = append(before, b), append(after, a)
		switch {
		case b > 0:
			ratios = append(ratios, a/b)
		case a == b:
			ratios = append(ratios, 1)
		}
	}
	if len(before) == 0 {
		return v, false
	}
	v = verdict{metric: m, old: median(before), new: median(after), p: chance(before, after), rounds: len(before), ratio: 1, low: 1, high: 1}
	if len(ratios) > 0 {
		v.ratio, v.low, v.high = median(ratios), slices.Min(ratios), slices.Max(ratios)
	} else if v.new > v.old { // from nothing to something
		v.ratio, v.high = 2, 2
	}
	return v, true
}

// changed is "slower", "faster" or "" for what chance explains, or what is too small to matter.
func (v verdict) changed(least float64) string {
	switch {
	case v.p >= 0.05:
	case v.ratio >= 1+least:
		return "slower"
	case v.ratio <= 1-least:
		return "faster"
	}
	return ""
}

// write prints all figures, and again what got slower.
func (c *comparison) write(out io.Writer, old, new string, least float64) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "benchmark\tunit\t%s\t%s\tnew/old\tlowest .. highest\tp\t\n", old, new)
	var slower []string
	for _, m := range c.order {
		v, ok := c.judge(m)
		if !ok {
			continue
		}
		changed := v.changed(least)
		line := fmt.Sprintf("%s\t%s\t%.4g\t%.4g\t%.2fx\t%.2fx .. %.2fx\t%.3f\t", m.bench, m.unit, v.old, v.new, v.ratio, v.low, v.high, v.p)
		fmt.Fprintln(w, line+changed)
		if changed == "slower" {
			slower = append(slower, fmt.Sprintf("%s: %s %.2fx", m.bench, m.unit, v.ratio))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(slower) == 0 {
		_, err := fmt.Fprintln(out, "\nnothing got slower than noise")
		return err
	}
	_, err := fmt.Fprintf(out, "\nslower than noise:\n  %s\n", strings.Join(slower, "\n  "))
	return err
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// chance is how likely it is that values from one source differ as much as these do, in either direction: Mann-Whitney's U test,
// exact. It asks in how many of all pairs, one of each side, the second is the higher one; a tie is half a pair, which makes the
// answer a little too high.
func chance(before, after []float64) float64 {
	n, m := len(before), len(after)
	twice := 0 // of U
	for _, b := range before {
		for _, a := range after {
			switch {
			case a > b:
				twice += 2
			case a == b:
				twice++
			}
		}
	}
	u := (min(twice, 2*n*m-twice) + 1) / 2 // rounded up: towards chance
	// ways[i][j][u] is in how many orders of i and j values U is u.
	ways := make([][][]float64, n+1)
	for i := range ways {
		ways[i] = make([][]float64, m+1)
		for j := range ways[i] {
			ways[i][j] = make([]float64, n*m+1)
			if i == 0 || j == 0 {
				ways[i][j][0] = 1
				continue
			}
			for k := range ways[i][j] { // the last in the order is of after, above all i of before; or of before, above none
				if k >= i {
					ways[i][j][k] += ways[i][j-1][k-i]
				}
				ways[i][j][k] += ways[i-1][j][k]
			}
		}
	}
	var extreme, all float64
	for k, w := range ways[n][m] {
		all += w
		if k <= u {
			extreme += w
		}
	}
	return min(1, 2*extreme/all)
}
