package session

import (
	"context"
	"fmt"
	"sync"

	"github.com/redlatch/redlatch/internal/errs"
)

// Tasks are goroutines that are waited for. Unlike a sync.WaitGroup's, they may be started while somebody waits. The zero value
// has none.
type Tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n gets to 0; nil while nobody waits
}

// Spawn runs fn on a goroutine of its own.
func (t *Tasks) Spawn(fn func()) {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
	go func() {
		defer t.done()
		fn()
	}()
}

func (t *Tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// Wait waits until no task is left. The error says that ctx ended first, and how many were left.
func (t *Tasks) Wait(ctx context.Context) error {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 {
		return nil
	}
	return fmt.Errorf("close: %d tasks in the background still under way: %w", t.n, errs.Ended(ctx))
}
