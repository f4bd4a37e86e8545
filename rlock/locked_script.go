package rlock

import (
	"context"

	"github.com/redlatch/redlatch/internal/script"
)

var lockedScript = load("is locked", "locked").Reads()

// runLocked reports whether a lock, or a side of a read-write lock, is held.
func (l *single) runLocked(ctx context.Context) (bool, error) {
	reply, err := l.c.runner.Do(ctx, l.kind.layout.locked(l))
	if err != nil {
		return false, err
	}
	holders, err := script.Integer("is locked", reply)
	return holders > 0, err
}
