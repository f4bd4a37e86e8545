package redlatchgocron_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/gocron"
	"github.com/redlatch/redlatch/internal/redistest/services"
)

// Hourly has one of the machines run the report in each hour.
func Hourly(red *redlatch.Client, scheduler gocron.Scheduler, report func()) error {
	locker, err := redlatchgocron.NewLocker(red.Locks(), 50*time.Minute)
	if err != nil {
		return err
	}
	_, err = scheduler.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(report),
		gocron.WithName("hourly-report"), gocron.WithDistributedJobLocker(locker))
	return err
}

// Stoppable has one of the machines run the report in each hour, and ends the report's ctx if the lock is lost.
func Stoppable(red *redlatch.Client, scheduler gocron.Scheduler, report func(context.Context) error) error {
	lock := red.Locks().Reentrant("hourly-report")
	_, err := scheduler.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(func(ctx context.Context) error {
		_, err := lock.DoOnce(ctx, 50*time.Minute, report)
		return err
	}))
	return err
}

// Elected makes a scheduler whose jobs run on one of the machines, and poll as one of them. Shut the scheduler down
// before you close the elector.
func Elected(red *redlatch.Client, host string, poll func(context.Context) error) (
	gocron.Scheduler, *redlatchgocron.Elector, error) {
	elector := redlatchgocron.NewElector(red.Elections().Election("scheduler"), host, nil)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return nil, nil, err
	}
	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Second), gocron.NewTask(func(ctx context.Context) error {
		leadership, err := elector.Leadership()
		if err != nil {
			return err
		}
		return poll(leadership.Context(ctx)) // ctx ends with the leadership
	}))
	return scheduler, elector, err
}

// Two machines have the same job at the same time. One of them runs it.
func ExampleNewLocker() {
	red, _, end := services.Redlatch()
	defer end()
	daily, err := redlatchgocron.NewLocker(red.Locks(), 23*time.Hour)
	services.Must(err)
	job := gocron.OneTimeJob(gocron.OneTimeJobStartImmediately())
	ran, skipped := make(chan string, 2), make(chan error, 2)
	for _, machine := range []string{"a", "b"} {
		s, err := gocron.NewScheduler()
		services.Must(err)
		defer s.Shutdown()
		_, err = s.NewJob(job, gocron.NewTask(func() { ran <- machine }), gocron.WithName("report"),
			gocron.WithDistributedJobLocker(daily), gocron.WithEventListeners(
				gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skipped <- err })))
		services.Must(err)
		s.Start()
	}
	<-ran
	fmt.Println("it ran; the other machine:", <-skipped)
	// Output:
	// it ran; the other machine: redlatchgocron: job "report" runs, or has begun less than 23h0m0s ago: not acquired
}

// What gocron does with a Locker.
func ExampleLocker_Lock() {
	red, _, end := services.Redlatch()
	defer end()
	ctx := context.Background()
	hourly, err := redlatchgocron.NewLocker(red.Locks(), 50*time.Minute)
	services.Must(err)
	lock, err := hourly.Lock(ctx, "report")
	services.Must(err)
	fmt.Println("the job runs, and ends:", lock.Unlock(ctx))
	_, err = hourly.Lock(ctx, "report")
	fmt.Println("not again:", errors.Is(err, redlatch.ErrNotAcquired))
	// Output:
	// the job runs, and ends: <nil>
	// not again: true
}

func ExampleElector_Leadership() {
	red, _, end := services.Redlatch()
	defer end()
	ctx := context.Background()
	elector := redlatchgocron.NewElector(red.Elections().Election("scheduler"), "10.0.0.7", nil)
	for elector.IsLeader(ctx) != nil { // which gocron asks for each tick
		time.Sleep(time.Millisecond)
	}
	leadership, err := elector.Leadership()
	services.Must(err)
	work := leadership.Context(ctx)
	fmt.Println("leads:", work.Err() == nil)
	fmt.Println("resigned:", elector.Close(ctx), context.Cause(work))
	// Output:
	// leads: true
	// resigned: <nil> released
}
