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
)

// maxPermits is the most permits that one call may name, the bound of a Java int: Redisson's methods take no more.
const maxPermits = math.MaxInt32

// CountingSemaphore is Redisson's RSemaphore, for sharing one with Java: a number of free permits under the name
// itself. Beside it is only who waits. It is an immutable description, safe for concurrent use, and costs nothing until used.
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
// Waiters of all processes stand in one queue on the server, and are handed permits by releases, in the order in which they came. The
// first in the queue, while it wants more than is free, may be overtaken by later ones, by four times as many permits as it wants in
// all. After that nobody passes it for two and a half PollCaps, and then it goes to the end of the queue: nobody knows how many permits
// there are, so it may want more than there will ever be. TryAcquire with waitTime 0 does not go past the queue, nor past waiters of
// its process that were refused. What a waiter is handed it claims, in a call of its own. If it never does, because its process died or
// is cut off, the permits go to others after four PollCaps or CallTimeouts, whichever is longer, and a second at least. Redisson's
// waiters race for what is published: see the package
// comment.
//
// The writing verbs cannot be repeated safely, because the server cannot tell a repeated request from a second one. So each
// request is sent once, but for those of a waiter that was refused: what these take is marked for as long as a grant may be claimed, and
// they are repeated. After ErrUnknownOutcome a request may have run. What an acquisition of unknown outcome took is given back in
// the background if its reply still comes, or if its waiter had been refused before and the server can be asked in time; else the
// permits are lost. Do not release what was not granted: it may be given back twice.
type CountingSemaphore struct {
	object
	grants, queue string
}

// CountingSemaphore describes the counting semaphore of that name. Nothing is sent. A name that cannot be used is
// reported by every call on it.
func (c *Client) CountingSemaphore(name string) *CountingSemaphore {
	s := &CountingSemaphore{object: c.object(name)}
	s.channel, s.grants = keyname.Prefix("redisson_sc", s.key), c.grants(s.key)
	s.queue = keyname.Prefix("redlatch_queue", keyname.Suffix(s.key, "counting"))
	return s
}

// keys are the count, and the keys by which a Semaphore or a latch of that name would be known.
func (s *CountingSemaphore) keys() []string {
	return []string{s.key, keyname.Suffix(s.key, "timeout"), keyname.Suffix(s.key, "latch")}
}

// allKeys are keys, the queue, and what its waiters were given and have claimed.
func (s *CountingSemaphore) allKeys() []string {
	return append(s.keys(), s.queue, keyname.Suffix(s.key, "given"), keyname.Suffix(s.key, "claimed"))
}

// self are the arguments with which all scripts begin that change anything.
func (s *CountingSemaphore) self() []string {
	return []string{s.channel, s.c.session.Hub.PublishCommand(), s.grants, s.c.session.ID, script.Millis(s.c.poll())}
}

const (
	countingOK        int64 = 1
	countingLate      int64 = 2
	countingNoInteger int64 = 3
)

// TrySetPermits makes the semaphore with n free permits, 0 to 2³¹-1, unless it is there: false, and nothing is
// changed. ttl is at least a millisecond; after that time the key is gone, with all permits. With ttl 0 it has no end, as in
// Redisson. Sent once.
func (s *CountingSemaphore) TrySetPermits(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	if err := cmp.Or(checkRange("permits", int64(n), 0, maxPermits), checkTTL(ttl)); err != nil {
		return false, s.c.session.Error(err)
	}
	r, err := session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) (countingReply, error) {
		return s.change(ctx, s.changeExchange(countingSetScript, "set permits", false, strconv.Itoa(n), script.Millis(ttl)), nil)
	})
	return r.status == countingOK, err
}

// Acquire takes n permits, 1 to 2³¹-1, all of them at once, and waits until they are free or ctx ends.
//
// nil: taken. ErrNotAcquired, joined with ctx's error and cause: too few were free for as long as ctx lasted; nothing
// was taken. (What a request under way may still take, or the queue hand over, is given back in the background.) ErrUnavailable: the
// server could not be asked, and nothing was taken. ErrUnknownOutcome: a request got no reply; the permits may have been taken (see the
// type). The first request without a reply ends the waiting at once. A later one is repeated; the waiting ends if that has no answer
// for as long as the server remembers. When ctx ends while a request is under way its reply is still awaited, for 40 ms at most, and
// counts: the permits may be the caller's although ctx has ended.
func (s *CountingSemaphore) Acquire(ctx context.Context, n int) error {
	return s.acquire(ctx, n, time.Time{}, false)
}

