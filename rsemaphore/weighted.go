package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// maxWeight is up to where the server's Lua counts exactly.
const maxWeight = min(1<<53-1, math.MaxInt)

// WeightedSemaphore describes an amount that processes share, such as bytes, cores or tokens, of which each acquisition
// takes as much as it weighs. It is a Semaphore in all but this: the server keeps one record of an acquisition whatever
// its weight, a part of a weight may be released, and its layout is this library's own, which Java does not read. It is
// immutable and holds no state.
//
// What the package comment guarantees of a Semaphore holds of it, and what that does not guarantee does not.
type WeightedSemaphore struct {
	s *Semaphore // of weights
}

// WeightedSemaphore describes the weighted semaphore of that name. capacity is how much there is in all, 1 to 2⁵³-1
// (2³¹-1 where an int has 32 bits). The first acquisition writes it; everybody else must bring the same
// (ErrCapacityMismatch), until a Resize. A name or capacity that cannot be used is reported by every call on it. Its
// keys are its own: another kind may have the same name.
func (c *Client) WeightedSemaphore(name string, capacity int64) *WeightedSemaphore {
	s := &Semaphore{object: c.object(name), weighted: true, capacity: int(min(max(capacity, 0), maxWeight))}
	if err := checkRange("capacity", capacity, 1, maxWeight); err != nil {
		s.refuse(fmt.Errorf("%q: %w", s.name, err))
	}
	s.channel, s.grants = keyname.Prefix("redisson_sc", s.key), c.grants(s.key)
	s.permits, s.key = keyname.Suffix(s.key, "weights"), keyname.Suffix(s.key, "weighted")
	s.queue = keyname.Prefix("redlatch_queue", s.key)
	return &WeightedSemaphore{s.make()}
}

// WithLabel returns the same semaphore whose permits carry a label, such as a job's name or a host, which Inspect shows
// to everybody. At most 256 bytes of UTF-8.
func (w *WeightedSemaphore) WithLabel(label string) *WeightedSemaphore {
	return &WeightedSemaphore{w.s.WithLabel(label)}
}

// WithRevision returns the same semaphore whose capacity is the given revision of it: see [Semaphore.WithRevision].
func (w *WeightedSemaphore) WithRevision(revision int64) *WeightedSemaphore {
	return &WeightedSemaphore{w.s.WithRevision(revision)}
}

// Acquire acquires n, 1 to the capacity, all or nothing, waiting until there is as much, or ctx ends. On success it is
// renewed until Release. Order, outcomes and errors are those of [Semaphore.Acquire].
func (w *WeightedSemaphore) Acquire(ctx context.Context, n int64) (*WeightedPermit, error) {
	return w.acquire(ctx, n, unlimited, 0)
}

// TryAcquire is Acquire with times of its own, as [Semaphore.TryAcquire]: it waits for at most waitTime (0: it asks
// once, and does not wait) and holds for leaseTime (0: renewed until Release; otherwise at least 10 ms).
func (w *WeightedSemaphore) TryAcquire(ctx context.Context, n int64,
	waitTime, leaseTime time.Duration) (*WeightedPermit, error) {
	if err := errors.Join(session.CheckWait(waitTime), session.CheckLease(leaseTime)); err != nil {
		return nil, w.s.c.session.Error(err)
	}
	return w.acquire(ctx, n, waitTime, leaseTime)
}

func (w *WeightedSemaphore) acquire(ctx context.Context, n int64,
	waitTime, leaseTime time.Duration) (*WeightedPermit, error) {
	if err := checkRange("n", n, 1, maxWeight); err != nil && w.s.bad == nil {
		return nil, w.s.c.session.Error(fmt.Errorf("%q: %w", w.s.name, err))
	}
	permit, err := w.s.acquire(ctx, int(n), waitTime, leaseTime)
	if err != nil {
		return nil, err
	}
	return &WeightedPermit{Permit: permit}, nil
}

