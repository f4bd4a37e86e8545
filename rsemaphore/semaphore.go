package rsemaphore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Semaphore describes a number of permits that processes share, or an amount ([Client.WeightedSemaphore]), and how to
// acquire them. It is immutable and holds no state: share it, or make a new value for every use. A *Permit is the
// result of an acquisition.
type Semaphore struct {
	*site
	capacity int
	revised  string // the capacity with its revision, in the form of the scripts
	label    string
	share    *share // nil: of no tenant
	bad      error  // the error of every call
}

// site is the part that descriptions of one semaphore share if they differ only in capacity or label.
type site struct {
	c                     *Client
	name                  string
	key, channel, permits string
	store                 *store // the layout on the server

	// The keys of most scripts. Scripts that must refuse a latch of the same name take the latch's record, too.
	allKeys     []string
	releaseKeys []string
	renewKeys   []string // all but the first
	inspectKeys []string

	queueKey        string // the queue of this process's calls that wait for the permits
	grants          string // the prefix of the channels of grants, before the connection id
	ownGrantChannel string // the channel of the grants of this process

	interop bool // see Shared
	fenced  bool // see Fenced
}

// semaphore makes a Semaphore of a site.
func (c *Client) semaphore(at site, capacity int, bad error) *Semaphore {
	semaphore := &Semaphore{site: &at, capacity: capacity, revised: strconv.Itoa(capacity), bad: bad}
	semaphore.queueKey = "permits:" + semaphore.key
	semaphore.grants, semaphore.ownGrantChannel = grantChannelPrefix, c.grantChannel
	if c.clustered {
		semaphore.grants = keyname.Prefix("redlatch_grant", at.key) + ":"
		semaphore.ownGrantChannel = semaphore.grants + c.keeper.ID
	}
	semaphore.refuse(semaphore.checkCapacity(capacity))
	return semaphore
}

// refuse makes every call return err, unless every call returns another error already.
func (s *Semaphore) refuse(err error) { s.bad = cmp.Or(s.bad, s.c.session.Error(err)) }

// queueClass returns a text that differs for calls that cannot share a request: a script takes one capacity.
func (s *Semaphore) queueClass() string {
	if s.interop {
		return "shared " + s.revised
	}
	return s.revised
}

// resizeKept is how long an unused semaphore keeps its capacity. The minute is for acquire.lua, which does not prolong
// it with each call.
const resizeKept = 7*24*time.Hour + time.Minute

const unlimited time.Duration = -1

// Semaphore describes the semaphore of that name: Redisson's RPermitExpirableSemaphore. capacity is the total number of
// permits, 1 to 2³¹-1. The first acquisition writes it. Every other call must bring the same (ErrCapacityMismatch),
// until a Resize, or if it is Shared. If the name or capacity cannot be used, every call returns the error.
//
// The name must not be the name of a counting.Semaphore, a CountDownLatch or an rcounter.Counter, because their keys
// look alike: see the package comment.
func (c *Client) Semaphore(name string, capacity int) *Semaphore {
	key, bad := c.session.Key(name)
	at := site{c: c, name: name, key: key, store: ids}
	at.permits, at.channel = keyname.Suffix(key, "timeout"), keyname.Prefix("redisson_sc", key)
	notes, queue := keyname.Suffix(key, "notes"), keyname.Prefix("redlatch_queue", key)
	shares := keyname.Suffix(key, "shares")
	keys := []string{key, at.permits, notes, keyname.Suffix(key, "latch"), queue, shares,
		key, at.permits, notes, queue, shares, key, at.permits, notes, shares}
	at.allKeys, at.releaseKeys, at.inspectKeys, at.renewKeys = keys[:6:6], keys[6:11:11], keys[11:], keys[1:3:3]
	return c.semaphore(at, capacity, cmp.Or(bad, c.session.Error(keyname.CheckPair(key)))) // for the permits out
}

func (s *Semaphore) checkCapacity(permits int) error {
	if err := session.CheckNumber("capacity", int64(permits), 1, s.store.maxCapacity); err != nil {
		return fmt.Errorf("%q: %w", s.name, err)
	}
	return nil
}

