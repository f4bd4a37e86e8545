package redlatch_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
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

func TestMain(m *testing.M) { redistest.Main(m, nil) }

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

func TestEveryConstructorRefusesTheSameThingsWithTheSameErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	hub, err := pubsub.New(server.Client(t), pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	closed, err := pubsub.New(server.Client(t), pubsub.Options{})
	require.NoError(t, err)
	require.NoError(t, closed.Close(context.Background()))
	before := server.Embedded.CommandCount()
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
			{"a prefix that is no text", hub, settings{prefix: "\xff"}, errs.ErrInvalidOption, "KeyPrefix", 0},
			{"a timeout below a millisecond", hub, settings{timeout: time.Microsecond}, errs.ErrInvalidOption, "CallTimeout", 0},
			{"a negative timeout", hub, settings{timeout: -time.Second}, errs.ErrInvalidOption, "CallTimeout", 0},
			{"a timeout without an end", hub, settings{timeout: 1<<63 - 1}, errs.ErrInvalidOption, "CallTimeout", 0},
			{"retries that end before the first try", hub, settings{timeout: time.Second, retry: 999 * time.Millisecond},
				errs.ErrInvalidOption, "RetryTimeout is 999ms, must be 0 (the default), or 1s to ", 0},
			{"a negative retry timeout", hub, settings{retry: -time.Second}, errs.ErrInvalidOption, "RetryTimeout", 0},
			{"replicas below zero", hub, settings{count: -1}, errs.ErrInvalidOption, "MinReplicas", replicates},
			{"a wait for replicas as long as the call", hub, settings{timeout: time.Second, count: 1, replicas: time.Second},
				errs.ErrInvalidOption, "ReplicaTimeout", replicates},
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
	require.Equal(t, before, server.Embedded.CommandCount(), "nothing was sent")
}

func TestAClientThatWasClosedRefusesCallsInEveryPackage(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	red := open(t, server, redlatch.Options{Limiters: func(o *ratelimit.Options) { o.AllowTimeout = 5 * time.Second }})
	verbs := verbsOf(red, "verbs")
	for name, verb := range verbs {
		require.NoError(t, verb(t.Context()), name)
	}
	require.NoError(t, red.Close(t.Context()))
	for name, verb := range verbs {
		err := verb(t.Context())
		require.ErrorIs(t, err, errs.ErrClosed, name)
		requirePrefix(t, name, err)
	}
	require.NoError(t, red.Close(t.Context()), "the result of the first")
}

func requirePrefix(t *testing.T, name string, err error) {
	t.Helper()
	require.True(t, strings.HasPrefix(err.Error(), name+": "), "%s: %v", name, err)
	require.Equal(t, 1, strings.Count(err.Error(), name+": "), "%s: %v", name, err)
}

func TestEveryPackageRefusesABadNameBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	red := open(t, server, redlatch.Options{})
	before := server.Embedded.CommandCount()
	for what, bad := range map[string]string{"empty": "", "too long": strings.Repeat("x", 64<<10+1), "not UTF-8": "a\xff",
		"a NUL byte": "a\x00b", "an open brace": "a{b", "empty braces": "a{}b"} {
		for name, verb := range verbsOf(red, bad) {
			err := verb(t.Context())
			require.ErrorIs(t, err, errs.ErrInvalidName, "%s: %s", name, what)
			requirePrefix(t, name, err)
		}
	}
	require.Equal(t, before, server.Embedded.CommandCount(), "nothing was sent")
}

func TestAContextThatHasEndedEndsACallOfEveryPackage(t *testing.T) {
	t.Parallel()
	red := open(t, redistest.Embedded(t), redlatch.Options{})
	why := errors.New("the customer left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for name, verb := range verbsOf(red, "verbs") {
		err := verb(ctx)
		require.ErrorIs(t, err, context.Canceled, name)
		require.ErrorIs(t, err, why, name)
		requirePrefix(t, name, err)
	}
}

func TestEveryClientIsClosedTwiceAndWithAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	hub, err := pubsub.New(redistest.Embedded(t).Client(t), pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range products {
		for what, ctx := range map[string]context.Context{"with time": t.Context(), "without an end": context.Background(),
			"that has ended": ended} {
			c, err := p.create(hub, settings{})
			require.NoError(t, err)
			require.NoError(t, c.Close(ctx), "%s: nothing is left, %s", p.name, what)
			require.NoError(t, c.Close(ctx), "%s: again, %s", p.name, what)
		}
	}
}

