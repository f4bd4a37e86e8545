//go:build unix

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// millis is a duration for JSON; -1 stands for no end.
func millis(d time.Duration) *int64 {
	ms := d.Milliseconds()
	if d < 0 {
		ms = -1
	}
	return &ms
}

// brief is a duration for people.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "no end"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func briefMillis(ms *int64) string {
	if ms == nil {
		return ""
	}
	return brief(time.Duration(*ms) * time.Millisecond)
}

// printable is a text from a server, fit for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// writeTable writes a line for each holder and waiter.
func writeTable(out io.Writer, all []status, wide bool) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	line := func(cells ...string) {
		if !wide {
			cells = cells[:len(cells)-1]
		}
		for i := range cells {
			cells[i] = printable(cells[i])
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	line("NAME", "KIND", "STATE", "WHO", "LEASE", "WAITS", "OWNER")
	for _, s := range all {
		kind := s.Kind
		if s.Available != nil {
			kind = fmt.Sprintf("semaphore, %d of %d free", *s.Available, s.Capacity)
		} else if s.Mode != "" {
			kind = "lock, " + s.Mode
		}
		if len(s.Holders) == 0 {
			line(s.Name, kind, "free", "", "", "", "")
		}
		for _, h := range s.Holders {
			who := h.Who
			if h.Count > 1 {
				who += fmt.Sprintf(" (%d times)", h.Count)
			}
			line(s.Name, kind, "held", who, briefMillis(h.LeaseMS), "", h.Owner)
		}
		for _, h := range s.Waiters {
			line(s.Name, kind, "waits", h.Who, "", briefMillis(h.WaitingMS), h.Owner)
		}
	}
}
