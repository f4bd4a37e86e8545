package redlatchk8s_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
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
	redistest.Main(m, map[string]func() error{"candidate": beCandidate})
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

func TestARecordIsWrittenOnlyIfItIsTheOneLastSeen(t *testing.T) {
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

func TestOfCandidatesThatMeetOneWrites(t *testing.T) {
	s := redistest.Start(t)
	const n = 8
	all := make([]*redlatchk8s.Lock, n)
	for i := range all {
		all[i] = candidate(t, s.Client(t), fmt.Sprint(i))
	}
	for round := range 50 {
		results := make(chan error, n)
		for _, l := range all {
			go func() {
				if round == 0 {
					results <- l.Create(t.Context(), record(l.Identity()))
				} else {
					results <- l.Update(t.Context(), record(l.Identity()))
				}
			}()
		}
		wrote := 0
		for range n {
			if err := <-results; err == nil {
				wrote++
			} else {
				require.True(t, apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err), err)
			}
		}
		require.Equal(t, 1, wrote)
		for _, l := range all {
			_, _, err := l.Get(t.Context())
			require.NoError(t, err)
		}
	}
}

// (state, arguments) -> (reply, state), and the same once more.
func TestScript(t *testing.T) {
	text, err := os.ReadFile("lua/write.lua")
	require.NoError(t, err)
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
					reply, err := rueidis.NewLuaScript(string(text)).Exec(t.Context(), client, []string{"k"},
						[]string{c.known, "new", "text", "1000000"}).AsInt64()
					require.NoError(t, err)
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

func TestAWriteWhoseReplyWasLostIsAConflictOnceOvertaken(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	option := s.Option()
	option.InitAddress = []string{p.Addr()}
	far, err := rueidis.NewClient(option)
	require.NoError(t, err)
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

func TestWhatCannotBeIsRefused(t *testing.T) {
	client := redistest.Embedded(t).Client(t)
	_, err := redlatchk8s.New(nil, "a", redlatchk8s.Options{})
	require.ErrorContains(t, err, "client is nil")
	_, err = redlatchk8s.New(client, "", redlatchk8s.Options{})
	require.ErrorContains(t, err, "redlatchk8s: ")
	_, err = redlatchk8s.New(client, "a", redlatchk8s.Options{Timeout: time.Millisecond})
	require.ErrorContains(t, err, "Timeout is 1ms")
	a, err := redlatchk8s.New(client, "a", redlatchk8s.Options{})
	require.NoError(t, err)
	b, err := redlatchk8s.New(client, "a", redlatchk8s.Options{})
	require.NoError(t, err)
	require.NotEqual(t, a.Identity(), b.Identity())
	a.RecordEvent("became leader") // and nothing happens
}

func elector(l resourcelock.Interface, release bool, leads func(context.Context)) *leaderelection.LeaderElector {
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{Lock: l, ReleaseOnCancel: release,
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 100 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: leads, OnStoppedLeading: func() {}}})
	if err != nil {
		panic(err)
	}
	return e
}

// beCandidate is a process that leads when it can, and says so.
func beCandidate() error {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{os.Args[1]}})
	if err != nil {
		return err
	}
	l, err := redlatchk8s.New(client, "boss", redlatchk8s.Options{})
	if err != nil {
		return err
	}
	go elector(l, false, func(context.Context) { fmt.Println("leads") }).Run(context.Background())
	io.Copy(io.Discard, os.Stdin)
	return nil
}

func TestAnotherCandidateLeadsAfterTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	child := redistest.Spawn(t, "candidate", s)
	require.Equal(t, "leads", child.Line(t))
	leads := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	events := make(chan string, 2)
	l, err := redlatchk8s.New(s.Client(t), "boss", redlatchk8s.Options{Events: func(event string) { events <- event }})
	require.NoError(t, err)
	go func() {
		defer close(ended)
		elector(l, true, func(context.Context) { close(leads) }).Run(ctx)
	}()
	select {
	case <-leads:
		require.Fail(t, "it leads beside the child")
	case <-time.After(500 * time.Millisecond):
	}
	child.Signal(t, syscall.SIGKILL)
	<-leads
	require.Equal(t, "became leader", <-events)
	cancel()
	<-ended
	require.Equal(t, "stopped leading", <-events)
	seen, _, err := candidate(t, s.Client(t), "reader").Get(t.Context())
	require.NoError(t, err)
	require.Empty(t, seen.HolderIdentity, "it was released")
	require.EqualValues(t, 1, seen.LeaderTransitions)
}

func TestALeaderStopsWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	led := make(chan context.Context, 1)
	l, err := redlatchk8s.New(s.Client(t), "boss", redlatchk8s.Options{Timeout: 500 * time.Millisecond})
	require.NoError(t, err)
	e := elector(l, false, func(ctx context.Context) { led <- ctx })
	go e.Run(t.Context())
	ctx := <-led
	s.Stop(t)
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		require.Fail(t, "it leads on")
	}
	s.Resume(t)
}

// manage is a manager of controller-runtime without an API server: it has no controllers, which would need one.
func manage(t *testing.T, l resourcelock.Interface) (elected <-chan struct{}, work chan struct{}, stop func() error) {
	t.Helper()
	lease, renew, retry := 3*time.Second, 2*time.Second, 100*time.Millisecond
	m, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		LeaderElection: true, LeaderElectionResourceLockInterface: l, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics: metrics.Options{BindAddress: "0"}})
	require.NoError(t, err)
	work = make(chan struct{})
	require.NoError(t, m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		close(work)
		<-ctx.Done()
		return nil
	})))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	return m.Elected(), work, func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Minute):
			return errors.New("the manager does not stop")
		}
	}
}

func TestOfTwoManagersOneWorksAndThenTheOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	elected, works, stop := manage(t, candidate(t, s.Client(t), "first"))
	<-elected
	<-works
	second, worksToo, end := manage(t, candidate(t, s.Client(t), "second"))
	select {
	case <-second:
		require.Fail(t, "both are elected")
	case <-worksToo:
		require.Fail(t, "both work")
	case <-time.After(500 * time.Millisecond):
	}
	require.NoError(t, stop())
	<-second
	<-worksToo
	require.NoError(t, end())
}

func TestTheManagerOfThePageIsMade(t *testing.T) {
	red, end := connect()
	defer end()
	m, err := Manager(red, &rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	select {
	case <-m.Elected():
		require.Fail(t, "it was not started")
	default:
	}
}