func TestAPanickingObserverIsLoggedAndChangesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	log, logged := rig.Logged()
	o := redlatch.Options{Logger: log}
	o.Locks = func(o *rlock.Options) {
		o.Observer = func(context.Context, rlock.Event) context.Context { panic("of rlock") }
	}
	o.Elections = func(o *election.Options) {
		o.Observer = func(context.Context, rlock.Event) context.Context { panic("of election") }
	}
	o.Semaphores = func(o *rsemaphore.Options) {
		o.Observer = func(context.Context, rsemaphore.Event) context.Context { panic("of rsemaphore") }
	}
	o.Counters = func(o *rcounter.Options) {
		o.Observer = func(context.Context, rcounter.Event) { panic("of rcounter") }
	}
	o.Stocks = func(o *stock.Options) {
		o.Observer = func(context.Context, stock.Event) { panic("of stock") }
	}
	o.RedPackets = func(o *redpacket.Options) {
		o.Observer = func(context.Context, redpacket.Event) { panic("of redpacket") }
	}
	o.Limiters = func(o *ratelimit.Options) {
		o.Observer = func(context.Context, ratelimit.Event) { panic("of ratelimit") }
	}
	o.Hub = func(o *pubsub.Options) {
		o.Observer = func(pubsub.Event) { panic("of pubsub") }
	}
	red := open(t, server, o)
	verbs := verbsOf(red, "verbs")
	verbs["stock"] = func(ctx context.Context) error {
		_, err := red.Stocks().Stock("verbs").Claim(ctx, "ann")
		return err
	}
	verbs["redpacket"] = func(ctx context.Context) error {
		_, err := red.RedPackets().Packet("verbs").Grab(ctx, "ann")
		return err
	}
	verbs["ratelimit"] = func(ctx context.Context) error {
		slow := red.Limiters().Limiter("slow", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour})
		if _, err := slow.Wait(ctx, "", 1); err != nil {
			return err
		}
		ctx, giveUp := context.WithCancel(ctx)
		given := make(chan error, 1)
		go func() { _, err := slow.Wait(ctx, "", 1); given <- err }()
		redistest.Eventually(t, 20*time.Second, "it waits", func() bool {
			a, err := slow.Peek(t.Context(), "")
			return err == nil && a.ResetAfter > 90*time.Minute
		})
		server.Embedded.SetError("ERR out of order")
		giveUp()
		require.ErrorIs(t, <-given, context.Canceled)
		return nil
	}
	for _, p := range products { // ratelimit is the last: it leaves the server out of order
		require.NoError(t, verbs[p.name](t.Context()), p.name)
		redistest.Eventually(t, 20*time.Second, "logged", func() bool { return strings.Contains(logged(), "of "+p.name) })
	}
}

