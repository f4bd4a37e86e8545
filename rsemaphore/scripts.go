package rsemaphore

import (
	"context"
	"embed"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

//go:embed lua
var luaFiles embed.FS

var (
	holdersScript = script.Load("look at holders", luaFiles, "holders").Reads()

	latchSetScript    = script.Load("set count", luaFiles, "latch_set")
	latchDownScript   = script.Load("count down", luaFiles, "latch_down")
	latchLookScript   = script.Load("look at latch", luaFiles, "latch_look").Reads()
	latchDeleteScript = script.Load("delete latch", luaFiles, "latch_delete")

	barrierScript      = script.Load("barrier", luaFiles, "barrier")
	barrierState       = barrierScript.Reads()
	barrierRenewScript = script.Load("renew party", luaFiles, "barrier_renew")
)

// keys returns the keys of the scripts that need neither the queue nor the record of a latch.
func (s *Semaphore) keys() []string {
	inspected := s.inspectKeys
	return inspected[: len(inspected)-1 : len(inspected)-1]
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// served has the grants of a call to waiters of this process for which the call made no request.
type served struct {
	grants []wait.Grant  // without their Sent
	dueIn  time.Duration // after which to send a request for the first in the queue; negative: another process does
}

// readGrants reads lease and base of each grant in the rest of a reply.
func (s *Semaphore) readGrants(rest []rueidis.RedisMessage, what string) (grants []wait.Grant, err error) {
	for ; len(rest) > 1; rest = rest[2:] {
		var grant wait.Grant
		if readValue(&rest[0], &grant.Lease) != nil || readValue(&rest[1], &grant.Owner) != nil {
			return nil, malformed(what, s.key, rest)
		}
		grants = append(grants, grant)
	}
	return grants, nil
}

// served passes the grants in the reply to a call that was sent at sent to the waiters of this process.
func (s *Semaphore) served(r served, sent time.Time) {
	if len(r.grants) == 0 && r.dueIn < 0 {
		return
	}
	for i := range r.grants {
		r.grants[i].Sent = sent
	}
	s.c.waiters.Served(s.queueKey, r.grants, r.dueIn)
}

const (
	acquireDone int64 = iota + 1
	acquireLate
	acquireMismatch
)

// The result of a request, if it is not the ticket of an entry.
const (
	askedRefused = 0
	askedGranted = -1
	askedTooMany = -2
	askedAgain   = -3 // the call was for too many permits
)

type acquireReply struct {
	status   int64
	server   int64 // its clock, ms
	capacity int64
	left     time.Duration // until enough leases are over; negative: not known
	foreign  bool
	asked    []int64 // the result of each request; nil: the only request was granted
	served   served
}

// of returns the result of the i-th request.
func (r *acquireReply) of(i int) int64 {
	switch {
	case r.status != acquireDone:
		return askedRefused
	case r.asked == nil:
		return askedGranted
	}
	return r.asked[i]
}

// Clock implements script.Reply.
func (r acquireReply) Clock() (server int64, late bool) { return r.server, r.status == acquireLate }

// acquireCall returns the call for several acquisitions.
func (s *Semaphore) acquireCall(all []wait.QueueEntry, enqueue bool, notAfter int64) script.Call {
	args := make([]string, 0, 8+2*len(all))
	args = append(args, s.revised, decimal(notAfter), s.channel, s.c.session.Inner.PublishCommand(), flag(s.interop),
		s.grants, s.c.keeper.ID, flag(enqueue))
	for i := range all {
		args = append(args, all[i].Entry, script.Millis(all[i].Lease))
	}
	return script.Call{Script: s.store.acquire, Keys: s.allKeys, Args: args}
}

// decodeAcquire reads the reply to n requests.
func (s *Semaphore) decodeAcquire(m rueidis.RedisMessage, n int) (acquireReply, error) {
	if n == 1 && m.IsInt64() { // the common case
		server, err := m.AsInt64()
		return acquireReply{status: acquireDone, server: server, left: -1, served: served{dueIn: -1}}, err
	}
	return s.decodeAcquired(m, n)
}

func (s *Semaphore) decodeAcquired(m rueidis.RedisMessage, n int) (r acquireReply, err error) {
	rest, err := readHead(m, "acquire", s.key, &r.status, &r.server, &r.capacity, &r.left, &r.served.dueIn, &r.foreign)
	switch {
	case err != nil:
		return acquireReply{}, err
	case r.status != acquireDone:
		r.served.dueIn = -1
		return r, nil
	case len(rest) < n:
		return acquireReply{}, malformed("acquire", s.key, &m)
	}
	r.asked = make([]int64, n)
	for i := range r.asked {
		if readValue(&rest[i], &r.asked[i]) != nil {
			return acquireReply{}, malformed("acquire", s.key, &m)
		}
	}
	r.served.grants, err = s.readGrants(rest[n:], "acquire")
	return r, err
}

type releaseReply struct {
	held   int64 // how many permits were held; -1: all of them had to be, and were not
	served served
}

// allOrNone has a release return all of several ids, or none.
const allOrNone = -1

// releaseCall returns the call that releases the permits of the owner what, except for kept permits; or, with
// allOrNone, all ids in the text what. entry is the owner's entry if it may be in the queue. others has owner and entry
// of each other acquisition that the call releases.
func (s *Semaphore) releaseCall(what string, kept int64, entry string, others ...string) script.Call {
	c := s.c
	args := append([]string{what, decimal(kept), s.channel, c.session.Inner.PublishCommand(), s.grants, c.keeper.ID,
		entry}, others...)
	return script.Call{Script: s.store.release, Keys: s.releaseKeys, Args: args}
}

// decodeRelease reads the reply.
func (s *Semaphore) decodeRelease(m rueidis.RedisMessage) (releaseReply, error) {
	if m.IsInt64() { // the common case
		held, err := m.AsInt64()
		return releaseReply{held: held, served: served{dueIn: -1}}, err
	}
	return s.decodeReleased(m)
}

func (s *Semaphore) decodeReleased(m rueidis.RedisMessage) (r releaseReply, err error) {
	rest, err := readHead(m, "release", s.key, &r.held, &r.served.dueIn)
	if err == nil {
		r.served.grants, err = s.readGrants(rest, "release")
	}
	return r, err
}

// runRelease sends a release once. The release may serve waiters of this process, and only its reply names them:
//
//	release: sent                   server: served B, of this process
//	   no reply, or the caller has given up
//	B: is in the queue, and sleeps until its next poll
//
// So after such a release the process requests for all its waiters, in as few calls as a poll takes. It does so again
// when the reply comes, because the release may have run in between (TestWait_ServedByALostRelease_AsksAtOnce). The
// reply is read, even if the caller has given up.
func (s *Semaphore) runRelease(ctx context.Context, what string, kept int64, entry string,
	others ...string) (held int64, err error) {
	call, sent := s.releaseCall(what, kept, entry, others...), time.Now()
	// The caller has left, and the process has requested for its waiters. The release may run after that, because it waits
	// for a connection that is being dialed. If the reply is lost, too, nothing else names the waiters that the release
	// has served (TestRelease_CallerLeftAndReplyLost_ServesTheWaiterHere).
	call.Late = func(res rueidis.RedisResult) {
		var r releaseReply
		m, err := res.ToMessage()
		if err == nil {
			r, err = s.decodeRelease(m)
		}
		if err != nil {
			s.c.waiters.PollAll(s.queueKey)
			return
		}
		s.served(r.served, sent)
	}
	var r releaseReply
	m, err := s.c.runner.Attempt(ctx, call)
	if err == nil {
		r, err = s.decodeRelease(m)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.c.waiters.PollAll(s.queueKey)
		}
		return 0, err
	}
	s.served(r.served, sent)
	s.c.waiters.Wake(s.queueKey)
	return r.held, nil
}

const (
	resizeLate    int64 = 2
	resizeRefused int64 = 3
)

type resizeReply struct {
	status, before, server int64
	served                 served
}

// Clock implements script.Reply.
func (r resizeReply) Clock() (server int64, late bool) { return r.server, r.status == resizeLate }

// resizeCall returns the call that sets the capacity to n, or with relative adds n to the capacity.
func (s *Semaphore) resizeCall(n int, relative bool, notAfter int64, id string) script.Call {
	return script.Call{Script: s.store.resize, Keys: s.allKeys, Args: []string{
		strconv.Itoa(n), strconv.Itoa(s.capacity), script.Millis(resizeKept), decimal(notAfter),
		s.channel, s.c.session.Inner.PublishCommand(), flag(s.interop), id, flag(relative), s.grants, s.c.keeper.ID,
	}}
}

func (s *Semaphore) decodeResize(m rueidis.RedisMessage) (r resizeReply, err error) {
	rest, err := readHead(m, "resize", s.key, &r.status, &r.before, &r.server, &r.served.dueIn)
	if err == nil {
		r.served.grants, err = s.readGrants(rest, "resize")
	}
	return r, err
}

// inspect reads the semaphore, at most so many of its held acquisitions (0: none; -1: all), and ids, whether or not
// they are held.
func (s *Semaphore) inspect(ctx context.Context, most int, ids ...string) (SemaphoreState, error) {
	return session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) (SemaphoreState, error) {
		m, err := s.c.runner.Do(ctx, script.Call{Script: s.store.inspect, Keys: s.inspectKeys,
			Args: append([]string{strconv.Itoa(most)}, ids...)})
		if err != nil {
			return SemaphoreState{}, err
		}
		return s.decodeState(m)
	})
}

