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
)

var inspectScript = load("inspect", "inspect").Reads()

type inspectReply struct {
	left    time.Duration
	locked  bool
	server  int64             // its clock, ms
	fields  map[string]string // of the lock's hash
	ends    map[string]int64  // of a read-write lock: field -> end, server ms
	waiting []inspectWaiter
	token   int64
}

type inspectWaiter struct {
	owner string
	since int64 // server ms; 0: not known
	write bool
}

// rwBand is BAND in rwqueue.lua: a read-write lock's readers stand below it in the queue's scores, writers above.
const rwBand = 3e15

func decodeInspect(m rueidis.RedisMessage) (inspectReply, error) {
	v, err := m.ToArray()
	if err != nil || len(v) != 8 {
		return inspectReply{}, script.Unexpected("inspect", fmt.Sprintf("of %d values", len(v)), err)
	}
	left, _ := v[0].AsInt64()
	r := inspectReply{left: time.Duration(left) * time.Millisecond, locked: left != -2, ends: map[string]int64{}}
	if left == -1 {
		r.left = noEnd
	}
	r.server, _ = v[1].AsInt64()
	r.token, _ = v[6].AsInt64()
	list := func(n int) []string {
		s, _ := v[n].AsStrSlice()
		return s
	}
	fields, queue, ends := list(2), list(3), list(4)
	r.fields = make(map[string]string, len(fields)/2)
	for i := 1; i < len(fields); i += 2 {
		r.fields[fields[i-1]] = fields[i]
	}
	for i := 1; i < len(ends); i += 2 {
		end, _ := strconv.ParseFloat(ends[i], 64)
		r.ends[ends[i-1]] = int64(end)
	}
	for i := 1; i < len(queue); i += 2 {
		us, _ := strconv.ParseFloat(queue[i], 64)
		owner, _, _ := strings.Cut(queue[i-1], " ")
		r.waiting = append(r.waiting, inspectWaiter{owner: owner, since: int64(us / 1000)})
	}
	sided := list(7)
	for i := 1; i < len(sided); i += 2 {
		score, _ := strconv.ParseFloat(sided[i], 64)
		owner, _, _ := strings.Cut(sided[i-1], " ")
		r.waiting = append(r.waiting, inspectWaiter{owner, int64(math.Mod(score, rwBand) / 1000), score >= rwBand})
	}
	slices.SortStableFunc(r.waiting, func(a, b inspectWaiter) int { return cmp.Compare(a.since, b.since) })
	for _, owner := range list(5) {
		r.waiting = append(r.waiting, inspectWaiter{owner: owner})
	}
	return r, nil
}

// runInspect asks for the holders of a lock and, if it is for all, for the rest: waiters, ends, the last
// token.
func (c *Client) runInspect(ctx context.Context, key string, all bool) (inspectReply, error) {
	keys := []string{key}
	if all {
		own := keyname.Own(key) // a kind of which Redisson has such keys refuses a name that is one pair of braces
		keys = append(keys, queueKey(key), keyname.Prefix("redlatch_rw", key),
			keyname.Prefix("redisson_lock_queue", own), keyname.Prefix("redisson_lock_token", own), rwQueueKey(key))
	}
	m, err := c.runner.Do(ctx, script.Call{Script: inspectScript, Keys: keys})
	var re *rueidis.RedisError
	if all && errors.As(err, &re) && (re.IsTryAgain() || strings.HasPrefix(re.Error(), "NOPERM")) {
		return c.runInspect(ctx, key, false) // the slot is being migrated, or the user has no right to the other kinds' keys
	}
	if err != nil {
		return inspectReply{}, err
	}
	return decodeInspect(m)
}
