package rlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// Each script has one function that writes its arguments and one that reads its reply.
var (
	acquireScript = load("acquire", "acquire")
	fencedScript  = load("acquire", "fenced_acquire")
	voteScript    = load("acquire a vote", "vote_acquire")
	severalScript = load("acquire several", "several_acquire")
	releaseScript = load("release", "release")
	renewScript   = load("renew", "renew")
	keepScript    = load("keep", "keep")
	queryScript   = load("query", "query")
	joinScript    = load("join", "join")
	inspectScript = load("inspect", "inspect")
	forceScript   = load("force unlock", "force")
)

type acquireStatus int64

const (
	acquireHeld acquireStatus = iota
	acquireGranted
	acquireLate
	acquireLost
	acquireYoung // of a Quorum's member: the server has been up for too short a time
)

type acquireReply struct {
	status  acquireStatus
	left    time.Duration // negative: without end
	server  int64         // its clock, ms
	ticket  int64         // in the queue; 0: not in it
	foreign bool          // the holder is not one of ours
	token   int64         // fencing token of a new hold; 0: none
	run     int64         // of a Quorum's member: which run of the server it is, of its run_id; 0: not said
}

// Clock implements script.Reply.
func (r acquireReply) Clock() (server int64, late bool) { return r.server, r.status == acquireLate }

// asked are the arguments with which the scripts that acquire begin, with room for more.
func (r acquireRequest) asked(more int) []string {
	args := make([]string, 4, 4+more)
	args[0], args[1], args[2], args[3] = r.owner, strconv.Itoa(r.want), script.Millis(r.lease), strconv.FormatInt(r.notAfter, 10)
	return args
}

// acquireCall asks for the lock; with an entry also for a place in the queue.
func acquireCall(l *single, r acquireRequest) script.Call {
	args := append(r.asked(3), l.c.publish, l.grants)
	if r.entry != "" {
		args = append(args, r.entry)
	}
	return script.Call{Script: acquireScript, Keys: l.keys, Args: args}
}

// fencedCall asks for a fenced lock.
func fencedCall(l *single, r acquireRequest) script.Call {
	keys := append(l.keys[:len(l.keys):len(l.keys)], keyname.Prefix("redisson_lock_token", l.key))
	args := append(r.asked(4), l.c.publish, l.grants, r.entry, script.Millis(l.c.tokenRetention))
	return script.Call{Script: fencedScript, Keys: keys, Args: args}
}

// voteCall asks a member of a Quorum for its vote. Nobody queues for one.
func voteCall(l *single, r acquireRequest) script.Call {
	args := append(r.asked(3), l.c.publish, l.grants, script.Millis(max(r.lease, l.c.opts.WatchdogTimeout)))
	return script.Call{Script: voteScript, Keys: l.keys, Args: args}
}

// severalRequest is one try to take several locks of a client.
type severalRequest struct {
	owners   []*owner // one of each lock
	lease    time.Duration
	notAfter int64 // server ms; 0: any time
}

func severalCall(c *Client, r severalRequest) script.Call {
	keys := make([]string, 0, 2*len(r.owners))
	args := make([]string, 4, 4+2*len(r.owners))
	args[0], args[1], args[2], args[3] = "0", script.Millis(r.lease), strconv.FormatInt(r.notAfter, 10), c.publish
	if c.handover {
		args[0] = "1"
	}
	for _, own := range r.owners {
		keys = append(keys, own.lock.key)
		if c.handover {
			keys = append(keys, queueKey(own.lock.key))
		}
		args = append(args, own.Lease.Owner, own.lock.grants)
	}
	return script.Call{Script: severalScript, Keys: keys, Args: args}
}

type severalReply struct {
	status acquireStatus
	left   time.Duration // of the lock that is held; negative: without end
	server int64         // its clock, ms
	which  int64         // is held, from 1
}

// Clock implements script.Reply.
func (r severalReply) Clock() (server int64, late bool) { return r.server, r.status == acquireLate }

