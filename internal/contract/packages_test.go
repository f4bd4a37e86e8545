package contract_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestMain(m *testing.M) { redistest.Main(m, map[string]func() error{"holder": beHolder}) }

// closer is a client of any package.
type closer interface {
	Close(ctx context.Context) error
}

// settings are the options that several packages have.
type settings struct {
	prefix            string
	timeout, replicas time.Duration
	retry             time.Duration
	count, batch      int
	watchdog, poll    time.Duration
	maxHold           time.Duration
}

// product is one package: its constructor, and which of the settings it has.
type product struct {
	name   string
	create func(h *pubsub.Hub, s settings) (closer, error)
	has    traits
}

// traits are groups of settings that not all packages have.
type traits uint8

const (
	replicates traits = 1 << iota // MinReplicas, ReplicaTimeout
	batches                       // MaxBatch
	leases                        // WatchdogTimeout, PollCap, MaxHold
)

var products = []product{
	{"rlock", func(h *pubsub.Hub, s settings) (closer, error) {
		return rlock.New(h, rlock.Options{KeyPrefix: s.prefix, CallTimeout: s.timeout, RetryTimeout: s.retry,
			MinReplicas: s.count, ReplicaTimeout: s.replicas,
			WatchdogTimeout: s.watchdog, PollCap: s.poll, MaxHold: s.maxHold})
	}, replicates | leases},
	{"election", func(h *pubsub.Hub, s settings) (closer, error) {
		return election.New(h,
			election.Options{KeyPrefix: s.prefix, CallTimeout: s.timeout, RetryTimeout: s.retry, MinReplicas: s.count,
				ReplicaTimeout:  s.replicas,
				WatchdogTimeout: s.watchdog, PollCap: s.poll, MaxHold: s.maxHold})
	}, replicates | leases},
	{"rsemaphore", func(h *pubsub.Hub, s settings) (closer, error) {
		return rsemaphore.New(h,
			rsemaphore.Options{KeyPrefix: s.prefix, CallTimeout: s.timeout, RetryTimeout: s.retry, MinReplicas: s.count,
				ReplicaTimeout:  s.replicas,
				WatchdogTimeout: s.watchdog, PollCap: s.poll, MaxHold: s.maxHold})
	}, replicates | leases},
	{"rcounter", func(h *pubsub.Hub, s settings) (closer, error) {
		return rcounter.New(h, rcounter.Options{KeyPrefix: s.prefix, CallTimeout: s.timeout, RetryTimeout: s.retry})
	}, 0},
	{"stock", func(h *pubsub.Hub, s settings) (closer, error) {
		return stock.New(h, stock.Options{KeyPrefix: s.prefix, CallTimeout: s.timeout, RetryTimeout: s.retry,
			MinReplicas: s.count, ReplicaTimeout: s.replicas, MaxBatch: s.batch})
	}, replicates | batches},
	{"redpacket", func(h *pubsub.Hub, s settings) (closer, error) {
		return redpacket.New(h,
			redpacket.Options{KeyPrefix: s.prefix, CallTimeout: s.timeout, RetryTimeout: s.retry, MinReplicas: s.count,
				ReplicaTimeout: s.replicas, MaxBatch: s.batch})
	}, replicates | batches},
	{"ratelimit", func(h *pubsub.Hub, s settings) (closer, error) {
		return ratelimit.New(h, ratelimit.Options{KeyPrefix: s.prefix, CallTimeout: s.timeout, RetryTimeout: s.retry})
	}, 0},
}

