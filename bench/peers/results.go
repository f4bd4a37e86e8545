package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Row is one measurement, and a line of the CSV.
type Row struct {
	Workload string `csv:"workload"`
	Setting  string `csv:"setting"`
	Peer     string `csv:"peer"`
	Round    int    `csv:"round"`

	Seconds float64 `csv:"seconds"`
	Ops     int     `csv:"ops"`
	Rate    float64 `csv:"ops_per_s"`
	// Times of one operation: from asking to holding where workers wait for each other, otherwise the whole of it.
	P50 float64 `csv:"p50_us"`
	P99 float64 `csv:"p99_us"`

	Jain       float64 `csv:"jain"`            // 1: all workers got the same
	Commands   float64 `csv:"commands_per_op"` // on the server, those inside scripts included
	Scripts    float64 `csv:"scripts_per_op"`
	IdleMillis float64 `csv:"idle_ms"` // impatient: the longest time in which no worker held the lock
	GaveUp     float64 `csv:"gave_up_per_s"`

	Unfinished int    `csv:"unfinished"` // workers still waiting at the end: their waits are counted as far as they got
	Overlaps   int    `csv:"overlaps"`   // entries while another was inside
	Lost       int    `csv:"lost"`       // increments under the lock that are missing, and failed checks of workers
	Errors     int    `csv:"errors"`
	Note       string `csv:"note"`
}

// broken says what went wrong.
func (r Row) broken() string {
	var all []string
	for _, x := range []struct {
		n    int
		what string
	}{{r.Overlaps, "overlaps"}, {r.Lost, "lost"}, {r.Errors, "errors"}} {
		if x.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return strings.TrimSpace(strings.Join(all, ", ") + " " + r.Note)
}

// fact is one line about the run.
type fact struct{ name, value string }

// results is a whole run.
type results struct {
	Facts []fact
	Rows  []Row
}

func columns() (out []string) {
	t := reflect.TypeFor[Row]()
	for i := range t.NumField() {
		out = append(out, t.Field(i).Tag.Get("csv"))
	}
	return out
}

// save writes the facts as "# name: value", a header and the rows.
func (f results) save(name string) error {
	var b strings.Builder
	for _, x := range f.Facts {
		fmt.Fprintf(&b, "# %s: %s\n", x.name, x.value)
	}
	w := csv.NewWriter(&b)
	all := [][]string{columns()}
	for _, r := range f.Rows {
		v := reflect.ValueOf(r)
		var fields []string
		for i := range v.NumField() {
			if x, ok := v.Field(i).Interface().(float64); ok {
				fields = append(fields, strconv.FormatFloat(x, 'g', 5, 64))
			} else {
				fields = append(fields, fmt.Sprint(v.Field(i).Interface()))
			}
		}
		all = append(all, fields)
	}
	if err := w.WriteAll(all); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(b.String()), 0o666)
}

// line is what all rounds say of a peer in one setting: medians, and the worst of what must not be.
type line struct {
	Row
	overFloor float64 // 0: unknown
}

// lines has those of a setting from the highest rate down, and settings in the order of the rows.
func (f results) lines() (out []line) {
	type key struct{ workload, setting string }
	var order []key
	groups := map[key]map[string][]Row{}
	floor := map[string]float64{} // rate by setting and round
	at := func(r Row) string { return fmt.Sprint(r.Workload, r.Setting, r.Round) }
	for _, r := range f.Rows {
		k := key{r.Workload, r.Setting}
		if groups[k] == nil {
			groups[k] = map[string][]Row{}
			order = append(order, k)
		}
		groups[k][r.Peer] = append(groups[k][r.Peer], r)
		if r.Peer == floors[r.Workload] {
			floor[at(r)] = r.Rate
		}
	}
	for _, k := range order {
		var some []line
		for _, rows := range groups[k] {
			of := func(value func(Row) float64) float64 { return median(rows, value) }
			l := line{Row: Row{Workload: k.workload, Setting: k.setting, Peer: rows[0].Peer,
				Rate: of(func(r Row) float64 { return r.Rate }),
				P50:  of(func(r Row) float64 { return r.P50 }), P99: of(func(r Row) float64 { return r.P99 }),
				Jain: of(func(r Row) float64 { return r.Jain }), Commands: of(func(r Row) float64 { return r.Commands }),
				GaveUp: of(func(r Row) float64 { return r.GaveUp })}}
			l.overFloor = of(func(r Row) float64 {
				if floor[at(r)] == 0 {
					return 0
				}
				return r.Rate / floor[at(r)]
			})
			for _, r := range rows {
				l.IdleMillis = max(l.IdleMillis, r.IdleMillis)
				l.Overlaps, l.Lost, l.Errors = l.Overlaps+r.Overlaps, l.Lost+r.Lost, l.Errors+r.Errors
				l.Note = cmp.Or(l.Note, r.Note)
			}
			some = append(some, l)
		}
		slices.SortFunc(some, func(a, b line) int {
			return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Peer, b.Peer))
		})
		out = append(out, some...)
	}
	return out
}

func median(rows []Row, value func(Row) float64) float64 {
	all := make([]float64, len(rows))
	for i, r := range rows {
		all[i] = value(r)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// table is Markdown. Peers of this repository are bold.
func (f results) table() string {
	var b strings.Builder
	b.WriteString("| workload | peer | rate | of the floor | p50 | p99 | Jain | commands | went wrong |\n" +
		"|---|---|--:|--:|--:|--:|--:|--:|---|\n")
	for _, l := range f.lines() {
		name := l.Peer
		if p, err := peerNamed(name); err == nil && p.Module == here {
			name = "**" + name + "**"
		}
		over, jain, wrong := "-", "", l.broken()
		if l.overFloor > 0 {
			over = figure(l.overFloor) + "x"
		}
		if l.Workload == contended || l.Workload == impatient {
			jain = fmt.Sprintf("%.2f", l.Jain)
		}
		if l.IdleMillis > 0 {
			wrong = strings.TrimSuffix(fmt.Sprintf("free for %.0f ms; %s", l.IdleMillis, wrong), "; ")
		}
		commands := figure(l.Commands)
		if l.Commands == 0 {
			commands = "-"
		}
		fmt.Fprintf(&b, "| %s, %s | %s | %s/s | %s | %s | %s | %s | %s | %s |\n", l.Workload, l.Setting, name,
			figure(l.Rate), over, timeOf(l.P50), timeOf(l.P99), jain, commands, wrong)
	}
	return b.String()
}

// figure has two digits or more.
func figure(x float64) string {
	switch {
	case x >= 10000:
		return fmt.Sprintf("%.0fk", x/1000)
	case x >= 10:
		return fmt.Sprintf("%.0f", x)
	case x >= 1:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2g", x)
}

func timeOf(us float64) string {
	if us < 1000 {
		return figure(us) + " us"
	}
	return figure(us/1000) + " ms"
}

// longestIdle is how long a lock of redlatch may be free while callers want it.
const longestIdle = 100 // ms

// idle says where a lock of redlatch was free for longer.
func (f results) idle() error {
	var errs []error
	for _, r := range f.Rows {
		if p, err := peerNamed(r.Peer); err == nil && p.Module == here && r.IdleMillis > longestIdle {
			errs = append(errs, fmt.Errorf("%s was free for %.0f ms while callers waited: %s", r.Peer, r.IdleMillis, r.Setting))
		}
	}
	return errors.Join(errs...)
}
