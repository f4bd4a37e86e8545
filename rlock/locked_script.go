package rlock

import "context"

var lockedScript = load("is locked", "locked")

// runLocked asks whether a lock, or a side of one, is held.
func (l *single) runLocked(ctx context.Context) (bool, error) {
	m, err := l.c.runner.Do(ctx, l.kind.locked(l))
	if err != nil {
		return false, err
	}
	n, err := m.AsInt64()
	return n > 0, err
}
