package rsemaphore

import (
	"context"
	"embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed lua
var luaFiles embed.FS

// Each script has one function that encodes its arguments and one that decodes its reply.
var (
	acquireScript = script.Load("acquire", luaFiles, "acquire")
	releaseScript = script.Load("release", luaFiles, "release")
	renewScript   = script.Load("renew", luaFiles, "renew")
	resizeScript  = script.Load("resize", luaFiles, "resize")
	queryScript   = script.Load("query", luaFiles, "query")
	inspectScript = script.Load("inspect", luaFiles, "inspect")

	countingAcquireScript = script.Load("acquire", luaFiles, "counting_acquire")
	countingAddScript     = script.Load("add permits", luaFiles, "counting_add")
	countingSetScript     = script.Load("set permits", luaFiles, "counting_set")
	countingDrainScript   = script.Load("drain", luaFiles, "counting_drain")
	countingGetScript     = script.Plain("get permits")

	latchSetScript    = script.Load("set count", luaFiles, "latch_set")
	latchDownScript   = script.Load("count down", luaFiles, "latch_down")
	latchLookScript   = script.Load("look at latch", luaFiles, "latch_look")
	latchDeleteScript = script.Load("delete latch", luaFiles, "latch_delete")

	barrierScript      = script.Load("barrier", luaFiles, "barrier")
	barrierRenewScript = script.Load("renew party", luaFiles, "barrier_renew")
)

func (s *Semaphore) keys() []string { return []string{s.key, s.permits, s.notes} }

// allKeys are those of what may not go on where a latch has the name.
func (s *Semaphore) allKeys() []string { return []string{s.key, s.permits, s.notes, s.latch} }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

type acquireStatus int64

const (
	acquireTooFew acquireStatus = iota
	acquireGranted
	acquireLate
	acquireMismatch
	acquireTooMany
)

type acquireReply struct {
	status   acquireStatus
	left     time.Duration // until enough leases are over, negative: not known
	server   int64         // its clock, ms
	capacity int64
}

func (s *Semaphore) acquireCall(ids string, lease time.Duration, notAfter int64, late func(rueidis.RedisResult)) script.Call {
	return script.Call{Script: acquireScript, Keys: s.allKeys(), Late: late, Args: []string{
		ids, strconv.Itoa(s.capacity), script.Millis(lease), decimal(notAfter), s.channel, s.c.hub.PublishCommand(), s.label, flag(s.shared),
	}}
}

func decodeAcquire(m rueidis.RedisMessage) (acquireReply, error) {
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 4 {
		return acquireReply{}, fmt.Errorf("acquire: unexpected reply %v, error %v", v, err)
	}
	return acquireReply{acquireStatus(v[0]), time.Duration(v[1]) * time.Millisecond, v[2], v[3]}, nil
}

// Clock implements script.Reply.
func (r acquireReply) Clock() (server int64, late bool) { return r.server, r.status == acquireLate }

// runRelease gives ids back and returns how many of them were held; -1 if all had to be and were not.
func (s *Semaphore) runRelease(ctx context.Context, ids string, all bool) (held int64, err error) {
	args := []string{ids, flag(all), s.channel, s.c.hub.PublishCommand()}
	m, err := s.c.runner.Attempt(ctx, script.Call{Script: releaseScript, Keys: s.keys(), Args: args})
	if err != nil {
		return 0, err
	}
	return m.AsInt64()
}

type resizeReply struct {
	late   bool
	before int64
	server int64
}

// Clock implements script.Reply.
func (r resizeReply) Clock() (server int64, late bool) { return r.server, r.late }

func (s *Semaphore) resizeCall(capacity int, notAfter int64, id string) script.Call {
	return script.Call{Script: resizeScript, Keys: s.allKeys(), Args: []string{
		strconv.Itoa(capacity), strconv.Itoa(s.capacity), script.Millis(resizeKept), decimal(notAfter),
		s.channel, s.c.hub.PublishCommand(), flag(s.shared), id,
	}}
}

func decodeResize(m rueidis.RedisMessage) (resizeReply, error) {
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 3 {
		return resizeReply{}, fmt.Errorf("resize: unexpected reply %v, error %v", v, err)
	}
	return resizeReply{late: v[0] == 2, before: v[1], server: v[2]}, nil
}

// queryReply is what is known of a semaphore; one not in use is as this handle would make it.
type queryReply struct{ available, out, capacity int64 }

func (s *Semaphore) runQuery(ctx context.Context) (queryReply, error) {
	m, err := s.c.runner.Do(ctx, script.Call{Script: queryScript, Keys: s.keys()})
	if err != nil {
		return queryReply{}, err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 4 {
		return queryReply{}, fmt.Errorf("query on %q: unexpected reply %v, error %v", s.key, v, err)
	}
	return s.known(v[0] == 1, v[1], v[2], v[3]), nil
}

func (s *Semaphore) known(counted bool, available, out, resized int64) queryReply {
	q := queryReply{available: available, out: out}
	switch {
	case counted:
		q.capacity = available + out
		return q
	case resized > 0:
		q.capacity = resized
	default:
		q.capacity = int64(s.capacity)
	}
	q.available = q.capacity - out
	return q
}

func (s *Semaphore) runInspect(ctx context.Context) (SemaphoreState, error) {
	m, err := s.c.runner.Do(ctx, script.Call{Script: inspectScript, Keys: s.keys()})
	if err != nil {
		return SemaphoreState{}, err
	}
	v, err := m.ToArray()
	if err != nil || len(v) < 4 || len(v)%3 != 1 {
		return SemaphoreState{}, fmt.Errorf("inspect %q: unexpected reply of %d values, error %v", s.key, len(v), err)
	}
	var head [4]int64
	for i := range head {
		head[i], _ = v[i].AsInt64()
	}
	now, over := head[0], int64(0)
	state := SemaphoreState{Resized: head[3] > 0}
	for i := 4; i < len(v); i += 3 {
		id, _ := v[i].ToString()
		end, _ := v[i+1].AsInt64()
		label, _ := v[i+2].ToString()
		if end <= now {
			over++
			continue
		}
		h := Holder{ID: idText(id), Client: idClient(id), Label: label, Lease: time.Duration(end-now) * time.Millisecond}
		if end >= forever {
			h.Lease = -1
		}
		state.Permits = append(state.Permits, h)
	}
	q := s.known(head[1] == 1, head[2]+over, int64(len(state.Permits)), head[3])
	state.Capacity, state.Available = int(q.capacity), int(q.available)
	return state, nil
}

// forever is the end that Redisson gives a permit without a lease.
const forever = 922337203685477
