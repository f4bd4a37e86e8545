package session_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
)

func newHub(t *testing.T) *pubsub.Hub {
	hub := redistest.NoError(pubsub.New(redistest.Embedded(t).Client(t), pubsub.Options{}))(t)
	t.Cleanup(func() { hub.Close(context.Background()) })
	return hub
}

// newSession is a session of a package "shop".
func newSession(t *testing.T, o session.Options) *session.Session {
	s := redistest.NoError(session.New(newHub(t), "shop", "goods", o))(t)
	t.Cleanup(func() { s.Close(redistest.Ended()) })
	return s
}

func TestOptions_NotGiven_HaveTheirDefaults(t *testing.T) {
	s := newSession(t, session.Options{KeyPrefix: "{t}:"})
	require.Equal(t, session.Options{KeyPrefix: "{t}:", WatchdogTimeout: 30 * time.Second, PollCap: time.Second,
		CallTimeout:  500 * time.Millisecond,
		RetryTimeout: 500 * time.Millisecond, ReplicaTimeout: 250 * time.Millisecond, Logger: slog.Default()}, s.Options)
	require.Equal(t, 500*time.Millisecond, s.Bound())
	require.Equal(t, 2500*time.Millisecond, s.GiveBackBound())
	s = newSession(t, session.Options{CallTimeout: session.MaxDuration})
	require.Positive(t, s.GiveBackBound(), "however long a call may last")
}

func TestCheck_LeaseAndWait_HaveTheirBounds(t *testing.T) {
	for d, want := range map[time.Duration][2]bool{
		-1: {false, false}, 0: {true, true}, 1: {true, false}, session.MinLease: {true, true},
		session.MaxDuration: {true, true}, session.MaxDuration + 1: {false, false},
	} {
		require.Equal(t, want, [2]bool{session.CheckWait(d) == nil, session.CheckLease(d) == nil}, "wait, lease %v", d)
	}
	require.ErrorIs(t, session.CheckWait(-1), errs.ErrInvalidOption)
	require.ErrorIs(t, session.CheckLease(1), errs.ErrInvalidOption)
}

func TestClose_WorkLeftByCalls_IsWaitedFor(t *testing.T) {
	s := newSession(t, session.Options{})
	going, end := make(chan struct{}, 2), make(chan struct{})
	work := func() { going <- struct{}{}; <-end }
	s.Finish(work)
	<-going
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	<-s.Context().Done()
	s.Finish(work) // by a call that was under way
	<-going
	require.Empty(t, closed)
	close(end)
	require.NoError(t, <-closed)

	s, end = newSession(t, session.Options{}), make(chan struct{})
	defer close(end)
	s.Finish(work)
	err := s.Close(redistest.Ended())
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, "shop: close: 1 background tasks still in progress: context canceled")
}

// rueidis heeds no context while it connects, so a question whose connection is being made when the server falls silent
// ends seconds later.
func TestClose_ConnectionBeingMade_IsNotWaitedFor(t *testing.T) {
	for name, keeps := range map[string]bool{"of a client that holds nothing": false, "of a client that holds": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Embedded(t))
			hub := redistest.NoError(pubsub.New(proxy.Server().Client(t), pubsub.Options{}))(t)
			t.Cleanup(func() { hub.Close(context.Background()) })
			s := redistest.NoError(session.New(hub, "shop", "goods", session.Options{}))(t)
			if keeps {
				hold.NewKeeper(s, "hold", "Unlock", lease.Config{})
			}
			// Where a connection begins, nothing comes back from here on.
			silence := proxy.Trap(&redistest.Trap{Match: func(words []string) bool {
				return words[0] == "HELLO"
			}, Fate: redistest.LoseReplySilently})
			s.Answered()
			silence.Wait(t)
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			begun := time.Now()
			require.NoError(t, s.Close(ctx), "nothing is left that matters")
			require.Less(t, time.Since(begun), 2*time.Second)
			proxy.Heal()
			proxy.Cut()
		})
	}
}

func TestAsk_LongContext_EndsAfterTheRetryTimeout(t *testing.T) {
	s := newSession(t, session.Options{CallTimeout: 10 * time.Millisecond, RetryTimeout: 50 * time.Millisecond})
	long, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, parent := range []context.Context{context.Background(), long} {
		ctx, cancel := s.Bounded(parent)
		defer cancel()
		end, ok := ctx.Deadline()
		require.True(t, ok)
		require.LessOrEqual(t, time.Until(end), 50*time.Millisecond)
	}
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	ctx, cancel := s.Bounded(short)
	defer cancel()
	end, _ := short.Deadline()
	got, _ := ctx.Deadline()
	require.Equal(t, end, got, "a context may be shorter")

	_, err := session.Ask(long, s, nil, func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 1, context.Cause(ctx)
	})
	require.EqualError(t, err, "shop: no answer within the retry timeout")
	n := redistest.NoError(session.Ask(long, s, nil, func(_ context.Context) (int, error) { return 1, nil }))(t)
	require.Equal(t, 1, n)
}

