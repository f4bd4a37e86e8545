package contract_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// outages are the ways in which a server goes away, for a client that is connected through the proxy, or to the server
// itself.
var outages = map[string]struct {
	direct bool
	begin  func(t *testing.T, s *redistest.Server, p *redistest.Proxy)
	end    func(t *testing.T, s *redistest.Server, p *redistest.Proxy)
	// refuses: a new connection is refused, or reset.
	refuses bool
	// unsent: nothing reaches the server once the connections are known to be lost.
	unsent bool
}{
	"stopped": {
		direct: true,
		begin:  func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Stop(t) },
		end:    func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Resume(t) },
	},
	"killed": { // its address refuses
		direct: true, refuses: true, unsent: true,
		begin: func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Kill(t) },
		end:   func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Revive(t, false) },
	},
	"silent": {
		begin: func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.BlackHole(redistest.Up) },
		end:   func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Heal() },
	},
	"cut off and silent": {
		begin: func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.BlackHole(redistest.Down); p.Cut() },
		end:   func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Heal() },
	},
	"refusing": { // as a load balancer does without a server behind it
		refuses: true,
		begin:   func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Refuse(); p.Cut() },
		end:     func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Heal() },
	},
}

// callTimeout is the default.
const callTimeout = 500 * time.Millisecond

// throughOutage is a test with a server that goes away. connect makes a client, which is connected; begin begins the
// outage, end ends it, and the server has what it had.
type throughOutage func(t *testing.T, name string, connect func(redlatch.Options) *redlatch.Client, begin, end func())

// eachOutage runs fn in parallel for each outage on real servers; by default for one on a real server, and for two in
// simulated time, other ones for each test.
func eachOutage(t *testing.T, fn throughOutage) {
	for i, name := range slices.Sorted(maps.Keys(outages)) {
		n := (i + len(t.Name())) % len(outages)
		real := n < 1 || redistest.Long()
		if !real && n > 2 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if real {
				inOutage(t, redistest.Start(t, "--appendonly", "yes"), name, fn)
				return
			}
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) { inOutage(t, servers[0], name, fn) })
		})
	}
}

func inOutage(t *testing.T, server *redistest.Server, name string, fn throughOutage) {
	x, proxy, seen := outages[name], redistest.NewProxy(t, server), server
	if server.Embedded != nil && name == "stopped" { // there is no process: what is sent to it is kept
		x.direct = false
		x.begin = func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Hold(redistest.Up) }
		x.end = func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Heal() }
	}
	if !x.direct {
		seen = proxy.Server()
	}
	var all []*redlatch.Client
	connect := func(o redlatch.Options) *redlatch.Client {
		if o.Logger == nil {
			o.Logger = slog.New(slog.DiscardHandler)
		}
		if o.Sales == nil {
			o.Sales = withBooks
		}
		red := redistest.NoError(redlatch.Open(t.Context(), seen.Option(), o))(t)
		all = append(all, red)
		return red
	}
	away := false
	begin := func() { away = true; x.begin(t, server, proxy) }
	end := func() { away = false; x.end(t, server, proxy) }
	t.Cleanup(func() {
		if away {
			end()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond) // it waits for what is held
		defer cancel()
		for _, red := range all {
			red.Close(ctx)
		}
	})
	fn(t, name, connect, begin, end)
}

// patient are the options of a client that sets things up, however busy the machine is.
var patient = redlatch.Options{CallTimeout: time.Minute}

// result is what came of a call.
type result struct {
	took time.Duration
	err  error
}

// all makes all calls at the same time. stall is how long the machine itself kept goroutines waiting meanwhile.
func (v verbs) all(ctx context.Context) (results map[string]result, stall time.Duration) {
	results = map[string]result{}
	var mu sync.Mutex
	var calls sync.WaitGroup
	stall = redistest.Stall(func() {
		for name, call := range v {
			calls.Go(func() {
				began := time.Now()
				err := call(ctx)
				took := time.Since(began)
				mu.Lock()
				defer mu.Unlock()
				results[name] = result{took, err}
			})
		}
		calls.Wait()
	})
	return results, stall
}

