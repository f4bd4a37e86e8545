package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
)

// primitives uses all of counting semaphores, latches and barriers, and returns what did not work.
func primitives(ctx context.Context, hub *pubsub.Hub, prefix string) error {
	// messages alone wake: without rights on a channel a waiter would be late
	c, err := rsemaphore.New(hub,
		rsemaphore.Options{KeyPrefix: prefix, CallTimeout: 10 * time.Second, PollCap: time.Hour,
			WatchdogTimeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var mu sync.Mutex
	var problems []error
	must := func(what string, err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			problems = append(problems, fmt.Errorf("%s: %w", what, err))
		}
	}
	var all sync.WaitGroup
	for _, name := range []string{"p", "q{1}"} {
		all.Go(func() {
			s := c.CountingSemaphore("s" + name)
			waited := make(chan error, 1)
			go func() { waited <- s.TryAcquire(ctx, 3, 20*time.Second) }()
			for c.Waiting("counting:"+prefix+"s"+name) == 0 {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(50 * time.Millisecond)
			must("set permits", errOf(s.TrySetPermits(ctx, 2, time.Minute)))
			must("release", s.Release(ctx, 1))
			must("waiter for permits", <-waited)
			must("add", errOf(s.AddPermits(ctx, 1)))
			must("reduce", errOf(s.AddPermits(ctx, -1)))
			must("available", errOf(s.Available(ctx)))

			for _, ttl := range []time.Duration{0, time.Minute} {
				l := c.CountDownLatch("l" + name)
				must("set count", errOf(l.TrySetCount(ctx, 2, ttl)))
				must("count", errOf(l.Count(ctx)))
				go func() {
					wctx, cancel := context.WithTimeout(ctx, 20*time.Second)
					defer cancel()
					waited <- l.Await(wctx)
				}()
				for c.Waiting("latch:"+prefix+"l"+name) == 0 {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(50 * time.Millisecond)
				must("count down", errOf(l.CountDown(ctx)))
				must("count down by", errOf(l.CountDownBy(ctx, "a")))
				must("waiter for latch", <-waited)
				must("set again", errOf(l.TrySetCount(ctx, 2, ttl)))
				must("delete", errOf(l.Delete(ctx)))
			}

			b := c.CyclicBarrier("b"+name, 2)
			arrive := func(ctx context.Context) {
				go func() { waited <- errOf(b.Await(ctx)) }()
				for {
					st, err := b.Inspect(ctx)
					must("state", err)
					if err != nil || st.Waiting == 1 {
						return
					}
				}
			}
			arrive(ctx)
			time.Sleep(800 * time.Millisecond) // a renewal
			must("barrier", errOf(b.Await(ctx)))
			must("waiter at barrier", <-waited)
			leaving, cancel := context.WithCancel(ctx)
			arrive(leaving)
			cancel()
			if err := <-waited; !errors.Is(err, rsemaphore.ErrBrokenBarrier) {
				must("leave", err)
			}
		})
	}
	all.Wait()
	return errors.Join(problems...)
}

func TestTheACLLinesAreEnoughForLatchesAndBarriers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindAllString(string(text), -1)
	require.Len(t, lines, 2, "for all keys, and for one prefix")
	for where, start := range map[string]func(testing.TB) *redistest.Server{
		"single":  func(t testing.TB) *redistest.Server { return redistest.Start(t) },
		"cluster": redistest.Cluster,
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			srv := start(t)
			redistest.SideBySide(t, map[string][2]string{"all": {"", lines[0]}, "of one prefix": {"shop:", lines[1]}},
				func(t *testing.T, _ string, c [2]string) {
					prefix, words := c[0], strings.Fields(c[1])
					require.Equal(t, "redlatch", words[2], "the user")
					words[2] = "redlatch-" + prefix
					requireEnough(t, srv, prefix, words)
				})
		})
	}
}

// requireEnough uses all primitives on srv, with names of that prefix, as a user that the words of an ACL line make.
func requireEnough(t *testing.T, srv *redistest.Server, prefix string, words []string) {
	t.Helper()
	user := words[2]
	var admins []rueidis.Client
	for _, addr := range srv.Addrs {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true,
			DisableCache: true})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		require.NoError(t, c.Do(within(t), c.B().Arbitrary(words...).Build()).Error())
		t.Cleanup(func() { // as it was, for another test
			c.Do(context.Background(), c.B().Arbitrary("ACL", "DELUSER", user).Build())
		})
		admins = append(admins, c)
	}
	o := srv.Option()
	o.Username, o.Password = user, "secret"
	hub, err := pubsub.Dial(t.Context(), o, pubsub.Options{})
	require.NoError(t, err)
	defer hub.Close(context.Background())
	require.NoError(t, primitives(within(t), hub, prefix))
	for _, c := range admins {
		entries, err := c.Do(within(t), c.B().Arbitrary("ACL", "LOG").Build()).ToArray()
		require.NoError(t, err)
		for _, e := range entries {
			m, err := e.AsStrMap()
			require.NoError(t, err)
			if m["username"] == user { // the other has its own
				require.Equal(t, "client|setinfo", m["object"], "refused: %v", m)
			}
		}
	}
}
