package rsemaphore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/session"
)

// Semaphore describes a number of permits that processes share, or an amount ([Client.WeightedSemaphore]), and how to
// acquire them. It is immutable and holds no state: share it, or make it anew for every use. What is held is a *Permit.
type Semaphore struct {
	*site
	capacity int
	revised  string // the capacity with its revision, as scripts take it
	label    string
	bad      error // what every call returns
}

// site is where a semaphore is, and how it is used: what its descriptions share that differ in capacity or label.
type site struct {
	c                     *Client
	name                  string
	key, channel, permits string
	store                 *store // how it is kept on the server

	// The keys of most scripts. Those that must be refused where a latch has the name take its record.
	allKeys     []string
	releaseKeys []string
	renewKeys   []string // without the first

	queueKey        string // where the process's calls that wait for its permits stand
	grants          string // the channels of grants, without the connection id
	ownGrantChannel string // the channel of the grants of this process

	interop bool // see Shared
	fenced  bool // see Fenced
}

// semaphore makes the Semaphore in one piece of memory with its site: many programs describe a semaphore anew for every
// use.
func (c *Client) semaphore(at site, capacity int, bad error) *Semaphore {
	x := &struct {
		Semaphore
		site
	}{site: at}
	s := &x.Semaphore
	*s = Semaphore{site: &x.site, capacity: capacity, revised: strconv.Itoa(capacity), bad: bad}
	s.queueKey, s.grants, s.ownGrantChannel = "permits:"+s.key, grantsOfAll, c.grantChannel
	if c.clustered {
		s.grants = keyname.Prefix("redlatch_grant", at.key) + ":"
		s.ownGrantChannel = s.grants + c.session.ID
	}
	s.refuse(s.checkCapacity(capacity))
	return s
}

// refuse has every call return err, unless one returns something else already.
func (s *Semaphore) refuse(err error) { s.bad = cmp.Or(s.bad, s.c.session.Error(err)) }

// manner tells calls apart that cannot be made in one: the script gets one capacity.
func (s *Semaphore) manner() string {
	if s.interop {
		return "shared " + s.revised
	}
	return s.revised
}

// resizeKept is how long a capacity is remembered unused; the minute is for acquire.lua, which does not prolong it with
// each call.
const resizeKept = 7*24*time.Hour + time.Minute

const unlimited time.Duration = -1

// Semaphore describes the semaphore of that name: Redisson's RPermitExpirableSemaphore. capacity is how many permits
// there are in all, 1 to 2³¹-1. The first acquisition writes it; every other call must bring the same
// (ErrCapacityMismatch), until a Resize, or if it is Shared. A name or capacity that cannot be used is reported by
// every call on it.
//
// The name must not be that of a counting.Semaphore, a CountDownLatch or an rcounter.Counter, whose keys look alike:
// see the package comment.
func (c *Client) Semaphore(name string, capacity int) *Semaphore {
	key, bad := c.session.Key(name)
	at := site{c: c, name: name, key: key, store: ids}
	at.permits, at.channel = keyname.Suffix(key, "timeout"), keyname.Prefix("redisson_sc", key)
	notes, queue := keyname.Suffix(key, "notes"), keyname.Prefix("redlatch_queue", key)
	keys := []string{key, at.permits, notes, keyname.Suffix(key, "latch"), queue, key, at.permits, notes, queue}
	at.allKeys, at.releaseKeys, at.renewKeys = keys[:5:5], keys[5:], keys[1:3:3]
	return c.semaphore(at, capacity, cmp.Or(bad, c.session.Error(keyname.CheckPair(key)))) // for the permits out
}

func (s *Semaphore) checkCapacity(n int) error {
	if err := session.CheckNumber("capacity", int64(n), 1, s.store.maxCapacity); err != nil {
		return fmt.Errorf("%q: %w", s.name, err)
	}
	return nil
}

