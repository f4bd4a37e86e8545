package rlock

import (
	"context"

	"github.com/redlatch/redlatch/internal/script"
)

var lockedScript = load("is locked", "locked").Reads()

// runLocked asks whether a lock, or a side of one, is held.
func (l *single) runLocked(ctx context.Context) (bool, error) {
	m, err := l.c.runner.Do(ctx, l.kind.locked(l))
	if err != nil {
		return false, err
	}
	n, err := script.Integer("is locked", m)
	return n > 0, err
}
