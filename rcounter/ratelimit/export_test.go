package ratelimit

import (
	"context"
	"time"
)

// LocalKeys is how many keys a limiter of the process remembers.
func (l *Limiter) LocalKeys() int {
	l.local.mu.Lock()
	defer l.local.mu.Unlock()
	return len(l.local.keys)
}

// TakeAs is the script, or the same here, with the call's id given.
func (l *Limiter) TakeAs(ctx context.Context, id, key string, n int64) (passed bool, empty time.Duration, err error) {
	r, err := l.take(ctx, id, key, n, time.Hour)
	return r.passed, r.empty, err
}