// WithRevision returns the same semaphore whose capacity is the given revision of it, 1 to 2⁵³-1: for a capacity that
// changes from one version of a program to the next, while both run. Raise it whenever the capacity in the program
// changes, even back.
//
// The server decides: the first acquisition with a higher revision than any before sets its capacity, serves waiters,
// and from then on that capacity counts for all, until the next revision, a Resize or an AddPermits. An acquisition
// with a lower revision, or none, goes by the server's capacity and changes nothing. The same revision with two
// capacities is a mistake, and the call that comes second gets ErrCapacityMismatch. What is held stays held. Like a
// Resize, a revision is remembered until the semaphore has not been used for seven days.
func (s *Semaphore) WithRevision(revision int64) *Semaphore {
	m := *s
	m.revised = strconv.Itoa(s.capacity) + ":" + decimal(revision)
	m.refuse(session.CheckNumber("revision", revision, 1, maxWeight))
	return &m
}

// WithLabel returns the same semaphore whose permits carry a label, such as a job's name or a host, which Inspect shows
// to everybody. At most 256 bytes of UTF-8. It is kept in a key of its own, not in Redisson's.
func (s *Semaphore) WithLabel(label string) *Semaphore {
	m := *s
	m.label = label
	m.refuse(session.CheckLabel("label", label))
	return &m
}

// Shared returns the same semaphore for use together with Redisson, by Redisson's rules:
//
//   - The capacity on the server counts. It was set by the first acquisition, by Resize, or by trySetPermits,
//     setPermits or addPermits of a Java client. An acquisition that finds no semaphore makes one with the capacity
//     given to Client.Semaphore. That capacity is not compared with the server's, and is never the reason for
//     ErrCapacityMismatch. ErrCapacityMismatch remains for a request for more permits than there are in all.
//   - The keys have no end, as Redisson makes them. An end that they have is removed. The keys of a semaphore that is
//     not shared last as long as the longest lease in them; a Java client that acquires for longer would not prolong
//     them.
//
// If the set of permits alone is deleted from outside, what was out is missing
// from the capacity, as in Redisson, until Resize or setPermits sets it again.
//
// All Go processes should call Shared for a semaphore that Java uses. A Semaphore without it leaves keys without an end
// as they are. It refuses a capacity that differs from its own, even where Java has changed it. It forgets a Resize if
// the semaphore is not used for seven days.
func (s *Semaphore) Shared() *Semaphore {
	m, at := *s, *s.site
	m.site, at.interop = &at, true
	m.refuseWeights("Shared")
	return &m
}

// Acquire acquires n permits, all or none, waiting until there are as many, or ctx ends.
//
// n is 1 to the capacity (the server's, after a Resize or if Shared), and at most 1,000. On success the permits are
// renewed until Release. ctx bounds the waiting only: the permit outlives it.
//
// Waiting calls of all processes are served first come, first served, with one exception: while the first in line asks
// for more than is free, later ones may go before it, up to four times what it asks for; then it is next. The package
// comment says which callers do not queue. Permits are not re-entered: Acquire under a permit's context takes more of
// them. Two callers that each hold some and wait for more may wait for each other; so ask for all at once.
//
// Otherwise nothing is held by this call, and the error is ErrNotAcquired (not enough permits, or ctx ended: then it is
// joined with ctx's error and cause), ErrCapacityMismatch, ErrUnavailable, ErrUnknownOutcome, ErrNotReplicated,
// ErrClosed, ErrInvalidName, ErrInvalidOption or ErrWrongType. While the server cannot be asked the call goes on trying
// for as long as it may wait.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Permit, error) {
	return s.acquire(ctx, n, unlimited, 0)
}

// TryAcquire is Acquire with times of its own: it waits for at most waitTime (0: it asks once, and does not wait) and
// holds for leaseTime (0: renewed until Release; otherwise at least 10 ms). waitTime bounds the waiting for others;
// the first request itself has Options.CallTimeout, so a server that does not answer can make the call last that long.
// With waitTime 0 it gets nothing while others wait that came before: it does not ask at all if they are of this
// process.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, waitTime, leaseTime time.Duration) (*Permit, error) {
	if err := errors.Join(session.CheckWait(waitTime), session.CheckLease(leaseTime)); err != nil {
		return nil, s.c.session.Error(err)
	}
	return s.acquire(ctx, n, waitTime, leaseTime)
}

