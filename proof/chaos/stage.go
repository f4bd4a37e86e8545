package main

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// stage stands in for the test that the servers of redistest belong to, because this program is none. It is safe
// for concurrent use.
type stage struct {
	testing.TB

	mu   sync.Mutex
	ends []func()
}

var flags sync.Once

// Try calls f, and returns what it failed with.
func (s *stage) Try(f func()) error {
	flags.Do(func() {
		if !flag.Parsed() { // redistest asks for the flags of a test
			testing.Init()
			_ = flag.CommandLine.Parse(nil) // nothing cannot be wrong
		}
	})
	return redistest.Try(f)
}

// Clear ends what was started, the last first.
func (s *stage) Clear() {
	s.mu.Lock()
	ends := s.ends
	s.ends = nil
	s.mu.Unlock()
	for _, f := range slices.Backward(ends) {
		f()
	}
}

// Helper does nothing.
func (s *stage) Helper() {}

// Logf does nothing.
func (s *stage) Logf(string, ...any) {}

// Cleanup has Clear call f.
func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, f)
}

// Fatalf ends the Try that it is called in, in its goroutine.
func (s *stage) Fatalf(format string, a ...any) { redistest.Must(fmt.Errorf(format, a...)) }

// Fatal is Fatalf.
func (s *stage) Fatal(a ...any) { redistest.Must(fmt.Errorf("%s", fmt.Sprint(a...))) }

// Skip is Fatal: a program has nothing to skip.
func (s *stage) Skip(a ...any) { s.Fatal(a...) }