func decodeSeveral(m rueidis.RedisMessage, n int) (severalReply, error) {
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 4 || acquireStatus(v[0]) == acquireHeld && (v[3] < 1 || v[3] > int64(n)) {
		return severalReply{}, fmt.Errorf("acquire several: unexpected reply %v, error %v", v, err)
	}
	return severalReply{acquireStatus(v[0]), time.Duration(v[1]) * time.Millisecond, v[2], v[3]}, nil
}

// joinCall's reply is that of acquireCall.
func joinCall(key, parent, joiner string, lease time.Duration, notAfter int64, late func(rueidis.RedisResult)) script.Call {
	return script.Call{
		Script: joinScript, Keys: []string{key}, Late: late,
		Args: []string{parent, joiner, script.Millis(lease), strconv.FormatInt(notAfter, 10)},
	}
}

// queued makes a call whose second key, if it has one, is the queue. While a slot is being migrated a script with two
// keys is refused, held or free; the lock alone is the truth, and its waiters poll meanwhile.
func (c *Client) queued(ctx context.Context, call *script.Call) (rueidis.RedisMessage, error) {
	m, err := c.runner.Attempt(ctx, *call)
	if err != nil && len(call.Keys) > 1 {
		var re *rueidis.RedisError
		if errors.As(err, &re) && re.IsTryAgain() {
			call.Keys = call.Keys[:1]
			m, err = c.runner.Attempt(ctx, *call)
		}
	}
	return m, err
}

func decodeAcquire(m rueidis.RedisMessage) (acquireReply, error) {
	v, err := m.AsIntSlice()
	if err != nil || len(v) < 3 {
		return acquireReply{}, fmt.Errorf("acquire: unexpected reply %v, error %v", v, err)
	}
	r := acquireReply{status: acquireStatus(v[0]), left: time.Duration(v[1]) * time.Millisecond, server: v[2]}
	if len(v) > 4 {
		r.ticket, r.foreign = v[3], v[4] == 1
	}
	if len(v) > 5 {
		r.token = v[5]
	}
	if len(v) > 6 {
		r.run = v[6]
	}
	return r, nil
}

type releaseStatus int64

const (
	releaseGone releaseStatus = iota
	releaseKept
	releaseDone
)

type releaseReply struct {
	status  releaseStatus
	outcome int64 // for the waiter named: 1 it holds the lock now, 2 it is in the queue, 0 neither
	ticket  int64 // in the queue
}

func releaseCall(l *single, r releaseRequest) script.Call {
	args := []string{r.owner, strconv.Itoa(r.remaining), l.channel, l.c.publish, l.grants, r.entry}
	if o := r.offer; o != nil {
		local := "0"
		if o.Local {
			local = "1"
		}
		args = append(args, o.Owner, o.Entry, script.Millis(o.Lease), strconv.FormatInt(r.notAfter, 10), local)
	}
	return script.Call{Script: releaseScript, Keys: l.keys, Args: args}
}

