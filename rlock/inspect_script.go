package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

var inspectScript = load("inspect", "inspect").Reads()

type inspectReply struct {
	leaseLeft time.Duration
	locked    bool
	serverMs  int64             // the server's clock
	fields    map[string]string // the lock's hash
	ends      map[string]int64  // for a read-write lock: field -> end, server ms
	waiting   []inspectWaiter
	token     int64
}

type inspectWaiter struct {
	owner    string
	queuedAt int64 // server ms; 0: not known
	write    bool
}

// rwBand is WRITERS in queue.lua: in the queue of a read-write lock the scores of readers are below it, those of
// writers above.
const rwBand = 3e15

func decodeInspect(reply rueidis.RedisMessage) (inspectReply, error) {
	values, err := reply.ToArray()
	if err != nil || len(values) != 8 {
		return inspectReply{}, script.Unexpected("inspect", fmt.Sprintf("of %d values", len(values)), err)
	}
	left, _ := values[0].AsInt64()
	decoded := inspectReply{leaseLeft: script.Duration(left), locked: left != -2,
		ends: map[string]int64{}}
	if left == -1 {
		decoded.leaseLeft = noEnd
	}
	decoded.serverMs, _ = values[1].AsInt64()
	decoded.token, _ = values[6].AsInt64()
	list := func(index int) []string {
		texts, _ := values[index].AsStrSlice()
		return texts
	}
	fields, queue, ends := list(2), list(3), list(4)
	decoded.fields = make(map[string]string, len(fields)/2)
	for i := 1; i < len(fields); i += 2 {
		decoded.fields[fields[i-1]] = fields[i]
	}
	for i := 1; i < len(ends); i += 2 {
		end, _ := strconv.ParseFloat(ends[i], 64)
		decoded.ends[ends[i-1]] = int64(end)
	}
	for i := 1; i < len(queue); i += 2 {
		queuedAt, _ := strconv.ParseFloat(queue[i], 64)
		if entry, ok := wait.ReadEntry(queue[i-1]); ok {
			waiting := inspectWaiter{owner: entry.Owner(), queuedAt: int64(queuedAt / 1000)}
			decoded.waiting = append(decoded.waiting, waiting)
		}
	}
	rwQueue := list(7)
	for i := 1; i < len(rwQueue); i += 2 {
		score, _ := strconv.ParseFloat(rwQueue[i], 64)
		queuedAt := int64(math.Mod(score, rwBand) / 1000)
		if entry, ok := wait.ReadEntry(rwQueue[i-1]); ok {
			waiting := inspectWaiter{entry.Owner(), queuedAt, score >= rwBand}
			decoded.waiting = append(decoded.waiting, waiting)
		}
	}
	slices.SortStableFunc(decoded.waiting, func(a, b inspectWaiter) int { return cmp.Compare(a.queuedAt, b.queuedAt) })
	for _, owner := range list(5) {
		decoded.waiting = append(decoded.waiting, inspectWaiter{owner: owner})
	}
	return decoded, nil
}

// runInspect reads the holders of a lock and, if all is set, the rest: waiters, ends, the last token.
func (c *Client) runInspect(ctx context.Context, key string, all bool) (inspectReply, error) {
	keys := []string{key}
	if all {
		ownKey := keyname.Own(key) // the kinds that have these keys refuse a name that is one pair of braces
		keys = append(keys, queueKey(key), keyname.Prefix("redlatch_rw", key),
			keyname.Prefix("redisson_lock_queue", ownKey), keyname.Prefix("redisson_lock_token", ownKey), rwQueueKey(key))
	}
	reply, err := c.runner.Do(ctx, script.Call{Script: inspectScript, Keys: keys})
	var redisErr *rueidis.RedisError
	if all && errors.As(err, &redisErr) && (redisErr.IsTryAgain() || strings.HasPrefix(redisErr.Error(), "NOPERM")) {
		// The slot is being migrated, or the user has no right to the other kinds' keys.
		return c.runInspect(ctx, key, false)
	}
	if err != nil {
		return inspectReply{}, err
	}
	return decodeInspect(reply)
}