func TestNew_BadOption_IsRefusedAlikeByAllPackages(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	hub := redistest.NoError(pubsub.New(server.Client(t), pubsub.Options{}))(t)
	t.Cleanup(func() { hub.Close(context.Background()) })
	closed := redistest.NoError(pubsub.New(server.Client(t), pubsub.Options{}))(t)
	require.NoError(t, closed.Close(context.Background()))
	asking := server.Client(t)
	before := redistest.CommandCalls(t, asking)
	for _, p := range products {
		for _, c := range []struct {
			what  string
			hub   *pubsub.Hub
			set   settings
			is    error
			names string
			only  traits // for packages that have them
		}{
			{"no hub", nil, settings{}, errs.ErrInvalidOption, "hub", 0},
			{"a closed hub", closed, settings{}, errs.ErrClosed, "hub", 0},
			{"a prefix that splits names over slots", hub, settings{prefix: "a{b"}, errs.ErrInvalidOption, "KeyPrefix", 0},
			{"a prefix that ends a tag", hub, settings{prefix: "a}"}, errs.ErrInvalidOption, "KeyPrefix is ", 0},
			{"a prefix that is no text", hub, settings{prefix: "a\xff"}, errs.ErrInvalidOption, `KeyPrefix is "a\xff"`, 0},
			{"a prefix with a NUL byte", hub, settings{prefix: "a\x00"}, errs.ErrInvalidOption, `"a\x00"`, 0},
			{"a prefix with an empty tag", hub, settings{prefix: "shop{}:"}, errs.ErrInvalidOption, `"shop{}:"`, 0},
			{"a prefix that is too long", hub, settings{prefix: strings.Repeat("x", 64<<10)}, errs.ErrInvalidOption, `"xxx`, 0},
			{"a timeout below a millisecond", hub, settings{timeout: time.Microsecond}, errs.ErrInvalidOption, "CallTimeout", 0},
			{"a negative timeout", hub, settings{timeout: -time.Second}, errs.ErrInvalidOption, "CallTimeout", 0},
			{"a timeout without an end", hub, settings{timeout: 1<<63 - 1}, errs.ErrInvalidOption, "CallTimeout", 0},
			{"retries that end before the first try", hub, settings{timeout: time.Second, retry: 999 * time.Millisecond},
				errs.ErrInvalidOption, "RetryTimeout is 999ms, must be 0 (the default), or 1s to ", 0},
			{"a negative retry timeout", hub, settings{retry: -time.Second}, errs.ErrInvalidOption, "RetryTimeout", 0},
			{"replicas below zero", hub, settings{count: -1}, errs.ErrInvalidOption, "MinReplicas", replicates},
			{"a wait for replicas as long as the call", hub, settings{timeout: time.Second, count: 1, replicas: time.Second},
				errs.ErrInvalidOption, "ReplicaTimeout", replicates},
			{"a wait for replicas below a millisecond", hub, settings{count: 1, replicas: time.Microsecond},
				errs.ErrInvalidOption, "ReplicaTimeout is 1µs", replicates},
			{"a negative wait for replicas", hub, settings{count: 1, replicas: -time.Second}, errs.ErrInvalidOption,
				"ReplicaTimeout", replicates},
			{"batches that keep the server for long", hub, settings{batch: 129}, errs.ErrInvalidOption,
				"MaxBatch is 129, must be between 1 and 128", batches},
			{"a lease below 100 ms", hub, settings{watchdog: 99 * time.Millisecond}, errs.ErrInvalidOption, "WatchdogTimeout",
				leases},
			{"a lease of 200 years", hub, settings{watchdog: 200 * 365 * 24 * time.Hour}, errs.ErrInvalidOption,
				"WatchdogTimeout", leases},
			{"a sleep below 10 ms", hub, settings{poll: time.Millisecond}, errs.ErrInvalidOption, "PollCap", leases},
			{"a negative sleep", hub, settings{poll: -time.Second}, errs.ErrInvalidOption, "PollCap", leases},
			{"a negative hold", hub, settings{maxHold: -time.Second}, errs.ErrInvalidOption, "MaxHold", leases},
			{"a hold without an end", hub, settings{maxHold: 1<<63 - 1}, errs.ErrInvalidOption, "MaxHold is ", leases},
			{"a negative lease", hub, settings{watchdog: -1}, errs.ErrInvalidOption, "WatchdogTimeout", leases},
			{"a hold below 10 ms", hub, settings{maxHold: time.Millisecond}, errs.ErrInvalidOption, "MaxHold", leases},
		} {
			if c.only&p.has != c.only {
				continue
			}
			client, err := p.create(c.hub, c.set)
			require.ErrorIs(t, err, c.is, "%s: %s", p.name, c.what)
			require.ErrorContains(t, err, c.names, "%s: %s", p.name, c.what)
			require.True(t, strings.HasPrefix(err.Error(), p.name+": "), "%s: %s: %v", p.name, c.what, err)
			require.Nil(t, client, "%s: %s", p.name, c.what)
		}
	}
	require.Zero(t, redistest.CommandCalls(t, asking).Since(before), "nothing was sent")
}

