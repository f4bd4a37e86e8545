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
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
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

// maxPermits is the maximum number of permits in a call: a Java int, because Redisson's methods take no more.
const maxPermits = math.MaxInt32

// Semaphore is Redisson's RSemaphore, for semaphores that Java uses: a number of free permits under the name itself,
// and nothing else. It is an immutable description, safe for concurrent use. A missing key is a semaphore without free
// permits.
//
//   - Its permits are anonymous: the server does not know their holders. Any process may release permits that it never
//     acquired, which raises the count. A process that dies takes its permits with it, until as many are added by hand:
//     [rsemaphore.Options].Liveness does not cover them. There is no lease and no handle.
//   - Waiting is as in Redisson: processes race for the permits of a release, in no order. So a request for many
//     permits waits for as long as smaller ones take the free permits. In a process the waiters for the same number are
//     served in their order, and only the first sends requests. A lost message delays it by at most
//     [rsemaphore.Options].PollCap.
//   - Requests that write are sent once, because the server cannot distinguish a repeated request from a second one.
//     After ErrUnknownOutcome a request may have run. The permits of an acquisition of unknown outcome are given back
//     in the background if its reply still comes, for which [rsemaphore.Client.Close] waits for a CallTimeout; else
//     they are lost. Do not release permits that were not granted: they may be given back twice.
//   - If an rsemaphore.Semaphore of the name has a permit held, or a latch of the name was set here, every method but
//     Available returns ErrWrongType. See the comment of package rsemaphore for names of other kinds.
//   - Close waits for calls, but not for holders, because holders are not known.
type Semaphore struct {
	session *session.Session
	waiters *wait.Waiters

	name, key, channel string
	bad                error // the error of every call
}

// New describes the counting semaphore of that name. Its calls use the client's options, observer and Close. Nothing is
// sent. If the name cannot be used, every call returns the error.
func New(client *rsemaphore.Client, name string) *Semaphore {
	semaphore := &Semaphore{session: accessor.Of[*session.Session](client),
		waiters: accessor.Of[*hold.Keeper](client).Waiters, name: name}
	semaphore.key, semaphore.bad = semaphore.session.Key(name)
	semaphore.channel = keyname.Prefix("redisson_sc", semaphore.key)
	return semaphore
}

// scriptCall returns a call of a script. Its keys are the count, and the keys that an rsemaphore.Semaphore or a latch
// of that name would have. A name that is one pair of braces can be no Semaphore's: see rsemaphore's latch. Because of
// these keys, the server refuses the script (TRYAGAIN) while its Cluster slot is being migrated, and the call is
// repeated.
func (s *Semaphore) scriptCall(called *script.Script, args ...string) script.Call {
	return script.Call{Script: called, Args: args,
		Keys: []string{s.key, keyname.Suffix(keyname.Own(s.key), "timeout"), keyname.Suffix(s.key, "latch")}}
}

// writingCall returns a call that is sent once, and publishes the number of free permits.
func (s *Semaphore) writingCall(called *script.Script, args ...string) script.Call {
	call := s.scriptCall(called, append([]string{s.channel, s.session.Inner.PublishCommand()}, args...)...)
	call.Once = true
	return call
}

// numbers reads a reply of n integers.
func (s *Semaphore) numbers(message rueidis.RedisMessage, n int) ([]int64, error) {
	values, err := message.AsIntSlice()
	if err != nil || len(values) != n {
		return nil, script.Unexpected(strconv.Quote(s.key), message, err)
	}
	return values, nil
}

func (s *Semaphore) number(message rueidis.RedisMessage) (int64, error) {
	values, err := message.AsInt64()
	if err != nil {
		return 0, script.Unexpected(strconv.Quote(s.key), message, err)
	}
	return values, nil
}

func (s *Semaphore) notInteger() error {
	return fmt.Errorf("%w: %q is not an integer", errs.ErrWrongType, s.key)
}

const (
	statusOK        int64 = 1
	statusLate      int64 = 2
	statusNoInteger int64 = 3
)

// TrySetPermits makes the semaphore with n free permits, 0 to 2³¹-1, unless its key exists, and reports whether it did.
// ttl is at least a millisecond; after that time the key expires, with all permits. With ttl 0 it has no end, as in
// Redisson. The request is sent once.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	if err := cmp.Or(session.CheckNumber("permits", int64(n), 0, maxPermits), session.CheckTTL(ttl)); err != nil {
		return false, s.session.Error(err)
	}
	set, err := session.Ask(ctx, s.session, s.bad, func(ctx context.Context) (set bool, err error) {
		message, err := s.session.DoOnce(ctx, s.writingCall(setScript, strconv.Itoa(n), script.Millis(ttl)))
		if err != nil {
			return false, err
		}
		status, err := s.number(message)
		return status == 1, err
	})
	if set {
		s.waiters.Wake(s.queueKey())
	}
	return set, err
}

