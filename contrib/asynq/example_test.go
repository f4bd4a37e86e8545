package redlatchasynq_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/redlatch/redlatch"
	redlatchasynq "github.com/redlatch/redlatch/contrib/asynq"
	"github.com/redlatch/redlatch/internal/redistest/services"
)

// Reports are the periodic tasks of this program.
type Reports struct{}

// GetConfigs is asked every three minutes, so it may read a database.
func (Reports) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	return []*asynq.PeriodicTaskConfig{
		{Cronspec: "0 * * * *", Task: asynq.NewTask("report:hourly", nil), Opts: []asynq.Option{asynq.Queue("low")}},
		{Cronspec: "@every 30s", Task: asynq.NewTask("poll", nil)},
	}, nil
}

// Schedule is run by every process, and enqueues in one of them, until ctx ends.
func Schedule(ctx context.Context, red *redlatch.Client, client *asynq.Client, host string) error {
	manager, err := redlatchasynq.NewManager(red.Elections().Election("periodic-tasks"), client, Reports{},
		redlatchasynq.Options{})
	if err != nil {
		return err
	}
	return manager.Run(ctx, host)
}

// Once is a provider whose task has an id of its own.
type Once struct{}

func (Once) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	return []*asynq.PeriodicTaskConfig{{Cronspec: "@daily", Task: asynq.NewTask("report", nil),
		Opts: []asynq.Option{asynq.TaskID("report")}}}, nil
}

// Run returns an error for a task that cannot be.
func ExampleNewManager() {
	red, server, end := services.Redlatch()
	defer end()
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: server.Addr()})
	defer client.Close()
	manager, err := redlatchasynq.NewManager(red.Elections().Election("periodic-tasks"), client, Once{},
		redlatchasynq.Options{CatchUp: 5 * time.Minute})
	services.Must(err)
	fmt.Println(manager.Run(context.Background(), "10.0.0.7"))
	// Output:
	// redlatchasynq: periodic task 0: invalid option: TaskID is report, must be left out
}

func ExampleManager_Run() {
	red, server, end := services.Redlatch()
	defer end()
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: server.Addr()})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Schedule(ctx, red, client, "10.0.0.7") }()
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: server.Addr()})
	defer inspector.Close()
	for {
		if all, err := inspector.ListPendingTasks("default"); err == nil && len(all) == 2 {
			break // those of the last minute, which no process has enqueued
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("enqueued")
	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// enqueued
	// ended: <nil>
}
