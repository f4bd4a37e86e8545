package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// report is the end of a run.
type report struct {
	opening
	took     time.Duration
	receipts []receipt
	faults   map[string]int
	restarts map[string]int // of processes, by role
	retries  int64
	waits    []waitRow
	findings []finding
}

const maxFaults = 8 // of one finding are printed

// print writes the report, for a person.
func (r report) print(to io.Writer) error {
	var b strings.Builder
	head := func(format string, args ...any) { fmt.Fprintf(&b, "\n"+format+"\n", args...) }
	row := func(n any, format string, args ...any) {
		fmt.Fprintf(&b, "  %7v  %s\n", n, fmt.Sprintf(format, args...))
	}

	head("A sale of %d units at %s to %d customers, in %.1f s, on %s", r.Units, money(r.Cents), r.Customers,
		r.took.Seconds(), r.Server)
	row(r.Workers, "shop workers%s", again(r.restarts["worker"]))
	row(r.Movers, "ledger movers%s", again(r.restarts["mover"]))

	head("What became of the customers")
	states := map[string]int{}
	for _, x := range r.receipts {
		states[x.says()]++
	}
	for _, s := range says {
		if n := states[s]; n > 0 {
			row(n, "%s", s)
		}
	}

	if len(r.faults) > 0 {
		head("What went wrong meanwhile")
		for _, kind := range faultKinds {
			if n := r.faults[kind]; n > 0 {
				row(n, "%s", kind)
			}
		}
		row(r.retries, "requests sent again, under the same ids")
	}

	head("How long they waited%33s %9s %9s %9s", "sent again", "half", "99 %", "all")
	for _, w := range r.waits {
		row(w.Requests, "%-32s %6d %9s %9s %9s", w.Verb, w.Again, short(w.Half), short(w.Most), short(w.Max))
	}

	head("Does it add up")
	for _, f := range r.findings {
		sign := "ok"
		if len(f.Faults) > 0 {
			sign = "WRONG"
		}
		row(sign, "%-23s %s", f.Name, f.Proof)
		for i, fault := range f.Faults {
			if i == maxFaults {
				row("", "and %d more", len(f.Faults)-i)
				break
			}
			row("", "%s", fault)
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// says are what a receipt can say, in the report's order.
var says = []string{
	"have a unit", "have one though they paid late: there was one left",
	"paid late and got their money back: nothing was left",
	"had one and gave it back for their money", "cancelled", "never paid", "found everything sold",
	"got another answer", "got no answer",
}

// says is a receipt in the report's words.
func (r receipt) says() string {
	switch {
	case r.Err != "":
		return says[8]
	case r.State == sold && r.Late:
		return says[1]
	case r.State == sold:
		return says[0]
	case r.State == refunded:
		return says[2]
	case r.State == returned:
		return says[3]
	case r.State == cancelled:
		return says[4]
	case slices.Contains([]state{held, expired}, r.State):
		return says[5]
	case r.State == soldOut:
		return says[6]
	}
	return says[7]
}

func again(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d started again", n)
}

// short writes a duration in the width of a column.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