// WithRevision returns the same semaphore with a revision of its capacity, 1 to 2⁵³-1. It is for a capacity that
// changes from one version of a program to the next, while both run. Raise the revision whenever the capacity in the
// program changes, even if it changes back. The server decides:
//
//   - The first acquisition with a higher revision than any before sets its capacity and serves waiters. From then on
//     that capacity counts for all, until the next revision, a Resize or an AddPermits.
//   - An acquisition with a lower revision, or none, goes by the server's capacity and changes nothing.
//   - The same revision with two capacities is a mistake: the second call gets ErrCapacityMismatch.
//
// Permits that are held stay held. Like a Resize, a revision is remembered until the semaphore has not been used for
// seven days.
func (s *Semaphore) WithRevision(revision int64) *Semaphore {
	changed := *s
	changed.revised = strconv.Itoa(s.capacity) + ":" + decimal(revision)
	changed.refuse(session.CheckNumber("revision", revision, 1, maxWeight))
	return &changed
}

// WithLabel returns the same semaphore whose permits carry a label, such as a job's name or a host. Inspect shows it to
// everybody. A label has at most 256 bytes of UTF-8. It is kept in a key of its own, not in Redisson's.
func (s *Semaphore) WithLabel(label string) *Semaphore {
	changed := *s
	changed.label = label
	changed.refuse(session.CheckLabel("label", label))
	return &changed
}

// Shared returns the same semaphore for use together with Redisson, by Redisson's rules:
//
//   - The capacity on the server counts. It was set by the first acquisition, by Resize, or by trySetPermits,
//     setPermits or addPermits of a Java client. An acquisition that finds no semaphore makes one with the capacity
//     given to Client.Semaphore. That capacity is not compared with the server's. ErrCapacityMismatch remains only for
//     a request for more permits than the total.
//   - The keys have no end, as Redisson makes them, and an end that they have is removed. The keys of a semaphore that
//     is not shared last as long as the longest lease in them; a Java client that acquires for longer would not prolong
//     them.
//
// If another program deletes only the set of permits, the permits that were held are missing from the capacity, as in
// Redisson, until Resize or setPermits sets it again.
//
// All Go processes should call Shared for a semaphore that Java uses. A Semaphore without it leaves keys without an end
// as they are. It refuses a capacity that differs from its own, even if Java has changed it. It forgets a Resize if the
// semaphore is not used for seven days.
func (s *Semaphore) Shared() *Semaphore {
	changed, at := *s, *s.site
	changed.site, at.interop = &at, true
	changed.refuseWeights("Shared")
	changed.checkMax()
	return &changed
}

// Acquire acquires n permits, all or none. It waits until as many are free, or ctx ends. n is 1 to the capacity (the
// server's, after a Resize or if Shared), and at most 1,000. On success the permits are renewed until Release. ctx
// bounds only the wait: the permit outlives it.
//
// Waiting calls of all processes are served first come, first served, with one exception: while the first in the queue
// needs more than is free, later calls may go before it, up to four times its size; then it is next. The package
// comment says which callers do not queue. Permits are not re-entered: Acquire under a permit's context takes more of
// them. Two callers that each hold some and wait for more may wait for each other, so acquire all at once.
//
// Otherwise this call holds nothing, and the error is one of these:
//
//   - ErrNotAcquired: not enough permits, or ctx ended: then it is joined with ctx's error and cause.
//   - ErrCapacityMismatch, ErrUnavailable, ErrUnknownOutcome, ErrNotReplicated, ErrClosed, ErrInvalidName,
//     ErrInvalidOption or ErrWrongType.
//
// While the server does not answer, requests are repeated for as long as the call may wait.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Permit, error) {
	return s.acquire(ctx, n, unlimited, 0)
}

// TryAcquire is Acquire with times of its own. It waits for at most waitTime; with 0 it sends one request and does not
// wait. It holds for leaseTime, at least 10 ms; 0: renewed until Release. waitTime bounds only the wait for others: the
// first request has Options.CallTimeout, so a server that does not answer can make the call last that long. With
// waitTime 0 it acquires nothing while earlier callers wait, and sends nothing if they are of this process.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, waitTime, leaseTime time.Duration) (*Permit, error) {
	if err := errors.Join(session.CheckWait(waitTime), session.CheckLease(leaseTime)); err != nil {
		return nil, s.c.session.Error(err)
	}
	return s.acquire(ctx, n, waitTime, leaseTime)
}