// Do acquires n as Acquire does, runs fn under the permit's context, and releases. Its outcomes are those of
// [Semaphore.Do].
func (w *WeightedSemaphore) Do(ctx context.Context, n int64, fn func(ctx context.Context) error) (err error) {
	permit, err := w.Acquire(ctx, n)
	if err != nil {
		return err
	}
	defer func() {
		if e := permit.Release(ctx); e != nil {
			err = errors.Join(err, e)
		}
	}()
	return fn(permit.Context(ctx))
}

// Resize sets the capacity, whatever it was, and returns what it was, even if a request had to be repeated. From then
// on the server's capacity counts and not the one that WeightedSemaphore was given, until it has not been used for
// seven days.
//
// A larger capacity serves waiters. A smaller one takes nothing from holders: Available is negative until enough has
// been released. Waiters that ask for more than the new capacity get ErrCapacityMismatch.
func (w *WeightedSemaphore) Resize(ctx context.Context, capacity int64) (before int64, err error) {
	s := w.s
	if err := checkRange("capacity", capacity, 1, maxWeight); err != nil {
		return 0, s.c.session.Error(fmt.Errorf("%q: %w", s.name, err))
	}
	r, err := s.resizeBy(ctx, func(notAfter int64, id string) exchange[resizeReply] {
		args := append([]string{decimal(capacity), strconv.Itoa(s.capacity), script.Millis(resizeKept), decimal(notAfter),
			s.channel, s.c.session.Inner.PublishCommand(), id}, s.self()...)
		return exchange[resizeReply]{script.Call{Script: weightedResizeScript, Keys: s.made.all, Args: args}, s.decodeResize}
	})
	return r.before, err
}

// Available is how much can be acquired now; negative if a Resize left less than is held. All of the capacity if the
// semaphore is not in use.
func (w *WeightedSemaphore) Available(ctx context.Context) (int64, error) {
	st, err := ask(ctx, &w.s.object, w.inspectExchange(false), w.s.c.runner.Do)
	return st.Available, err
}

// WeightedState is a weighted semaphore as the server knew it at one moment.
type WeightedState struct {
	// Capacity is how much there is in all: what Client.WeightedSemaphore was given if the semaphore is not in use.
	Capacity int64
	// Available is how much can be acquired; negative if a Resize left less than is held.
	Available int64
	Permits   []WeightedHolder // what is held, first the one whose lease ends first
}

// WeightedHolder is one acquisition that is held.
type WeightedHolder struct {
	Holder
	Weight int64
}

// Inspect returns what is held, by which clients, and for how long. It changes nothing and is for people: what it
// returns may be out of date when it is read. Its cost to the server grows with the number of acquisitions out, and it
// takes one more call for each client, as that of a Semaphore.
func (w *WeightedSemaphore) Inspect(ctx context.Context) (WeightedState, error) {
	state, err := ask(ctx, &w.s.object, w.inspectExchange(true), w.s.c.runner.Do)
	if err != nil {
		return state, err
	}
	holders := make([]*Holder, len(state.Permits))
	for i := range state.Permits {
		holders[i] = &state.Permits[i].Holder
	}
	w.s.object.nameProcesses(ctx, holders)
	return state, nil
}

