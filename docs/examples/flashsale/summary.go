package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// summary is the end of a run, and the object that -json prints.
type summary struct {
	Stock      string `json:"stock"`       // name in Redis
	Server     string `json:"server"`      // addresses, or "embedded"
	Form       string `json:"form"`        // how the units are sold
	Units      int64  `json:"units"`       // limit of the stock
	SoldBefore int64  `json:"sold_before"` // units taken before this run
	Procs      int    `json:"procs"`
	Restarts   int64  `json:"restarts"` // of workers

	// Claims is what was read, header apart, and the sum of the seven below it.
	Claims     int64 `json:"claims"`
	Winners    int64 `json:"winners"`
	Already    int64 `json:"already_had_one"`
	SoldOut    int64 `json:"sold_out"`
	Malformed  int64 `json:"malformed"`
	Errors     int64 `json:"errors"`
	Unanswered int64 `json:"unanswered"`
	Cents      int64 `json:"cents_won,omitempty"` // of a red packet

	Seconds         float64 `json:"seconds"`
	ClaimsPerSecond int64   `json:"claims_per_second"`
	P50             float64 `json:"p50_ms"`
	P99             float64 `json:"p99_ms"`

	Complete    bool     `json:"complete"` // every line was read and answered
	Interrupted bool     `json:"interrupted"`
	Error       string   `json:"error,omitempty"` // why it is not complete
	Check       string   `json:"check"`           // "ok" or "failed"
	Rule        string   `json:"rule"`            // what was checked
	Faults      []string `json:"faults"`
	Notes       []string `json:"notes"`
	Exit        int      `json:"exit"`
}

func (s *sale) summarize(elapsed time.Duration, unanswered int64, end *sold) *summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.books.totals()
	r := &summary{
		Stock: s.name, Server: "embedded", Form: s.form.String(), Cents: t.cents, Units: s.units,
		SoldBefore: s.books.start.count, Procs: s.procs, Restarts: s.restarts.Load(),
		Claims: t.read, Winners: t.winners, Already: t.already, SoldOut: t.soldOut, Malformed: t.malformed, Errors: t.failed,
		Unanswered: unanswered,
		Seconds:    round(elapsed.Seconds()), ClaimsPerSecond: perSecond(t.answers(), elapsed), P50: millis(t.p50),
		P99:         millis(t.p99),
		Interrupted: s.signal != nil,
	}
	if !s.server.Embedded {
		r.Server = strings.Join(s.server.Addrs, ",")
	}
	if s.isOpen.Load() {
		r.Units = s.books.start.limit
	}
	r.Complete = s.readAll.Load() && unanswered == 0 && t.failed == 0 && s.reason == nil
	v := s.books.check(end, r.Complete, s.private)
	if sum := t.answers() + t.malformed + t.failed + unanswered; sum != t.read {
		v.faults = append(v.faults, fmt.Sprintf("%s were read and %s accounted for", plural(t.read, "claim"), group(sum)))
	}
	if offered := s.offered.Load(); r.Complete && offered+t.malformed != t.read {
		v.faults = append(v.faults,
			fmt.Sprintf("%s were read and %s handed out", plural(offered, "claim"), group(t.read-t.malformed)))
	}
	if v.extra > 0 {
		v.faults = append(v.faults, fmt.Sprintf("and %s more like these", group(v.extra)))
	}
	r.Check, r.Rule, r.Faults, r.Notes = "ok", v.rule, append([]string{}, v.faults...), append([]string{}, v.notes...)
	switch {
	case s.reason != nil:
		r.Error = s.reason.Error()
	case s.signal != nil:
		r.Error = "stopped by signal: " + s.signal.String()
	case t.failed > 0:
		r.Error = plural(t.failed, "claim") + " got no answer"
	}
	switch {
	case len(v.faults) > 0:
		r.Check, r.Exit = "failed", exitBad
	case s.signal != nil:
		r.Exit = exitStatus(s.signal)
	case !r.Complete:
		r.Exit = exitBad
	}
	return r
}

// print writes the summary, and says whether it could.
func (r *summary) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	var b strings.Builder
	row := func(label, value, more string) { fmt.Fprintf(&b, "%-18s %12s%s\n", label, value, more) }
	where := "on Redis at " + r.Server
	if r.Server == "embedded" {
		where = "on the embedded server"
	}
	fmt.Fprintf(&b, "%-18s %s %s\n", "stock", r.Stock, where)
	of := fmt.Sprintf("  of %s", plural(r.Units, "unit"))
	if r.SoldBefore > 0 {
		of += fmt.Sprintf(", %s sold before", group(r.SoldBefore))
	}
	if r.Form != (form{}).String() {
		fmt.Fprintf(&b, "%-18s %s\n", "sold as", r.Form)
	}
	row("claims read", group(r.Claims), "")
	row("  winners", group(r.Winners), of)
	row("  already had one", group(r.Already), "")
	row("  sold out", group(r.SoldOut), "")
	row("  malformed", group(r.Malformed), "")
	row("  errors", group(r.Errors), "")
	if r.Unanswered > 0 {
		row("  unanswered", group(r.Unanswered), "")
	}
	if r.Cents > 0 {
		row("amounts won", money(r.Cents), "")
	}
	row("claims/s", group(r.ClaimsPerSecond), fmt.Sprintf("  in %.2f s, %s", r.Seconds, plural(int64(r.Procs), "worker")))
	row("latency p50", fmt.Sprintf("%.2f ms", r.P50), "")
	row("latency p99", fmt.Sprintf("%.2f ms", r.P99), "")
	if r.Restarts > 0 {
		row("worker restarts", group(r.Restarts), "")
	}
	for _, n := range r.Notes {
		fmt.Fprintln(&b, "note:", n)
	}
	if r.Error != "" {
		fmt.Fprintln(&b, "incomplete:", r.Error)
	}
	if r.Check == "ok" {
		fmt.Fprintln(&b, "check ok:", r.Rule)
	}
	for _, f := range r.Faults {
		fmt.Fprintln(&b, "CHECK FAILED:", f)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func joinText(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func round(s float64) float64 { return math.Round(s*1000) / 1000 }
