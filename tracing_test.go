package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/stretchr/testify/require"
)

// spanKey is the context key of the caller's span; its value is the verb that is being called.
type spanKey struct{}

func spanOf(ctx context.Context) string {
	span, _ := ctx.Value(spanKey{}).(string)
	return span
}

// traced is a client as rueidisotel or a hook of rueidis would wrap it: it notes, for each command, the span in whose
// context it was sent.
type traced struct {
	rueidis.Client
	notes *spans
}

type spans struct {
	mu   sync.Mutex
	sent []sentCommand
}

type sentCommand struct{ span, command string }

func (s *spans) note(ctx context.Context, commands ...[]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range commands {
		s.sent = append(s.sent, sentCommand{spanOf(ctx), c[0]})
	}
}

func (s *spans) take() []sentCommand {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = nil
	return sent
}

func words(multi []rueidis.Completed) (commands [][]string) {
	for _, c := range multi {
		commands = append(commands, slices.Clone(c.Commands()))
	}
	return commands
}

func (c *traced) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c.notes.note(ctx, cmd.Commands())
	return c.Client.Do(ctx, cmd)
}

func (c *traced) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	c.notes.note(ctx, words(multi)...)
	return c.Client.DoMulti(ctx, multi...)
}

func (c *traced) DoCache(ctx context.Context, cmd rueidis.Cacheable, ttl time.Duration) rueidis.RedisResult {
	c.notes.note(ctx, cmd.Commands())
	return c.Client.DoCache(ctx, cmd, ttl)
}

// own are the commands that a process sends on its own account: subscriptions, and the look at the eviction policy.
// They go over connections of their own, which are not traced here, but for INFO.
func own(command string) bool { return command == "INFO" }

func TestEveryCallCarriesTheValuesOfItsCallersContext(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, everyCallCarriesTheValues)
}

