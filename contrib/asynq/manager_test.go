package redlatchasynq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchasynq "github.com/redlatch/redlatch/contrib/asynq"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock/election"
)

func TestMain(m *testing.M) {
	redistest.Main(m, map[string]func() error{"manager": beManager})
}

var quiet = slog.New(slog.DiscardHandler)

// patient options have time for calls: the machine may be busy. A leader that dies is replaced after three heartbeats.
var patient = redlatch.Options{CallTimeout: 10 * time.Second, Logger: quiet,
	Elections: func(o *election.Options) { o.Heartbeat = 300 * time.Millisecond }}

// tasks are a provider.
type tasks func() ([]*asynq.PeriodicTaskConfig, error)

func (t tasks) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) { return t() }

func these(all ...*asynq.PeriodicTaskConfig) tasks {
	return func() ([]*asynq.PeriodicTaskConfig, error) { return all, nil }
}

func everySecond() *asynq.PeriodicTaskConfig {
	return &asynq.PeriodicTaskConfig{Cronspec: "@every 1s", Task: asynq.NewTask("poll", nil)}
}

func manager(red *redlatch.Client, addr string, p asynq.PeriodicTaskConfigProvider, o redlatchasynq.Options) (
	*redlatchasynq.Manager, error) {
	o.Logger = quiet
	return redlatchasynq.NewManager(red.Elections().Election("periodic"),
		asynq.NewClient(asynq.RedisClientOpt{Addr: addr}), p, o)
}

// beManager is a process that enqueues, and says when it begins to: the provider is asked once before it leads.
func beManager() error {
	red, err := redlatch.Open(context.Background(), rueidis.ClientOption{InitAddress: []string{os.Args[1]}}, patient)
	if err != nil {
		return err
	}
	asked := 0
	m, err := manager(red, os.Args[1], tasks(func() ([]*asynq.PeriodicTaskConfig, error) {
		if asked++; asked == 2 {
			fmt.Println("leads")
		}
		return []*asynq.PeriodicTaskConfig{everySecond()}, nil
	}), redlatchasynq.Options{CatchUp: 20 * time.Second})
	if err != nil {
		return err
	}
	return m.Run(context.Background(), os.Args[2])
}

// worked is what a server of asynq has worked off: the ticks of "poll" by their ids.
type worked struct {
	mu    sync.Mutex
	ticks map[string]int
}

func work(t *testing.T, addr string) *worked {
	t.Helper()
	w := &worked{ticks: map[string]int{}}
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: addr}, asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 100 * time.Millisecond})
	require.NoError(t, server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ticks[id[len(id)-len("2006-01-02T15:04:05Z"):]]++
		return nil
	})))
	t.Cleanup(server.Shutdown)
	return w
}

func (w *worked) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ticks)
}

// What asynq's documentation warns of: each scheduler enqueues.
func TestTwoSchedulersOfAsynqEnqueueATickTwice(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	enqueued := make(chan string, 100)
	for range 2 {
		scheduler := asynq.NewScheduler(asynq.RedisClientOpt{Addr: s.Addr()}, &asynq.SchedulerOpts{
			LogLevel: asynq.FatalLevel, PostEnqueueFunc: func(info *asynq.TaskInfo, _ error) { enqueued <- info.ID }})
		_, err := scheduler.Register("@every 1s", asynq.NewTask("poll", nil))
		require.NoError(t, err)
		require.NoError(t, scheduler.Start())
		defer scheduler.Shutdown()
	}
	require.NotEqual(t, <-enqueued, <-enqueued, "two tasks for the first second")
}

func TestEachTickIsEnqueuedOnceThoughTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	w := work(t, s.Addr())
	first := redistest.Spawn(t, "manager", s, "first")
	require.Equal(t, "leads", first.Line(t))
	heir := redistest.Spawn(t, "manager", s, "heir")
	redistest.Eventually(t, time.Minute, "a tick that was not caught up with", func() bool { return w.count() > 21 })
	first.Signal(t, syscall.SIGKILL)
	require.Equal(t, "leads", heir.Line(t))
	before := w.count()
	redistest.Eventually(t, time.Minute, "ticks of the heir", func() bool { return w.count() > before+1 })
	heir.Signal(t, syscall.SIGKILL)
	redistest.Eventually(t, time.Minute, "each second, once", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		all := slices.Sorted(maps.Keys(w.ticks))
		for i, tick := range all {
			require.Equal(t, 1, w.ticks[tick], tick)
			at, err := time.Parse(time.RFC3339, tick)
			require.NoError(t, err)
			if i > 0 && at.Add(-time.Second).Format(time.RFC3339) != all[i-1] {
				return false // workers of several tasks end in any order
			}
		}
		return true
	})
}

