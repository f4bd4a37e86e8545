package rlock

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// trim gives a read-write lock that Redisson's readers hold too the end of the last of its holds. A script said that it
// is to be asked for, because it could not see their ends: the keys of these follow from the lock's hash, and scripts
// look at no key that is not declared (lua/lib/rw.lua). If it fails, the lock's end is late, and so is a writer that
// waits for a reader of Redisson's which has died; that is over with the lease that the lock has.
func (l *single) trim(ctx context.Context) {
	r, err := l.c.runInspect(ctx, l.key, false)
	if err != nil {
		return
	}
	keys := slices.Clone(l.keys)
	args := []string{l.channel, l.c.publish, l.grants}
	for field, count := range r.fields {
		if field == "mode" || lease.Ours(field) || strings.HasSuffix(field, writing) || strings.HasSuffix(field, "!") {
			continue
		}
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || n > maxTimeouts-len(keys) {
			return // it is no count, or they are too many for one script
		}
		keys = append(keys, l.timeouts(field, count)...)
		args = append(args, field, count, strconv.Itoa(n))
	}
	_, _ = l.c.runner.Attempt(ctx, script.Call{Script: rwTrimScript, Keys: keys, Args: args})
}
