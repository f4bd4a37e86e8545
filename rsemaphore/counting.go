package rsemaphore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

// maxPermits is the most permits that one call may name, the bound of a Java int: Redisson's methods take no more.
const maxPermits = math.MaxInt32

// CountingSemaphore is Redisson's RSemaphore, for sharing one with Java: a number of free permits under the name
// itself, and nothing else. It is an immutable description, safe for concurrent use, and costs nothing until used.
//
// Its permits are anonymous. The server does not know which process has one. Any process may release what it never acquired,
// which raises the count. A process that dies takes its permits with it, until somebody adds as many by hand. There is no
// lease and no handle. Where no Java process shares it, use [Client.Semaphore].
//
// Its name must not be that of a Semaphore, a CountDownLatch or an rcounter.Counter: see the package comment. Of a
// Semaphore that somebody holds a permit of, or of a latch that was set here, every verb but Available is refused
// (ErrWrongType). To see that, each script asks for their keys beside its own, so while its Cluster slot is being migrated
// the server refuses it (TRYAGAIN), and it is repeated until the slot is through.
//
// A missing key is a semaphore without free permits: acquiring waits until somebody sets some. Release makes the key if it is
// missing.
//
// Waiters of one process are served first come, first served. So small requests behind a large one do not overtake it, nor do
// calls that do not wait (TryAcquire with waitTime 0). Of different processes, the first to ask after a release is served.
//
// The writing verbs cannot be repeated safely, because the server cannot tell a repeated request from a second one. So each
// request is sent once. After ErrUnknownOutcome it may have run. What an acquisition of unknown outcome took is given back in
// the background if its reply still comes; if the reply is lost, so are the permits. Do not release what was not granted: it
// may be given back twice.
type CountingSemaphore struct {
	object
}

// CountingSemaphore describes the counting semaphore of that name. Nothing is sent. A name that cannot be used is
// reported by every call on it.
func (c *Client) CountingSemaphore(name string) *CountingSemaphore {
	s := &CountingSemaphore{c.object(name)}
	s.channel = keyname.Prefix("redisson_sc", s.key)
	return s
}

// keys are the count, and the keys by which a Semaphore or a latch of that name would be known.
func (s *CountingSemaphore) keys() []string {
	return []string{s.key, keyname.Suffix(s.key, "timeout"), keyname.Suffix(s.key, "latch")}
}

const (
	countingTooFew int64 = iota
	countingOK
	countingLate
	countingNoInteger
)

// TrySetPermits makes the semaphore with n free permits, 0 to 2³¹-1, unless it is there: false, and nothing is
// changed. ttl is at least a millisecond; after that time the key is gone, with all permits. With ttl 0 it has no end, as in
// Redisson. Sent once.
func (s *CountingSemaphore) TrySetPermits(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	if err := cmp.Or(checkRange("permits", int64(n), 0, maxPermits), checkTTL(ttl)); err != nil {
		return false, s.c.session.Error(err)
	}
	set, err := ask(ctx, &s.object, s.setExchange(n, ttl), s.c.doOnce)
	if set {
		s.c.queue.Wake(s.line())
	}
	return set, err
}

func (s *CountingSemaphore) setExchange(n int, ttl time.Duration) exchange[bool] {
	return exchange[bool]{script.Call{Script: countingSetScript, Keys: s.keys(), Once: true, Args: []string{
		strconv.Itoa(n), script.Millis(ttl), s.channel, s.c.session.Hub.PublishCommand(),
	}}, func(m rueidis.RedisMessage) (set bool, err error) {
		err = read(m, "set permits", s.key, &set)
		return set, err
	}}
}

// Acquire takes n permits, 1 to 2³¹-1, all of them at once, and waits until they are free or ctx ends.
//
// nil: taken. ErrNotAcquired, joined with ctx's error and cause: too few were free for as long as ctx lasted; nothing
// was taken. ErrUnavailable: the server could not be asked, and nothing was taken. ErrUnknownOutcome: a request got no
// reply; the permits may have been taken (see the type). That ends the waiting at once. When ctx ends while a request
// is under way its reply is still awaited, for 40 ms at most, and counts: the permits may be the caller's although ctx
// has ended.
func (s *CountingSemaphore) Acquire(ctx context.Context, n int) error {
	return s.acquire(ctx, n, time.Time{}, false)
}