// TryAcquire is Acquire for at most waitTime; 0: it asks once, and not at all while others of this process wait and
// were told that there are too few. waitTime bounds the waiting
// for permits: the first request itself has Options.CallTimeout.
func (s *CountingSemaphore) TryAcquire(ctx context.Context, n int, waitTime time.Duration) error {
	if err := session.CheckWait(waitTime); err != nil {
		return s.c.session.Error(err)
	}
	return s.acquire(ctx, n, time.Now().Add(waitTime), waitTime == 0)
}

// countingReply is what a script said that changed the number.
type countingReply struct {
	status, n int64
	served    served
}

// changeExchange changes the number by a script that replies a status, a number if it has one, and what it served of this process.
func (s *CountingSemaphore) changeExchange(which *script.Script, what string, numbered bool, args ...string) exchange[countingReply] {
	return exchange[countingReply]{script.Call{Script: which, Keys: s.allKeys(), Once: true, Args: append(s.self(), args...)}, func(m rueidis.RedisMessage) (r countingReply, err error) {
		v, err := m.ToArray()
		head := 1
		if numbered {
			head = 2
		}
		if err != nil || len(v) <= head {
			return r, malformed(what, s.key, &m)
		}
		r.status, err = v[0].AsInt64()
		var bad, worse error
		if numbered {
			r.n, bad = v[1].AsInt64()
		}
		r.served, worse = readServed(v[head:])
		if errors.Join(err, bad, worse) != nil {
			return r, malformed(what, s.key, &m)
		}
		if r.status == countingNoInteger {
			return r, notInteger(s.key)
		}
		return r, nil
	}}
}

// change sends such an exchange, once. It may serve waiters of this process, whom only its reply names: if that is lost all are asked for
// (see Semaphore.runRelease).
func (s *CountingSemaphore) change(ctx context.Context, x exchange[countingReply], late func(countingReply)) (countingReply, error) {
	sent := time.Now()
	x = x.late(func(r countingReply) {
		s.served(r.served, sent)
		if late != nil {
			late(r)
		}
	})
	r, err := x.by(ctx, s.c.doOnce)
	if err != nil {
		if !errors.Is(err, ErrUnavailable) {
			s.c.queue.AskAgain(s.line())
		}
		return r, err
	}
	s.served(r.served, sent)
	if r.status == countingOK {
		s.c.queue.Wake(s.line())
	}
	return r, nil
}

func (s *CountingSemaphore) runAdd(ctx context.Context, n int64, ifThere bool) (countingReply, error) {
	r, err := s.change(ctx, s.changeExchange(countingAddScript, "add permits", true, decimal(n), flag(ifThere)), nil)
	var re *rueidis.RedisError
	if errors.As(err, &re) && strings.Contains(re.Error(), "not an integer") {
		err = notInteger(s.key)
	}
	return r, err
}

// add adds n permits, least or more.
func (s *CountingSemaphore) add(ctx context.Context, n, least int, ifThere bool) (countingReply, error) {
	bad := cmp.Or(s.bad, checkRange("permits", int64(n), int64(least), maxPermits))
	return session.Ask(ctx, s.c.session, bad, func(ctx context.Context) (countingReply, error) {
		return s.runAdd(ctx, int64(n), ifThere)
	})
}

// Release gives n permits back, 1 to 2³¹-1, and hands them to waiters. Nothing checks that they were acquired. Release makes the key
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
	ctx = s.c.observer.Releasing(ctx, s.name, n, context.Background())
	r, err := s.add(ctx, n, 1, ifThere)
	there := r.status == countingOK
	if there || err != nil {
		s.c.observer.Released(ctx, s.name, n, -1, err)
	}
	return there, err
}

// AddPermits adds n, -(2³¹-1) to 2³¹-1, to the number of free permits, hands them to waiters, and returns what is free then. It
// does not wait. A negative n takes permits away, as Redisson's reducePermits does. The result is negative if more of
// them were in use than are left: then as many releases free nobody. AddPermits makes the key if it is missing, and
// leaves its expiry as it is (Redisson's drops it). Sent once.
func (s *CountingSemaphore) AddPermits(ctx context.Context, n int) (int64, error) {
	r, err := s.add(ctx, n, -maxPermits, false)
	return r.n, err
}

// Drain takes all free permits, what waiters are handed first excepted, and returns how many they were. If the number of free permits was negative, Drain sets it to 0
// and returns the negative number. For a missing key it returns 0, and the key stays missing. It is sent once.
func (s *CountingSemaphore) Drain(ctx context.Context) (int64, error) {
	r, err := session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) (countingReply, error) {
		return s.change(ctx, s.changeExchange(countingDrainScript, "drain", true), func(r countingReply) { s.giveBack(r.n) })
	})
	return r.n, err
}

// Available is how many permits are free, without those that a waiter was handed and has yet to claim: 0 of a missing key, negative after AddPermits of less than what was free.
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
