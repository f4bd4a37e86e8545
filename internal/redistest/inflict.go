package redistest

import (
	"context"
	"time"
)

// IsScript matches calls of scripts.
func IsScript(words []string) bool { return words[0] == "EVALSHA" || words[0] == "EVAL" }

// Pause waits, and reports whether ctx lasted that long.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