// Where a mutex were held it would wait forever.
func TestAnObserverMayLookAtItsClient(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		var red *redlatch.Client
		var mu sync.Mutex
		seen := map[string]bool{}
		look := func(pkg, kind string) {
			mu.Lock()
			seen[pkg+" "+kind] = true
			mu.Unlock()
			red.Locks().Stats()
			red.Semaphores().Stats()
			red.Stocks().Stats()
			red.RedPackets().Stats()
			red.Hub().Stats()
		}
		o := redlatch.Options{CallTimeout: 20 * time.Second}
		o.Locks = func(o *rlock.Options) {
			o.WatchdogTimeout = 3 * time.Second
			o.Observer = func(ctx context.Context, e rlock.Event) context.Context {
				look("rlock", string(e.Kind))
				return ctx
			}
		}
		o.Semaphores = func(o *rsemaphore.Options) {
			o.WatchdogTimeout = 3 * time.Second
			o.Observer = func(ctx context.Context, e rsemaphore.Event) context.Context {
				look("rsemaphore", string(e.Kind))
				return ctx
			}
		}
		o.Counters = func(o *rcounter.Options) {
			o.Observer = func(context.Context, rcounter.Event) { look("rcounter", "written") }
		}
		o.Stocks = func(o *stock.Options) {
			o.Observer = func(_ context.Context, e stock.Event) { look("stock", string(e.Kind)) }
		}
		o.RedPackets = func(o *redpacket.Options) {
			o.Observer = func(context.Context, redpacket.Event) { look("redpacket", "claimed") }
		}
		o.Hub = func(o *pubsub.Options) {
			o.Observer = func(e pubsub.Event) { look("pubsub", string(e.Kind)) }
		}
		red = open(t, servers[0], o)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		has := func(events ...string) func() bool {
			return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return !slices.ContainsFunc(events, func(e string) bool { return !seen[e] })
			}
		}

		for kind, l := range map[string]*rlock.Lock{"reentrant": red.Locks().Reentrant("l"), "fair": red.Locks().Fair("f"),
			"write": red.Locks().ReadWrite("rw").Write()} {
			hold, err := l.Lock(ctx)
			require.NoError(t, err, kind)
			_, err = l.TryLock(ctx, 0, 0)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired, kind)
			var waiter sync.WaitGroup
			waiter.Go(func() { assert.NoError(t, l.Do(ctx, func(context.Context) error { return nil }), kind) })
			redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return red.Locks().Stats().Waiting == 1 })
			require.NoError(t, hold.Unlock(ctx), kind)
			waiter.Wait()
		}
		permits := red.Semaphores().Semaphore("s", 1)
		permit, err := permits.Acquire(ctx, 1)
		require.NoError(t, err)
		_, err = permits.TryAcquire(ctx, 1, 0, 0)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		var waiter sync.WaitGroup
		waiter.Go(func() { assert.NoError(t, permits.Do(ctx, 1, func(context.Context) error { return nil })) })
		redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return red.Semaphores().Stats().Waiting == 1 })
		require.NoError(t, permit.Release(ctx))
		waiter.Wait()
		require.NoError(t, red.Semaphores().CountDownLatch("latch").Await(ctx))

		lost, err := red.Locks().Reentrant("lost").Lock(ctx)
		require.NoError(t, err)
		gone, err := permits.Acquire(ctx, 1)
		require.NoError(t, err)
		redistest.Eventually(t, 30*time.Second, "renewed", has("rlock renewed", "rsemaphore renewed"))
		client := red.Hub().Client()
		require.NoError(t, client.Do(ctx, client.B().Flushall().Build()).Error())
		<-lost.Done()
		<-gone.Done()

		_, err = red.Counters().Counter("c", rcounter.CounterOptions{}).Incr(ctx)
		require.NoError(t, err)
		_, err = red.RedPackets().Packet("p").Grab(ctx, "ann")
		require.NoError(t, err)
		_, err = red.Stocks().Stock("st").Claim(ctx, "ann")
		require.NoError(t, err)
		redistest.Eventually(t, 20*time.Second, "all were seen", has(
			"rlock acquiring", "rlock waiting", "rlock woken", "rlock acquired", "rlock not acquired", "rlock releasing",
			"rlock released", "rlock renewed", "rlock ended",
			"rsemaphore acquiring", "rsemaphore waiting", "rsemaphore acquired", "rsemaphore not acquired",
			"rsemaphore awaited", "rsemaphore releasing",
			"rsemaphore released", "rsemaphore renewed", "rsemaphore ended", "rcounter written", "redpacket claimed",
			"stock claimed", "pubsub subscribed"))
	})
}

// verbsOf is a call of each package, of an object called name.
func verbsOf(red *redlatch.Client, name string) map[string]func(ctx context.Context) error {
	none := func(context.Context) error { return nil }
	part := func(suffix string) string { // objects of two packages do not share a key
		if name == "" || !utf8.ValidString(name) || strings.ContainsAny(name, "{\x00") {
			return name
		}
		return name + suffix
	}
	return map[string]func(ctx context.Context) error{
		"rlock": func(ctx context.Context) error { return red.Locks().Reentrant(name).Do(ctx, none) },
		"election": func(ctx context.Context) error {
			return red.Elections().Election(part(":election")).Run(ctx, "me", func(context.Context, *election.Leadership) error {
				return nil
			})
		},
		"rsemaphore": func(ctx context.Context) error {
			return red.Semaphores().Semaphore(part(":semaphore"), 3).Do(ctx, 1, none)
		},
		"rcounter": func(ctx context.Context) error {
			_, err := red.Counters().Counter(part(":counter"), rcounter.CounterOptions{}).Incr(ctx)
			return err
		},
		"stock":     func(ctx context.Context) error { _, err := red.Stocks().Stock(name).Inspect(ctx); return err },
		"redpacket": func(ctx context.Context) error { _, err := red.RedPackets().Packet(name).Inspect(ctx); return err },
		"ratelimit": func(ctx context.Context) error {
			_, err := red.Limiters().Limiter(name, ratelimit.LimiterOptions{Rate: 10, Per: time.Second, Burst: 10}).Allow(ctx,
				"", 1)
			return err
		},
	}
}

