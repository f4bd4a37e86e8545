package redistest

import (
	"log/slog"
	"strings"
	"sync"
)

// Logbook keeps what was logged. The zero value is empty. It is safe for concurrent use.
type Logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds to it.
func (b *Logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is all of it.
func (b *Logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count is how often s stands in it.
func (b *Logbook) Count(s string) int { return strings.Count(b.String(), s) }

// Logger writes to it.
func (b *Logbook) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