// TryAcquire is Acquire for at most waitTime; 0: it asks once, and not at all while others of this process wait and
// were told that there are too few: it would overtake them for as long as it is called. waitTime bounds the waiting
// for permits: the first request itself has Options.CallTimeout.
func (s *CountingSemaphore) TryAcquire(ctx context.Context, n int, waitTime time.Duration) error {
	if err := session.CheckWait(waitTime); err != nil {
		return s.c.session.Error(err)
	}
	return s.acquire(ctx, n, time.Now().Add(waitTime), waitTime == 0)
}

// line is where the process's waiters of this semaphore stand.
func (s *CountingSemaphore) line() string { return "counting:" + s.key }

func (s *CountingSemaphore) acquire(ctx context.Context, n int, until time.Time, once bool) error {
	if err := cmp.Or(s.bad, checkRange("permits", int64(n), 1, maxPermits)); err != nil {
		return s.c.session.Error(err)
	}
	if err := s.c.session.Enter(); err != nil {
		return err
	}
	defer s.c.session.Leave()
	began := time.Now()
	err := s.c.queue.Wait(ctx, wait.Request{
		Name: s.name, Line: s.line(), Channel: s.channel, Alone: once, Yield: once, Until: until,
		Try: func(ctx context.Context) (wait.Answer, error) { return s.try(ctx, n) },
	})
	waited := time.Since(began)
	if err != nil {
		err = s.explain(err, n, waited)
		s.c.observer.NotAcquired(ctx, s.name, n, waited, err)
		return err
	}
	s.c.session.Answered()
	s.c.observer.Acquired(ctx, s.name, n, waited)
	return nil
}

// countingReply is that of counting_acquire.lua.
type countingReply struct{ status, free, server int64 }

// Clock implements script.Reply.
func (r countingReply) Clock() (server int64, late bool) { return r.server, r.status == countingLate }

func (s *CountingSemaphore) acquireExchange(n int, notAfter int64) exchange[countingReply] {
	return exchange[countingReply]{script.Call{Script: countingAcquireScript, Keys: s.keys(), Once: true, Args: []string{
		strconv.Itoa(n), decimal(notAfter),
	}}, func(m rueidis.RedisMessage) (r countingReply, err error) {
		if err = read(m, "acquire", s.key, &r.status, &r.free, &r.server); err == nil && r.status == countingNoInteger {
			err = notInteger(s.key)
		}
		return r, err
	}}
}

// try asks the server once.
func (s *CountingSemaphore) try(ctx context.Context, n int) (wait.Answer, error) {
	call := timed(s.key, s.c.attemptOnce, func(_ time.Time, notAfter int64) exchange[countingReply] {
		return s.acquireExchange(n, notAfter).late(func(r countingReply) {
			if r.status == countingOK {
				s.giveBack(int64(n))
			}
		})
	})
	call.Beyond = seeThrough
	r, err := call.Run(ctx, s.c.runner)
	if errors.Is(err, ErrUnknownOutcome) {
		err = wait.Final(err)
	}
	return wait.Answer{Granted: err == nil && r.status == countingOK, Left: -1}, err
}

// giveBack gives back what a request took that had been given up on.
func (s *CountingSemaphore) giveBack(took int64) {
	if took == 0 {
		return
	}
	err := s.c.session.Enter()
	if err == nil {
		defer s.c.session.Leave()
		ctx, cancel := context.WithTimeout(context.Background(), s.c.session.Bound())
		defer cancel()
		_, err = s.runAdd(ctx, took, false)
	}
	if err != nil {
		s.c.session.Logger.Warn("redlatch: permits taken for a caller that had given up were not given back", "name", s.name, "permits", took, "error", err)
	}
}

// explain translates the end of a wait into the caller's error.
func (s *CountingSemaphore) explain(err error, n int, waited time.Duration) error {
	return wait.Ending{Package: "rsemaphore", Name: s.name, Contended: func(g *wait.GaveUp) error {
		return &NotAcquiredError{Name: s.name, n: n, Lease: -1, Waited: waited, cause: g.Cause}
	}}.Explain(err)
}

type addReply struct {
	there bool
	free  int64
}

func (s *CountingSemaphore) addExchange(n int64, ifThere bool) exchange[addReply] {
	return exchange[addReply]{script.Call{Script: countingAddScript, Keys: s.keys(), Once: true, Args: []string{
		decimal(n), flag(ifThere), s.channel, s.c.session.Hub.PublishCommand(),
	}}, func(m rueidis.RedisMessage) (r addReply, err error) {
		err = read(m, "add permits", s.key, &r.there, &r.free)
		return r, err
	}}
}

