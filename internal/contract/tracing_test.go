package contract_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
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

// spanned makes a client whose commands are noted with their spans. see gets what its observers are told of.
func spanned(t *testing.T, s *redistest.Server, notes *spans, see func(ctx context.Context, what, name string),
	prefix string, lease time.Duration) *redlatch.Client {
	// a call that is given up leaves a release for the background: none is
	o := redlatch.Options{CallTimeout: 10 * time.Second, KeyPrefix: prefix}
	o.Elections = func(o *election.Options) { o.WatchdogTimeout = lease }
	o.Hub = func(o *pubsub.Options) {
		o.NewClient = func(o rueidis.ClientOption) (rueidis.Client, error) {
			c, err := rueidis.NewClient(o)
			return &traced{c, notes}, err
		}
	}
	o.Locks = func(o *rlock.Options) {
		o.WatchdogTimeout = lease
		o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
			see(ctx, string(e.Kind), e.Name)
			return ctx
		}
	}
	o.Semaphores = func(o *rsemaphore.Options) {
		o.WatchdogTimeout = lease
		o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
			see(ctx, "permits "+string(e.Kind), e.Name)
			return ctx
		}
	}
	o.Sales = func(o *stock.Options) {
		withBooks(o)
		o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
			see(ctx, string(e.Kind), "")
			return ctx
		}
	}
	o.Limiters = func(o *ratelimit.Options) { o.AllowTimeout = 10 * time.Second }
	return open(t, s, o)
}

func TestSpan_EveryCall_IsOfItsCallersContext(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		for _, how := range []string{"quiet", "busy"} {
			notes, told := &spans{}, sync.Map{} // events of observers, with their spans
			see := func(ctx context.Context, what, _ string) { told.Store(what+" in "+spanOf(ctx), true) }
			prefixed := func(part string) (red, other *redlatch.Client) {
				return spanned(t, servers[0], notes, see, how+part, time.Hour),
					open(t, servers[0], redlatch.Options{CallTimeout: time.Minute, KeyPrefix: how + part})
			}
			red, other := prefixed("a:")
			calls, third := unwaiting(t, red, other), spanned(t, servers[0], notes, see, how+"a:", time.Hour)
			calls["Lock.TryLock in vain"] = func(ctx context.Context) error {
				return err1(third.Locks().Reentrant("held-Reentrant").TryLock(ctx, 0, 0))
			}
			back, _ := prefixed("b:")
			maps.Copy(calls, releases(t, back))
			waits, _ := prefixed("c:")
			maps.Copy(calls, waiting(waits, time.Minute, func(context.Context) error { return nil }))
			time.Sleep(2 * time.Second) // what processes say of themselves is said
			for _, verb := range slices.Sorted(maps.Keys(calls)) {
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), spanKey{}, verb), 5*time.Second)
				if how == "quiet" {
					time.Sleep(27 * time.Millisecond) // nothing was answered of late: the call goes on a goroutine of its own
				}
				synctest.Wait()
				notes.take()
				err := calls[verb](ctx)
				require.NotErrorIs(t, err, redlatch.ErrUnavailable, verb)
				mine := 0
				for _, c := range notes.take() {
					// A process looks at the eviction policy on its own account, asks once for all who wait, and a leader
					// announces itself later.
					if c.command == "INFO" ||
						c.span == "" && (errors.Is(err, context.DeadlineExceeded) || strings.HasPrefix(verb, "Election.")) {
						continue
					}
					require.Equal(t, verb, c.span, "%s sent %s", verb, c.command)
					mine++
				}
				require.Positive(t, mine, verb)
				cancel()
			}
			for _, event := range []string{
				"acquired in Lock.TryLock of Reentrant", "not acquired in Lock.TryLock in vain",
				"released in Hold.Unlock of Reentrant", "acquired in Lock.TryLock of Multi",
				"permits acquired in Semaphore.TryAcquire", "permits released in Permit.Release",
				"claimed in Sale.Buy", "claimed in Sale.Buy by anyone",
			} {
				_, ok := told.Load(event)
				require.True(t, ok, "%s: %v", event, &told)
			}
		}
	})
}

// One call has one parent: of orders that share a call, that of the one that came first.
func TestSpan_CallOfSeveralOrders_IsOfOneOfThem(t *testing.T) {
	t.Parallel()
	notes := &spans{}
	sale := spanned(t, redistest.Start(t), notes, func(context.Context, string, string) {}, "", 0).
		Sales().Sale("sale")
	require.NoError(t, sale.Open(t.Context(), stock.Spec{Limit: 200, OpenFor: time.Minute, Retain: time.Minute}))
	notes.take()
	var wg sync.WaitGroup
	spans := map[string]bool{}
	for i := range 200 {
		span := fmt.Sprint("order ", i)
		spans[span] = true
		wg.Go(func() {
			if _, err := sale.Buy(context.WithValue(t.Context(), spanKey{}, span), stock.Order{User: span}); err != nil {
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

func TestSpan_RenewalsAndLosses_AreOfTheContextOfAcquire(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		client, events := servers[0].Client(t), make(chan string, 1000)
		red := spanned(t, servers[0], &spans{}, func(ctx context.Context, what, name string) {
			select {
			case events <- fmt.Sprint(what, " ", name, " in ", spanOf(ctx), ": ", ctx.Err()):
			default:
			}
		}, "", 3*time.Second)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), spanKey{}, "a request"))
		hold := redistest.NoError(red.Locks().Reentrant("l").TryLock(ctx, 0, 0))(t)
		permit := redistest.NoError(red.Semaphores().Semaphore("s", 1).Acquire(ctx, 1))(t)
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
		until("permits renewed s in a request: <nil>")
		require.NoError(t, client.Do(t.Context(), client.B().Flushall().Build()).Error())
		until("permits ended s in a request: <nil>")
		<-permit.Done()
	})
}