func TestWhatIsEnqueuedHasTheOptionsOfItsTask(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	red, err := redlatch.Open(t.Context(), s.Option(), patient)
	require.NoError(t, err)
	t.Cleanup(func() { red.Close(context.Background()) })
	berlin := time.FixedZone("", 3600)
	due := time.Now().In(berlin)
	hourly := &asynq.PeriodicTaskConfig{Cronspec: fmt.Sprintf("%d %d * * *", due.Minute(), due.Hour()),
		Task: asynq.NewTask("report", []byte("a")), Opts: []asynq.Option{asynq.Queue("low"), asynq.MaxRetry(3)}}
	m, err := manager(red, s.Addr(), these(hourly), redlatchasynq.Options{Location: berlin, CatchUp: 2 * time.Minute})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx, "a") }()
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: s.Addr()})
	defer inspector.Close()
	var all []*asynq.TaskInfo
	redistest.Eventually(t, time.Minute, "the task", func() bool {
		all, err = inspector.ListPendingTasks("low")
		return err == nil && len(all) == 1
	})
	require.Equal(t, "report", all[0].Type)
	require.Equal(t, "a", string(all[0].Payload))
	require.Equal(t, 3, all[0].MaxRetry)
	require.Equal(t, time.Hour, all[0].Retention)
	require.True(t, strings.HasPrefix(all[0].ID, "report:"), all[0].ID)
	require.True(t, strings.HasSuffix(all[0].ID, due.UTC().Format(":2006-01-02T15:04:00Z")), all[0].ID)
	cancel()
	require.NoError(t, <-ended)
}

func TestATaskThatCannotBeIsRefused(t *testing.T) {
	red, err := redlatch.Open(t.Context(), redistest.Embedded(t).Option(), patient)
	require.NoError(t, err)
	t.Cleanup(func() { red.Close(context.Background()) })
	for why, provider := range map[string]tasks{
		"Task is nil": these(nil),
		"Cronspec is": these(&asynq.PeriodicTaskConfig{Cronspec: "now", Task: asynq.NewTask("a", nil)}),
		"TaskID is b, must be left out": these(&asynq.PeriodicTaskConfig{Cronspec: "@hourly",
			Task: asynq.NewTask("a", nil), Opts: []asynq.Option{asynq.TaskID("b")}}),
		"Retention is 1m0s, must be at least 2m0s": these(&asynq.PeriodicTaskConfig{Cronspec: "@hourly",
			Task: asynq.NewTask("a", nil), Opts: []asynq.Option{asynq.Retention(time.Minute)}}),
		`periodic task 1, "poll" at "@every 1s", is there twice`: these(everySecond(), everySecond()),
	} {
		m, err := manager(red, "127.0.0.1:1", provider, redlatchasynq.Options{})
		require.NoError(t, err)
		err = m.Run(t.Context(), "a")
		require.ErrorIs(t, err, redlatch.ErrInvalidOption, why)
		require.ErrorContains(t, err, why)
	}
	gone := errors.New("gone")
	m, err := manager(red, "127.0.0.1:1", tasks(func() ([]*asynq.PeriodicTaskConfig, error) { return nil, gone }),
		redlatchasynq.Options{})
	require.NoError(t, err)
	require.ErrorIs(t, m.Run(t.Context(), "a"), gone)

	_, err = redlatchasynq.NewManager(nil, nil, nil, redlatchasynq.Options{})
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	_, err = manager(red, "127.0.0.1:1", these(), redlatchasynq.Options{CatchUp: time.Millisecond, SyncInterval: 1})
	require.ErrorContains(t, err, "CatchUp is 1ms")
	require.ErrorContains(t, err, "SyncInterval is 1ns")
	m, err = manager(red, "127.0.0.1:1", these(), redlatchasynq.Options{})
	require.NoError(t, err)
	require.ErrorIs(t, m.Run(t.Context(), string(make([]byte, 1000))), redlatch.ErrInvalidOption)
}
