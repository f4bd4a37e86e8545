package rlock

import (
	"context"
	"maps"
	"strings"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// ForceUnlock takes the lock from the owners that hold it at the time of the call, and wakes the waiters. It reports
// whether it was held. A holder learns of it, as ErrLost, at its next renewal, or at once if its client tracks the key,
// or if it is a holder of this client and the lock is not a read-write one. Until then it may act at the same time as
// the next holder. An owner that acquires the lock during the call keeps it. The errors are those of [Lock.IsLocked];
// after ErrUnknownOutcome the lock may have been taken.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	if l.bad != nil {
		return false, l.bad
	}
	return l.form.forceUnlock(ctx)
}

func (l *single) forceUnlock(ctx context.Context) (bool, error) {
	return session.Ask(ctx, l.c.session, nil, func(ctx context.Context) (bool, error) {
		r, err := l.c.runInspect(ctx, l.key, false)
		if err != nil || !r.locked {
			return false, err
		}
		fields := r.fields
		if holds := l.kind.holds; holds != nil {
			fields = maps.Clone(fields)
			maps.DeleteFunc(fields, func(field, _ string) bool { return !holds(field) })
		}
		removed, err := l.evict(ctx, fields)
		return removed > 0, err
	})
}

// evict takes the lock from the owners of these fields of its hash, hands it over or wakes its waiters, and returns how
// many of them held it still.
func (l *single) evict(ctx context.Context, fields map[string]string) (removed int64, err error) {
	owners := make([]string, 0, len(fields))
	var more []string
	for field, count := range fields {
		if strings.HasSuffix(field, "!") {
			continue
		}
		owners = append(owners, field)
		if l.kind.gone != nil {
			more = append(more, l.kind.gone(l, field, count)...)
		}
	}
	removed, err = l.runForce(ctx, owners, more)
	if err == nil {
		l.c.waiters.Wake(l.key)
		for _, o := range owners { // those of this client learn of it now
			if held := l.c.engine.Find(l.leaseKey(o), o); held != nil {
				l.c.engine.Lost(held, errs.ErrLost)
			}
		}
	}
	return removed, err
}