func (s *Semaphore) decodeState(m rueidis.RedisMessage) (state SemaphoreState, err error) {
	var now, used int64
	var capacity string
	rest, err := readHead(m, "inspect", s.key, &now, &capacity, &used)
	if err != nil || len(rest)%3 != 0 {
		return state, malformed("inspect", s.key, &m)
	}
	state.Capacity = s.capacity // not in use: the capacity that this handle would set
	if capacity != "" {
		state.Capacity, err = strconv.Atoi(capacity)
	}
	state.Available = state.Capacity - int(used)
	for ; len(rest) > 0; rest = rest[3:] {
		var id, text string
		var end int64
		_ = readValue(&rest[1], &end) // another program may have written an end that is no integer, which counts as over
		err = errors.Join(err, readValue(&rest[0], &id), readValue(&rest[2], &text))
		if id == "" { // a flow: end is how many wait
			state.addTenant(text, Tenant{Waiting: int(end)})
			continue
		}
		held, tenant, bad := holder(id, text, end, now)
		err = errors.Join(err, bad)
		state.Permits = append(state.Permits, held)
		if tenant != "" {
			state.addTenant(tenant, Tenant{Held: held.N})
		}
	}
	if err != nil {
		return SemaphoreState{}, malformed("inspect", s.key, &m)
	}
	return state, nil
}