// Do acquires n permits as Acquire does, runs fn under the permit's context, and releases.
//
// fn's ctx ends if the permit is lost; fn should then return. If nothing was acquired, or ctx ended as it was, fn does
// not run, and the error is Acquire's. Otherwise it is fn's joined with Release's: ErrLost among them says that the
// permit was lost before fn returned. If fn panics the permit is released, and the panic goes on.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) (err error) {
	permit, err := s.Acquire(ctx, n)
	if err != nil {
		return err
	}
	if ended := errs.Ended(ctx); ended != nil {
		_ = permit.Release(ctx) // if it fails it goes on by itself
		return s.c.session.Error(fmt.Errorf("%d of %q: %w: %w", n, s.name, errs.ErrNotAcquired, ended))
	}
	defer func() {
		if e := permit.Release(ctx); e != nil {
			err = errors.Join(err, e)
		}
	}()
	return fn(permit.Context(ctx))
}

// described is a semaphore for the debug page.
type described struct{ *Semaphore }

// Kind is what it is, to people.
func (d described) Kind() string { return d.store.kind }

func (s *Semaphore) badN(n, most int) error {
	return fmt.Errorf("%q: %w", s.name, errs.InvalidOption("n", n, fmt.Sprintf("1 to %d", min(most, s.store.maxPerCall))))
}

func (s *Semaphore) acquire(ctx context.Context, n int, waitTime, leaseTime time.Duration) (*Permit, error) {
	if s.bad != nil {
		return nil, s.bad
	}
	if n < 1 || n > s.store.maxPerCall { // the server says whether n is more than its capacity
		return nil, fmt.Errorf("rsemaphore: %w", s.badN(n, s.store.maxPerCall))
	}
	c := s.c
	if err := c.session.Enter(); err != nil {
		return nil, err
	}
	ctx = c.session.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, Name: s.name, N: int64(n)})
	a := acquisition{s: s, n: n, began: time.Now(), auto: leaseTime == 0, lease: leaseTime, waits: waitTime != 0}
	if a.auto {
		a.lease = c.opts.WatchdogTimeout
	}
	permit, err := a.run(ctx, waitTime)
	waited := time.Since(a.began)
	if err != nil {
		err = a.explain(err, waited)
		var refused *NotAcquiredError
		if errors.As(err, &refused) && !refused.Unheard {
			refused.Holders = s.holders(ctx, waited)
		}
		c.session.Leave()
		c.session.Tell(ctx, errs.Event{Kind: errs.EventNotAcquired, Name: s.name, N: int64(n), Took: waited, Err: err})
		return nil, err
	}
	c.session.Answered()
	if c.opts.Observer != nil {
		permit.acquired = ctx
	}
	c.session.Tell(ctx, errs.Event{Kind: errs.EventAcquired, Name: s.name, N: int64(n), Took: waited})
	return permit, nil
}

// Resize sets the capacity, whatever it was, and returns what it was, even if a request had to be repeated. From then
// on the server's capacity applies and a different argument is ignored, until the semaphore has been unused for seven
// days. It is Redisson's setPermits; if the semaphore is Shared it applies forever.
//
// A larger capacity serves waiters, in their order. A smaller one takes nothing from holders: Available is negative
// until enough permits have been released. Waiters that ask for more than the new capacity get ErrCapacityMismatch.
func (s *Semaphore) Resize(ctx context.Context, capacity int) (before int, err error) {
	if err := s.checkCapacity(capacity); err != nil {
		return 0, s.c.session.Error(err)
	}
	r, err := s.resize(ctx, capacity, false)
	return int(r.before), err
}

