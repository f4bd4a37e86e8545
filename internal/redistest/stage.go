package redistest

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// Stage replaces the test to which servers belong, in a program that is not a test. A Stage is safe for concurrent use.
type Stage struct {
	testing.TB

	mu   sync.Mutex
	ends []func()
}

var testFlags sync.Once

// Try calls f, and returns the error with which f failed.
func (s *Stage) Try(f func()) error {
	testFlags.Do(func() {
		if !flag.Parsed() { // this package asks for the flags of a test
			testing.Init()
			_ = flag.CommandLine.Parse(nil) // nothing cannot be wrong
		}
	})
	return Try(f)
}

// Clear calls the functions of Cleanup, the last first.
func (s *Stage) Clear() {
	s.mu.Lock()
	ends := s.ends
	s.ends = nil
	s.mu.Unlock()
	for _, f := range slices.Backward(ends) {
		f()
	}
}

// Helper does nothing.
func (s *Stage) Helper() {}

// Logf does nothing.
func (s *Stage) Logf(string, ...any) {}

// Cleanup makes Clear call f.
func (s *Stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, f)
}

// Fatalf ends the Try in whose goroutine it is called.
func (s *Stage) Fatalf(format string, a ...any) { Must(fmt.Errorf(format, a...)) }

// Fatal is Fatalf.
func (s *Stage) Fatal(a ...any) { Must(fmt.Errorf("%s", fmt.Sprint(a...))) }

// Skip is Fatal: a program has nothing to skip.
func (s *Stage) Skip(a ...any) { s.Fatal(a...) }
