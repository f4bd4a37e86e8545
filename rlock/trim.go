package rlock

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// trim shortens a read-write lock to the end of the last of its holds, if readers of Redisson hold it, too. A script
// requests this by its reply, because it cannot read the ends of these readers: their keys follow from the lock's hash,
// and scripts read only declared keys (lua/lib/rw.lua). If trim fails, the lock ends late, and a writer that waits for
// a dead reader of Redisson's waits until the end of the lock's present lease.
func (l *single) trim(ctx context.Context) {
	reply, err := l.c.runInspect(ctx, l.key, false)
	if err != nil {
		return
	}
	keys := slices.Clone(l.keys)
	args := []string{l.channel, l.c.publish, l.grants}
	for field, count := range reply.fields {
		if field == "mode" || lease.Ours(field) || strings.HasSuffix(field, writing) || strings.HasSuffix(field, "!") {
			continue
		}
		timeoutCount, err := strconv.Atoi(count)
		if err != nil || timeoutCount < 1 || timeoutCount > maxTimeouts-len(keys) {
			return // the field has no valid count, or the keys are too many for one script
		}
		keys = append(keys, l.timeouts(field, count)...)
		args = append(args, field, count, strconv.Itoa(timeoutCount))
	}
	_, _ = l.c.runner.Attempt(ctx, script.Call{Script: rwTrimScript, Keys: keys, Args: args})
}
