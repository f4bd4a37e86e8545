package redlatchk8s_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	redlatchk8s "github.com/redlatch/redlatch/contrib/k8s"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{})
	log.SetLogger(klog.Logger{})
	redistest.Main(m, nil)
}

func candidate(t testing.TB, client rueidis.Client, who string) *redlatchk8s.Lock {
	t.Helper()
	l, err := redlatchk8s.New(client, "boss", redlatchk8s.Options{Identity: who, Timeout: 10 * time.Second})
	require.NoError(t, err)
	return l
}

func record(who string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: who, LeaseDurationSeconds: 15}
}

func TestUpdate_RecordChangedSinceGet_IsAConflict(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		ctx := t.Context()
		ann, bob := candidate(t, s.Client(t), "ann"), candidate(t, s.Client(t), "bob")
		_, _, err := ann.Get(ctx)
		require.True(t, apierrors.IsNotFound(err), err)
		require.ErrorContains(t, ann.Update(ctx, record("ann")), "call Get or Create first")
		require.NoError(t, ann.Create(ctx, record("ann")))
		require.True(t, apierrors.IsAlreadyExists(bob.Create(ctx, record("bob"))))
		seen, raw, err := bob.Get(ctx)
		require.NoError(t, err)
		require.Equal(t, record("ann"), *seen)
		_, same, err := bob.Get(ctx)
		require.NoError(t, err)
		require.Equal(t, raw, same, "as client-go sees that nothing was written")

		require.NoError(t, ann.Update(ctx, record("ann")), "a renewal within the same second")
		err = bob.Update(ctx, record("bob"))
		require.True(t, apierrors.IsConflict(err), err)
		seen, renewed, err := bob.Get(ctx)
		require.NoError(t, err)
		require.Equal(t, "ann", seen.HolderIdentity)
		require.NotEqual(t, raw, renewed, "it shows that ann lives")
		require.NoError(t, bob.Update(ctx, record("bob")))
		require.True(t, apierrors.IsConflict(ann.Update(ctx, record("ann"))))

		s.Ask(t, "DEL", "redlatch_k8s:{boss}")
		require.True(t, apierrors.IsConflict(bob.Update(ctx, record("bob"))), "it is gone")
		require.NoError(t, ann.Create(ctx, record("ann")))
		require.True(t, apierrors.IsConflict(bob.Update(ctx, record("bob"))), "another one")
		require.Greater(t, s.Ask(t, "PTTL", "redlatch_k8s:{boss}"), "86000000")
		require.Less(t, s.Ask(t, "PTTL", "redlatch_k8s:{boss}"), "86400001")
		require.Equal(t, "ann", ann.Identity())
		require.Equal(t, "boss", ann.Describe())
	})
}

// (state, arguments) -> (reply, state), and the same once more.
func TestWriteScript_EachState_AnswersAsItsTable(t *testing.T) {
	text := redistest.NoError(os.ReadFile("lua/write.lua"))(t)
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		for name, c := range map[string]struct {
			before, known string
			reply         string
			after         string
		}{
			"create":         {"", "", "1", "new"},
			"create_exists":  {"v1", "", "0", "v1"},
			"update":         {"v1", "v1", "1", "new"},
			"update_other":   {"v2", "v1", "0", "v2"},
			"update_gone":    {"", "v1", "0", ""},
			"written_before": {"new", "v1", "1", "new"},
		} {
			t.Run(name, func(t *testing.T) {
				s.Ask(t, "DEL", "k")
				if c.before != "" {
					s.Ask(t, "HSET", "k", "version", c.before, "record", "old")
				}
				for range 2 {
					reply := redistest.NoError(rueidis.NewLuaScript(string(text)).Exec(t.Context(), client, []string{"k"},
						[]string{c.known, "new", "text", "1000000"}).AsInt64())(t)
					require.Equal(t, c.reply, fmt.Sprint(reply))
					if c.after == "" {
						require.Equal(t, "0", s.Ask(t, "EXISTS", "k"))
						continue
					}
					require.Equal(t, c.after, s.Ask(t, "HGET", "k", "version"))
				}
			})
		}
	})
}