func everyCallCarriesTheValues(t *testing.T, servers []*redistest.Server) {
	notes := &spans{}
	client := &traced{servers[0].Client(t), notes}
	hub, err := pubsub.New(client, pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	var told sync.Map // events of observers, with their spans
	see := func(ctx context.Context, event string) { told.Store(event+" in "+spanOf(ctx), true) }
	// A call that is given up leaves a release for the background, which is nobody's: with this patience none is.
	const patience = 10 * time.Second
	locks, err := rlock.New(hub,
		rlock.Options{CallTimeout: patience, Observer: func(ctx context.Context, e rlock.Event) context.Context {
			see(ctx, string(e.Kind))
			return ctx
		}})
	require.NoError(t, err)
	t.Cleanup(func() { locks.Close(t.Context()) }) // which has ended then
	semaphores, err := rsemaphore.New(hub,
		rsemaphore.Options{CallTimeout: patience, Observer: func(ctx context.Context, e rsemaphore.Event) context.Context {
			see(ctx, "permits "+string(e.Kind))
			return ctx
		}})
	require.NoError(t, err)
	t.Cleanup(func() { semaphores.Close(t.Context()) })
	counters, err := rcounter.New(hub, rcounter.Options{CallTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { counters.Close(t.Context()) })
	stocks, err := stock.New(hub, stock.Options{CallTimeout: patience, Observer: func(ctx context.Context, e stock.Event) {
		see(ctx, string(e.Kind))
	}})
	require.NoError(t, err)
	t.Cleanup(func() { stocks.Close(t.Context()) })
	packets, err := redpacket.New(hub, redpacket.Options{CallTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { packets.Close(t.Context()) })
	limiters, err := ratelimit.New(hub, ratelimit.Options{CallTimeout: patience, AllowTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { limiters.Close(t.Context()) })

	type verb struct {
		name string
		call func(ctx context.Context) error
	}
	var verbs []verb
	add := func(name string, call func(ctx context.Context) error) { verbs = append(verbs, verb{name, call}) }
	for kind, l := range map[string]*rlock.Lock{
		"Reentrant": locks.Reentrant("a"), "NonReentrant": locks.NonReentrant("b"), "Fenced": locks.Fenced("c"),
		"Fair": locks.Fair("d"),
		"Spin": locks.Spin("e", 0, 0), "Plain": locks.Plain("f"), "Read": locks.ReadWrite("g").Read(),
		"Write": locks.ReadWrite("h").Write(),
	} {
		var hold *rlock.Hold
		add(kind+".TryLock", func(ctx context.Context) (err error) { hold, err = l.TryLock(ctx, 0, 0); return err })
		add(kind+".TryLock, refused", func(ctx context.Context) error {
			l := l
			if kind == "Read" {
				l = l.WithLabel("other") // otherwise it shares the hold, and asks nobody
			}
			other, err := l.TryLock(ctx, 0, 0)
			if kind == "Read" && err == nil {
				return other.Unlock(ctx)
			}
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			return nil
		})
		add(kind+".Extend", func(ctx context.Context) error { return hold.Extend(ctx, time.Minute) })
		add(kind+".IsLocked", func(ctx context.Context) error { _, err := l.IsLocked(ctx); return err })
		add(kind+".Inspect", func(ctx context.Context) error { _, err := l.Inspect(ctx); return err })
		add(kind+".Unlock", func(ctx context.Context) error { return hold.Unlock(ctx) })
		add(kind+".ForceUnlock", func(ctx context.Context) error { _, err := l.ForceUnlock(ctx); return err })
		add(kind+".Do", func(ctx context.Context) error { return l.Do(ctx, func(context.Context) error { return nil }) })
	}
	both, err := rlock.Multi(locks.Reentrant("m1"), locks.Reentrant("m2"))
	require.NoError(t, err)
	add("Multi.Do", func(ctx context.Context) error { return both.Do(ctx, func(context.Context) error { return nil }) })

	s := semaphores.Semaphore("s", 3)
	var permit *rsemaphore.Permit
	add("Semaphore.Acquire", func(ctx context.Context) (err error) { permit, err = s.Acquire(ctx, 2); return err })
	add("Semaphore.TryAcquire, refused", func(ctx context.Context) error {
		_, err := s.TryAcquire(ctx, 2, 0, 0)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		return nil
	})
	add("Permit.Extend", func(ctx context.Context) error { return permit.Extend(ctx, time.Minute) })
	add("Semaphore.Available", func(ctx context.Context) error { _, err := s.Available(ctx); return err })
	add("Semaphore.ExtendIDs", func(ctx context.Context) error { return s.ExtendIDs(ctx, time.Minute, permit.IDs()...) })
	add("Semaphore.InspectIDs", func(ctx context.Context) error {
		_, err := s.InspectIDs(ctx, permit.IDs()...)
		return err
	})
	add("Permit.Release", func(ctx context.Context) error { return permit.Release(ctx) })
	add("Semaphore.Resize", func(ctx context.Context) error { _, err := s.Resize(ctx, 3); return err })
	add("Semaphore.AddPermits", func(ctx context.Context) error { _, err := s.AddPermits(ctx, 1); return err })
	weighted := semaphores.WeightedSemaphore("w", 3)
	add("WeightedSemaphore.TryAcquire and parts", func(ctx context.Context) error {
		p, err := weighted.TryAcquire(ctx, 2, 0, 0)
		if err != nil {
			return err
		}
		return errors.Join(p.ReleasePart(ctx, 1), p.Release(ctx))
	})
	counting := semaphores.CountingSemaphore("cs")
	add("CountingSemaphore.TrySetPermits", func(ctx context.Context) error {
		_, err := counting.TrySetPermits(ctx, 2, 0)
		return err
	})
	add("CountingSemaphore.Acquire", func(ctx context.Context) error { return counting.Acquire(ctx, 1) })
	add("CountingSemaphore.Release", func(ctx context.Context) error { return counting.Release(ctx, 1) })
	latch := semaphores.CountDownLatch("l")
	add("CountDownLatch.TrySetCount", func(ctx context.Context) error {
		_, err := latch.TrySetCount(ctx, 1, time.Minute)
		return err
	})
	add("CountDownLatch.CountDown", func(ctx context.Context) error { _, err := latch.CountDown(ctx); return err })
	add("CountDownLatch.Await", func(ctx context.Context) error { return latch.Await(ctx) })
	barrier := semaphores.CyclicBarrier("b", 1)
	add("CyclicBarrier.Await", func(ctx context.Context) error { _, err := barrier.Await(ctx); return err })

	counter := counters.Counter("n", rcounter.CounterOptions{})
	add("Counter.Add", func(ctx context.Context) error { _, err := counter.Add(ctx, 3); return err })
	add("Counter.Get", func(ctx context.Context) error { _, err := counter.Get(ctx); return err })
	add("Counter.Set", func(ctx context.Context) error { return counter.Set(ctx, 7) })
	add("Counter.CompareAndSet", func(ctx context.Context) error {
		_, err := counter.CompareAndSet(ctx, 7, 8)
		return err
	})
	add("Counter.AddOnce", func(ctx context.Context) error { _, _, err := counter.AddOnce(ctx, "id", 1); return err })
	sale := stocks.Stock("st")
	add("Stock.Open", func(ctx context.Context) error {
		_, err := sale.Open(ctx, stock.Spec{Limit: 100, PerUser: 100, OpenFor: time.Minute, Retain: time.Minute})
		if errors.Is(err, redlatch.ErrAlreadyOpen) {
			err = nil
		}
		return err
	})
	add("Stock.Claim", func(ctx context.Context) error { _, err := sale.Claim(ctx, "ann"); return err })
	add("Stock.ClaimOnce", func(ctx context.Context) error {
		_, err := sale.Claim(ctx, "ann", stock.Request{ID: "r", N: 1})
		return err
	})
	add("Stock.ClaimAny", func(ctx context.Context) error { _, err := sale.ClaimAny(ctx, 1); return err })
	add("Stock.Reserve", func(ctx context.Context) error {
		_, err := sale.Reserve(ctx, "bob", stock.Request{ID: spanOf(ctx), N: 1}, time.Minute)
		return err
	})
	add("CountDownLatch.CountDown", func(ctx context.Context) error { _, err := latch.CountDown(ctx); return err })
	add("Stock.Lookup", func(ctx context.Context) error {
		_, err := sale.Lookup(ctx, stock.Units{Claimant: "ann"})
		return err
	})
	add("Stock.Lookup of a request", func(ctx context.Context) error {
		_, err := sale.Lookup(ctx, stock.Units{Request: "r"})
		return err
	})
	add("Stock.Change", func(ctx context.Context) error { return sale.Change(ctx, stock.Change{Pause: true}) })
	add("Stock.Inspect", func(ctx context.Context) error { _, err := sale.Inspect(ctx); return err })
	packet := packets.Packet("p")
	add("Packet.Send", func(ctx context.Context) error {
		_, err := packet.Send(ctx, redpacket.Spec{Total: 10, Shares: 3, OpenFor: time.Minute, Retain: time.Minute})
		if errors.Is(err, redlatch.ErrAlreadyOpen) {
			err = nil
		}
		return err
	})
	add("Packet.Grab", func(ctx context.Context) error { _, err := packet.Grab(ctx, spanOf(ctx)); return err })
	limiter := limiters.Limiter("r", ratelimit.LimiterOptions{Rate: 1e6, Per: time.Second})
	add("Limiter.Allow", func(ctx context.Context) error { _, err := limiter.Allow(ctx, "k", 1); return err })

	add("Hub.Publish", func(ctx context.Context) error { _, err := hub.Publish(ctx, "c", "m"); return err })

	held := false // what is held is looked at and renewed on nobody's account
	for _, v := range verbs {
		for _, how := range []string{", quiet", ", busy"} {
			span := v.name + how
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), spanKey{}, span), 20*time.Second)
			if how == ", quiet" {
				time.Sleep(27 * time.Millisecond) // nothing was answered of late: the call goes on a goroutine of its own
			}
			notes.take()
			require.NoError(t, v.call(ctx), span)
			mine := 0
			for _, c := range notes.take() {
				// a process says who it is once it has held something for a second, as on a busy machine
				unasked := c.span == "" && (held || c.command == "SET")
				if !own(c.command) && !unasked {
					require.Equal(t, span, c.span, "%s sent %s", span, c.command)
					mine++
				}
			}
			require.Positive(t, mine, span)
			cancel()
			if hold, again := strings.CutSuffix(v.name, ".TryLock"); again || hold == "Semaphore.Acquire" {
				held = true
				break
			}
			if strings.HasSuffix(v.name, "Unlock") || strings.HasSuffix(v.name, "Release") ||
				strings.HasSuffix(v.name, "CountDown") {
				held = held && strings.HasSuffix(v.name, ".Unlock") // a call about the hold may be under way
				break
			}
		}
	}
	for _, event := range []string{
		"acquired in Reentrant.TryLock, quiet", "not acquired in Reentrant.TryLock, refused, quiet",
		"released in Reentrant.Unlock, quiet", "acquired in Multi.Do, busy",
		"permits acquired in Semaphore.Acquire, quiet", "permits not acquired in Semaphore.TryAcquire, refused, busy",
		"permits released in Permit.Release, quiet",
		"claimed in Stock.Claim, quiet", "claimed in Stock.ClaimAny, busy",
	} {
		_, ok := told.Load(event)
		require.True(t, ok, event)
	}
}

// One call has one parent: of claims that share a call, that of the one that came first.
func TestACallOfSeveralClaimsCarriesTheValuesOfOneOfThem(t *testing.T) {
	t.Parallel()
	notes := &spans{}
	hub, err := pubsub.New(&traced{redistest.Start(t).Client(t), notes}, pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	stocks, err := stock.New(hub, stock.Options{CallTimeout: 10 * time.Second, MaxCalls: 1})
	require.NoError(t, err)
	sale := stocks.Stock("st")
	_, err = sale.Open(context.WithValue(t.Context(), spanKey{}, "open"),
		stock.Spec{Limit: 200, OpenFor: time.Minute, Retain: time.Minute})
	require.NoError(t, err)
	notes.take()
	var wg sync.WaitGroup
	spans := map[string]bool{}
	for i := range 200 {
		span := fmt.Sprint("claim ", i)
		spans[span] = true
		wg.Go(func() {
			if _, err := sale.Claim(context.WithValue(t.Context(), spanKey{}, span), span); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sent := notes.take()
	require.Less(t, len(sent), 200, "they shared calls")
	for _, c := range sent {
		require.True(t, spans[c.span], "%q sent %s", c.span, c.command)
	}
}

func TestObserversSeeRenewalsAndLossesWithTheContextOfAcquire(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		client := servers[0].Client(t)
		hub, err := pubsub.New(client, pubsub.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { hub.Close(context.Background()) })
		events := make(chan string, 1000)
		see := func(ctx context.Context, what, name string) context.Context {
			if what == "renewed" || what == "ended" {
				select {
				case events <- fmt.Sprint(what, " ", name, " in ", spanOf(ctx), ": ", ctx.Err()):
				default:
				}
			}
			return ctx
		}
		locks, err := rlock.New(hub,
			rlock.Options{WatchdogTimeout: 3 * time.Second, CallTimeout: 10 * time.Second,
				Observer: func(ctx context.Context, e rlock.Event) context.Context {
					return see(ctx, string(e.Kind), e.Name)
				}})
		require.NoError(t, err)
		t.Cleanup(func() { locks.Close(t.Context()) })
		semaphores, err := rsemaphore.New(hub,
			rsemaphore.Options{WatchdogTimeout: 3 * time.Second, CallTimeout: 10 * time.Second,
				Observer: func(ctx context.Context, e rsemaphore.Event) context.Context {
					return see(ctx, string(e.Kind), e.Name)
				}})
		require.NoError(t, err)
		t.Cleanup(func() { semaphores.Close(t.Context()) })
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), spanKey{}, "a request"))
		hold, err := locks.Reentrant("l").TryLock(ctx, 0, 0)
		require.NoError(t, err)
		permit, err := semaphores.Semaphore("s", 1).Acquire(ctx, 1)
		require.NoError(t, err)
		cancel() // the request is answered, the work goes on
		until := func(want string) {
			t.Helper()
			end := time.After(60 * time.Second)
			for {
				select {
				case e := <-events:
					if e == want {
						return
					}
				case <-end:
					t.Fatalf("not told: %s", want)
				}
			}
		}
		until("renewed l in a request: <nil>")
		require.NoError(t, client.Do(t.Context(), client.B().Del().Key("l").Build()).Error())
		until("ended l in a request: <nil>")
		<-hold.Done()
		until("renewed s in a request: <nil>")
		require.NoError(t, client.Do(t.Context(), client.B().Flushall().Build()).Error())
		until("ended s in a request: <nil>")
		<-permit.Done()
	})
}