// holder returns the Holder of an acquisition, or of a permit, whose lease ends at the server time end. text is
// "<number> <label>", or "<number>:<length> <tenant><label>".
func holder(id, text string, end, now int64) (h Holder, tenant string, err error) {
	h = Holder{ID: idText(id), Client: idClient(id), Lease: script.Left(end, now)}
	if h.Lease == 0 {
		return h, "", nil
	}
	if end >= forever {
		h.Lease = -1
	}
	number, label, _ := strings.Cut(text, " ")
	number, length, isOfTenant := strings.Cut(number, ":")
	if isOfTenant {
		size, err := strconv.Atoi(length)
		if err != nil || size < 0 || size > len(label) {
			return h, "", malformed("inspect", id, text)
		}
		tenant, label = label[:size], label[size:]
	}
	h.Label = label
	h.N, err = strconv.Atoi(number)
	return h, tenant, err
}

// forever is the end that Redisson writes for a permit without a lease.
const forever = 922337203685477

// holders returns holders of permits for a call that gives up after a wait; see hold.Holders.
func (s *Semaphore) holders(ctx context.Context, waited time.Duration) []Holder {
	return slices.Clone(s.c.named.Of(ctx, s.permits, waited, func(ctx context.Context) []Holder {
		state, err := s.inspect(ctx, hold.MostNamed)
		if err != nil {
			return nil
		}
		s.nameProcesses(ctx, state.Permits)
		return state.Permits
	}))
}
