package redlatchgocron_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchgocron "github.com/redlatch/redlatch/contrib/gocron"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/redlatchtest"
)

var quiet = slog.New(slog.DiscardHandler)

// machine is a process with a scheduler, a clock of its own, and one job. What became of each tick is on ticks: nil if
// the job ran.
type machine struct {
	clock *clockwork.FakeClock
	ticks chan error
}

func schedule(t *testing.T, locker gocron.Locker, at time.Time, job gocron.JobDefinition,
	options ...gocron.JobOption) machine {
	t.Helper()
	m := machine{clockwork.NewFakeClockAt(at), make(chan error, 100)}
	s := redistest.NoError(gocron.NewScheduler(gocron.WithClock(m.clock), gocron.WithLocation(time.UTC)))(t)
	t.Cleanup(func() { s.Shutdown() })
	_, err := s.NewJob(job, gocron.NewTask(func() {}), append(options, gocron.WithName("report"),
		gocron.WithDistributedJobLocker(locker), gocron.WithEventListeners(
			gocron.AfterJobRuns(func(uuid.UUID, string) { m.ticks <- nil }),
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { m.ticks <- err })))...)
	require.NoError(t, err)
	s.Start()
	return m
}

// advance moves the clock of a machine, by which one tick is due, and says what became of it.
func (m machine) advance(t *testing.T, d time.Duration) error {
	t.Helper()
	require.NoError(t, m.clock.BlockUntilContext(t.Context(), 1))
	m.clock.Advance(d)
	select {
	case err := <-m.ticks:
		return err
	case <-time.After(time.Minute):
		require.FailNow(t, "the tick did not come")
		return nil
	}
}

// go-co-op/gocron#841: the job takes a moment, so a machine that comes later would find a lock that ends with it free.
func TestLocker_ClocksDiffer_EachTickRunsOnce(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		job        gocron.JobDefinition
		early, due []time.Duration // when the machines start, before noon by their clocks; when the job is due, from there
	}{
		"a clock behind": {gocron.CronJob("0 * * * *", false), []time.Duration{1e9, 5e9}, []time.Duration{1e9, 5e9}},
		"started at other times": {gocron.DurationJob(time.Hour), []time.Duration{9e9, 1e9},
			[]time.Duration{time.Hour, time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redlatchtest.New(t)
			for i, early := range c.early { // one after the other
				l := redistest.NoError(redlatchgocron.NewLocker(srv.Open().Locks(), 50*time.Minute))(t)
				err := schedule(t, l, noon.Add(-early), c.job).advance(t, c.due[i])
				if i == 0 {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				require.ErrorContains(t, err, `job "report" runs, or has begun less than 50m0s ago`)
			}
		})
	}
}

func TestLocker_PeriodOver_NextTickRuns(t *testing.T) {
	srv := redlatchtest.New(t)
	first, err := redlatchgocron.NewLocker(srv.Open().Locks(), 300*time.Millisecond)
	require.NoError(t, err)
	second := redistest.NoError(redlatchgocron.NewLocker(srv.Open().Locks(), time.Hour))(t)
	ended, cancel := context.WithCancel(t.Context())
	lock := redistest.NoError(first.Lock(ended, "report"))(t)
	cancel() // as gocron does when a scheduler is shut down
	require.NoError(t, lock.Unlock(ended))
	require.Error(t, lock.Unlock(ended), "once")
	redistest.Eventually(t, time.Minute, "the end of the period", func() bool {
		lock, err = second.Lock(t.Context(), "report")
		return err == nil
	})
	_, err = first.Lock(t.Context(), "report")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired, "it runs")
	require.Greater(t, srv.Redis().TTL("gocron:report"), 5*time.Minute, "also if its process dies: longer than a lease")
	other, err := first.Lock(t.Context(), "cleanup")
	require.NoError(t, err, "another job")
	require.NoError(t, other.Unlock(t.Context()))
	require.NoError(t, lock.Unlock(t.Context()))
	_, err = first.Lock(t.Context(), "report")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired, "it has begun less than an hour ago")
}

func TestNewLocker_BadInput_IsRefused(t *testing.T) {
	_, err := redlatchgocron.NewLocker(nil, time.Hour)
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	red := redlatchtest.New(t).Open()
	_, err = redlatchgocron.NewLocker(red.Locks(), time.Microsecond)
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	require.ErrorContains(t, err, "period is 1µs, must be 1ms to")
	l := redistest.NoError(redlatchgocron.NewLocker(red.Locks(), time.Hour))(t)
	_, err = l.Lock(t.Context(), "\xff")
	require.ErrorIs(t, err, redlatch.ErrInvalidName)
}