// Do acquires n permits as Acquire does, runs fn under the permit's context, and releases.
//
// fn's ctx ends if the permit is lost; fn should then return. If nothing was acquired, or ctx itself ended, fn does not
// run, and the error is Acquire's. Otherwise it is fn's joined with Release's, which has ErrLost if the permit was lost
// before fn returned. If fn panics the permit is released, and the panic goes on.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) (err error) {
	permit, err := s.Acquire(ctx, n)
	if err != nil {
		return err
	}
	if ended := errs.Ended(ctx); ended != nil {
		_ = permit.Release(ctx) // after a failure it goes on by itself
		return s.c.session.Error(fmt.Errorf("%d of %q: %w: %w", n, s.name, errs.ErrNotAcquired, ended))
	}
	defer func() {
		if releaseErr := permit.Release(ctx); releaseErr != nil {
			err = errors.Join(err, releaseErr)
		}
	}()
	return fn(permit.Context(ctx))
}

// described is a semaphore for the debug page.
type described struct{ *Semaphore }

// Kind returns the name of the semaphore's kind, for people.
func (d described) Kind() string { return d.store.kind }

func (s *Semaphore) badN(permits, most int) error {
	limit := min(most, s.store.maxPerCall)
	return fmt.Errorf("%q: %w", s.name, errs.InvalidOption("n", permits, fmt.Sprintf("1 to %d", limit)))
}

func (s *Semaphore) acquire(ctx context.Context, permits int, waitTime, leaseTime time.Duration) (*Permit, error) {
	if s.bad != nil {
		return nil, s.bad
	}
	most := s.share.mostOf(s.store.maxPerCall)
	if permits < 1 || permits > most { // the server compares permits with its capacity
		return nil, fmt.Errorf("rsemaphore: %w", s.badN(permits, most))
	}
	client := s.c
	if err := client.session.Enter(); err != nil {
		return nil, err
	}
	ctx = client.session.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, Name: s.name, N: int64(permits)})
	began := time.Now()
	request := acquisition{
		s: s, n: permits, auto: leaseTime == 0, lease: leaseTime, waits: waitTime != 0,
	}
	if request.auto {
		request.lease = client.opts.WatchdogTimeout
	}
	permit, err := request.run(ctx, began, waitTime)
	waited := time.Since(began)
	if err != nil {
		err = request.explain(err, waited)
		var refused *NotAcquiredError
		if errors.As(err, &refused) && !refused.Unheard {
			refused.Holders = s.holders(ctx, waited)
		}
		client.session.Leave()
		client.session.Tell(ctx,
			errs.Event{Kind: errs.EventNotAcquired, Name: s.name, N: int64(permits), Took: waited, Waited: request.waited,
				Err: err})
		return nil, err
	}
	client.session.Answered()
	if client.opts.Observer != nil {
		permit.acquired = ctx
	}
	client.session.Tell(ctx,
		errs.Event{Kind: errs.EventAcquired, Name: s.name, N: int64(permits), Took: waited, Waited: request.waited})
	return permit, nil
}

// Resize sets the capacity, whatever it was, and returns the capacity before, even if a request had to be repeated.
// From then on the server's capacity applies and a different argument is ignored, until the semaphore has been unused
// for seven days. Resize is Redisson's setPermits; if the semaphore is Shared it applies forever.
//
// A larger capacity serves waiters, in their order. A smaller one takes nothing from holders: Available is negative
// until enough permits have been released. Waiters for more than the new capacity get ErrCapacityMismatch.
func (s *Semaphore) Resize(ctx context.Context, capacity int) (before int, err error) {
	if err := s.checkCapacity(capacity); err != nil {
		return 0, s.c.session.Error(err)
	}
	reply, err := s.resize(ctx, capacity, false)
	return int(reply.before), err
}