func decodeRelease(m rueidis.RedisMessage, named bool) (releaseReply, error) {
	if !named {
		v, err := m.AsInt64()
		return releaseReply{status: releaseStatus(v)}, err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 3 {
		return releaseReply{}, fmt.Errorf("release: unexpected reply %v, error %v", v, err)
	}
	return releaseReply{releaseStatus(v[0]), v[1], v[2]}, nil
}

func (l *single) sendRelease(ctx context.Context, r releaseRequest) (releaseReply, error) {
	call := l.kind.release(l, r)
	m, err := l.c.queued(ctx, &call)
	if err != nil {
		return releaseReply{}, err
	}
	return decodeRelease(m, r.offer != nil)
}

// runRelease lowers the count, or ends the hold; entry: of this owner, if it may still be in the queue.
func (l *single) runRelease(ctx context.Context, owner string, remaining int, entry string) (releaseStatus, error) {
	r, err := l.sendRelease(ctx, releaseRequest{owner: owner, remaining: remaining, entry: entry})
	return r.status, err
}

// runPass ends a hold and may make the waiter named the next holder.
func (l *single) runPass(ctx context.Context, owner, entry string, o *wait.Offer) (releaseStatus, error) {
	notAfter := l.c.runner.Clock.At(l.key, o.NotAfter)
	if notAfter == 0 {
		o.Refused()
		return l.runRelease(ctx, owner, 0, entry)
	}
	sent := time.Now()
	r, err := l.sendRelease(ctx, releaseRequest{owner: owner, entry: entry, offer: o, notAfter: notAfter})
	switch {
	case err != nil:
		o.Failed()
	case r.outcome == 1:
		o.Granted(sent)
	case r.outcome == 2:
		o.Queued(r.ticket, sent)
	default:
		o.Refused()
	}
	return r.status, err
}

// keptKey is there while a hold is left to the end of its lease, which heartbeats have no say in.
func keptKey(key, owner string) string { return keyname.Prefix("redlatch_kept", key) + ":" + owner }

// runKeep leaves a hold to the end of a lease from now. Its reply is that of runRelease.
func (l *single) runKeep(ctx context.Context, owner string, d time.Duration) (releaseStatus, error) {
	keys := l.keys[:1:1]
	switch l.kind.side {
	case reader:
		keys = l.readKeys(owner)
	case writer:
		keys = append(l.keys[:2:2], l.key)
	}
	if l.c.heartbeat > 0 {
		keys = append(keys, keptKey(l.key, owner))
	}
	m, err := l.c.runner.Attempt(ctx, script.Call{Script: l.kind.keep, Keys: keys, Args: []string{l.field(owner), script.Millis(d)}})
	if err != nil {
		return 0, err
	}
	v, err := m.AsInt64()
	if v == 1 {
		return releaseDone, err
	}
	return releaseGone, err
}

type queryReply struct {
	owners, count int64
	left          time.Duration // -1: without end
}

func (l *single) runQuery(ctx context.Context, owner string) (queryReply, error) {
	keys := []string{l.key}
	if l.kind.side != alone {
		keys = l.keys
	}
	m, err := l.c.runner.Do(ctx, script.Call{Script: l.kind.query, Keys: keys, Args: []string{l.field(owner)}})
	if err != nil {
		return queryReply{}, err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 3 {
		return queryReply{}, fmt.Errorf("query on %q: unexpected reply %v, error %v", l.key, v, err)
	}
	q := queryReply{owners: v[0], count: v[1], left: time.Duration(v[2]) * time.Millisecond}
	switch v[2] {
	case -2:
		q.left = 0
	case -1:
		q.left = noEnd
	}
	return q, nil
}

type inspectReply struct {
	left    time.Duration
	locked  bool
	server  int64             // its clock, ms
	fields  map[string]string // of the lock's hash
	ends    map[string]int64  // of a read-write lock: field -> end, server ms; "!<owner> <ms>" -> -ms of a writer that waits
	waiting []inspectWaiter
	token   int64
}

type inspectWaiter struct {
	owner string
	since int64 // server ms; 0: not known
}

// runInspect asks for the holders; with others, the further keys of inspect.lua, for all there is.
func (c *Client) runInspect(ctx context.Context, key string, others ...string) (inspectReply, error) {
	keys := append([]string{key}, others...)
	m, err := c.runner.Do(ctx, script.Call{Script: inspectScript, Keys: keys})
	var re *rueidis.RedisError
	if len(others) > 0 && errors.As(err, &re) && (re.IsTryAgain() || strings.HasPrefix(re.Error(), "NOPERM")) {
		return c.runInspect(ctx, key) // a slot on the move; a user who may not see the other kinds' keys
	}
	if err != nil {
		return inspectReply{}, err
	}
	v, err := m.ToArray()
	if err != nil || len(v) != 7 {
		return inspectReply{}, fmt.Errorf("inspect %q: unexpected reply of %d values, error %v", key, len(v), err)
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
		r.waiting = append(r.waiting, inspectWaiter{owner, int64(us / 1000)})
	}
	for _, owner := range list(5) {
		r.waiting = append(r.waiting, inspectWaiter{owner: owner})
	}
	return r, nil
}

func (l *single) runForce(ctx context.Context, owners, more []string) (removed int64, err error) {
	call := script.Call{Script: l.kind.force, Keys: append(l.keys[:len(l.keys):len(l.keys)], more...), Args: append([]string{l.channel, l.c.publish, l.grants}, owners...)}
	m, err := l.c.queued(ctx, &call)
	if err != nil {
		return 0, err
	}
	return m.AsInt64()
}