// runs is a scheduler with a job that is due every few milliseconds.
func runs(t *testing.T, x gocron.Elector) chan struct{} {
	t.Helper()
	s := redistest.NoError(gocron.NewScheduler(gocron.WithDistributedElector(x)))(t)
	t.Cleanup(func() { s.Shutdown() })
	ran := make(chan struct{})
	_, err := s.NewJob(gocron.DurationJob(5*time.Millisecond), gocron.NewTask(func(ctx context.Context) {
		select {
		case ran <- struct{}{}:
		case <-ctx.Done():
		}
	}))
	require.NoError(t, err)
	s.Start()
	return ran
}

func TestElector_LeaderLeaves_AnotherRunsTheJobs(t *testing.T) {
	srv := redlatchtest.New(t)
	first := redlatchgocron.NewElector(srv.Open().Elections().Election("jobs"), "first", quiet)
	redistest.Eventually(t, time.Minute, "its election", func() bool { return first.IsLeader(t.Context()) == nil })
	x := redlatchgocron.NewElector(srv.Open().Elections().Election("jobs"), "heir", quiet)
	t.Cleanup(func() { x.Close(context.Background()) })
	require.ErrorIs(t, x.IsLeader(t.Context()), redlatch.ErrNotAcquired)
	ran := runs(t, x)
	select {
	case <-ran:
		require.Fail(t, "it ran a job while the first led")
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, first.Close(t.Context()))
	select {
	case <-ran:
	case <-time.After(time.Minute):
		require.Fail(t, "no process runs the jobs")
	}
	l := redistest.NoError(x.Leadership())(t)
	require.Positive(t, l.Token())
	require.NoError(t, x.Close(t.Context()))
	require.ErrorIs(t, l.Err(), redlatch.ErrReleased)
	require.ErrorIs(t, x.IsLeader(t.Context()), redlatch.ErrNotAcquired)
}

func TestElector_CampaignFails_IsRepeatedAndReported(t *testing.T) {
	srv := redlatchtest.New(t)
	require.NoError(t, srv.Redis().Set("jobs", "of another program"))
	red := srv.Open()
	x := redlatchgocron.NewElector(red.Elections().Election("jobs"), "a", quiet)
	redistest.Eventually(t, time.Minute, "its error", func() bool {
		return errors.Is(x.IsLeader(t.Context()), redlatch.ErrWrongType)
	})
	require.ErrorIs(t, x.IsLeader(t.Context()), redlatch.ErrNotAcquired)
	srv.Redis().Del("jobs")
	redistest.Eventually(t, time.Minute, "its election", func() bool { return x.IsLeader(t.Context()) == nil })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Close(ended); err != nil { // else it was quick
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, x.Close(t.Context()))

	x = redlatchgocron.NewElector(red.Elections().Election("jobs"), "a", quiet)
	redistest.Eventually(t, time.Minute, "its election", func() bool { return x.IsLeader(t.Context()) == nil })
	require.NoError(t, red.Close(t.Context()))
	redistest.Eventually(t, time.Minute, "the end", func() bool {
		return errors.Is(x.IsLeader(t.Context()), redlatch.ErrClosed)
	})
	require.NoError(t, x.Close(t.Context()))
}

func TestPageCode_Functions_ScheduleTheirJobs(t *testing.T) {
	red := redlatchtest.New(t).Open()
	s := redistest.NoError(gocron.NewScheduler())(t)
	ran := make(chan string, 4)
	require.NoError(t, Hourly(red, s, func() { ran <- "hourly" }))
	require.NoError(t, Stoppable(red, s, func(ctx context.Context) error { ran <- "stoppable"; return ctx.Err() }))
	s.Start()
	for _, job := range s.Jobs() {
		require.NoError(t, job.RunNow())
		require.NoError(t, job.RunNow(), "which runs nothing")
	}
	require.ElementsMatch(t, []string{"hourly", "stoppable"}, []string{<-ran, <-ran})
	require.NoError(t, s.Shutdown())
	require.Empty(t, ran)

	polled := make(chan struct{})
	s, elector, err := Elected(red, "a", func(ctx context.Context) error { close(polled); return ctx.Err() })
	require.NoError(t, err)
	redistest.Eventually(t, time.Minute, "its election", func() bool { return elector.IsLeader(t.Context()) == nil })
	s.Start()
	require.NoError(t, s.Jobs()[0].RunNow())
	<-polled
	require.NoError(t, s.Shutdown())
	require.NoError(t, elector.Close(t.Context()))
}
