package election_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock/election"
)

func TestMain(m *testing.M) {
	redistest.Main(m, nil)
}

// process is one process as the library sees it.
type process struct {
	redis     rueidis.Client
	hub       *pubsub.Hub
	elections *election.Client
}

var quiet = slog.New(slog.DiscardHandler)

// start makes a process on a server. Its calls have time: the machine may be busy.
func start(t testing.TB, s *redistest.Server, o election.Options, change ...func(*rueidis.ClientOption)) *process {
	t.Helper()
	c, hub := rig.Process(t, s, quiet, change...)
	return with(t, c, hub, o)
}

// on makes a process on a client.
func on(t testing.TB, c rueidis.Client, o election.Options) *process {
	t.Helper()
	return with(t, c, rig.HubOn(t, c, quiet), o)
}

func with(t testing.TB, c rueidis.Client, hub *pubsub.Hub, o election.Options) *process {
	t.Helper()
	if o.CallTimeout == 0 {
		o.CallTimeout = 10 * time.Second
	}
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	o.Logger = quiet
	elections := redistest.NoError(election.New(hub, o))(t)
	rig.CloseUnwaited(t, elections)
	return &process{c, hub, elections}
}

// patient are options for a busy machine: a heartbeat that is late by seconds loses nothing.
var patient = election.Options{Heartbeat: 10 * time.Second, PollCap: 50 * time.Millisecond,
	WatchdogTimeout: 5 * time.Minute}

// bubble runs fn with n processes on a server inside a synctest bubble: hours there are moments here.
func bubble(t *testing.T, n int, o election.Options, fn func(t *testing.T, s *redistest.Server, all []*process)) {
	t.Helper()
	o.Logger = quiet
	redistest.InBubble(t, n, func(t *testing.T, _ *redistest.Server, c rueidis.Client) (*process, func()) {
		h := redistest.NoError(pubsub.New(c, pubsub.Options{Logger: quiet}))(t)
		if o.RetryTimeout == 0 {
			o.RetryTimeout = redistest.Retries(o.CallTimeout)
		}
		e := redistest.NoError(election.New(h, o))(t)
		return &process{c, h, e}, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			e.Close(ctx) // an error is that of a test's own Close
			require.NoError(t, h.Close(context.Background()))
		}
	}, fn)
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func elect(t testing.TB, e *election.Election, value string) *election.Leadership {
	t.Helper()
	l := redistest.NoError(e.Campaign(within(t), value))(t)
	return l
}

// observe runs a loop, which ends with its context or its client. The channel has what it yields, and is closed behind
// it.
func observe(t testing.TB, leaders iter.Seq2[election.Leader, error]) <-chan election.Leader {
	t.Helper()
	told := make(chan election.Leader, 1000)
	go func() {
		defer close(told)
		for l, err := range leaders {
			switch {
			case err == nil:
				told <- l
			case !errors.Is(err, errs.ErrClosed) && !errors.Is(err, context.Canceled):
				t.Error(err)
			}
		}
	}()
	return told
}

// failure is the error that ends a loop.
func failure(leaders iter.Seq2[election.Leader, error]) (err error) {
	for _, err = range leaders {
	}
	return err
}

// hear returns the next leader that an observer is told of and that is the one looked for.
func hear(t testing.TB, told <-chan election.Leader, what string, is func(election.Leader) bool) election.Leader {
	t.Helper()
	for {
		select {
		case l, ok := <-told:
			require.True(t, ok, "the channel was closed before %s", what)
			if is(l) {
				return l
			}
		case <-within(t).Done():
			require.Fail(t, "was not told: "+what)
		}
	}
}

// news returns the next leader that an observer is told of.
func news(t testing.TB, told <-chan election.Leader) election.Leader {
	t.Helper()
	return hear(t, told, "any news", func(election.Leader) bool { return true })
}

func nobody(l election.Leader) bool { return !l.Elected() }

func called(value string) func(election.Leader) bool {
	return func(l election.Leader) bool { return l.Elected() && l.Value == value }
}
