package model

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Holds fails a test of a package in internal unless a search has looked at every state, and found nothing wrong, and
// proof/models/README.md says so.
func (r Result) Holds(t testing.TB, what string) {
	t.Helper()
	if r.Wrong != "" {
		t.Fatalf("%s: %s\n%s", what, r.Wrong, strings.Join(r.Trace, "\n"))
	}
	if !r.Exhausted {
		t.Fatalf("%s: not all states were looked at", what)
	}
	documented(t, fmt.Sprintf("| %s | %d | %d |", what, r.States, r.Depth))
}

// Finds fails a test unless a search without a rule has found that wrong, and proof/models/README.md says so, with
// shown for wrong.
func (r Result) Finds(t testing.TB, rule fmt.Stringer, wrong, shown string) {
	t.Helper()
	trace := strings.Join(r.Trace, "\n")
	if r.Wrong != wrong {
		t.Fatalf("without %v: found %q, want %q; %d states\n%s", rule, r.Wrong, wrong, r.States, trace)
	}
	t.Logf("%d states\n%s", r.States, trace)
	documented(t, fmt.Sprintf("| %v | %s, %d steps |", rule, shown, len(r.Trace)))
}

// documented looks for a row of what was searched.
func documented(t testing.TB, row string) {
	t.Helper()
	t.Log(row)
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), row) {
		t.Errorf("proof/models/README.md lacks this row: %s", row)
	}
}