// warm makes a call of each package that changes nothing, so that the next ones find its server well: such calls are
// made in place.
func (v verbs) warm() {
	for _, verb := range []string{"Lock.Inspect of Reentrant", "Election.Leader", "Semaphore.InspectIDs",
		"Counter.AddOnce", "Limiter.Allow", "Packet.Inspect", "Sale.Inspect"} {
		v[verb](context.Background()) // an error is that of a busy machine
	}
}

// soon is the bound of what ends within d: half a call timeout more is for work, and what the machine itself was late
// by, several times.
func soon(d, stall time.Duration) time.Duration { return d + callTimeout/2 + 5*stall }

// onlyRead are the verbs that change nothing on the server.
var onlyRead = regexp.MustCompile(`\.(Inspect\w*|IsLocked|Available|Count|Get|Cached|Leader|Observe|Workers|` +
	`Holders|Shares|Peek)\b`)

// requireAway fails unless every call said that the server could not be asked. A call that only reads has no outcome,
// so it says ErrUnavailable. unsent: nothing was sent, and some say so. Not all can: of a call whose time was over
// while rueidis was at work it is not known how far that had come.
func requireAway(t *testing.T, results map[string]result, unsent bool) {
	surely := 0
	for name, r := range results {
		require.Error(t, r.err, name)
		if onlyRead.MatchString(name) {
			assert.ErrorIs(t, r.err, errs.ErrUnavailable, name)
		} else if errors.Is(r.err, errs.ErrUnavailable) {
			surely++
		} else {
			require.ErrorIs(t, r.err, errs.ErrUnknownOutcome, name)
		}
	}
	if unsent {
		require.Positive(t, surely)
	}
}