func TestClose_NothingLeft_TakesAnyContextTwice(t *testing.T) {
	t.Parallel()
	hub := redistest.NoError(pubsub.New(redistest.Embedded(t).Client(t), pubsub.Options{}))(t)
	t.Cleanup(func() { hub.Close(context.Background()) })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range products {
		for what, ctx := range map[string]context.Context{"with time": t.Context(), "without an end": context.Background(),
			"that has ended": ended} {
			c := redistest.NoError(p.create(hub, settings{}))(t)
			require.NoError(t, c.Close(ctx), "%s: nothing is left, %s", p.name, what)
			require.NoError(t, c.Close(ctx), "%s: again, %s", p.name, what)
		}
	}
}

// observed are options with an observer of all packages, which is told of the package and the kind of event.
func observed(see func(pkg, kind string)) redlatch.Options {
	return redlatch.Options{
		CallTimeout: 20 * time.Second,
		Observer: func(ctx context.Context, e redlatch.Event) context.Context {
			see(e.Package, string(e.Kind))
			return ctx
		},
		Locks:      func(o *rlock.Options) { o.WatchdogTimeout = 3 * time.Second },
		Semaphores: func(o *rsemaphore.Options) { o.WatchdogTimeout = 3 * time.Second },
		Limiters:   func(o *ratelimit.Options) { o.AllowTimeout = 20 * time.Second },
	}
}

func TestObserver_Panics_IsLoggedAndChangesNothing(t *testing.T) {
	t.Parallel()
	log, logged := rig.Logged()
	o := observed(func(pkg, _ string) { panic("of " + pkg) })
	o.Logger = log
	results := func(red *redlatch.Client) map[string]string {
		all := map[string]string{}
		for _, u := range usesOf(t.Context(), red, "x") {
			for i, a := range u.acts {
				isLock := packageOf(u.primitive) == "rlock"
				if a.waits || isLock && (u.primitive != "reentrant" || i == 0 || a.name == "Lock.DoOnce") {
					continue // one kind of lock is enough, and it does not stay locked
				}
				all[fmt.Sprint(u.primitive, " ", i, " ", a.name)] = redlatch.Reason(a.do(t.Context()))
			}
		}
		return all
	}
	unobserved := patient
	unobserved.Limiters = func(o *ratelimit.Options) { o.AllowTimeout = 20 * time.Second }
	plain := results(open(t, redistest.Embedded(t), unobserved))
	require.Greater(t, len(plain), 50)
	red := open(t, redistest.Embedded(t), o)
	require.Equal(t, plain, results(red))
	subscription, err := red.Hub().Subscribe(t.Context(), "channel") // none of the acts has to
	require.NoError(t, err)
	defer subscription.Close()
	for _, p := range append(products, product{name: "pubsub"}) {
		of := "of " + p.name
		redistest.Eventually(t, 20*time.Second, "logged "+of, func() bool { return strings.Contains(logged(), of) })
	}
}