func (s *CountingSemaphore) runAdd(ctx context.Context, n int64, ifThere bool) (addReply, error) {
	r, err := s.addExchange(n, ifThere).by(ctx, s.c.doOnce)
	var re *rueidis.RedisError
	if errors.As(err, &re) && strings.Contains(re.Error(), "not an integer") {
		err = notInteger(s.key)
	}
	if r.free > 0 {
		s.c.queue.Wake(s.line())
	}
	return r, err
}

// add adds n permits, least or more.
func (s *CountingSemaphore) add(ctx context.Context, n, least int, ifThere bool) (addReply, error) {
	bad := cmp.Or(s.bad, checkRange("permits", int64(n), int64(least), maxPermits))
	return session.Ask(ctx, s.c.session, bad, func(ctx context.Context) (addReply, error) {
		return s.runAdd(ctx, int64(n), ifThere)
	})
}

// Release gives n permits back, 1 to 2³¹-1, and wakes waiters. Nothing checks that they were acquired. Release makes the key
// if it is missing. It may be called with a ctx that has ended, and then has a second. Sent once.
func (s *CountingSemaphore) Release(ctx context.Context, n int) error {
	_, err := s.release(ctx, n, false)
	return err
}

// ReleaseIfExists is Release if the semaphore is there; otherwise it changes nothing and reports false. So a release after
// the semaphore's TTL does not make one without an end. Sent once.
func (s *CountingSemaphore) ReleaseIfExists(ctx context.Context, n int) (bool, error) {
	return s.release(ctx, n, true)
}

// release is Release, of a semaphore that is there if that is asked for. It reports whether anything was released.
func (s *CountingSemaphore) release(ctx context.Context, n int, ifThere bool) (bool, error) {
	ctx, cancel := toRelease(ctx)
	defer cancel()
	r, err := s.add(ctx, n, 1, ifThere)
	if r.there || err != nil {
		s.c.observer.Released(ctx, s.name, n, -1, err)
	}
	return r.there, err
}

// AddPermits adds n, -(2³¹-1) to 2³¹-1, to the number of free permits, wakes waiters, and returns what is free then. It
// does not wait. A negative n takes permits away, as Redisson's reducePermits does. The result is negative if more of
// them were in use than are left: then as many releases free nobody. AddPermits makes the key if it is missing, and
// leaves its expiry as it is (Redisson's drops it). Sent once.
func (s *CountingSemaphore) AddPermits(ctx context.Context, n int) (int64, error) {
	r, err := s.add(ctx, n, -maxPermits, false)
	return r.free, err
}

// Drain takes all free permits and returns how many they were. If the number of free permits was negative, Drain sets it to 0
// and returns the negative number. For a missing key it returns 0, and the key stays missing. It is sent once.
func (s *CountingSemaphore) Drain(ctx context.Context) (int64, error) {
	return ask(ctx, &s.object, s.drainExchange().late(s.giveBack), s.c.doOnce)
}

func (s *CountingSemaphore) drainExchange() exchange[int64] {
	return exchange[int64]{script.Call{Script: countingDrainScript, Keys: s.keys(), Once: true}, func(m rueidis.RedisMessage) (taken int64, err error) {
		var status int64
		if err = read(m, "drain", s.key, &status, &taken); err == nil && status == countingNoInteger {
			err = notInteger(s.key)
		}
		return taken, err
	}}
}

// Available is how many permits are free: 0 of a missing key, negative after AddPermits of less than what was free.
func (s *CountingSemaphore) Available(ctx context.Context) (int64, error) {
	return session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) (int64, error) {
		m, err := s.c.runner.Do(ctx, script.Call{Script: countingGetScript, Keys: []string{s.key}, Command: func(b rueidis.Builder) rueidis.Completed {
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
	})
}

// Inspect looks at the semaphore: how many permits are free, and how long it lasts.
func (s *CountingSemaphore) Inspect(ctx context.Context) (SemaphoreState, error) {
	return ask(ctx, &s.object, s.inspectExchange(), s.c.runner.Do)
}

func (s *CountingSemaphore) inspectExchange() exchange[SemaphoreState] {
	return exchange[SemaphoreState]{script.Call{Script: countingInspectScript, Keys: s.keys()}, func(m rueidis.RedisMessage) (SemaphoreState, error) {
		var status, free int64
		var ttl time.Duration
		err := read(m, "inspect", s.key, &status, &free, &ttl)
		if err == nil && status == countingNoInteger {
			err = notInteger(s.key)
		}
		return SemaphoreState{Available: int(free), TTL: ttl}, err
	}}
}
