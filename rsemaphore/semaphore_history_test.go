package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// use is n permits that somebody could act under at every instant from from to before to: granted before, and neither
// released nor past the holder's own deadline until then.
type use struct {
	from, to time.Time
	n        int
}

// ledger is the uses of one semaphore.
type ledger struct {
	name     string
	capacity int
	mu       sync.Mutex
	uses     []use
}

func (l *ledger) add(from, to time.Time, n int) {
	if !from.Before(to) {
		return // over before it could be used
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uses = append(l.uses, use{from, to, n})
}

// most is the largest number of permits in use at one instant.
func (l *ledger) most() (most int) {
	type edge struct {
		at time.Time
		n  int
	}
	var edges []edge
	for _, u := range l.uses {
		edges = append(edges, edge{u.from, u.n}, edge{u.to, -u.n})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.n - b.n // who leaves at that instant has left
	})
	now := 0
	for _, e := range edges {
		now += e.n
		most = max(most, now)
	}
	return most
}

func TestTheLedgerFindsTheMostInUse(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	l := &ledger{}
	require.Zero(t, l.most())
	l.add(at(0), at(10), 2)
	l.add(at(10), at(20), 3)
	l.add(at(5), at(5), 9)
	require.Equal(t, 3, l.most())
	l.add(at(9), at(11), 1)
	require.Equal(t, 4, l.most())
}

const historyLasts = 4 * time.Second // at least, and until there is enough in it

// The race detector makes calls so much slower that most would have no reply in the shorter time.
var (
	historyLease   = slower(250 * time.Millisecond)
	historyTimeout = slower(40 * time.Millisecond) // of a call
)

func slower(d time.Duration) time.Duration {
	if redistest.RaceEnabled {
		d *= 4
	}
	return d
}

func TestHistoriesUnderFaultsAndKillsNeverPassTheCapacity(t *testing.T) {
	redistest.InFull(t, "TestSharedCallsAmongContendedPermitsNeverPassTheCapacity")
	t.Parallel()
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 1, 3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			underFaults(t, seed, rsemaphore.Options{WatchdogTimeout: historyLease})
		})
	}
}

// Leases are so long here that what is lost is lost for want of heartbeats, and what a killed process had is taken
// over.
func TestHistoriesWithLivenessNeverPassTheCapacity(t *testing.T) {
	redistest.InFull(t, "TestAKilledProcessesPermitsAreTakenOverBeforeTheirLeasesEnd")
	t.Parallel()
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 1, 3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			underFaults(t, seed,
				rsemaphore.Options{WatchdogTimeout: 2 * time.Minute, Liveness: true, Heartbeat: historyLease / 4})
		})
	}
}

