package rlock

import (
	"context"
	"slices"

	"github.com/redlatch/redlatch/internal/script"
)

var forceScript = load("force unlock", "force")

// runForce removes owners, which are fields of the lock's hash, and returns how many of them still held the lock.
// timeouts are the keys in which Redisson has the ends of these fields of a read-write lock.
func (l *single) runForce(ctx context.Context, fields, timeouts []string) (removed int64, err error) {
	args := slices.Concat([]string{l.channel, l.c.publish, l.grants}, fields)
	call := script.Call{Script: l.kind.layout.force, Keys: slices.Concat(l.keys, timeouts), Args: args}
	reply, err := l.c.callWithQueue(ctx, &call)
	if err != nil {
		return 0, err
	}
	removed, err = script.Integer("force unlock", reply)
	if removed < 0 { // only for a read-write lock: see rw_force.lua
		l.trim(ctx)
	}
	return max(removed, -removed), err
}
