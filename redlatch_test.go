package redlatch_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestMain(m *testing.M) { redistest.Main(m, nil) }

func open(t *testing.T, server *redistest.Server, o redlatch.Options) *redlatch.Client {
	t.Helper()
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	red := redistest.NoError(redlatch.Open(t.Context(), server.Option(), o))(t)
	t.Cleanup(func() {
		runtime.GC() // so that Close waits for nothing that the test has dropped
		red.Close(context.Background())
	})
	return red
}

// What is set for all holds where a package sets nothing itself.
func TestOpen_OptionOfOnePackage_TakesBackTheCommonOne(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t) // it has no replica
	red := open(t, server, redlatch.Options{KeyPrefix: "app:", MinReplicas: 1, CallTimeout: time.Second,
		ReplicaTimeout: 50 * time.Millisecond,
		Locks:          func(o *rlock.Options) { o.MinReplicas = 0 },
		Counters:       func(o *rcounter.Options) { o.KeyPrefix = "" }})
	hold := redistest.NoError(red.Locks().Reentrant("report").Lock(t.Context()))(t)
	require.True(t, server.Embedded.Exists("app:report"))
	require.NoError(t, hold.Unlock(t.Context()))
	redistest.NoError(red.Counters().Counter("hits", rcounter.CounterOptions{}).Incr(t.Context()))(t)
	require.True(t, server.Embedded.Exists("hits"))
}

func TestOpen_ObserverOfAllAndOfOnePackage_AreBothCalled(t *testing.T) {
	t.Parallel()
	type key struct{}
	var steps redistest.Steps
	red := open(t, redistest.Embedded(t), redlatch.Options{CallTimeout: 20 * time.Second,
		Observer: func(ctx context.Context, e redlatch.Event) context.Context {
			steps.Note("all: %s %s %s %v", e.Package, e.Kind, e.Name, ctx.Value(key{}))
			return nil
		},
		Locks: func(o *rlock.Options) {
			o.Observer = func(ctx context.Context, e redlatch.Event) context.Context {
				steps.Note("one: %s %s", e.Kind, e.Name)
				return context.WithValue(ctx, key{}, "of the first")
			}
		}})
	redistest.NoError(red.Locks().Reentrant("report").TryLock(t.Context(), 0, time.Minute))(t)
	redistest.NoError(red.Counters().Counter("hits", rcounter.CounterOptions{}).Incr(t.Context()))(t)
	require.Equal(t, []string{
		"one: acquiring report", "all: rlock acquiring report of the first",
		"one: acquired report", "all: rlock acquired report of the first",
		"all: rcounter written hits <nil>",
	}, steps.Take())
}

func TestOpen_ContextEnds_NamesTheCause(t *testing.T) {
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

// A typo is found where there is no server, as in CI, and in all packages at once.
func TestOpen_BadOptions_AreNamedBeforeTheDial(t *testing.T) {
	t.Parallel()
	o := rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"},
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return nil, errors.New("not to be called")
		}}
	calls := 0
	red, err := redlatch.Open(t.Context(), o, redlatch.Options{
		Hub:        func(o *pubsub.Options) { o.Grace = -1 },
		Locks:      func(o *rlock.Options) { o.KeyPrefix, o.PollCap = "", -3; calls++ },
		Semaphores: func(o *rsemaphore.Options) { o.KeyPrefix, o.WatchdogTimeout = "", -4 },
		Sales:      func(o *stock.Options) { o.KeyPrefix, o.SoldOutTrust = "", 5 },
		Limiters:   func(o *ratelimit.Options) { o.KeyPrefix, o.AllowTimeout = "", -6 },
		KeyPrefix:  "a{b",
		Counters:   func(o *rcounter.Options) { o.KeyPrefix = "counters:" },
	})
	require.Nil(t, red)
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	for _, says := range []string{"pubsub: invalid option: Grace is -1ns", "rlock: invalid option: PollCap is -3ns",
		"rsemaphore: invalid option: WatchdogTimeout is -4ns", "stock: invalid option: SoldOutTrust is 5ns",
		"ratelimit: invalid option: AllowTimeout is -6ns", `redpacket: invalid option: KeyPrefix is "a{b"`} {
		require.ErrorContains(t, err, says)
	}
	require.NotContains(t, err.Error(), "rcounter: ", "its own prefix is good")
	require.Equal(t, 1, calls)
}

func TestOpen_NewClientGiven_IsUsed(t *testing.T) {
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

// slowToClose is a client whose Close takes a minute.
type slowToClose struct{ rueidis.Client }

func (c slowToClose) Close() {
	time.Sleep(time.Minute)
	c.Client.Close()
}

func TestClose_Again_WaitsForTheFirstAndItsResult(t *testing.T) {
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
				hold := redistest.NoError(red.Locks().Reentrant("kept-lock").Lock(t.Context()))(t)
				leader := redistest.NoError(red.Elections().Election("kept-leader").Campaign(t.Context(), ""))(t)
				permit := redistest.NoError(red.Semaphores().Semaphore("kept-permit", 1).Acquire(t.Context(), 1))(t)
				defer func() {
					hold.Unlock(t.Context())
					leader.Resign(t.Context())
					permit.Release(t.Context())
					red.Close(context.Background())
					time.Sleep(2 * time.Minute) // the client, and what is closed again later
					server.Embedded.Close()
				}()
				c := map[string]interface {
					Close(ctx context.Context) error
				}{"redlatch": red, "rlock": red.Locks(), "election": red.Elections(),
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
				require.ErrorContains(t, err, "close: an earlier call of Close is still in progress")
				require.Equal(t, 1, strings.Count(err.Error(), name+": "), "%v", err)
				require.Equal(t, 50*time.Millisecond, lasted)
				lasted, err = closing(time.Hour)
				require.Equal(t, 3*time.Second-50*time.Millisecond, lasted)
				require.ErrorContains(t, err, name+": ")
				if name == "redlatch" {
					for _, left := range []string{"kept-lock", "kept-leader", "kept-permit"} {
						require.ErrorContains(t, err, left)
					}
				}
				require.Equal(t, err, <-first)
				lasted, err = closing(time.Hour)
				require.Zero(t, lasted)
				require.ErrorContains(t, err, name+": ")
			})
		})
	}
}

func TestOpen_Fails_ClosesItsClient(t *testing.T) {
	t.Parallel()
	_, err := redlatch.Open(t.Context(), rueidis.ClientOption{InitAddress: []string{"no-port"}}, redlatch.Options{})
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	server := redistest.Start(t, "--rename-command", "WAIT", "")
	var made rueidis.Client
	_, err = redlatch.Open(t.Context(), server.Option(),
		redlatch.Options{MinReplicas: 1, Hub: func(p *pubsub.Options) {
			p.NewClient = func(o rueidis.ClientOption) (c rueidis.Client, err error) {
				made, err = rueidis.NewClient(o)
				return made, err
			}
		}})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.True(t, errors.Is(made.Do(t.Context(), made.B().Ping().Build()).Error(), rueidis.ErrClosing),
		"the client was closed")
}
