package redlatchasynq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchasynq "github.com/redlatch/redlatch/contrib/asynq"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/redlatchtest"
)

func TestMain(m *testing.M) { redistest.Main(m, nil) }

var quiet = slog.New(slog.DiscardHandler)

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

// A leader enqueues the ticks of the last 20 s, and its successor, once more, those of its own last 20 s. asynq refuses
// what is there, pending or done. Package periodic shows the same of leaders that are cut off.
func TestManager_LeadersChange_EnqueuesEachTickOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	red := redlatchtest.New(t).Open() // the election need not be on the server of asynq
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: s.Addr()})
	defer inspector.Close()
	ticks := func() (all []string) {
		pending, errPending := inspector.ListPendingTasks("default", asynq.PageSize(100))
		done, errDone := inspector.ListCompletedTasks("default", asynq.PageSize(100))
		if err := errors.Join(errPending, errDone); !errors.Is(err, asynq.ErrQueueNotFound) { // else there was no task yet
			require.NoError(t, err)
		}
		for _, task := range append(pending, done...) {
			all = append(all, task.ID[len(task.ID)-len("2006-01-02T15:04:05Z"):])
		}
		slices.Sort(all)
		return all
	}
	for term, enough := range []int{22, 24} {
		m, err := manager(red, s.Addr(), these(everySecond()), redlatchasynq.Options{CatchUp: 20 * time.Second})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx, fmt.Sprint("leader ", term)) }()
		redistest.Eventually(t, time.Minute, "ticks of its own", func() bool { return len(ticks()) >= enough })
		cancel()
		require.NoError(t, <-ended)
		worker := asynq.NewServer(asynq.RedisClientOpt{Addr: s.Addr()}, asynq.Config{LogLevel: asynq.FatalLevel})
		require.NoError(t, worker.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
		redistest.Eventually(t, time.Minute, "all are done", func() bool {
			queue, err := inspector.GetQueueInfo("default")
			return err == nil && queue.Completed == queue.Size
		})
		worker.Shutdown()
	}
	all := ticks()
	for i := range len(all) - 1 {
		at := redistest.NoError(time.Parse(time.RFC3339, all[i]))(t)
		require.Equal(t, at.Add(time.Second).Format(time.RFC3339), all[i+1])
	}
}

func TestManager_TaskWithOptions_IsEnqueuedWithThem(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	red := redlatchtest.New(t).Open()
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

func TestManager_BadTask_IsRefused(t *testing.T) {
	red := redlatchtest.New(t).Open()
	for why, provider := range map[string]tasks{
		"Task is nil": these(nil),
		"Cronspec is": these(&asynq.PeriodicTaskConfig{Cronspec: "now", Task: asynq.NewTask("a", nil)}),
		"TaskID is b, must be left out": these(&asynq.PeriodicTaskConfig{Cronspec: "@hourly",
			Task: asynq.NewTask("a", nil), Opts: []asynq.Option{asynq.TaskID("b")}}),
		"Retention is 1m0s, must be at least 2m0s": these(&asynq.PeriodicTaskConfig{Cronspec: "@hourly",
			Task: asynq.NewTask("a", nil), Opts: []asynq.Option{asynq.Retention(time.Minute)}}),
		`periodic task 1, "poll" at "@every 1s", is there twice`: these(everySecond(), everySecond()),
	} {
		m := redistest.NoError(manager(red, "127.0.0.1:1", provider, redlatchasynq.Options{}))(t)
		err := m.Run(t.Context(), "a")
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
	m = redistest.NoError(manager(red, "127.0.0.1:1", these(), redlatchasynq.Options{}))(t)
	require.ErrorIs(t, m.Run(t.Context(), string(make([]byte, 1000))), redlatch.ErrInvalidOption)
}