func underFaults(t *testing.T, seed uint64, o rsemaphore.Options) {
	s := redistest.Start(t)
	direct := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second})
	ledgers := []*ledger{{name: "h1", capacity: 1}, {name: "h3", capacity: 3}, {name: "h8", capacity: 8}}
	enough, stop := context.WithTimeout(context.Background(), 20*historyLasts)
	defer stop()
	var granted, refused, unknown, lost, killed, handed, renewed, taken atomic.Int64
	o.CallTimeout, o.PollCap = historyTimeout, 50*time.Millisecond
	o.Observer = func(ctx context.Context, e rsemaphore.Event) context.Context {
		switch {
		case e.Kind == rsemaphore.EventRenewed && e.Err == nil:
			renewed.Add(1)
		case e.Kind == rsemaphore.EventTakenOver:
			taken.Add(int64(e.N))
		}
		return ctx
	}
	var rigs []*rig
	var proxies []*redistest.Proxy
	for c := range 4 {
		p := redistest.NewProxy(t, s)
		r := newRig(t, p.Server(), o)
		// learns the server's clock; the call timeout is so short that a busy machine alone can make it fail
		redistest.Eventually(t, 20*time.Second, "a first cycle", func() bool {
			return r.c.Semaphore(fmt.Sprint("warm", c), 1).Do(within(t), 1, func(context.Context) error { return nil }) == nil
		})
		rigs, proxies = append(rigs, r), append(proxies, p)
	}
	var workers, others sync.WaitGroup
	others.Go(func() { countGrants(enough, direct, &handed) })
	for c, r := range rigs {
		for w := range 4 {
			rnd := rand.New(rand.NewPCG(seed, uint64(100+10*c+w)))
			workers.Go(func() {
				for enough.Err() == nil {
					l := ledgers[rnd.IntN(len(ledgers))]
					switch err := useSome(r.c.Semaphore(l.name, l.capacity), l, rnd, &lost); {
					case err == nil:
						granted.Add(1)
					case errors.Is(err, errs.ErrNotAcquired):
						refused.Add(1)
					case errors.Is(err, errs.ErrUnknownOutcome):
						unknown.Add(1)
					case !errors.Is(err, errs.ErrUnavailable):
						t.Error(err)
					}
				}
			})
		}
	}
	for k := range 2 {
		rnd := rand.New(rand.NewPCG(seed, uint64(500+k)))
		others.Go(func() {
			for enough.Err() == nil {
				useByChild(t, enough, s, ledgers[1+k], rnd, o)
				killed.Add(1)
			}
		})
	}
	others.Go(func() {
		for began := time.Now(); redistest.Pause(enough, 10*time.Millisecond); {
			if time.Since(began) > historyLasts && granted.Load() > 500 && unknown.Load() > 20 && lost.Load() > 1 &&
				killed.Load() > 3 && handed.Load() > 100 && renewed.Load() > 20 && (!o.Liveness || taken.Load() > 3) {
				stop()
			}
		}
	})
	var samples int
	others.Go(func() { samples = sample(t, enough, direct, ledgers) })
	others.Go(func() { resizeAtRandom(t, enough, rigs, rand.New(rand.NewPCG(seed, 900))) })
	var inflicted int
	others.Go(func() {
		inflicted = redistest.Inflict(t, enough, s, proxies, rand.New(rand.NewPCG(seed, 0)), 2*historyLease)
	})
	workers.Wait()
	others.Wait()

	for _, l := range ledgers {
		most := l.most()
		require.LessOrEqual(t, most, l.capacity, "%s", l.name)
		require.Equal(t, l.capacity, most, "a test in which they are never all in use finds nothing")
	}
	t.Logf("%d granted, %d handed over to other processes; %d renewed; %d refused, %d unknown; %d lost, %d taken over; "+
		"%d faults, %d processes killed; %d samples",
		granted.Load(), handed.Load(), renewed.Load(), refused.Load(), unknown.Load(), lost.Load(), taken.Load(), inflicted,
		killed.Load(), samples)
	require.Equal(t, o.Liveness, taken.Load() > 0)
	require.Greater(t, handed.Load(), int64(5), "without hand-over this tests nothing new")
	require.Greater(t, renewed.Load(), int64(0))
	require.Greater(t, granted.Load(), int64(60), "a test that does no work finds nothing")
	require.Greater(t, unknown.Load(), int64(5))
	require.Greater(t, lost.Load(), int64(0))
	require.Greater(t, inflicted, 10)
	require.Greater(t, killed.Load(), int64(0))
	require.Greater(t, samples, 10)
	thenWell(t, s, rigs[0], func(c *rsemaphore.Client, ctx context.Context, wait time.Duration) (func(), error) {
		p, err := c.Semaphore("h1", 1).TryAcquire(ctx, 1, wait, 0)
		return func() { p.Release(context.Background()) }, err
	}, func() bool { return counts(t, direct.c.Semaphore("h1", 1)) == [3]int{1, 0, 1} })
	for _, l := range ledgers {
		sem := direct.c.Semaphore(l.name, l.capacity)
		if o.Liveness { // who was killed has some, and nobody waits for them
			o := whenWell
			o.Liveness = true
			release(t, acquire(t, newRig(t, s, o).c.Semaphore(l.name, l.capacity), l.capacity))
		}
		redistest.Eventually(t, 20*time.Second, "every permit is back: "+l.name, func() bool {
			return counts(t, sem) == [3]int{l.capacity, 0, l.capacity}
		})
		release(t, acquire(t, sem, l.capacity))
		redistest.Eventually(t, 30*time.Second, "nobody is left in line: "+l.name, func() bool {
			return direct.number(t, "ZCOUNT", "redlatch_queue:{"+l.name+"}", "(0", "+inf") == 0
		})
	}
	for _, r := range rigs {
		redistest.Eventually(t, 20*time.Second, "nothing is owed", func() bool { return r.c.Owed() == 0 })
		require.Zero(t, r.c.Lines())
		require.Zero(t, r.c.Refused())
	}
}

