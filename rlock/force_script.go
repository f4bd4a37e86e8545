package rlock

import (
	"context"
	"slices"

	"github.com/redlatch/redlatch/internal/script"
)

var forceScript = load("force unlock", "force")

// forceRequest takes a lock from owners.
type forceRequest struct {
	fields   []string // of the lock's hash
	timeouts []string // of a read-write lock: the keys in which Redisson has the ends of these fields
}

func forceCall(l *single, r forceRequest) script.Call {
	args := slices.Concat([]string{l.channel, l.c.publish, l.grants}, r.fields)
	return script.Call{Script: l.kind.force, Keys: slices.Concat(l.keys, r.timeouts), Args: args}
}

// runForce returns how many held the lock still.
func (l *single) runForce(ctx context.Context, r forceRequest) (removed int64, err error) {
	call := forceCall(l, r)
	m, err := l.c.queued(ctx, &call)
	if err != nil {
		return 0, err
	}
	return m.AsInt64()
}