// rueidis repeats a read by itself for as long as the caller waits, so the caller does not see why.
func TestRead_KilledServer_NamesTheCause(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	red, err := redlatch.Open(t.Context(), server.Option(), redlatch.Options{CallTimeout: 100 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { red.Close(context.Background()) })
	redistest.Eventually(t, 10*time.Second, "no answer before the kill", func() bool {
		return err1(red.Counters().Counter("visits", rcounter.CounterOptions{}).Incr(t.Context())) == nil
	})
	server.Kill(t)
	for name, read := range map[string]func(context.Context) error{
		"Counter.Get": func(ctx context.Context) error {
			return err1(red.Counters().Counter("visits", rcounter.CounterOptions{}).Get(ctx))
		},
		"Counter.Cached": func(ctx context.Context) error {
			return err1(red.Counters().Counter("visits", rcounter.CounterOptions{}).Cached(ctx, time.Second))
		},
		"Election.Leader": func(ctx context.Context) error { return err1(red.Elections().Election("main").Leader(ctx)) },
		"Lock.Inspect":    func(ctx context.Context) error { return err1(red.Locks().Reentrant("order").Inspect(ctx)) },
	} {
		redistest.Eventually(t, 10*time.Second, name+" names no cause", func() bool {
			err := read(t.Context())
			assert.ErrorIs(t, err, redlatch.ErrUnavailable, name)
			// On a busy machine a call may end before it has dialled. A connection that the server had not accepted when it was
			// killed is reset.
			return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
		})
	}
}

func TestOutage_CallDoesNotWait_EndsWithinOneCallTimeout(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	eachOutage(t, func(t *testing.T, name string, connect func(redlatch.Options) *redlatch.Client, begin, _ func()) {
		red := connect(redlatch.Options{CallTimeout: callTimeout})
		calls := unwaiting(t, red, connect(patient))
		calls.warm()
		begin()
		long, cancel := context.WithTimeout(context.Background(), 20*callTimeout)
		defer cancel()
		for round, ctx := range []context.Context{context.Background(), long, context.Background()} {
			results, stall := calls.all(ctx)
			requireAway(t, results, outages[name].unsent && round > 0)
			late := map[string]time.Duration{}
			for verb, r := range results {
				if r.took > soon(callTimeout, stall) {
					late[verb] = r.took
				}
			}
			require.Empty(t, late, "in round %d took longer than a call timeout", round)
		}
		short, cancel := context.WithTimeout(context.Background(), callTimeout/5)
		defer cancel()
		results, stall := calls.all(short)
		for verb, r := range results {
			require.Error(t, r.err, verb)
			require.Less(t, r.took, soon(callTimeout/5, stall), "%s: ctx may be shorter", verb)
		}
	})
}

// The callers of a crowd share calls, and wait for those before them.
func TestOutage_CrowdDoesNotWait_EndsWithinOneCallTimeout(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	eachOutage(t, func(t *testing.T, _ string, connect func(redlatch.Options) *redlatch.Client, begin, _ func()) {
		red := connect(redlatch.Options{CallTimeout: callTimeout})
		sale(t, connect(patient), "crowded")
		s, p := red.Sales().Sale("crowded"), red.RedPackets().Packet("crowded")
		require.NoError(t, err1(connect(patient).RedPackets().Packet("crowded").Send(t.Context(),
			redpacket.Spec{Total: 1000, Shares: 100, OpenFor: time.Minute})))
		permits := red.Semaphores().Semaphore("crowded", 1000)
		require.NoError(t, keeping(permits.Acquire(t.Context(), 1)))
		crowd := verbs{}
		for i := range 100 { // more than share calls
			id := fmt.Sprint(i)
			lock := red.Locks().Reentrant("crowded-" + id)
			crowd["Lock.TryLock "+id] = func(ctx context.Context) error { return err1(lock.TryLock(ctx, 0, 0)) }
			crowd["Semaphore.TryAcquire "+id] = func(ctx context.Context) error { return err1(permits.TryAcquire(ctx, 1, 0, 0)) }
			for how, o := range map[string]stock.Order{"": {User: id}, "by anyone": {Anyone: true}} {
				crowd["Sale.Buy "+how+id] = func(ctx context.Context) error { return err1(s.Buy(ctx, o)) }
			}
			crowd["Sale.Reserve "+id] = func(ctx context.Context) error {
				return err1(s.Reserve(ctx, stock.Order{ID: "cart " + id, User: id}, time.Minute))
			}
			crowd["Sale.Status "+id] = func(ctx context.Context) error { return err1(s.Status(ctx, id)) }
			crowd["Packet.Grab "+id] = func(ctx context.Context) error { return err1(p.Grab(ctx, id)) }
		}
		begin()
		long, cancel := context.WithTimeout(context.Background(), 20*callTimeout)
		defer cancel()
		for _, ctx := range []context.Context{context.Background(), long} {
			results, stall := crowd.all(ctx)
			requireAway(t, results, false)
			for verb, r := range results {
				require.Less(t, r.took, soon(callTimeout, stall), verb)
			}
		}
	})
}

// Sold out, and a value of Cached, are read from a cache that goes with its connection. While another call connects,
// they ask nobody. The in-memory server has no such cache.
func TestOutage_CachedAnswer_WaitsForNoConnection(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	eachOutage(t, func(t *testing.T, _ string, connect func(redlatch.Options) *redlatch.Client, begin, _ func()) {
		red := connect(redlatch.Options{CallTimeout: callTimeout, Sales: func(o *stock.Options) {
			o.SoldOutTrust = time.Hour
		}})
		s, one := red.Sales().Sale("sold"), stock.Order{Anyone: true}
		k := red.Counters().Counter("read", rcounter.CounterOptions{})
		other := connect(patient)
		require.NoError(t, other.Sales().Sale("sold").Open(t.Context(), stock.Spec{Limit: 1, OpenFor: time.Hour}))
		require.NoError(t, err1(other.Sales().Sale("sold").Buy(t.Context(), one)))
		require.NoError(t, other.Counters().Counter("read", rcounter.CounterOptions{}).Set(t.Context(), 7))
		for range 50 { // the second is mostly answered by the process
			s.Buy(t.Context(), one)
			k.Cached(t.Context(), time.Hour)
		}
		begin()
		connecting, stop := context.WithCancel(context.Background())
		defer stop()
		for range 8 {
			go red.Hub().Client().Do(connecting, red.Hub().Client().B().Set().Key("x").Value("y").Build())
		}
		calls := verbs{}
		for i := range 50 {
			calls[fmt.Sprint("Buy ", i)] = func(ctx context.Context) error { return err1(s.Buy(ctx, one)) }
			calls[fmt.Sprint("Cached ", i)] = func(ctx context.Context) error { return err1(k.Cached(ctx, time.Hour)) }
		}
		for range 3 {
			results, stall := calls.all(context.Background()) // an error, or what was cached
			for verb, r := range results {
				require.Less(t, r.took, soon(callTimeout, stall), verb)
			}
		}
	})
}

// A context with a deadline is no option: it says when the caller leaves, and not that the server may be away for so
// long.
func TestOutage_RetryTimeout_BoundsACallWithoutDeadline(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	const retry = 3 * callTimeout
	eachOutage(t, func(t *testing.T, _ string, connect func(redlatch.Options) *redlatch.Client, begin, end func()) {
		repeated := verbs{} // those whose requests may run twice
		lasting := verbs{}  // the same, of a client with more patience
		all := unwaiting(t, connect(redlatch.Options{CallTimeout: callTimeout, RetryTimeout: retry}), connect(patient))
		others := unwaiting(t,
			connect(redlatch.Options{CallTimeout: callTimeout, RetryTimeout: time.Minute, KeyPrefix: "lasting:"}),
			connect(redlatch.Options{CallTimeout: time.Minute, KeyPrefix: "lasting:"}))
		for _, verb := range []string{"Lock.IsLocked of Reentrant", "Election.Leader", "Hold.Extend of Reentrant",
			"Semaphore.Available", "CountDownLatch.Inspect",
			"Counter.Get", "Counter.AddOnce", "Limiter.Reserve", "Limiter.Inspect", "Packet.Grab", "Sale.Inspect",
			"Sale.Buy", "Sale.Reserve"} {
			require.NotNil(t, all[verb], verb)
			repeated[verb], lasting[verb] = all[verb], others[verb]
		}
		begin()
		back := make(chan map[string]result)
		go func() { results, _ := lasting.all(context.Background()); back <- results }()
		results, stall := repeated.all(context.Background())
		requireAway(t, results, false)
		for verb, r := range results {
			require.Greater(t, r.took, retry-callTimeout/2, verb) // the last pause may be cut short
			require.Less(t, r.took, soon(retry, stall), verb)
		}
		end() // in time for those who wait longer
		for verb, r := range <-back {
			require.NoError(t, r.err, verb)
		}
	})
}

// apart are the methods that take a context, and are not in unwaiting.
var apart = []string{
	// They wait for others, or for time.
	"Lock.Lock", "Lock.Do", "Election.Campaign", "Election.Run", "Shards.Run", "Shards.Slot", "Semaphore.Acquire",
	"Semaphore.Do",
	"CountingSemaphore.Acquire", "CountDownLatch.Await", "CyclicBarrier.Await", "Packet.KeepLedger", "Sale.KeepLedger",
	"Hub.Subscribe", "Subscription.Next", "Client.Close", "Hub.Close",
	// They give back, and go on for as long as they may.
	"Hold.Unlock", "Hold.UnlockAfter", "Leadership.Resign", "Shard.Release", "Permit.Release",
	"CountingSemaphore.Release",
	// It goes on in the background: TestProclaim_AnnouncedAgain_KeepsTheValue.
	"Leadership.Proclaim",
	// They ask nobody.
	"Lock.WithOwner", "Hold.Context", "Leadership.Context", "Shard.Context", "Permit.Context",
}

func TestOutage_EveryCall_IsMeasuredOrNamed(t *testing.T) {
	t.Parallel()
	red := open(t, redistest.Start(t), patient)
	measured := map[string]bool{}
	for name := range unwaiting(t, red, red) {
		verb, _, _ := strings.Cut(name, " ")
		measured[verb] = true
	}
	require.Equal(t, len(apart), len(slices.Compact(slices.Sorted(slices.Values(apart)))))
	withCtx := reflect.TypeFor[context.Context]()
	for _, v := range []any{
		&redlatch.Client{}, &pubsub.Hub{}, &pubsub.Subscription{}, &rlock.Lock{}, &rlock.Hold{}, &rlock.Once{},
		&election.Election{},
		&election.Leadership{}, &election.Shards{}, &election.Shard{},
		&rsemaphore.Semaphore{}, &counting.Semaphore{},
		&rsemaphore.CountDownLatch{}, &rsemaphore.CyclicBarrier{},
		&rsemaphore.Permit{}, &rcounter.Counter{}, &ratelimit.Client{}, &ratelimit.Limiter{},
		&ratelimit.Reservation{}, &ratelimit.Charge{}, &redpacket.Packet{}, &stock.Sale{},
	} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			if m.Type.NumIn() < 2 || m.Type.In(1) != withCtx {
				continue
			}
			verb := typ.Elem().Name() + "." + m.Name
			if typ == reflect.TypeFor[*counting.Semaphore]() {
				verb = "Counting" + verb
			}
			require.NotEqual(t, measured[verb], slices.Contains(apart, verb), "%s is measured, or stands in apart", verb)
			delete(measured, verb)
		}
	}
	require.Empty(t, slices.Collect(maps.Keys(measured)), "there are no such calls")
}