// countGrants counts the permits' worth of waiters that were handed something by another process.
func countGrants(ctx context.Context, r *rig, handed *atomic.Int64) {
	conn, release := r.redis.Dedicate()
	defer release()
	conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) {
		if !strings.HasPrefix(m.Message, "*0 ") {
			handed.Add(1)
		}
	}})
	if conn.Do(ctx, conn.B().Psubscribe().Pattern("redlatch_grant:*").Build()).Error() == nil {
		<-ctx.Done()
	}
	conn.Close()
}

// useSome acquires in some way, keeps it for some time, and releases.
func useSome(sem *rsemaphore.Semaphore, l *ledger, rnd *rand.Rand, lost *atomic.Int64) error {
	n := 1 + rnd.IntN(l.capacity)
	var p *rsemaphore.Permit
	var err error
	switch rnd.IntN(4) {
	case 0:
		p, err = sem.TryAcquire(context.Background(), n, 0, historyLease)
	case 1:
		_, err = redistest.Impatient(rnd, func(ctx context.Context, wait time.Duration) (_ func(), err error) {
			p, err = sem.TryAcquire(ctx, n, orForever(wait), 0)
			return nil, err
		})
	case 2:
		p, err = sem.TryAcquire(context.Background(), n, time.Duration(1+rnd.IntN(20))*time.Millisecond, 0)
	default:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(100_000))*time.Microsecond)
		p, err = sem.Acquire(ctx, n)
		cancel()
	}
	if err != nil {
		return err
	}
	from := time.Now()
	keep := time.Duration(rnd.IntN(2000)) * time.Microsecond
	if rnd.IntN(20) == 0 {
		keep = historyLease / 2 * time.Duration(1+rnd.IntN(4)) // up to twice the lease
	}
	timer := time.NewTimer(keep)
	select {
	case <-timer.C:
	case <-p.Done():
		lost.Add(1)
	}
	timer.Stop()
	to := time.Now()
	if until := p.Until(); until.Before(to) {
		to = until
	}
	l.add(from, to, len(p.IDs()))
	ctx, cancel := context.WithTimeout(context.Background(), 2*historyTimeout)
	defer cancel()
	switch err := p.Release(ctx); {
	case err == nil, errors.Is(err, errs.ErrLost), errors.Is(err, errs.ErrUnavailable),
		errors.Is(err, errs.ErrUnknownOutcome):
		return nil
	default:
		return fmt.Errorf("release: %w", err)
	}
}

// orForever is how long somebody waits who may also wait until ctx ends: that is a wait of 0.
func orForever(wait time.Duration) time.Duration {
	if wait == 0 {
		return time.Hour
	}
	return wait
}

// whenWell are the options of clients that come when the network is well again: what their callers leave behind is
// there for so long that no machine is that busy.
var whenWell = rsemaphore.Options{CallTimeout: 20 * time.Second, PollCap: 20 * time.Second,
	WatchdogTimeout: 10 * time.Minute}

// thenWell is the end of a history. The network is well again: a client that went through the faults, and others, have
// callers that are patient and callers that give up within 5 ms. What they want is not idle for long while callers
// wait, and when they have left it is free.
func thenWell(t *testing.T, s *redistest.Server, healed *rig,
	take func(c *rsemaphore.Client, ctx context.Context, wait time.Duration) (func(), error), free func() bool) {
	p := redistest.NewProxy(t, s)
	p.Delay(500*time.Microsecond, 500*time.Microsecond) // more calls are under way when their callers leave
	var processes []redistest.Take
	for _, r := range []*rig{healed, newRig(t, p.Server(), whenWell), newRig(t, p.Server(), whenWell)} {
		processes = append(processes, func(ctx context.Context, wait time.Duration) (func(), error) {
			return take(r.c, ctx, orForever(wait))
		})
	}
	redistest.NotIdle(t, afterLeaving, "", processes...)
	redistest.Eventually(t, afterLeaving, "nobody has a permit, and all are free", free)
}

