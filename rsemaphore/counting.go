package rsemaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// maxPermits is the most permits that one call may name, the bound of a Java int: Redisson's methods take no more.
const maxPermits = math.MaxInt32

// CountingSemaphore is Redisson's RSemaphore, for sharing one with Java: a number of free permits under the name
// itself, and nothing else. It is an immutable description, safe for concurrent use, and costs nothing until used.
//
// Its permits are anonymous. The server does not know which process has one. Any process may release what it never
// acquired, which raises the count. A process that dies takes its permits with it, until as many are added by hand:
// Options.Liveness does not cover them. There is no lease and no handle. Where no Java process shares it, use
// [Client.Semaphore].
//
// Its name must not be that of a Semaphore, a CountDownLatch or an rcounter.Counter: see the package comment. Of a
// Semaphore of which a permit is held, or of a latch that was set here, every verb but Available is refused
// (ErrWrongType). To see that, each script asks for their keys with its own, so while its Cluster slot is being
// migrated the server refuses it (TRYAGAIN), and it is repeated until the slot is through.
//
// A missing key is a semaphore without free permits: acquiring waits until some are set. Release makes the key if it is
// missing.
//
// Waiting is as Redisson does it: processes race for what a release publishes, in no order, and none keeps permits from
// another. So a request for many waits for as long as smaller ones take what is free, and one for more than there will
// ever be waits until its ctx ends. In a process the waiters for the same number are served in their order, and only
// the first of them asks the server. A lost message delays it by at most [Options].PollCap.
//
// The writing verbs cannot be repeated safely, because the server cannot tell a repeated request from a second one. So
// each request is sent once. After ErrUnknownOutcome it may have run. What an acquisition of unknown outcome took is
// given back in the background if its reply still comes, which [Client.Close] awaits for a CallTimeout; else the
// permits are lost. Do not release what was not granted: it may be given back twice.
//
// Close waits for calls, but not for holders, because holders are not known. Release works while the client closes and
// after that, for as long as its connection is open.
type CountingSemaphore struct{ object }

// CountingSemaphore describes the counting semaphore of that name. Nothing is sent. A name that cannot be used is
// reported by every call on it.
func (c *Client) CountingSemaphore(name string) *CountingSemaphore {
	s := &CountingSemaphore{object: c.object(name)}
	s.channel = keyname.Prefix("redisson_sc", s.key)
	return s
}

// keys are the count, and the keys by which a Semaphore or a latch of that name would be known.
func (s *CountingSemaphore) keys() []string {
	return []string{s.key, permitsKey(s.key), keyname.Suffix(s.key, "latch")}
}

// permitsKey is the key by which a Semaphore of that name is known. No Semaphore of ours has a name that is one pair of
// braces, and Redisson's key for such a name is another Semaphore's. So such a name gets a key that no program writes.
func permitsKey(key string) string { return keyname.Suffix(keyname.Own(key), "timeout") }

const (
	countingOK        int64 = 1
	countingLate      int64 = 2
	countingNoInteger int64 = 3
)

// TrySetPermits makes the semaphore with n free permits, 0 to 2³¹-1, unless it is there: false, and nothing is
// changed. ttl is at least a millisecond; after that time the key is gone, with all permits. With ttl 0 it has no end,
// as in Redisson. Sent once.
func (s *CountingSemaphore) TrySetPermits(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	if err := cmp.Or(checkRange("permits", int64(n), 0, maxPermits), checkTTL(ttl)); err != nil {
		return false, s.c.session.Error(err)
	}
	set, err := session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) (set bool, err error) {
		x := exchange[bool]{s.once(countingSetScript, s.channel, s.c.session.Inner.PublishCommand(), strconv.Itoa(n),
			script.Millis(ttl)), func(m rueidis.RedisMessage) (set bool, err error) {
			err = read(m, "set permits", s.key, &set)
			return set, err
		}}
		return x.by(ctx, s.c.doOnce)
	})
	if set {
		s.c.waiters.Wake(s.queueKey())
	}
	return set, err
}

// once is a call of a script that is sent once.
func (s *CountingSemaphore) once(which *script.Script, args ...string) script.Call {
	return script.Call{Script: which, Keys: s.keys(), Once: true, Args: args}
}

// Acquire takes n permits, 1 to 2³¹-1, all of them at once, and waits until they are free or ctx ends.
//
// nil: taken. ErrNotAcquired, joined with ctx's error and cause: too few were free for as long as ctx lasted; nothing
// was taken. ErrUnavailable: the server could not be asked, and nothing was taken. ErrUnknownOutcome: a request that
// takes got no reply, which ends the waiting at once; the permits may have been taken (see the type). When ctx ends
// while a request is under way its reply is still awaited, for 40 ms at most, and counts: the permits may be the
// caller's although ctx has ended.
func (s *CountingSemaphore) Acquire(ctx context.Context, n int) error {
	return s.acquire(ctx, n, time.Time{}, false)
}

