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

// keepKeys returns the keys of keep.lua, or of rw_keep.lua, in which a writer passes the lock in place of a reader's
// timeout key.
func (l *single) keepKeys(owner string) []string {
	keys := l.kind.layout.keepKeys(l, owner)
	if l.c.monitor != nil {
		keys = slices.Concat(keys, []string{keptKey(l.key, owner)})
	}
	return keys
}

// keptKey returns the key that exists while a hold is kept until the end of its lease. Missing heartbeats do not end
// such a hold.
func keptKey(key, owner string) string { return keyname.Prefix("redlatch_kept", key) + ":" + owner }

// runKeep ends owner's hold, and keeps the lock until the end of a lease that counts from now.
func (l *single) runKeep(ctx context.Context, owner string, lease time.Duration) (releaseStatus, error) {
	args := []string{l.field(owner), script.Millis(lease)}
	reply, err := l.c.runner.Attempt(ctx, script.Call{Script: l.kind.layout.keep, Keys: l.keepKeys(owner), Args: args})
	if err != nil {
		return 0, err
	}
	status, err := script.Integer("keep", reply)
	if releaseStatus(status) == releaseNeedsTrim {
		l.trim(ctx)
		return releaseDone, err
	}
	return releaseStatus(status), err
}

// runKeepAtLeast makes the hold of an owner last for at least minimum from now, even if its process dies. The owner
// goes on holding the lock.
func (l *single) runKeepAtLeast(ctx context.Context, owner string, minimum time.Duration) error {
	args := []string{l.field(owner), script.Millis(minimum), "1"}
	reply, err := l.c.runner.Do(ctx, script.Call{Script: l.kind.layout.keep, Keys: l.keepKeys(owner), Args: args})
	if err != nil {
		return err
	}
	switch status, err := script.Integer("keep", reply); releaseStatus(status) {
	case releaseNeedsTrim:
		l.trim(ctx)
		return nil
	case releaseDone:
		return nil
	default:
		return errors.Join(err, errs.ErrLost)
	}
}

// runLook notifies waiters that a kept lock may end earlier than they expect. If the call fails, they learn of it when
// they poll.
//
//	waiter                          holder                        server
//	request: held, 30 s left
//	sleeps for its PollCap
//	                                UnlockAfter: keep             ends in 200 ms
//	                                look                          notifies the first in the queue
//	request: held, 200 ms left
//	sleeps until then
//
// A waiter whose request comes between keep and look gets the new end, and one more message.
func (l *single) runLook(ctx context.Context) {
	_, _ = l.c.runner.Attempt(ctx, // after a failure, waiters poll
		script.Call{Script: lookScript, Keys: []string{l.keys[l.kind.layout.queueIndex]},
			Args: []string{l.c.publish, l.channel, l.grants}})
}