// useByChild has a process use permits some times, and kills it while it holds some.
func useByChild(t *testing.T, ctx context.Context, s *redistest.Server, l *ledger, rnd *rand.Rand,
	o rsemaphore.Options) {
	args := []string{l.name, strconv.Itoa(l.capacity), "500ms"}
	if o.Liveness {
		args = append(args[:2], o.WatchdogTimeout.String(), o.Heartbeat.String())
	}
	c := redistest.Spawn(t, "permit user", s, args...)
	defer func() { c.Cmd.Process.Kill(); c.Cmd.Wait() }()
	told := func(order string) string {
		if _, err := fmt.Fprintln(c.In, order); err != nil || !c.Out.Scan() {
			t.Error("the process ended by itself: ", err)
			return ""
		}
		return c.Out.Text()
	}
	for round, last := 0, 3+rnd.IntN(5); ; round++ {
		n := 1 + rnd.IntN(l.capacity)
		if told("take "+strconv.Itoa(n)) != "got" {
			return
		}
		from := time.Now()
		redistest.Pause(ctx, time.Duration(rnd.IntN(30))*time.Millisecond)
		to := time.Now() // if it says later that it holds them, it did now
		if told("check") == "held" {
			l.add(from, to, n)
		}
		if round == last || ctx.Err() != nil {
			c.Cmd.Process.Signal(syscall.SIGKILL)
			return
		}
		told("go")
	}
}

// sample looks at the server, again and again: what is available and what is out are the capacity together, and none
// of them is negative.
func sample(t *testing.T, ctx context.Context, r *rig, ledgers []*ledger) (samples int) {
	text := source(t, "query")
	for ; redistest.Pause(ctx, 5*time.Millisecond); samples++ {
		for _, l := range ledgers {
			keys := []string{l.name, "{" + l.name + "}:timeout", "{" + l.name + "}:notes"}
			v, err := r.redis.Do(context.Background(),
				r.redis.B().Eval().Script(text).Numkeys(3).Key(keys...).Build()).AsIntSlice()
			if err != nil {
				t.Error(err)
				return samples
			}
			if v[0] == 1 && (v[1]+v[2] != int64(l.capacity) || v[1] < 0) || v[2] > int64(l.capacity) {
				t.Errorf("%s: %d available, %d out, of %d", l.name, v[1], v[2], l.capacity)
			}
		}
	}
	return samples
}

// resizeAtRandom resizes a semaphore of its own while it is used, and looks whether all of it is there in the end.
func resizeAtRandom(t *testing.T, ctx context.Context, rigs []*rig, rnd *rand.Rand) {
	var users sync.WaitGroup
	for i, r := range rigs {
		rnd := rand.New(rand.NewPCG(uint64(i), rnd.Uint64()))
		users.Go(func() {
			l := &ledger{capacity: 2}
			for ctx.Err() == nil {
				useSome(r.c.Semaphore("resized", 2), l, rnd, new(atomic.Int64))
			}
		})
	}
	sem, capacity := rigs[0].c.Semaphore("resized", 2), 2
	for redistest.Pause(ctx, time.Duration(rnd.IntN(40))*time.Millisecond) {
		want := 2 + rnd.IntN(4)
		redistest.Eventually(t, 20*time.Second, "resized", func() bool {
			_, err := sem.Resize(context.Background(), want)
			return err == nil
		})
		capacity = want
	}
	users.Wait()
	redistest.Eventually(t, 20*time.Second, "every permit of the resized one is back", func() bool {
		state, err := sem.Inspect(context.Background())
		return err == nil && state.Available == capacity && state.Capacity == capacity && len(state.Permits) == 0
	})
}
