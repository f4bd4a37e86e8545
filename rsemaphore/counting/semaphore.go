package counting

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/rsemaphore"
)

//go:embed lua
var luaFiles embed.FS

var (
	acquireScript = script.Load("acquire", luaFiles, "acquire")
	addScript     = script.Load("add permits", luaFiles, "add")
	setScript     = script.Load("set permits", luaFiles, "set")
	inspectScript = script.Load("inspect", luaFiles, "inspect").Reads()
	getScript     = script.Plain("get permits")
)

// maxPermits is the most permits that one call may name, the bound of a Java int: Redisson's methods take no more.
const maxPermits = math.MaxInt32

// Semaphore is Redisson's RSemaphore, for sharing one with Java: a number of free permits under the name itself, and
// nothing else. It is an immutable description, safe for concurrent use, and costs nothing until used.
//
// Its permits are anonymous. The server does not know which process has one. Any process may release what it never
// acquired, which raises the count. A process that dies takes its permits with it, until as many are added by hand:
// [rsemaphore.Options].Liveness does not cover them. There is no lease and no handle. Where no Java process shares it,
// use [rsemaphore.Client.Semaphore].
//
// Its name must not be that of an rsemaphore.Semaphore, a CountDownLatch or an rcounter.Counter: see the comment of
// package rsemaphore. Of a Semaphore of which a permit is held, or of a latch that was set here, every verb but
// Available is refused (ErrWrongType). To see that, each script asks for their keys with its own, so while its Cluster
// slot is being migrated the server refuses it (TRYAGAIN), and it is repeated until the slot is through.
//
// A missing key is a semaphore without free permits: acquiring waits until some are set. Release makes the key if it is
// missing.
//
// Waiting is as Redisson does it: processes race for what a release publishes, in no order, and none keeps permits from
// another. So a request for many waits for as long as smaller ones take what is free, and one for more than there will
// ever be waits until its ctx ends. In a process the waiters for the same number are served in their order, and only
// the first of them asks the server. A lost message delays it by at most [rsemaphore.Options].PollCap.
//
// The writing verbs cannot be repeated safely, because the server cannot tell a repeated request from a second one. So
// each request is sent once. After ErrUnknownOutcome it may have run. What an acquisition of unknown outcome took is
// given back in the background if its reply still comes, which [rsemaphore.Client.Close] awaits for a CallTimeout; else
// the permits are lost. Do not release what was not granted: it may be given back twice.
//
// Close waits for calls, but not for holders, because holders are not known. Release works while the client closes and
// after that, for as long as its connection is open.
type Semaphore struct {
	session *session.Session

	name, key, channel string
	bad                error // what every call returns
}

// New describes the counting semaphore of that name. Its calls are those of the client: the client's options, observer
// and Close are for them, too. Nothing is sent. A name that cannot be used is reported by every call on the semaphore.
func New(c *rsemaphore.Client, name string) *Semaphore {
	s := &Semaphore{session: accessor.Of[*session.Session](c), name: name}
	s.key, s.bad = s.session.Key(name)
	s.channel = keyname.Prefix("redisson_sc", s.key)
	return s
}

// call is a call of a script. Its keys are the count, and those by which an rsemaphore.Semaphore or a latch of that
// name would be known. A name that is one pair of braces can be that of no Semaphore: see rsemaphore's latch.
func (s *Semaphore) call(which *script.Script, args ...string) script.Call {
	return script.Call{Script: which, Args: args,
		Keys: []string{s.key, keyname.Suffix(keyname.Own(s.key), "timeout"), keyname.Suffix(s.key, "latch")}}
}

// once is a call that is sent once, and publishes what is free.
func (s *Semaphore) once(which *script.Script, args ...string) script.Call {
	call := s.call(which, append([]string{s.channel, s.session.Inner.PublishCommand()}, args...)...)
	call.Once = true
	return call
}

// numbers reads a reply of n integers.
func (s *Semaphore) numbers(m rueidis.RedisMessage, n int) ([]int64, error) {
	v, err := m.AsIntSlice()
	if err != nil || len(v) != n {
		return nil, script.Unexpected(strconv.Quote(s.key), m, err)
	}
	return v, nil
}

func (s *Semaphore) number(m rueidis.RedisMessage) (int64, error) {
	v, err := m.AsInt64()
	if err != nil {
		return 0, script.Unexpected(strconv.Quote(s.key), m, err)
	}
	return v, nil
}

func (s *Semaphore) notInteger() error {
	return fmt.Errorf("%w: %q is not an integer", errs.ErrWrongType, s.key)
}

const (
	statusOK        int64 = 1
	statusLate      int64 = 2
	statusNoInteger int64 = 3
)

// TrySetPermits makes the semaphore with n free permits, 0 to 2³¹-1, unless it is there: false, and nothing is
// changed. ttl is at least a millisecond; after that time the key is gone, with all permits. With ttl 0 it has no end,
// as in Redisson. Sent once.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	if err := cmp.Or(session.CheckNumber("permits", int64(n), 0, maxPermits), session.CheckTTL(ttl)); err != nil {
		return false, s.session.Error(err)
	}
	set, err := session.Ask(ctx, s.session, s.bad, func(ctx context.Context) (set bool, err error) {
		m, err := s.session.DoOnce(ctx, s.once(setScript, strconv.Itoa(n), script.Millis(ttl)))
		if err != nil {
			return false, err
		}
		made, err := s.number(m)
		return made == 1, err
	})
	if set {
		s.session.Waiters.Wake(s.queueKey())
	}
	return set, err
}

