package profiles_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/rights/profiles"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// options are for a busy machine, and quick where the library polls.
func options(p profiles.Profile, book *redistest.Logbook) redlatch.Options {
	asks := 5 * time.Second
	if slices.ContainsFunc(p.Refuses, func(r profiles.Refusal) bool { return r.Fate == redistest.LoseRequestSilently }) {
		asks = 300 * time.Millisecond // where each has no answer
	}
	return redlatch.Options{
		Logger: book.Logger(), CallTimeout: 5 * time.Second,
		Hub:        func(o *pubsub.Options) { o.CallTimeout = asks },
		Locks:      func(o *rlock.Options) { o.WatchdogTimeout, o.PollCap = watchdog, pollCap },
		Elections:  func(o *election.Options) { o.PollCap = pollCap },
		Semaphores: func(o *rsemaphore.Options) { o.WatchdogTimeout, o.PollCap = watchdog, pollCap },
		Limiters:   func(o *ratelimit.Options) { o.AllowTimeout = 5 * time.Second },
	}
}

func TestMain(m *testing.M) { redistest.Main(m, nil) }

// The core of the tests with a server that refuses what a provider refuses. What the library goes on without is logged
// once for each hub, is in its Stats, and is all that the profile says; what it cannot do is an error that says so.
func TestCore_EveryProfile_Works(t *testing.T) {
	for _, crowd := range []bool{false, true} { // which takes the others' time
		t.Run(fmt.Sprintf("with a crowd %v", crowd), func(t *testing.T) {
			for _, p := range profiles.All {
				if crowd == crowds(p) {
					t.Run(p.Name, func(t *testing.T) {
						t.Parallel()
						run(t, p, redistest.Start(t), p.Before)
					})
				}
			}
		})
	}
}

// A Cluster of three nodes behind a proxy that has each call run by the node of its first key.
func TestCore_ClusterBehindOneAddress_Works(t *testing.T) {
	t.Parallel()
	p := profiles.Profile{OneSlot: "by the nodes", Lacks: []string{"CLIENT TRACKING", "keys of several slots"}}
	run(t, p, redistest.Cluster(t), redistest.OneAddress)
}

func run(t *testing.T, p profiles.Profile, server *redistest.Server,
	stand func(testing.TB, *redistest.Server) *redistest.Server) {
	direct := server.Client(t)
	require.NoError(t, direct.Do(t.Context(), direct.B().ScriptFlush().Build()).Error())
	before := stand(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var book redistest.Logbook
	open := func(set func(*redlatch.Options)) (*redlatch.Client, error) {
		o := options(p, &book)
		set(&o)
		return redlatch.Open(ctx, before.Option(), o)
	}
	red, err := open(func(*redlatch.Options) {})
	if p.Open != "" {
		require.ErrorContains(t, err, p.Open)
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
		return
	}
	require.NoError(t, err)
	defer end(red)
	type opened struct {
		red *redlatch.Client
		err error
	}
	replicated := make(chan opened, 1)
	go func() { // meanwhile: it waits where the server does not answer
		red, err := open(func(o *redlatch.Options) {
			o.MinReplicas, o.CallTimeout, o.Logger = 1, time.Second, slog.New(slog.DiscardHandler)
		})
		replicated <- opened{red, err}
	}()
	other := redistest.NoError(open(func(o *redlatch.Options) { o.Logger = slog.New(slog.DiscardHandler) }))(t)
	defer end(other)

	failures := make([]error, len(core))
	var all sync.WaitGroup
	for i, f := range core {
		if f.skips(p) {
			continue
		}
		all.Go(func() {
			for range 3 { // a machine that stood still has lost a hold of a fraction of a second
				failures[i] = redistest.Try(func() { f.try(ctx, scene{red, other, direct}) })
				if !errors.Is(failures[i], redlatch.ErrLost) {
					return
				}
			}
		})
	}
	all.Wait()
	for n := 0; n < 100 && len(lacking(red)) < len(p.Lacks); n++ { // one hand-over in eight asks who listens
		_ = redistest.Try(func() { handed(ctx, red.Locks().Reentrant("again"), other.Locks().Reentrant("again")) })
	}
	with := <-replicated
	if p.MinReplicas != "" { // where WAIT is refused
		require.ErrorContains(t, with.err, p.MinReplicas)
		require.ErrorContains(t, with.err, "MinReplicas")
	} else {
		require.NoError(t, with.err)
		end(with.red)
	}
	lacks := []string{}
	for _, l := range lacking(red) {
		lacks = append(lacks, l.Command)
		require.NotEmpty(t, l.Effect)
		require.Error(t, l.Err)
	}
	require.ElementsMatch(t, p.Lacks, lacks, "what is lacking")
	for _, l := range lacks {
		lines := book.Count("command="+l+" ") + book.Count("command="+strconv.Quote(l))
		if l == "SUBSCRIBE" { // where it is refused in words
			lines += book.Count("subscribe refused")
		}
		require.Equal(t, 1, lines, "%s is logged once: %s", l, book.String())
	}
	for i, f := range core {
		if !f.skips(p) {
			f.check(t, p, failures[i])
		}
	}
}

func lacking(red *redlatch.Client) []pubsub.Lack { return red.Hub().Stats().Lacks }

// skips reports whether a feature is not tried.
func (f *feature) skips(p profiles.Profile) bool {
	return f.crowd && !crowds(p)
}

// crowds reports whether features with a crowd are tried.
func crowds(p profiles.Profile) bool { return p.OneSlot != "" || p.Name == "Redis" }

// check compares what came of a feature with what the profile says.
func (f *feature) check(t *testing.T, p profiles.Profile, err error) {
	t.Helper()
	fails := p.Fails[f.name]
	if f.name != "messages" {
		fails = cmp.Or(fails, p.Fails["all"])
	}
	switch {
	case fails != "":
		require.ErrorContains(t, err, fails, f.name)
	case p.Literal && err != nil: // some scripts do not name their keys in their calls
		require.ErrorContains(t, err, "bad lua script", f.name)
	default:
		require.NoError(t, err, f.name)
	}
}

// end closes a client, for a moment at most: what is behind a server that does not answer ends in the background.
func end(red *redlatch.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_ = red.Close(ctx) // it may be cut off
}
