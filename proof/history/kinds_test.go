package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/proof/history"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

const (
	lockLease   = 200 * time.Millisecond
	lockTimeout = 40 * time.Millisecond // of a call
)

// held is a hold of a lock, or a permit.
type held interface {
	Done() <-chan struct{}
	Until() time.Time
}

// object is what a worker uses: a lock, or a number of permits. It waits for up to d, or, below 0, until ctx ends.
type object func(ctx context.Context, d, lease time.Duration) (held, error)

// forever has an object wait until its context ends.
const forever = -1

func lockOf(l *rlock.Lock) object {
	return func(ctx context.Context, d, lease time.Duration) (held, error) {
		if d < 0 {
			return l.Lock(ctx)
		}
		return l.TryLock(ctx, d, lease)
	}
}

func permitsOf(s *rsemaphore.Semaphore, n int) object {
	return func(ctx context.Context, d, lease time.Duration) (held, error) {
		if d < 0 {
			return s.Acquire(ctx, n)
		}
		return s.TryAcquire(ctx, n, d, lease)
	}
}

func unlock(ctx context.Context, h held) error {
	if p, ok := h.(*rsemaphore.Permit); ok {
		return p.Release(ctx)
	}
	return h.(*rlock.Hold).Unlock(ctx)
}

// kind is a kind of lock, and how its histories are recorded.
type kind struct {
	// lock is what a worker uses under these names.
	lock     func(t testing.TB, p *process, worker int, names []string) object
	permits  bool // capacity of them; a writer takes all, a reader one
	weighted bool
	options  rlock.Options
	seeds    [3]int // brief, usual, in full

	servers, processes, workers, names int
	members                            int           // names at most that one acquisition is of
	pace                               time.Duration // how many times as long as usual everything takes

	ops, granted int           // at least
	lasts        time.Duration // at least
	keeps        time.Duration // a hold, at most; one in long for up to two leases
	long         int
	waits        time.Duration // the longest wait of a try
	fixedWaits   time.Duration // that of a try with a lease that is not renewed
	late         time.Duration // how long an acquire that was cancelled may be granted

	refusals  bool // a try without a wait that is refused says that the lock has a holder
	composite bool // of several locks, of which an error says nothing
	readWrite bool
}

type method = func(*rlock.Client, string) *rlock.Lock

// of is a kind with one server and one lock for each name.
func of(lock method) kind {
	return kind{
		lock: func(_ testing.TB, p *process, _ int, names []string) object {
			return lockOf(lock(p.locks[0], names[0]))
		},
		options: rlock.Options{WatchdogTimeout: lockLease, CallTimeout: lockTimeout, PollCap: 50 * time.Millisecond},
		seeds:   [3]int{1, 1, 3}, pace: 1, servers: 1, processes: 4, workers: 3, names: 3, members: 1, ops: 2000,
		granted: 200, keeps: 400 * time.Microsecond, long: 60, waits: 20 * time.Millisecond, late: lockTimeout,
		refusals: true,
	}
}

// many is a kind that is recorded at length.
func many(lock method, seeds [3]int) kind {
	k := of(lock)
	k.seeds, k.processes, k.workers, k.names, k.ops, k.granted = seeds, 5, 4, 5, 10_000, 1000
	return k
}

// live is a kind whose leases are so long that a hold is lost for want of heartbeats, and taken over.
//
// A waiter whose process sent nothing for some time waits on under another owner. If the first owner was handed the
// lock, no caller's history has that hold until it is taken away. The model would not understand the refusals that
// follow: they are not recorded.
func live() kind {
	k := many((*rlock.Client).Reentrant, [3]int{1, 1, 3})
	k.options.WatchdogTimeout, k.options.Liveness, k.options.Heartbeat = time.Minute, true, lockLease/4
	k.waits, k.refusals = time.Second, false
	return k
}

func multi() kind {
	k := of(nil)
	k.lock = func(t testing.TB, p *process, worker int, names []string) object {
		var members []*rlock.Lock
		for i, name := range names {
			if (worker+i)%4 == 0 {
				members = append(members, p.locks[0].NonReentrant(name))
			} else {
				members = append(members, p.locks[0].Reentrant(name))
			}
		}
		m := redistest.NoError(rlock.Multi(members...))(t)
		return lockOf(m)
	}
	k.names, k.members, k.ops, k.granted = 5, 3, 3000, 150
	k.fixedWaits, k.refusals, k.composite = 60*time.Millisecond, false, true
	return k
}

