package rlock

import (
	"context"

	"github.com/redlatch/redlatch/internal/script"
)

var lockedScript = load("is locked", "locked")

// runLocked asks whether a lock, or a side of one, is held.
func (l *single) runLocked(ctx context.Context) (bool, error) {
	call := script.Call{Script: l.kind.locked, Keys: lockAlone(l.keys)}
	switch l.kind.side {
	case reader:
		call.Keys, call.Args = l.holdKeys(), []string{"read"}
	case writer:
		call.Keys, call.Args = l.holdKeys(), []string{"write"}
	}
	m, err := l.c.runner.Do(ctx, call)
	if err != nil {
		return false, err
	}
	n, err := m.AsInt64()
	return n > 0, err
}
