package redlatchriver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/robfig/cron/v3"

	"github.com/redlatch/redlatch"
	redlatchriver "github.com/redlatch/redlatch/contrib/river"
	"github.com/redlatch/redlatch/internal/redistest/services"
)

// Report is the report of an hour.
type Report struct {
	Hour time.Time `json:"hour"`
}

// Kind is the name of the job.
func (Report) Kind() string { return "report" }

// Schedule is run by every process of the service, and inserts in one of them, until ctx ends.
func Schedule(ctx context.Context, red *redlatch.Client, client redlatchriver.Client, host string) error {
	hourly, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 0 6-18 * * *")
	if err != nil {
		return err
	}
	jobs := []redlatchriver.Job{
		{Schedule: hourly, Args: func(tick time.Time) (river.JobArgs, *river.InsertOpts) {
			return Report{Hour: tick}, &river.InsertOpts{Queue: "reports"}
		}},
		{Schedule: redlatchriver.Every(30 * time.Second), Args: func(time.Time) (river.JobArgs, *river.InsertOpts) {
			return Poll{}, nil
		}},
	}
	manager, err := redlatchriver.NewManager(red.Elections().Election("reports"), client, jobs, redlatchriver.Options{})
	if err != nil {
		return err
	}
	return manager.Run(ctx, host)
}

// inserted is a client whose jobs can be received; a program has a river.Client.
type inserted chan river.JobArgs

func (i inserted) Insert(_ context.Context, args river.JobArgs, _ *river.InsertOpts) (
	*rivertype.JobInsertResult, error) {
	i <- args
	return &rivertype.JobInsertResult{}, nil
}

func ExampleManager_Run() {
	red, _, end := services.Redlatch()
	defer end()
	jobs := inserted(make(chan river.JobArgs, 100))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Schedule(ctx, red, jobs, "10.0.0.7") }()
	for args := range jobs {
		if args.Kind() == "poll" { // of the last minute, which no process has inserted
			break
		}
	}
	cancel()
	fmt.Println("inserted, ended:", <-ended)
	// Output: inserted, ended: <nil>
}

// River's own intervals begin when a process asks, so every process would have other ticks.
func ExampleNewManager() {
	red, _, end := services.Redlatch()
	defer end()
	poll := func(time.Time) (river.JobArgs, *river.InsertOpts) { return Poll{}, nil }
	for _, schedule := range []river.PeriodicSchedule{river.PeriodicInterval(time.Minute),
		redlatchriver.Every(time.Minute)} {
		_, err := redlatchriver.NewManager(red.Elections().Election("reports"), inserted(nil),
			[]redlatchriver.Job{{Schedule: schedule, Args: poll}}, redlatchriver.Options{CatchUp: 5 * time.Minute})
		fmt.Println(errors.Is(err, redlatch.ErrInvalidOption), err == nil)
	}
	// Output:
	// true false
	// false true
}

func ExampleEvery() {
	next := redlatchriver.Every(5 * time.Minute).Next(time.Date(2026, 1, 1, 12, 3, 0, 0, time.UTC))
	fmt.Println(next.Format(time.TimeOnly))
	// Output: 12:05:00
}