func TestError_WrappedTwice_NamesThePackageOnce(t *testing.T) {
	s := newSession(t, session.Options{})
	require.NoError(t, s.Error(nil))
	err := s.Error(s.Error(errs.ErrLost))
	require.EqualError(t, err, "shop: lost")
	require.ErrorIs(t, err, errs.ErrLost)
}

func TestTell_Observer_ReturnsTheContextOfWhatFollows(t *testing.T) {
	var log redistest.Logbook
	type key string
	ctx := context.Background()
	with := func(k string) errs.Observer {
		return func(ctx context.Context, e errs.Event) context.Context { return context.WithValue(ctx, key(k), e.N) }
	}
	none := errs.Observer(func(context.Context, errs.Event) context.Context { return nil })
	panics := errs.Observer(func(context.Context, errs.Event) context.Context { panic("hook") })
	tell := func(o errs.Observer, n int64) context.Context {
		s := newSession(t, session.Options{Logger: log.Logger(), Observer: o})
		return s.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, N: n})
	}
	for _, o := range []errs.Observer{nil, none, panics} {
		require.Equal(t, ctx, tell(o, 1))
	}
	require.Contains(t, log.String(), `msg="redlatch: observer panicked" panic=hook`)
	require.Nil(t, errs.Observer(nil).And(nil))
	for _, o := range []errs.Observer{with("1").And(with("2")), with("1").And(with("2")).And(none),
		with("1").And(none).And(errs.Observer(nil).And(with("2")))} {
		got := tell(o, 7)
		require.EqualValues(t, 7, got.Value(key("1")))
		require.EqualValues(t, 7, got.Value(key("2")))
	}
	twice := with("x").And(func(ctx context.Context, e errs.Event) context.Context {
		require.Equal(t, "shop", e.Package)
		return context.WithValue(ctx, key("y"), e.N+ctx.Value(key("x")).(int64))
	})
	require.EqualValues(t, 8, tell(twice, 4).Value(key("y")), "the second sees what the first returned")
}

func TestTell_ObserveWaits_GetsTheAcquisitionsThatWaited(t *testing.T) {
	s := newSession(t, session.Options{})
	var seen []string
	for _, who := range []string{"first ", "second "} {
		s.ObserveWaits(func(_ context.Context, e errs.Event) context.Context {
			seen = append(seen, who+e.Package+" "+string(e.Kind))
			return nil
		})
	}
	ctx := context.Background()
	free := errs.Event{Kind: errs.EventAcquired, Name: "a"}
	require.Equal(t, ctx, s.Tell(ctx, errs.Event{Kind: errs.EventAcquiring, Name: "a"}))
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Tell(ctx, free) }), "it does not wait, and costs nothing")
	require.Empty(t, seen)
	s.Tell(ctx, errs.Event{Kind: errs.EventWaiting, Name: "a"})
	s.Tell(ctx, errs.Event{Kind: errs.EventNotAcquired, Name: "a", Waited: true, Err: errs.ErrNotAcquired})
	require.Equal(t, []string{"first shop waiting", "second shop waiting", "first shop not acquired",
		"second shop not acquired"}, seen)
}

func TestTell_EventsWithErrors_AreRecentErrors(t *testing.T) {
	s := newSession(t, session.Options{})
	tell := func(kind errs.EventKind, name string, err error) {
		s.Tell(context.Background(), errs.Event{Kind: kind, Name: name, Err: err})
	}
	tell(errs.EventReleased, "a", errs.ErrUnavailable)
	tell(errs.EventReleased, "a", nil)
	tell(errs.EventRenewed, "a", errs.ErrLost) // its EventEnded follows
	tell(errs.EventEnded, "a", errs.ErrLost)
	tell(errs.EventClaimed, "a", errs.ErrUnavailable)
	var all []string
	for _, e := range s.RecentErrors().Last() {
		all = append(all, e.What+": "+e.Err.Error())
	}
	require.ElementsMatch(t, []string{"release: redis unavailable", "hold: lost"}, all)
}