// Acquire takes n permits, 1 to 2³¹-1, all of them at once, and waits until they are free or ctx ends.
//
// nil: taken. ErrNotAcquired, joined with ctx's error and cause: too few were free for as long as ctx lasted; nothing
// was taken. ErrUnavailable: the server could not be asked, and nothing was taken. ErrUnknownOutcome: a request that
// takes got no reply, which ends the waiting at once; the permits may have been taken (see the type). When ctx ends
// while a request is under way its reply is still awaited, for 40 ms at most, and counts: the permits may be the
// caller's although ctx has ended.
func (s *Semaphore) Acquire(ctx context.Context, n int) error {
	return s.acquire(ctx, n, time.Time{}, false)
}

// TryAcquire is Acquire for at most waitTime. 0: it asks once, and takes what is free even if others wait, as
// Redisson's does. waitTime bounds the waiting for permits: the first request itself has Options.CallTimeout.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, waitTime time.Duration) error {
	if err := session.CheckWait(waitTime); err != nil {
		return s.session.Error(err)
	}
	return s.acquire(ctx, n, time.Now().Add(waitTime), waitTime == 0)
}

func (s *Semaphore) runAdd(ctx context.Context, n int64) (free int64, err error) {
	m, err := s.session.DoOnce(ctx, s.once(addScript, strconv.FormatInt(n, 10)))
	if err == nil {
		free, err = s.number(m)
	}
	var re *rueidis.RedisError
	if errors.As(err, &re) && strings.Contains(re.Error(), "not an integer") {
		err = s.notInteger()
	}
	if err == nil && n > 0 {
		s.session.Waiters.Wake(s.queueKey())
	}
	return free, err
}

// Release gives n permits back, 1 to 2³¹-1, and wakes waiters. Nothing checks that they were acquired. Release makes
// the key if it is missing. While the server cannot be asked it tries until ctx ends, or for five CallTimeouts if ctx
// has no deadline. It may be called with a ctx that has ended, and then has a second, and while the client closes and
// after that. ErrClosed joined with another error: the hub is closed, and perhaps the connection with it. Sent once.
func (s *Semaphore) Release(ctx context.Context, n int) error {
	if err := cmp.Or(s.bad, session.CheckNumber("permits", int64(n), 1, maxPermits)); err != nil {
		return s.session.Error(err)
	}
	s.session.Join()
	defer s.session.Leave()
	ctx, cancel := session.ToRelease(ctx)
	defer cancel()
	ctx = s.session.Tell(ctx, errs.Event{Kind: errs.EventReleasing, Name: s.name, N: int64(n),
		Acquisition: context.Background()})
	bounded, done := ctx, context.CancelFunc(func() {})
	if _, ok := ctx.Deadline(); !ok {
		bounded, done = context.WithTimeout(ctx, s.session.GiveBackBound())
	}
	_, err := s.runAdd(bounded, int64(n))
	done()
	if err == nil {
		s.session.Answered()
	} else if s.session.Inner.Context().Err() != nil {
		err = fmt.Errorf("%w: hub: %w", err, errs.ErrClosed)
	}
	err = s.session.Error(err)
	s.session.Tell(ctx, errs.Event{Kind: errs.EventReleased, Name: s.name, N: int64(n), Held: -1, Err: err})
	return err
}

// AddPermits adds n, -(2³¹-1) to 2³¹-1, to the number of free permits, wakes waiters, and returns what is free then. It
// does not wait. A negative n takes permits away, as Redisson's reducePermits does. The result is negative if more of
// them were in use than are left: then as many releases wake no waiter. AddPermits makes the key if it is missing, and
// leaves its expiry as it is (Redisson's drops it). Sent once.
func (s *Semaphore) AddPermits(ctx context.Context, n int) (int64, error) {
	bad := cmp.Or(s.bad, session.CheckNumber("permits", int64(n), -maxPermits, maxPermits))
	return session.Ask(ctx, s.session, bad, func(ctx context.Context) (int64, error) { return s.runAdd(ctx, int64(n)) })
}

// Available is how many permits are free: 0 of a missing key, negative after AddPermits of less than what was free.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	return session.Ask(ctx, s.session, s.bad, func(ctx context.Context) (int64, error) {
		return s.get(ctx, s.session.Runner.Do)
	})
}

// get reads the number.
func (s *Semaphore) get(ctx context.Context,
	send func(context.Context, script.Call) (rueidis.RedisMessage, error)) (int64, error) {
	m, err := send(ctx, script.Call{Script: getScript, Keys: []string{s.key},
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
		return 0, script.Unexpected("get permits", m, err)
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, s.notInteger()
	}
	return v, nil
}

// State is a semaphore as the server knew it at one moment.
type State struct {
	Available int           // how many permits are free
	TTL       time.Duration // what is left of the key; negative: it has no end
}

// Inspect looks at the semaphore: how many permits are free, and how long it lasts.
func (s *Semaphore) Inspect(ctx context.Context) (State, error) {
	return session.Ask(ctx, s.session, s.bad, func(ctx context.Context) (State, error) {
		m, err := s.session.Runner.Do(ctx, s.call(inspectScript))
		if err != nil {
			return State{}, err
		}
		v, err := s.numbers(m, 3)
		switch {
		case err != nil:
			return State{}, err
		case v[0] == statusNoInteger:
			return State{}, s.notInteger()
		}
		return State{Available: int(v[1]), TTL: max(-1, time.Duration(v[2])*time.Millisecond)}, nil
	})
}
