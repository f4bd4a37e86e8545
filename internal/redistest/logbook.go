package redistest

import (
	"log/slog"
	"strings"
	"sync"
)

// Logbook keeps log lines. The zero value is empty. It is safe for concurrent use.
type Logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends to the log.
func (b *Logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the whole log.
func (b *Logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns how often s is in the log.
func (b *Logbook) Count(s string) int { return strings.Count(b.String(), s) }

// Logger returns a logger that writes to the Logbook.
func (b *Logbook) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
