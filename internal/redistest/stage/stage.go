// Package stage lets a program that is not a test have the servers of redistest.
package stage

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// Stage stands in for the test that the servers of redistest belong to. It is safe for concurrent use.
type Stage struct {
	testing.TB

	mu   sync.Mutex
	ends []func()
}

// broken is what a failure throws.
type broken struct{ error }

var flags sync.Once

// Try calls f, and returns what it failed with.
func (s *Stage) Try(f func()) (err error) {
	flags.Do(func() {
		if !flag.Parsed() { // redistest asks for the flags of a test
			testing.Init()
			_ = flag.CommandLine.Parse(nil) // nothing cannot be wrong
		}
	})
	defer func() {
		switch r := recover().(type) {
		case nil:
		case broken:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// Clear ends what was started, the last first.
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

// Cleanup has Clear call f.
func (s *Stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, f)
}

// Fatalf ends the Try that it is called in, in its goroutine.
func (s *Stage) Fatalf(format string, a ...any) { panic(broken{fmt.Errorf(format, a...)}) }

// Fatal is Fatalf.
func (s *Stage) Fatal(a ...any) { panic(broken{fmt.Errorf("%s", fmt.Sprint(a...))}) }

// Skip is Fatal: a program has nothing to skip.
func (s *Stage) Skip(a ...any) { s.Fatal(a...) }