// readWrite is used by its workers as readers and writers.
func readWrite() kind {
	k := of(nil)
	k.seeds, k.workers, k.ops, k.granted, k.readWrite = [3]int{1, 2, 5}, 4, 4000, 20, true
	k.options.PollCap = 20 * time.Millisecond
	k.late += 4 * k.options.PollCap // as long as its process stands in the queue
	return k
}

// capacity of a semaphore is that of as many readers as there are workers.
const capacity = 16

// semaphore is used as a read-write lock is: what its readers have, they have at the same time, and a writer is granted
// only when the count is right. A small request may be refused because a large one is first in line.
func semaphore(weighted bool) kind {
	k := readWrite()
	k.permits, k.weighted, k.refusals = true, weighted, false
	return k
}

func (k kind) semaphore(c *rsemaphore.Client, name string) *rsemaphore.Semaphore {
	if k.weighted {
		return c.WeightedSemaphore(name, capacity)
	}
	return c.Semaphore(name, capacity)
}

// dieAtRandom has clients cut off for good, one after the other, while they hold something: to the server they were
// killed.
func (b *book) dieAtRandom(t *testing.T, enough context.Context, mortal []*process, rnd *rand.Rand) {
	for n := 0; n < len(mortal) && script.Pause(enough, time.Duration(rnd.IntN(200))*time.Millisecond); {
		p, names := mortal[n], []string{fmt.Sprint("l", rnd.IntN(b.names))}
		a, released := &attempt{Op: history.Op{Client: -2 - n}, names: names}, history.Release
		l := b.object(t, p, 0, names)
		if b.readWrite && rnd.IntN(2) == 0 {
			l, _ = b.sides(p, names[0])
			a.Kind, released = history.AcquireRead, history.ReleaseRead
		}
		if !b.acquire(enough, l, a, rnd) {
			continue
		}
		for _, proxy := range p.proxies {
			proxy.BlackHole(redistest.Up)
			proxy.BlackHole(redistest.Down)
		}
		keep(b.lease(), a.hold.Done())
		b.release(a, released)
		n++
	}
}

// object is what a worker uses of a kind.
func (k kind) object(t testing.TB, p *process, worker int, names []string) object {
	if !k.readWrite {
		return k.lock(t, p, worker, names)
	}
	read, write := k.sides(p, names[0])
	if names[0] == "l1" && worker%3 > 0 {
		return read
	}
	return write
}

// sides are what the readers and the writers of a name use.
func (k kind) sides(p *process, name string) (read, write object) {
	if k.permits {
		s := k.semaphore(p.permits, name)
		return permitsOf(s, 1), permitsOf(s, capacity)
	}
	l := p.locks[0].ReadWrite(name)
	return lockOf(l.Read()), lockOf(l.Write())
}

// quorum is refused when votes are split, too.
func quorum() kind {
	k := of(nil)
	k.lock = func(t testing.TB, p *process, _ int, names []string) object {
		var members []*rlock.Lock
		for _, c := range p.locks {
			members = append(members, c.Reentrant(names[0]))
		}
		q := redistest.NoError(rlock.Quorum(members...))(t)
		return lockOf(q)
	}
	k.options.WatchdogTimeout = 2 * lockLease
	k.servers, k.workers, k.names, k.ops, k.granted, k.lasts = 3, 2, 1, 0, 50, 4*time.Second
	k.keeps, k.long, k.waits, k.fixedWaits = 3*time.Millisecond, 20, 100*time.Millisecond, 100*time.Millisecond
	k.refusals, k.composite = false, true
	return k
}

// slowed is the same kind at a slower pace.
func (k kind) slowed(pace time.Duration) kind {
	k.pace = pace
	for _, d := range []*time.Duration{&k.options.WatchdogTimeout, &k.options.CallTimeout, &k.options.PollCap,
		&k.options.Heartbeat, &k.keeps, &k.waits, &k.fixedWaits, &k.late} {
		*d *= pace
	}
	return k
}

func spin(c *rlock.Client, name string) *rlock.Lock { return c.Spin(name, 0, 4*time.Millisecond) }