// Where a mutex were held it would wait forever.
func TestObserver_LooksAtItsClient_WaitsForNothing(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		var red *redlatch.Client
		var seen sync.Map
		red = open(t, servers[0], observed(func(pkg, kind string) {
			seen.Store(pkg+" "+kind, true)
			red.Locks().Stats()
			red.Elections().Stats()
			red.Semaphores().Stats()
			red.Hub().Stats()
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		stage := &stage{servers: servers}
		for _, stage.primitive = range primitives() {
			if stage.primitive.servers > 1 {
				continue
			}
			p := &process{red: []*redlatch.Client{red}}
			held := stage.blocked(t, p)
			if stage.try != nil {
				_, err := stage.try(ctx, p, object, 0, terms{})
				require.ErrorIs(t, err, redlatch.ErrNotAcquired, stage.name)
			}
			waiter := stage.waits(ctx, p, terms{})
			waitingIn(t, p, 1)
			stage.released(t, held)
			stage.released(t, waiter.granted(t, time.Minute))
			servers[0].Embedded.FlushAll() // the next has the same name
		}
		require.NoError(t, red.Semaphores().CountDownLatch("latch").Await(ctx))
		lost := redistest.NoError(red.Locks().Reentrant("lost").Lock(ctx))(t)
		gone := redistest.NoError(red.Semaphores().Semaphore("s", 1).Acquire(ctx, 1))(t)
		time.Sleep(5 * time.Second) // they are renewed
		servers[0].Embedded.FlushAll()
		<-lost.Done()
		<-gone.Done()
		require.NoError(t, err1(red.Counters().Counter("c", rcounter.CounterOptions{}).Incr(ctx)))
		require.ErrorIs(t, err1(red.RedPackets().Packet("p").Grab(ctx, "ann")), redpacket.ErrNoPacket)
		require.ErrorIs(t, err1(red.Sales().Sale("sale").Buy(ctx, stock.Order{User: "ann"})), stock.ErrNoStock)
		for _, event := range []string{
			"rlock acquiring", "rlock waiting", "rlock woken", "rlock acquired", "rlock not acquired", "rlock releasing",
			"rlock released", "rlock renewed", "rlock ended", "election acquired",
			"rsemaphore acquiring", "rsemaphore waiting", "rsemaphore acquired", "rsemaphore not acquired",
			"rsemaphore awaited", "rsemaphore releasing",
			"rsemaphore released", "rsemaphore renewed", "rsemaphore ended", "rcounter written", "redpacket claimed",
			"stock claimed", "pubsub subscribed",
		} {
			_, ok := seen.Load(event)
			require.True(t, ok, event)
		}
	})
}

// open is a client that is closed with the test.
func open(t *testing.T, server *redistest.Server, o redlatch.Options) *redlatch.Client {
	t.Helper()
	red := connected(t, server, o)
	t.Cleanup(func() {
		runtime.GC() // so that Close waits for nothing that the test has dropped
		red.Close(context.Background())
	})
	return red
}

// connected is a client that the test closes.
func connected(t *testing.T, server *redistest.Server, o redlatch.Options) *redlatch.Client {
	t.Helper()
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	if o.Sales == nil {
		o.Sales = withBooks
	}
	red := redistest.NoError(redlatch.Open(t.Context(), server.Option(), o))(t)
	return red
}

// closesWithin closes red with the test, and waits for d at most for what it holds.
func closesWithin(t *testing.T, red *redlatch.Client, d time.Duration) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		red.Close(ctx)
	})
}

func TestClient_Unused_CostsNoGoroutine(t *testing.T) {
	server := redistest.Embedded(t)
	red := open(t, server, redlatch.Options{})
	hub := redistest.NoError(pubsub.New(red.Hub().Client(), pubsub.Options{}))(t)
	defer hub.Close(context.Background())
	before := runtime.NumGoroutine()
	for range 20 {
		for _, p := range products {
			c := redistest.NoError(p.create(hub, settings{}))(t)
			defer c.Close(context.Background())
		}
	}
	require.Less(t, runtime.NumGoroutine(), before+20, "of 140 clients")
}