// Acquire takes n permits, 1 to 2³¹-1, all of them at once. It waits until they are free or ctx ends. The results are:
//
//   - nil: taken.
//   - ErrNotAcquired, joined with ctx's error and cause: too few were free for as long as ctx lasted; nothing was
//     taken.
//   - ErrUnavailable: the server did not answer, and nothing was taken.
//   - ErrUnknownOutcome: a request that takes got no reply, which ends the wait at once. The permits may have been
//     taken (see the type).
//
// If ctx ends while a request is under way its reply is still awaited, for 40 ms at most, and counts: the permits may
// be the caller's although ctx has ended.
func (s *Semaphore) Acquire(ctx context.Context, n int) error {
	return s.acquire(ctx, n, time.Time{}, false)
}

// TryAcquire is Acquire for at most waitTime. With 0 it sends one request, and takes free permits even if others wait,
// as Redisson's does. waitTime bounds the wait for permits: the first request itself has Options.CallTimeout.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, waitTime time.Duration) error {
	if err := session.CheckWait(waitTime); err != nil {
		return s.session.Error(err)
	}
	return s.acquire(ctx, n, time.Now().Add(waitTime), waitTime == 0)
}

func (s *Semaphore) runAdd(ctx context.Context, n int64) (free int64, err error) {
	message, err := s.session.DoOnce(ctx, s.writingCall(addScript, strconv.FormatInt(n, 10)))
	if err == nil {
		free, err = s.number(message)
	}
	var redisErr *rueidis.RedisError
	if errors.As(err, &redisErr) && strings.Contains(redisErr.Error(), "not an integer") {
		err = s.notInteger()
	}
	if err == nil && n > 0 {
		s.waiters.Wake(s.queueKey())
	}
	return free, err
}

// Release gives n permits back, 1 to 2³¹-1, and wakes waiters. Nothing checks that they were acquired. Release makes
// the key if it is missing. The request is sent once. If it surely has not run, Release repeats it until ctx ends, or
// for five CallTimeouts if ctx has no deadline. It may be called with a ctx that has ended, and then has a second, and
// also while and after the client closes. ErrClosed joined with another error: the hub is closed, and perhaps the
// connection with it.
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

// AddPermits adds n, -(2³¹-1) to 2³¹-1, to the number of free permits, wakes waiters, and returns the new number. It
// does not wait. A negative n takes permits away, as Redisson's reducePermits does. The result is negative if more of
// them were in use than are left: then as many releases wake no waiter. AddPermits makes the key if it is missing, and
// keeps its expiry (Redisson's drops it). The request is sent once.
func (s *Semaphore) AddPermits(ctx context.Context, n int) (int64, error) {
	bad := cmp.Or(s.bad, session.CheckNumber("permits", int64(n), -maxPermits, maxPermits))
	return session.Ask(ctx, s.session, bad, func(ctx context.Context) (int64, error) { return s.runAdd(ctx, int64(n)) })
}

// Available returns the number of free permits: 0 if the key is missing, negative after AddPermits took more than were
// free.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	return session.Ask(ctx, s.session, s.bad, func(ctx context.Context) (int64, error) {
		return s.get(ctx, s.session.Runner.Do)
	})
}

// get reads the number of free permits.
func (s *Semaphore) get(ctx context.Context,
	send func(context.Context, script.Call) (rueidis.RedisMessage, error)) (int64, error) {
	message, err := send(ctx, script.Call{Script: getScript, Keys: []string{s.key},
		Command: func(builder rueidis.Builder) rueidis.Completed {
			return builder.Get().Key(s.key).Build()
		}})
	if errors.Is(err, rueidis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	text, err := message.ToString()
	if err != nil {
		return 0, script.Unexpected("get permits", message, err)
	}
	values, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, s.notInteger()
	}
	return values, nil
}

// State is the state of a semaphore on the server at one moment.
type State struct {
	Available int           // the number of free permits
	TTL       time.Duration // the time left of the key; negative: it has no end
}

// Inspect returns the number of free permits, and the time left of the key.
func (s *Semaphore) Inspect(ctx context.Context) (State, error) {
	return session.Ask(ctx, s.session, s.bad, func(ctx context.Context) (State, error) {
		message, err := s.session.Runner.Do(ctx, s.scriptCall(inspectScript))
		if err != nil {
			return State{}, err
		}
		values, err := s.numbers(message, 3)
		switch {
		case err != nil:
			return State{}, err
		case values[0] == statusNoInteger:
			return State{}, s.notInteger()
		}
		return State{Available: int(values[1]), TTL: max(-1, script.Duration(values[2]))}, nil
	})
}