// TryAcquire is Acquire for at most waitTime. 0: it asks once, and takes what is free even if others wait, as
// Redisson's does. waitTime bounds the waiting for permits: the first request itself has Options.CallTimeout.
func (s *CountingSemaphore) TryAcquire(ctx context.Context, n int, waitTime time.Duration) error {
	if err := session.CheckWait(waitTime); err != nil {
		return s.c.session.Error(err)
	}
	return s.acquire(ctx, n, time.Now().Add(waitTime), waitTime == 0)
}

func (s *CountingSemaphore) runAdd(ctx context.Context, n int64) (free int64, err error) {
	x := exchange[int64]{s.once(countingAddScript, s.channel, s.c.session.Inner.PublishCommand(), decimal(n)),
		func(m rueidis.RedisMessage) (free int64, err error) {
			err = read(m, "add permits", s.key, &free)
			return free, err
		}}
	free, err = x.by(ctx, s.c.doOnce)
	var re *rueidis.RedisError
	if errors.As(err, &re) && strings.Contains(re.Error(), "not an integer") {
		err = notInteger(s.key)
	}
	if err == nil && n > 0 {
		s.c.waiters.Wake(s.queueKey())
	}
	return free, err
}

// Release gives n permits back, 1 to 2³¹-1, and wakes waiters. Nothing checks that they were acquired. Release makes
// the key if it is missing. While the server cannot be asked it tries until ctx ends, or for five CallTimeouts if ctx
// has no deadline. It may be called with a ctx that has ended, and then has a second, and while the client closes and
// after that. ErrClosed joined with another error: the hub is closed, and perhaps the connection with it. Sent once.
func (s *CountingSemaphore) Release(ctx context.Context, n int) error {
	if err := cmp.Or(s.bad, checkRange("permits", int64(n), 1, maxPermits)); err != nil {
		return s.c.session.Error(err)
	}
	s.c.session.Join()
	defer s.c.session.Leave()
	ctx, cancel := toRelease(ctx)
	defer cancel()
	ctx = s.c.observe(ctx, Event{Kind: EventReleasing, Name: s.name, N: n, Acquisition: context.Background()})
	bounded, done := ctx, context.CancelFunc(func() {})
	if _, ok := ctx.Deadline(); !ok {
		bounded, done = context.WithTimeout(ctx, s.c.session.GiveBackBound())
	}
	_, err := s.runAdd(bounded, int64(n))
	done()
	if err == nil {
		s.c.session.Answered()
	} else if s.c.session.Inner.Context().Err() != nil {
		err = fmt.Errorf("%w: hub: %w", err, errs.ErrClosed)
	}
	err = s.c.session.Error(err)
	s.c.observe(ctx, Event{Kind: EventReleased, Name: s.name, N: n, Held: -1, Err: err})
	return err
}

// AddPermits adds n, -(2³¹-1) to 2³¹-1, to the number of free permits, wakes waiters, and returns what is free then. It
// does not wait. A negative n takes permits away, as Redisson's reducePermits does. The result is negative if more of
// them were in use than are left: then as many releases wake no waiter. AddPermits makes the key if it is missing, and
// leaves its expiry as it is (Redisson's drops it). Sent once.
func (s *CountingSemaphore) AddPermits(ctx context.Context, n int) (int64, error) {
	bad := cmp.Or(s.bad, checkRange("permits", int64(n), -maxPermits, maxPermits))
	return session.Ask(ctx, s.c.session, bad, func(ctx context.Context) (int64, error) { return s.runAdd(ctx, int64(n)) })
}

// Available is how many permits are free: 0 of a missing key, negative after AddPermits of less than what was free.
func (s *CountingSemaphore) Available(ctx context.Context) (int64, error) {
	return session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) (int64, error) {
		return s.get(ctx, s.c.runner.Do)
	})
}

// get reads the number.
func (s *CountingSemaphore) get(ctx context.Context, send sender) (int64, error) {
	m, err := send(ctx, script.Call{Script: countingGetScript, Keys: []string{s.key},
		Command: func(b rueidis.Builder) rueidis.Completed {
			return b.Get().Key(s.key).Build()
		}})
	if errors.Is(err, rueidis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	text, err := m.ToString()
	if err != nil {
		return 0, malformed("get permits", s.key, &m)
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, notInteger(s.key)
	}
	return v, nil
}

// Inspect looks at the semaphore: how many permits are free, and how long it lasts.
func (s *CountingSemaphore) Inspect(ctx context.Context) (SemaphoreState, error) {
	return ask(ctx, &s.object, s.inspectExchange(), s.c.runner.Do)
}

func (s *CountingSemaphore) inspectExchange() exchange[SemaphoreState] {
	return exchange[SemaphoreState]{script.Call{Script: countingInspectScript, Keys: s.keys()},
		func(m rueidis.RedisMessage) (SemaphoreState, error) {
			var status, free int64
			var ttl time.Duration
			err := read(m, "inspect", s.key, &status, &free, &ttl)
			if err == nil && status == countingNoInteger {
				err = notInteger(s.key)
			}
			return SemaphoreState{Available: int(free), TTL: ttl}, err
		}}
}
