package rlock

import (
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

var keepScript = load("keep", "keep")

// keepKeys are the keys of keep.lua, or of rw_keep.lua, in which a writer has the lock in place of a reader's timeout key.
func (l *single) keepKeys(owner string) []string {
	keys := lockAlone(l.keys)
	switch l.kind.side {
	case reader:
		keys = slices.Concat(l.holdKeys(), []string{timeoutKey(l.key, owner, 1)})
	case writer:
		keys = slices.Concat(l.holdKeys(), lockAlone(l.keys))
	}
	if l.c.heartbeat > 0 {
		keys = slices.Concat(keys, []string{keptKey(l.key, owner)})
	}
	return keys
}

// keptKey is there while a hold is left to the end of its lease, which heartbeats have no say in.
func keptKey(key, owner string) string { return keyname.Prefix("redlatch_kept", key) + ":" + owner }

// runKeep leaves owner's hold to the end of a lease that is counted from now.
func (l *single) runKeep(ctx context.Context, owner string, lease time.Duration) (releaseStatus, error) {
	args := []string{l.field(owner), script.Millis(lease)}
	m, err := l.c.runner.Attempt(ctx, script.Call{Script: l.kind.keep, Keys: l.keepKeys(owner), Args: args})
	if err != nil {
		return 0, err
	}
	v, err := m.AsInt64()
	if v == 1 {
		return releaseDone, err
	}
	return releaseGone, err
}