func TestHistories_UnderFaults_AreLinearizable(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]kind{
		"Reentrant":           many((*rlock.Client).Reentrant, [3]int{1, 2, 10}),
		"Reentrant, Liveness": live(),
		"Fair":                many((*rlock.Client).Fair, [3]int{1, 1, 5}),
		"NonReentrant":        of((*rlock.Client).NonReentrant),
		"Fenced":              of((*rlock.Client).Fenced),
		"Plain":               of(func(c *rlock.Client, name string) *rlock.Lock { return c.Plain(name) }),
		"Spin":                of(spin),
		"ReadWrite":           readWrite(),
		"Semaphore":           semaphore(false),
		"Weighted":            semaphore(true),
		"Multi":               multi(),
		"Quorum":              quorum(),
	} {
		for _, seed := range redistest.Seeds(t, redistest.Sized(k.seeds[0], k.seeds[1], k.seeds[2])) {
			t.Run(fmt.Sprintf("%s/seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				for _, pace := range []time.Duration{1, 4, 16} {
					if k.slowed(pace).record(t, seed, pace < 16) {
						return
					}
					t.Logf("starved: the machine is too busy for calls of %v", pace*lockTimeout)
				}
			})
		}
	}
}

// book is a history in the making.
type book struct {
	kind
	log *history.Log
	ops atomic.Int64

	mu    sync.Mutex
	under map[int]int // under which writer a reader reads
}

// record records a history while the network and the servers fail. The checker says whether the history is one of such
// locks. When all are well again, nothing is left behind.
//
// On a busy machine each call takes longer than its timeout, and hardly any lock is acquired. If mayStarve is set, such
// a history ends early and record returns false. It is checked like any other.
func (k kind) record(t *testing.T, seed uint64, mayStarve bool) (whole bool) {
	var all servers
	for range k.servers {
		all = append(all, redistest.Start(t))
	}
	if k.servers > 1 {
		all.voting(t, k.lease())
	}
	b := &book{kind: k, log: history.New(), under: map[int]int{}}
	var takenOver atomic.Int64
	var processes []*process
	for c := range k.processes {
		p := all.process(t, k.options, &takenOver)
		if !warm(t, k.object(t, p, 0, []string{fmt.Sprint("warm", c)})) {
			require.True(t, mayStarve, "no first cycle")
			return false
		}
		processes = append(processes, p)
	}
	var mortal []*process
	for len(mortal) < 5 && !k.options.Liveness {
		mortal = append(mortal, all.process(t, k.options, &takenOver))
	}
	enough, stop := context.WithTimeout(context.Background(), 4*time.Minute)
	defer stop()
	began := time.Now()
	starved := func() bool {
		return mayStarve && time.Since(began) > 20*time.Second && b.log.Count(history.Acquire, history.OK) < k.granted/2
	}
	full := func() bool {
		return b.ops.Load() >= int64(k.ops) && time.Since(began) >= k.lasts &&
			b.log.Count(history.Acquire, history.OK) >= k.granted && (!k.options.Liveness || takenOver.Load() > 0) &&
			(!k.readWrite || b.log.Count(history.AcquireRead, history.OK) > k.ops/60 && (k.permits || b.nested() > 5))
	}
	var work sync.WaitGroup
	for w := range k.processes * k.workers {
		rnd := rand.New(rand.NewPCG(seed, uint64(100+w)))
		work.Go(func() {
			for enough.Err() == nil && !full() && !starved() {
				b.use(t, processes[w%k.processes], rnd, w)
			}
			stop()
		})
	}
	work.Go(func() { b.dieAtRandom(t, enough, mortal, rand.New(rand.NewPCG(seed, 1))) })
	inflicted := 0
	work.Go(func() { inflicted = k.inflict(t, enough, all, processes, rand.New(rand.NewPCG(seed, 0))) })
	work.Wait()
	whole = full() || !mayStarve
	b.report(t, whole, inflicted, int(takenOver.Load()))
	if k.permits {
		k.allBack(t, processes[0])
	} else {
		nothingLeft(t, all)
	}
	for _, p := range processes {
		for _, c := range p.locks {
			require.Zero(t, c.Stats().Waiting)
		}
		require.Zero(t, p.permits.Stats().Waiting)
	}
	require.NoError(t, b.check())
	return whole
}

// allBack waits until a caller can have all permits at once. Those of a caller that gave up end with their leases.
func (k kind) allBack(t *testing.T, p *process) {
	for i := range k.names {
		_, whole := k.sides(p, fmt.Sprint("l", i))
		redistest.Eventually(t, time.Minute, "all permits are back", func() bool {
			h, err := whole(within(t), forever, 0)
			return err == nil && unlock(within(t), h) == nil
		})
	}
}