func TestOutage_CallWaits_EndsInTimeAndGrantsNothing(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	const patience = 3 * callTimeout
	eachOutage(t, func(t *testing.T, _ string, connect func(redlatch.Options) *redlatch.Client, begin, _ func()) {
		red := connect(redlatch.Options{CallTimeout: callTimeout})
		none := func(context.Context) error { t.Error("nothing may be granted"); return nil }
		require.NoError(t, err1(connect(patient).Semaphores().CountDownLatch("latch").TrySetCount(t.Context(), 1, 0)))
		waits := waiting(red, patience, none)
		begin()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		results, stall := waits.all(ctx)
		for verb, r := range results {
			require.Error(t, r.err, verb)
			require.Less(t, r.took, soon(patience, stall), verb)
		}
	})
}

func TestOutage_Open_FailsAtOnceOrInSixSeconds(t *testing.T) {
	for name := range outages {
		t.Run(name, func(t *testing.T) {
			if redistest.Long() {
				t.Parallel()
				openFails(t, redistest.Start(t, "--appendonly", "yes"), name)
				return
			}
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) { openFails(t, servers[0], name) })
		})
	}
}

func openFails(t *testing.T, server *redistest.Server, name string) {
	x, proxy := outages[name], redistest.NewProxy(t, server)
	o := proxy.Server().Option()
	switch {
	case server.Embedded != nil && name == "stopped": // there is no process: what is sent to it is kept
		proxy.Hold(redistest.Up)
		defer proxy.Heal()
	case x.direct:
		o = server.Option()
		x.begin(t, server, proxy)
	default:
		x.begin(t, server, proxy)
	}
	if server.Process != nil {
		defer x.end(t, server, proxy)
	}
	bound := 6 * time.Second
	if x.refuses {
		bound = callTimeout
	}
	var err error
	var took time.Duration
	stall := redistest.Stall(func() {
		began := time.Now()
		_, err = redlatch.Open(t.Context(), o, redlatch.Options{})
		took = time.Since(began)
	})
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.Less(t, took, soon(bound, stall))
	if !x.refuses {
		require.Greater(t, took, 4*time.Second, "the documents say how long a start may hang")
	}
}
