package redistest

import (
	"context"
	"fmt"
	"sync"
)

// Steps is the notes of an observer under test. Each action that begins has a number, which its context carries.
type Steps struct {
	mu    sync.Mutex
	last  int
	notes []string
}

type stepKey struct{ of *Steps }

// Step returns the number that ctx carries, or 0.
func (s *Steps) Step(ctx context.Context) int {
	n, _ := ctx.Value(stepKey{s}).(int)
	return n
}

// Note appends a line.
func (s *Steps) Note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// Begin gives an action its number, appends a line, and returns the context of the action.
func (s *Steps) Begin(ctx context.Context, format string, args ...any) context.Context {
	s.mu.Lock()
	s.last++
	n := s.last
	s.mu.Unlock()
	s.Note("%d "+format, append([]any{n}, args...)...)
	return context.WithValue(ctx, stepKey{s}, n)
}

// Take returns the lines since the last Take.
func (s *Steps) Take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	notes := s.notes
	s.notes = nil
	return notes
}