// AddPermits adds delta to the capacity, and returns what it is then. A negative delta takes permits away. It is
// Redisson's addPermits, and Resize in all else: from then on the server's capacity counts.
//
// A repeated request adds once. ErrInvalidOption: delta is less than -(2³¹-1) or more than 2³¹-1 (2⁵³-1 of a
// WeightedSemaphore), or the capacity would be less than 1 or more than that; nothing was changed. ErrUnknownOutcome: a
// request was sent, and no reply was seen; Inspect shows the capacity.
func (s *Semaphore) AddPermits(ctx context.Context, delta int) (capacity int, err error) {
	if err := session.CheckNumber("delta", int64(delta), -s.store.maxCapacity, s.store.maxCapacity); err != nil {
		return 0, s.c.session.Error(fmt.Errorf("%q: %w", s.name, err))
	}
	r, err := s.resize(ctx, delta, true)
	if err == nil && r.status == resizeRefused {
		err = s.c.session.Error(fmt.Errorf("%q: %w", s.name,
			errs.InvalidOption("delta", delta,
				fmt.Sprintf("%d to %d: the capacity is %d", 1-r.before, s.store.maxCapacity-r.before, r.before))))
	}
	if err != nil {
		return 0, err
	}
	return int(r.before) + delta, nil
}

// resize sets the capacity to n, or adds n to it.
func (s *Semaphore) resize(ctx context.Context, n int, relative bool) (resizeReply, error) {
	return session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) (resizeReply, error) {
		id := rand.Text()
		var last time.Time
		call := timed(s.key, s.c.runner.Do, func(sent time.Time, notAfter int64) exchange[resizeReply] {
			last = sent
			return s.resizeExchange(n, relative, notAfter, id)
		})
		call.GiveUp = s.c.session.Bound() // at the end of ctx
		r, err := call.Run(ctx, s.c.runner)
		s.served(r.served, last)
		// It may have run before, and served waiters of this process which did not hear of it: Do repeats in silence.
		s.c.waiters.PollAll(s.queueKey)
		return r, err
	})
}

// Available is how many permits can be acquired now; negative if a Resize left fewer than are held. All of the capacity
// if the semaphore is not in use.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	state, err := ask(ctx, s.c, s.bad, s.inspectExchange(0), s.c.runner.Do)
	return state.Available, err
}

// SemaphoreState is a semaphore as the server knew it at one moment.
type SemaphoreState struct {
	// Capacity is how many permits there are in all: what Client.Semaphore was given if the semaphore is not in use.
	Capacity int
	// Available is how many permits can be acquired; negative if a Resize left fewer than are held.
	Available int
	Permits   []Holder // the permits that are held, first the one whose lease ends first
}

// Holder is one permit that is held. A *Permit of n has n; of a WeightedSemaphore it has one. It is redlatch.Holder,
// which is one type for locks and permits.
type Holder = errs.Holder

// Inspect returns which permits are held, by which clients, and for how long. It changes nothing and is for people:
// what it returns may be out of date when it is read. Its cost to the server grows with the number of permits out, and
// it takes one more call for each client that holds some, 100 at most and 16 at a time. Available is cheaper.
func (s *Semaphore) Inspect(ctx context.Context) (SemaphoreState, error) {
	state, err := ask(ctx, s.c, s.bad, s.inspectExchange(-1), s.c.runner.Do)
	if err != nil {
		return state, err
	}
	s.nameProcesses(ctx, state.Permits)
	return state, nil
}

// nameProcesses fills in whose the holders are.
func (s *Semaphore) nameProcesses(ctx context.Context, holders []Holder) {
	said := func(h Holder) string {
		return lease.BeatKeyFor(h.Client, s.key)
	}
	var keys []string
	for _, h := range holders {
		if h.Client != "" {
			keys = append(keys, said(h))
		}
	}
	who := lease.Processes(ctx, s.c.runner, keys)
	for i, h := range holders {
		if h.Client != "" {
			holders[i].Process = who[said(h)]
		}
	}
}