func open(t *testing.T, server *redistest.Server, o redlatch.Options) *redlatch.Client {
	t.Helper()
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	red, err := redlatch.Open(t.Context(), server.Option(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		runtime.GC() // so that Close waits for nothing that the test has dropped
		red.Close(context.Background())
	})
	return red
}

func TestOpenNamesEveryOptionThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	red, err := redlatch.Open(t.Context(), server.Option(), redlatch.Options{
		KeyPrefix: "a{b", Locks: func(o *rlock.Options) { o.KeyPrefix, o.MaxHold = "locks:", time.Nanosecond },
		Counters: func(o *rcounter.Options) { o.KeyPrefix = "counters:" },
	})
	require.Nil(t, red)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	for _, text := range []string{"rlock: ", "MaxHold is 1ns", "rsemaphore: ", "stock: ", `KeyPrefix is "a{b"`} {
		require.ErrorContains(t, err, text)
	}
	require.NotContains(t, err.Error(), "rcounter: ", "its own prefix is good")
}

func TestOpenDefaultsAreTakenBackForOnePackage(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t) // it has no replica
	red := open(t, server, redlatch.Options{KeyPrefix: "app:", MinReplicas: 1, CallTimeout: time.Second,
		ReplicaTimeout: 50 * time.Millisecond,
		Locks:          func(o *rlock.Options) { o.MinReplicas = 0 },
		Counters:       func(o *rcounter.Options) { o.KeyPrefix = "" }})
	hold, err := red.Locks().Reentrant("report").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, hold.Unlock(t.Context()))
	_, err = red.Counters().Counter("hits", rcounter.CounterOptions{}).Incr(t.Context())
	require.NoError(t, err)
	require.True(t, server.Embedded.Exists("hits"))
}

func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // its backlog takes connections, and nothing answers
	require.NoError(t, err)
	defer silent.Close()
	o := rueidis.ClientOption{InitAddress: []string{silent.Addr().String()}, DisableCache: true}

	why := errors.New("the deploy was stopped")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, why)
	defer cancel()
	begun := time.Now()
	_, err = redlatch.Open(ctx, o, redlatch.Options{})
	for _, is := range []error{redlatch.ErrUnavailable, context.DeadlineExceeded, why} {
		require.ErrorIs(t, err, is)
	}
	require.Less(t, time.Since(begun), 4*time.Second, "rueidis gives up after 5 s")

	dials := 0
	o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		dials++
		return nil, errors.New("not to be called")
	}
	_, err = redlatch.Open(ctx, o, redlatch.Options{})
	require.ErrorIs(t, err, why)
	require.Zero(t, dials)
}