// nothingLeft waits until the servers have no lock any more.
func nothingLeft(t *testing.T, all servers) {
	for _, s := range all {
		redistest.Eventually(t, 20*time.Second, "nothing is left but last tokens", func() bool {
			keys, err := s.TryAskList(t, "KEYS", "*")
			return err == nil && !slices.ContainsFunc(redistest.Objects(keys), func(key string) bool {
				return !strings.HasPrefix(key, "redisson_lock_token:")
			})
		})
	}
}

// report fails a test whose whole history says little.
func (b *book) report(t *testing.T, whole bool, inflicted, takenOver int) {
	granted := b.log.Count(history.Acquire, history.OK)
	unknown := b.log.Count(history.Acquire, history.Unknown) + b.log.Count(history.AcquireRead, history.Unknown)
	refused := b.log.Count(history.Acquire, history.Refused)
	_, lost := b.log.Ops()
	t.Logf("%d operations: %d granted, %d read, %d refused, %d unknown; %d lost, %d taken over; %d faults", b.ops.Load(),
		granted, b.log.Count(history.AcquireRead, history.OK), refused, unknown, len(lost), takenOver, inflicted)
	if !whole {
		return
	}
	require.GreaterOrEqual(t, granted, b.granted)
	require.Greater(t, unknown, 10)
	require.Greater(t, inflicted, 10)
	require.True(t, !b.refusals || refused > b.kind.ops/400, "refused: %d", refused)
}

// check asks the checker. A call says "not after" in the server's own time, known to the millisecond. So an acquire
// that was given up is not granted later. But its process may stand in the queue until it has left the queue, or was
// silent for 2.5 PollCaps, in a fair one for 3.
func (b *book) check() error {
	m := history.LockModel{Slack: 2 * time.Millisecond, LateAcquire: 2 * time.Millisecond, Late: time.Second,
		LateGrant: 4 * b.options.PollCap}
	if b.readWrite {
		m.LateGrant = 0 // see readWrite: b.late has it
		m.Under = func(owner int) int { return b.under[owner] }
	}
	return m.Check(b.log)
}

// inflict plays the network and one server, at times for so long that holds are lost. Of a Quorum it is one server
// after the other, which may be restarted without its data.
func (k kind) inflict(t *testing.T, ctx context.Context, all servers, processes []*process, rnd *rand.Rand) (n int) {
	for ctx.Err() == nil {
		i, term, cancel := 0, ctx, func() {}
		if len(all) > 1 {
			i = rnd.IntN(len(all))
			term, cancel = context.WithTimeout(ctx, time.Duration(100+rnd.IntN(900))*time.Millisecond)
		}
		var proxies []*redistest.Proxy
		for _, p := range processes {
			proxies = append(proxies, p.proxies[i])
		}
		n += inflict(t, term, all[i], proxies, rnd, k.pace, 2*k.lease())
		if cancel(); len(all) > 1 && rnd.IntN(4) == 0 {
			all[i].Restart(t)
			redistest.Eventually(t, 20*time.Second, "it is up", func() bool {
				_, err := all[i].TryAsk(t, "PING")
				return err == nil
			})
		}
	}
	return n
}

// lease is how long a hold lasts that is not renewed.
func (k kind) lease() time.Duration {
	if k.options.Liveness {
		return 4 * k.options.Heartbeat
	}
	return k.options.WatchdogTimeout
}

// attempt is one acquisition. It is recorded once for each of its names.
type attempt struct {
	history.Op
	names []string
	hold  held
}

func (b *book) begin(a *attempt) {
	a.Owner, a.Call = b.log.Owner(), b.log.At(time.Now())
}

func (b *book) end(a *attempt, o history.Outcome) {
	a.Return, a.Outcome = b.log.At(time.Now()), o
	for _, name := range a.names {
		a.Lock = name
		b.log.Add(a.Op)
		b.ops.Add(1)
	}
}

// wait waits for l: up to d if that is not 0, or until ctx ends.
func (a *attempt) wait(ctx context.Context, l object, d time.Duration) (cancelled bool, err error) {
	if d == 0 {
		d = forever
	}
	a.hold, err = l(ctx, d, 0)
	return errors.Is(ctx.Err(), context.Canceled), err
}

// waited records an attempt that waited. It may have stood behind another of its process without asking, or its last
// request may have been cut short. So an error does not say that another owner held the lock.
func (b *book) waited(a *attempt, cancelled bool, late time.Duration, err error) {
	if cancelled {
		a.Late = late
	}
	if err == nil {
		b.end(a, history.OK)
	} else {
		b.end(a, history.Unknown)
	}
}

