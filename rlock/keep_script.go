package rlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

var (
	keepScript = load("keep", "keep")
	lookScript = load("look at what is kept", "look").Reads()
)

// keepKeys are the keys of keep.lua, or of rw_keep.lua, in which a writer has the lock in place of a reader's timeout
// key.
func (l *single) keepKeys(owner string) []string {
	keys := l.kind.keepKeys(l, owner)
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
	v, err := script.Integer("keep", m)
	if releaseStatus(v) == releaseLook {
		l.trim(ctx)
		return releaseDone, err
	}
	return releaseStatus(v), err
}

// runBegin has the lock of an owner that goes on last for at least as long from now, whatever becomes of its process.
func (l *single) runBegin(ctx context.Context, owner string, least time.Duration) error {
	args := []string{l.field(owner), script.Millis(least), "1"}
	m, err := l.c.runner.Do(ctx, script.Call{Script: l.kind.keep, Keys: l.keepKeys(owner), Args: args})
	if err != nil {
		return err
	}
	switch v, err := script.Integer("keep", m); releaseStatus(v) {
	case releaseLook:
		l.trim(ctx)
		return nil
	case releaseDone:
		return nil
	default:
		return errors.Join(err, errs.ErrLost)
	}
}

// runLook has waiters look at a lock that is kept. Where that fails they look when they poll.
//
//	waiter                          holder                        server
//	asks: held, 30 s left
//	sleeps for its PollCap
//	                                UnlockAfter: keep             ends in 200 ms
//	                                look                          tells the first in line
//	asks: held, 200 ms left
//	sleeps until then
//
// A waiter that asks between the two gets the end, and one more message to look.
func (l *single) runLook(ctx context.Context) {
	_, _ = l.c.runner.Attempt(ctx, // if it fails, waiters poll
		script.Call{Script: lookScript, Keys: []string{l.keys[l.kind.queue]},
			Args: []string{l.c.publish, l.channel, l.grants}})
}
