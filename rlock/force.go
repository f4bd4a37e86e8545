package rlock

import (
	"context"
	"maps"
	"strings"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// ForceUnlock removes the owners that hold the lock at the time of the call, and wakes the waiters. It reports whether
// the lock was held. An owner that acquires the lock during the call keeps it.
//
// A removed holder gets ErrLost at its next renewal. It gets ErrLost at once if its client tracks the key, or if it is
// a holder of this client and the lock is not a read-write one. Until then it may act at the same time as the next
// holder.
//
// The errors are those of [Lock.IsLocked]; after ErrUnknownOutcome the owners may have been removed.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	if l.bad != nil {
		return false, l.bad
	}
	return l.form.forceUnlock(ctx)
}

func (l *single) forceUnlock(ctx context.Context) (bool, error) {
	return session.Ask(ctx, l.c.session, nil, func(ctx context.Context) (bool, error) {
		reply, err := l.c.runInspect(ctx, l.key, false)
		if err != nil || !reply.locked {
			return false, err
		}
		fields := reply.fields
		if holds := l.kind.layout.isHoldField; holds != nil {
			fields = maps.Clone(fields)
			maps.DeleteFunc(fields, func(field, _ string) bool { return !holds(field) })
		}
		removed, err := l.removeOwners(ctx, fields)
		return removed > 0, err
	})
}

// removeOwners removes the owners of these fields from the lock's hash, and hands the lock over or wakes its waiters.
// It returns how many of them still held the lock.
func (l *single) removeOwners(ctx context.Context, fields map[string]string) (removed int64, err error) {
	owners := make([]string, 0, len(fields))
	var timeoutKeys []string
	for field, count := range fields {
		if strings.HasSuffix(field, "!") {
			continue
		}
		owners = append(owners, field)
		if l.kind.layout.companionKeys != nil {
			timeoutKeys = append(timeoutKeys, l.kind.layout.companionKeys(l, field, count)...)
		}
	}
	removed, err = l.runForce(ctx, owners, timeoutKeys)
	if err == nil {
		l.c.waiters.Wake(l.key)
		for _, owner := range owners { // end the holds of this client at once, before their next renewal
			if registered := l.c.engine.Find(l.leaseKey(owner), owner); registered != nil {
				l.c.engine.Lost(registered, errs.ErrLost)
			}
		}
	}
	return removed, err
}