// use acquires something, keeps it for some time, and releases it.
func (b *book) use(t *testing.T, p *process, rnd *rand.Rand, client int) {
	var names []string
	for _, n := range rnd.Perm(b.names)[:1+rnd.IntN(b.members)] {
		names = append(names, fmt.Sprint("l", n))
	}
	a := &attempt{Op: history.Op{Client: client}, names: names}
	switch {
	case b.readWrite:
		read, write := b.sides(p, names[0])
		b.readOrWrite(a, read, write, rnd)
	case b.acquire(context.Background(), b.lock(t, p, client, names), a, rnd):
		b.keep(a, rnd)
		b.release(a, history.Release)
	}
}

// readOrWrite reads or writes, or writes and goes on to read.
func (b *book) readOrWrite(a *attempt, read, write object, rnd *rand.Rand) {
	ctx := context.Background()
	if rnd.IntN(3) > 0 {
		if a.Kind = history.AcquireRead; b.acquire(ctx, read, a, rnd) {
			b.keep(a, rnd)
			b.release(a, history.ReleaseRead)
		}
		return
	}
	if !b.acquire(ctx, write, a, rnd) {
		return
	}
	b.keep(a, rnd)
	inner := &attempt{Op: history.Op{Client: a.Client, Kind: history.AcquireRead}, names: a.names}
	writes, nests := a.hold.(*rlock.Hold)
	if !nests || rnd.IntN(2) > 0 || !b.acquire(writes.Context(ctx), read, inner, rnd, a.Owner) {
		b.release(a, history.Release)
		return
	}
	if rnd.IntN(3) == 0 { // in the other order
		b.release(inner, history.ReleaseRead)
		b.release(a, history.Release)
		return
	}
	b.release(a, history.Release)
	b.keep(inner, rnd)
	b.release(inner, history.ReleaseRead)
}

// nested is how many readers have read, or wanted to, under their own write hold.
func (b *book) nested() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.under)
}

// acquire acquires l in some way; under is the owner of the write hold in ctx.
func (b *book) acquire(ctx context.Context, l object, a *attempt, rnd *rand.Rand, under ...int) bool {
	a.Lease, a.Renewed = b.lease(), rnd.IntN(3) > 0
	b.begin(a)
	if len(under) > 0 {
		b.mu.Lock()
		b.under[a.Owner] = under[0]
		b.mu.Unlock()
	}
	var err error
	cancelled := false
	switch patience := time.Duration(rnd.Int64N(int64(5 * b.waits))); {
	case !a.Renewed:
		a.hold, err = l(ctx, time.Duration(rnd.Int64N(int64(b.fixedWaits)+1)), a.Lease)
		// A reader may also have been refused because a writer waited.
		if errors.Is(err, errs.ErrNotAcquired) && b.refusals && a.Kind == history.Acquire {
			b.end(a, history.Refused)
			return false
		}
	case len(under) == 0 && rnd.IntN(3) == 0:
		_, err = redistest.Impatient(rnd, func(ctx context.Context, d time.Duration) (_ func(), err error) {
			cancelled, err = a.wait(ctx, l, d)
			return nil, err
		})
	case rnd.IntN(2) == 0:
		_, err = a.wait(ctx, l, time.Millisecond+patience/5)
	default:
		ctx, cancel := context.WithTimeout(ctx, patience)
		_, err = a.wait(ctx, l, 0)
		cancel()
	}
	b.waited(a, cancelled, b.late, err)
	return err == nil
}

func (b *book) keep(a *attempt, rnd *rand.Rand) {
	d := time.Duration(rnd.Int64N(int64(b.keeps)))
	if rnd.IntN(b.long) == 0 {
		d = a.Lease / 2 * time.Duration(1+rnd.IntN(4)) // up to twice the lease
	}
	keep(d, a.hold.Done())
}

// release releases what an attempt acquired. Of a composite, an error does not say which of its locks was lost.
func (b *book) release(a *attempt, kind history.Kind) {
	a.Kind, a.Call = kind, b.log.At(time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), 2*b.options.CallTimeout)
	defer cancel()
	outcome := history.Unknown
	switch err := unlock(ctx, a.hold); {
	case err == nil:
		outcome = history.OK
	case errors.Is(err, errs.ErrLost):
		b.log.Lost(a.Owner, a.hold.Until())
		if !b.composite {
			outcome = history.Refused
		}
	}
	b.end(a, outcome)
}