// inspectExchange looks at all that is out, or at what is out under bases, whether or not it is.
func (w *WeightedSemaphore) inspectExchange(all bool, bases ...string) exchange[WeightedState] {
	s := w.s
	return exchange[WeightedState]{script.Call{Script: weightedInspectScript, Keys: []string{s.key, s.permits},
		Args: append([]string{flag(all)}, bases...)}, func(m rueidis.RedisMessage) (WeightedState, error) {
		v, err := m.ToArray()
		if err != nil || len(v)%3 != 0 || len(v) == 0 {
			return WeightedState{}, malformed("inspect", s.key, &m)
		}
		now, _ := v[0].AsInt64()
		capacity, _ := v[1].AsInt64()
		used, err := v[2].AsInt64()
		if capacity == 0 {
			capacity = int64(s.capacity)
		}
		st := WeightedState{Capacity: capacity, Available: capacity - used}
		for i := 3; i < len(v); i += 3 {
			base, _ := v[i].ToString()
			end, _ := v[i+1].AsInt64()
			text, _ := v[i+2].ToString()
			number, label, _ := strings.Cut(text, " ")
			var n int64
			if number != "" { // else it is not out
				var bad error
				n, bad = strconv.ParseInt(number, 10, 64)
				err = errors.Join(err, bad)
			}
			st.Permits = append(st.Permits, WeightedHolder{holder(idOf(base, 0), label, end, now), n})
		}
		if err != nil {
			return WeightedState{}, malformed("inspect", s.key, &m)
		}
		return st, nil
	}}
}

// WeightedPermit is one acquisition of a [WeightedSemaphore]: a [Permit], of which a part may be given back before the
// rest. It is safe for concurrent use.
type WeightedPermit struct {
	*Permit
	parts sync.Mutex // one ReleasePart at a time, so that what the server hears last is least
}

// Weight returns how much the permit holds: what was asked for, less what ReleasePart has given back. After the end of
// the permit it means nothing.
func (x *WeightedPermit) Weight() int64 { return x.permit().weight.Load() }

// ReleasePart gives n of the weight back and keeps the rest: n is 1 to less than Weight, else ErrInvalidOption. It
// serves waiters, and may be called with a ctx that has ended, and then has a second. To give back all, call Release.
//
// Before anything is sent, Weight is less by n, and stays so whatever the error: act with no more. nil: the server has
// confirmed it. ErrUnavailable or ErrUnknownOutcome: it may keep n from others until the next ReleasePart or Release
// that it hears. ErrLost, ErrReleased, ErrMaxHold or ErrClosed: the permit is over. A repeated request gives nothing
// back twice.
func (x *WeightedPermit) ReleasePart(ctx context.Context, n int64) error {
	x.parts.Lock()
	defer x.parts.Unlock()
	p := x.permit()
	s, has := p.s, p.weight.Load()
	if n < 1 || n >= has {
		return s.c.session.Error(fmt.Errorf("%q: %w", s.name,
			errs.InvalidOption("n", n, fmt.Sprintf("1 to %d, less than the weight", has-1))))
	}
	if err := x.Err(); err != nil {
		return s.c.session.Error(fmt.Errorf("release of a part of %q: %w", s.name, err))
	}
	kept := has - n
	p.weight.Store(kept)
	ctx, cancel := toRelease(ctx)
	defer cancel()
	held, err := session.Ask(ctx, s.c.session, nil, func(ctx context.Context) (held int64, err error) {
		unsure, err := script.Repeat(ctx, false, func() (err error) {
			held, err = s.runWeightedRelease(ctx, p.base(), kept, "")
			return err
		})
		if unsure {
			s.c.waiters.AskAgain(s.made.queueKey)
		}
		return held, err
	})
	if err == nil && held == 0 {
		err = s.c.session.Error(fmt.Errorf("release of a part of %q: %w", s.name, errs.ErrLost))
	}
	return err
}

// allOrNone gives back all of several acquisitions, or nothing of any.
const allOrNone = -1

// runWeightedRelease keeps so much of an acquisition, 0: nothing. It returns what was held; -1 with allOrNone, if not
// all were. others: base and entry of each that is released with it.
func (s *Semaphore) runWeightedRelease(ctx context.Context, base string, kept int64, entry string,
	others ...string) (int64, error) {
	args := append([]string{base, decimal(kept), s.channel, s.c.session.Inner.PublishCommand(), s.grants, s.c.session.ID,
		entry}, others...)
	return s.releaseBy(ctx, script.Call{Script: weightedReleaseScript, Keys: s.made.released, Args: args})
}