// AddPermits adds delta to the capacity, and returns the new capacity. A negative delta takes permits away. It is
// Redisson's addPermits. As with Resize, from then on the server's capacity counts. A repeated request adds once.
//
//   - ErrInvalidOption: delta is less than -(2³¹-1) or more than 2³¹-1 (2⁵³-1 for a WeightedSemaphore), or the capacity
//     would be less than 1 or more than that. Nothing was changed.
//   - ErrUnknownOutcome: a request was sent, and got no reply. Inspect shows the capacity.
func (s *Semaphore) AddPermits(ctx context.Context, delta int) (capacity int, err error) {
	if err := session.CheckNumber("delta", int64(delta), -s.store.maxCapacity, s.store.maxCapacity); err != nil {
		return 0, s.c.session.Error(fmt.Errorf("%q: %w", s.name, err))
	}
	reply, err := s.resize(ctx, delta, true)
	if err == nil && reply.status == resizeRefused {
		err = s.c.session.Error(fmt.Errorf("%q: %w", s.name,
			errs.InvalidOption("delta", delta,
				fmt.Sprintf("%d to %d: the capacity is %d", 1-reply.before, s.store.maxCapacity-reply.before, reply.before))))
	}
	if err != nil {
		return 0, err
	}
	return int(reply.before) + delta, nil
}

// resize sets the capacity to permits, or, if relative, adds permits to it.
func (s *Semaphore) resize(ctx context.Context, permits int, relative bool) (resizeReply, error) {
	return session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) (resizeReply, error) {
		id := rand.Text()
		var lastSent time.Time
		call := script.Timed[resizeReply]{Key: s.key, GiveUp: s.c.session.Bound(), Decode: s.decodeResize,
			Send: func(ctx context.Context, sent time.Time, notAfter int64) (rueidis.RedisMessage, error) {
				lastSent = sent
				return s.c.runner.Do(ctx, s.resizeCall(permits, relative, notAfter, id))
			}}
		reply, err := call.Run(ctx, s.c.runner)
		s.served(reply.served, lastSent)
		// An earlier request may have run without a reply, and served waiters of this process: Do repeats it without a
		// notice.
		s.c.waiters.PollAll(s.queueKey)
		return reply, err
	})
}

// Available returns the number of permits that can be acquired now. It is negative if a Resize left fewer than are
// held, and the whole capacity if the semaphore is not in use.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	state, err := s.inspect(ctx, 0)
	return state.Available, err
}

// SemaphoreState is the state of a semaphore on the server at one moment.
type SemaphoreState struct {
	// Capacity is the total number of permits: the argument of Client.Semaphore if the semaphore is not in use.
	Capacity int
	// Available is the number of permits that can be acquired; negative if a Resize left fewer than are held.
	Available int
	Permits   []Holder // the permits that are held, in the order in which their leases end
	// Tenants are the tenants (Semaphore.For) that hold permits or wait, by name. Of those that wait it has 1,000 at most.
	Tenants map[string]Tenant
}

// Holder is one permit that is held. A *Permit of n permits has n Holders, or one if it is a WeightedSemaphore's.
// Holder is redlatch.Holder, which is one type for locks and permits.
type Holder = errs.Holder

// Inspect returns the permits that are held, their clients, and the time left of each. It changes nothing and is for
// people: the result may be out of date when it is read. Its cost to the server grows with the number of permits held,
// and it takes one more call for each client that holds some, 100 at most and 16 at a time. Available is cheaper.
func (s *Semaphore) Inspect(ctx context.Context) (SemaphoreState, error) {
	state, err := s.inspect(ctx, -1)
	if err != nil {
		return state, err
	}
	s.nameProcesses(ctx, state.Permits)
	return state, nil
}

// nameProcesses fills in the Process of the holders.
func (s *Semaphore) nameProcesses(ctx context.Context, holders []Holder) {
	processKey := func(holder Holder) string {
		return lease.BeatKeyFor(holder.Client, s.key)
	}
	var keys []string
	for _, holder := range holders {
		if holder.Client != "" {
			keys = append(keys, processKey(holder))
		}
	}
	processes := lease.Processes(ctx, s.c.runner, keys)
	for i, holder := range holders {
		if holder.Client != "" {
			holders[i].Process = processes[processKey(holder)]
		}
	}
}