func TestWhatIsSetForAllHoldsWhereAPackageSetsNothingItself(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	red := open(t, server, redlatch.Options{KeyPrefix: "app:", Counters: func(o *rcounter.Options) {
		o.KeyPrefix = "numbers:"
	}})
	hold, err := red.Locks().Reentrant("report").Lock(t.Context())
	require.NoError(t, err)
	_, err = red.Counters().Counter("hits", rcounter.CounterOptions{}).Incr(t.Context())
	require.NoError(t, err)
	require.True(t, server.Embedded.Exists("app:report"))
	require.True(t, server.Embedded.Exists("numbers:hits"))
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestOpenUsesTheConstructorThatItIsGiven(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	var made atomic.Int32
	red := open(t, server,
		redlatch.Options{Hub: func(p *pubsub.Options) {
			p.NewClient = func(o rueidis.ClientOption) (rueidis.Client, error) {
				made.Add(1)
				return rueidis.NewClient(o)
			}
		}})
	require.EqualValues(t, 1, made.Load())
	require.NotNil(t, red.Hub().Client())
}

func TestCloseEndsWhatIsHeldAndNamesWhatIsLeft(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	red := open(t, server, redlatch.Options{Logger: slog.New(slog.DiscardHandler)})
	hold, err := red.Locks().Reentrant("kept-lock").Lock(t.Context())
	require.NoError(t, err)
	permit, err := red.Semaphores().Semaphore("kept-permit", 1).Acquire(t.Context(), 1)
	require.NoError(t, err)
	gone, err := red.Locks().Reentrant("released").Lock(t.Context())
	require.NoError(t, err)
	closed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { closed <- red.Close(ctx) }()
	<-hold.Done()
	<-permit.Done()
	require.NoError(t, gone.Unlock(t.Context()), "what is held can still be released")
	cancel()
	err = <-closed
	require.ErrorContains(t, err, "kept-lock")
	require.ErrorContains(t, err, "kept-permit")
	require.NotContains(t, err.Error(), "released")
	require.ErrorIs(t, err, context.Canceled)
	runtime.KeepAlive(hold) // one that was dropped is not named
	runtime.KeepAlive(permit)
}

// slowToClose is a client whose Close takes a minute.
type slowToClose struct{ rueidis.Client }

func (c slowToClose) Close() {
	time.Sleep(time.Minute)
	c.Client.Close()
}

func TestALaterCloseWaitsForTheFirstAndReturnsItsResult(t *testing.T) {
	for _, name := range []string{"redlatch", "rlock", "election", "rsemaphore", "pubsub"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := redistest.Bubble(t)
				red, err := redlatch.Open(t.Context(), server.Option(),
					redlatch.Options{Logger: slog.New(slog.DiscardHandler), Hub: func(p *pubsub.Options) {
						p.NewClient = func(o rueidis.ClientOption) (rueidis.Client, error) {
							c, err := rueidis.NewClient(o)
							return slowToClose{c}, err
						}
					}})
				require.NoError(t, err)
				hold, err := red.Locks().Reentrant("kept-lock").Lock(t.Context())
				require.NoError(t, err)
				leader, err := red.Elections().Election("kept-leader").Campaign(t.Context(), "")
				require.NoError(t, err)
				permit, err := red.Semaphores().Semaphore("kept-permit", 1).Acquire(t.Context(), 1)
				require.NoError(t, err)
				defer func() {
					hold.Unlock(t.Context())
					leader.Resign(t.Context())
					permit.Release(t.Context())
					red.Close(context.Background())
					time.Sleep(2 * time.Minute) // the client, and what is closed again later
					server.Embedded.Close()
				}()
				c := map[string]closer{"redlatch": red, "rlock": red.Locks(), "election": red.Elections(),
					"rsemaphore": red.Semaphores(), "pubsub": red.Hub()}[name]

				closing := func(patience time.Duration) (lasted time.Duration, err error) {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					began := time.Now()
					err = c.Close(ctx)
					return time.Since(began), err
				}
				first := make(chan error, 1)
				go func() {
					_, err := closing(3 * time.Second)
					first <- err
				}()
				synctest.Wait()
				lasted, err := closing(50 * time.Millisecond)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "close: an earlier call of Close is still under way")
				require.Equal(t, 1, strings.Count(err.Error(), name+": "), "%v", err)
				require.Equal(t, 50*time.Millisecond, lasted)
				lasted, err = closing(time.Hour)
				require.Equal(t, 3*time.Second-50*time.Millisecond, lasted)
				require.ErrorContains(t, err, name+": ")
				require.Equal(t, err, <-first)
				lasted, err = closing(time.Hour)
				require.Zero(t, lasted)
				require.ErrorContains(t, err, name+": ")
			})
		})
	}
}

func TestAClientThatIsNotUsedCostsNoGoroutine(t *testing.T) {
	server := redistest.Embedded(t)
	red := open(t, server, redlatch.Options{})
	hub, err := pubsub.New(red.Hub().Client(), pubsub.Options{})
	require.NoError(t, err)
	defer hub.Close(context.Background())
	before := runtime.NumGoroutine()
	for range 20 {
		for _, p := range products {
			c, err := p.create(hub, settings{})
			require.NoError(t, err)
			defer c.Close(context.Background())
		}
	}
	require.Less(t, runtime.NumGoroutine(), before+20, "of 140 clients")
}

func TestOpenLeavesNothingBehindWhenItFails(t *testing.T) {
	t.Parallel()
	_, err := redlatch.Open(t.Context(), rueidis.ClientOption{InitAddress: []string{"no-port"}}, redlatch.Options{})
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	server := redistest.Embedded(t)
	var made rueidis.Client
	_, err = redlatch.Open(t.Context(), server.Option(),
		redlatch.Options{CallTimeout: time.Nanosecond, Hub: func(p *pubsub.Options) {
			p.CallTimeout, p.NewClient = time.Second, func(o rueidis.ClientOption) (c rueidis.Client, err error) {
				made, err = rueidis.NewClient(o)
				return made, err
			}
		}})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.True(t, errors.Is(made.Do(t.Context(), made.B().Ping().Build()).Error(), rueidis.ErrClosing),
		"the client was closed")
}