func TestUpdate_ReplyLostAndOvertaken_IsAConflict(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	option := s.Option()
	option.InitAddress = []string{p.Addr()}
	far := redistest.NoError(rueidis.NewClient(option))(t)
	t.Cleanup(far.Close)
	ann, err := redlatchk8s.New(far, "boss", redlatchk8s.Options{Identity: "ann", Timeout: 300 * time.Millisecond})
	require.NoError(t, err)
	bob := candidate(t, s.Client(t), "bob")
	require.NoError(t, ann.Create(t.Context(), record("ann")))
	p.BlackHole(redistest.Down)
	err = ann.Update(t.Context(), record("ann"))
	require.Error(t, err)
	require.False(t, apierrors.IsConflict(err), "it is not known")
	p.Heal()
	p.Cut()
	_, _, err = bob.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, bob.Update(t.Context(), record("bob")))
	redistest.Eventually(t, time.Minute, "the conflict", func() bool {
		return apierrors.IsConflict(ann.Update(t.Context(), record("ann")))
	})
	seen, _, err := ann.Get(t.Context())
	require.NoError(t, err)
	require.Equal(t, "bob", seen.HolderIdentity)
}

func TestNew_BadInput_IsRefused(t *testing.T) {
	client := redistest.Embedded(t).Client(t)
	_, err := redlatchk8s.New(nil, "a", redlatchk8s.Options{})
	require.ErrorContains(t, err, "client is nil")
	_, err = redlatchk8s.New(client, "", redlatchk8s.Options{})
	require.ErrorContains(t, err, "redlatchk8s: ")
	_, err = redlatchk8s.New(client, "a", redlatchk8s.Options{Timeout: time.Millisecond})
	require.ErrorContains(t, err, "Timeout is 1ms")
	a := redistest.NoError(redlatchk8s.New(client, "a", redlatchk8s.Options{}))(t)
	b := redistest.NoError(redlatchk8s.New(client, "a", redlatchk8s.Options{}))(t)
	require.NotEqual(t, a.Identity(), b.Identity())
	a.RecordEvent("became leader") // and nothing happens
}

// manage is a manager of controller-runtime without an API server: it has no controllers, which would need one.
func manage(t *testing.T, l resourcelock.Interface) (
	elected <-chan struct{}, work chan struct{}, stop func(), ended chan error) {
	t.Helper()
	lease, renew, retry := 3*time.Second, 2*time.Second, 100*time.Millisecond
	m := redistest.NoError(manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		LeaderElection: true, LeaderElectionResourceLockInterface: l, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics: metrics.Options{BindAddress: "0"}}))(t)
	work = make(chan struct{})
	require.NoError(t, m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		close(work)
		<-ctx.Done()
		return nil
	})))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ended = make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	return m.Elected(), work, cancel, ended
}

func TestManagers_LeaderStops_OtherTakesOver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	events := make(chan string, 2)
	l, err := redlatchk8s.New(s.Client(t), "boss", redlatchk8s.Options{Events: func(event string) { events <- event }})
	require.NoError(t, err)
	elected, works, stop, ended := manage(t, l)
	<-elected
	<-works
	second, worksToo, _, lost := manage(t, candidate(t, s.Client(t), "second"))
	select {
	case <-second:
		require.Fail(t, "both are elected")
	case <-worksToo:
		require.Fail(t, "both work")
	case <-time.After(500 * time.Millisecond):
	}
	stop()
	require.NoError(t, <-ended)
	require.Equal(t, []string{"became leader", "stopped leading"}, []string{<-events, <-events})
	<-second
	<-worksToo
	seen, _, err := candidate(t, s.Client(t), "reader").Get(t.Context())
	require.NoError(t, err)
	require.Equal(t, "second", seen.HolderIdentity)
	require.EqualValues(t, 1, seen.LeaderTransitions)
	s.Stop(t)
	require.ErrorContains(t, <-lost, "leader election lost")
	s.Resume(t)
}

func TestPageCode_Manager_IsMade(t *testing.T) {
	red, end := connect()
	defer end()
	m := redistest.NoError(Manager(red, &rest.Config{Host: "http://127.0.0.1:1"}))(t)
	select {
	case <-m.Elected():
		require.Fail(t, "it was not started")
	default:
	}
}
