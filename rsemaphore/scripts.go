package rsemaphore

import (
	"context"
	"embed"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed lua
var luaFiles embed.FS

var (
	acquireScript = script.Load("acquire", luaFiles, "acquire")
	releaseScript = script.Load("release", luaFiles, "release")
	renewScript   = script.Load("renew", luaFiles, "renew")
	resizeScript  = script.Load("resize", luaFiles, "resize")
	extendScript  = script.Load("extend", luaFiles, "extend")
	lookScript    = script.Load("look", luaFiles, "look")
	queryScript   = script.Load("query", luaFiles, "query")
	inspectScript = script.Load("inspect", luaFiles, "inspect")

	countingAcquireScript = script.Load("acquire", luaFiles, "counting_acquire")
	countingAddScript     = script.Load("add permits", luaFiles, "counting_add")
	countingSetScript     = script.Load("set permits", luaFiles, "counting_set")
	countingDrainScript   = script.Load("drain", luaFiles, "counting_drain")
	countingInspectScript = script.Load("inspect", luaFiles, "counting_inspect")
	countingGetScript     = script.Plain("get permits")

	latchSetScript    = script.Load("set count", luaFiles, "latch_set")
	latchDownScript   = script.Load("count down", luaFiles, "latch_down")
	latchLookScript   = script.Load("look at latch", luaFiles, "latch_look")
	latchDeleteScript = script.Load("delete latch", luaFiles, "latch_delete")

	barrierScript      = script.Load("barrier", luaFiles, "barrier")
	barrierRenewScript = script.Load("renew party", luaFiles, "barrier_renew")
)

func (s *Semaphore) keys() []string { return []string{s.key, s.permits, s.notes} }

// allKeys are keys and the record of a latch. Scripts that must be refused where a latch has the name take them.
func (s *Semaphore) allKeys() []string { return []string{s.key, s.permits, s.notes, s.latch} }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

const (
	acquireTooFew int64 = iota
	acquireGranted
	acquireLate
	acquireMismatch
	acquireTooMany
)

type acquireReply struct {
	status   int64
	left     time.Duration // until enough leases are over, negative: not known
	server   int64         // its clock, ms
	capacity int64
}

// Clock implements script.Reply.
func (r acquireReply) Clock() (server int64, late bool) { return r.server, r.status == acquireLate }

func (s *Semaphore) acquireExchange(ids string, lease time.Duration, notAfter int64) exchange[acquireReply] {
	return exchange[acquireReply]{script.Call{Script: acquireScript, Keys: s.allKeys(), Args: []string{
		ids, strconv.Itoa(s.capacity), script.Millis(lease), decimal(notAfter), s.channel, s.c.session.Hub.PublishCommand(), s.label, flag(s.shared),
	}}, func(m rueidis.RedisMessage) (r acquireReply, err error) {
		err = read(m, "acquire", s.key, &r.status, &r.left, &r.server, &r.capacity)
		return r, err
	}}
}

// releaseExchange gives ids back and replies how many of them were held. It replies -1 if all had to be held and were not.
func (s *Semaphore) releaseExchange(ids string, all bool) exchange[int64] {
	return exchange[int64]{script.Call{Script: releaseScript, Keys: s.keys(), Args: []string{
		ids, flag(all), s.channel, s.c.session.Hub.PublishCommand(),
	}}, func(m rueidis.RedisMessage) (held int64, err error) {
		err = read(m, "release", s.key, &held)
		return held, err
	}}
}

func (s *Semaphore) runRelease(ctx context.Context, ids string, all bool) (held int64, err error) {
	return s.releaseExchange(ids, all).by(ctx, s.c.runner.Attempt)
}

const (
	resizeLate    int64 = 2
	resizeRefused int64 = 3
)

type resizeReply struct{ status, before, server int64 }

// Clock implements script.Reply.
func (r resizeReply) Clock() (server int64, late bool) { return r.server, r.status == resizeLate }

// resizeExchange sets the capacity to n, or with relative adds n to it.
func (s *Semaphore) resizeExchange(n int, relative bool, notAfter int64, id string) exchange[resizeReply] {
	return exchange[resizeReply]{script.Call{Script: resizeScript, Keys: s.allKeys(), Args: []string{
		strconv.Itoa(n), strconv.Itoa(s.capacity), script.Millis(resizeKept), decimal(notAfter),
		s.channel, s.c.session.Hub.PublishCommand(), flag(s.shared), id, flag(relative),
	}}, func(m rueidis.RedisMessage) (r resizeReply, err error) {
		err = read(m, "resize", s.key, &r.status, &r.before, &r.server)
		return r, err
	}}
}

// extendExchange raises the leases of ids, all or none.
func (s *Semaphore) extendExchange(raw []string, d time.Duration) exchange[bool] {
	return exchange[bool]{script.Call{Script: extendScript, Keys: s.keys(), Args: append([]string{script.Millis(d)}, raw...)},
		func(m rueidis.RedisMessage) (held bool, err error) {
			err = read(m, "extend", s.key, &held)
			return held, err
		}}
}

func (s *Semaphore) lookExchange(raw []string) exchange[[]Holder] {
	return exchange[[]Holder]{script.Call{Script: lookScript, Keys: s.keys(), Args: raw}, func(m rueidis.RedisMessage) ([]Holder, error) {
		v, err := m.ToArray()
		if err != nil || len(v) != 1+2*len(raw) {
			return nil, malformed("inspect", s.key, &m)
		}
		now, _ := v[0].AsInt64()
		holders := make([]Holder, len(raw))
		for i, id := range raw {
			end, _ := v[1+2*i].AsInt64()
			label, _ := v[2+2*i].ToString()
			holders[i] = holder(id, label, end, now)
		}
		return holders, nil
	}}
}

// holder is what is known of a permit whose lease ends at that server time.
func holder(id, label string, end, now int64) Holder {
	h := Holder{ID: idText(id), Client: idClient(id), Label: label, Lease: time.Duration(max(0, end-now)) * time.Millisecond}
	if end >= forever {
		h.Lease = -1
	}
	return h
}

// queryReply is what is known about a semaphore. For one that is not in use it is what this handle would make.
type queryReply struct{ available, out, capacity int64 }

func (s *Semaphore) queryExchange() exchange[queryReply] {
	return exchange[queryReply]{script.Call{Script: queryScript, Keys: s.keys()}, func(m rueidis.RedisMessage) (queryReply, error) {
		var counted bool
		var available, out, resized int64
		err := read(m, "query", s.key, &counted, &available, &out, &resized)
		return s.known(counted, available, out, resized), err
	}}
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

func (s *Semaphore) inspectExchange() exchange[SemaphoreState] {
	return exchange[SemaphoreState]{script.Call{Script: inspectScript, Keys: s.keys()}, s.decodeState}
}

func (s *Semaphore) decodeState(m rueidis.RedisMessage) (SemaphoreState, error) {
	v, err := m.ToArray()
	if err != nil || len(v) < 4 || len(v)%3 != 1 {
		return SemaphoreState{}, malformed("inspect", s.key, &m)
	}
	var head [4]int64
	for i := range head {
		head[i], _ = v[i].AsInt64()
	}
	now, over := head[0], int64(0)
	var state SemaphoreState
	for i := 4; i < len(v); i += 3 {
		id, _ := v[i].ToString()
		end, _ := v[i+1].AsInt64()
		label, _ := v[i+2].ToString()
		if end <= now {
			over++
			continue
		}
		state.Permits = append(state.Permits, holder(id, label, end, now))
	}
	q := s.known(head[1] == 1, head[2]+over, int64(len(state.Permits)), head[3])
	state.Capacity, state.Available = int(q.capacity), int(q.available)
	return state, nil
}

// forever is the end that Redisson writes for a permit without a lease.
const forever = 922337203685477
