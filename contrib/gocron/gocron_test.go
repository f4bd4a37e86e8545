package redlatchgocron_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/gocron"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock/election"
)

func TestMain(m *testing.M) {
	redistest.Main(m, map[string]func() error{"worker": beWorker, "candidate": beCandidate})
}

var quiet = slog.New(slog.DiscardHandler)

// patient options have time for calls: the machine may be busy. A leader that dies is replaced after three heartbeats.
var patient = redlatch.Options{CallTimeout: 10 * time.Second, Logger: quiet,
	Elections: func(o *election.Options) { o.Heartbeat = 500 * time.Millisecond }}

func open(t *testing.T, s *redistest.Server) *redlatch.Client {
	t.Helper()
	red, err := redlatch.Open(t.Context(), s.Option(), patient)
	require.NoError(t, err)
	t.Cleanup(func() { red.Close(context.Background()) })
	return red
}

// redisLock is what gocron's own Redis locker does: a redsync mutex, with one try, unlocked when the job has returned.
type redisLock struct{ *redsync.Redsync }

func (r redisLock) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	m := r.NewMutex(key, redsync.WithTries(1))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return unlocker{m}, nil
}

type unlocker struct{ *redsync.Mutex }

func (u unlocker) Unlock(ctx context.Context) error {
	_, err := u.UnlockContext(ctx)
	return err
}

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
	s, err := gocron.NewScheduler(gocron.WithClock(m.clock), gocron.WithLocation(time.UTC))
	require.NoError(t, err)
	t.Cleanup(func() { s.Shutdown() })
	_, err = s.NewJob(job, gocron.NewTask(func() {}), append(options, gocron.WithName("report"),
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

// lockers of several machines, by what they do to a job whose machines' clocks differ.
func lockers(t *testing.T) (before, after func() gocron.Locker, s *redistest.Server) {
	s = redistest.Start(t)
	return func() gocron.Locker {
			return redisLock{redsync.New(redsyncrueidis.NewPool(rueidiscompat.NewAdapter(s.Client(t))))}
		}, func() gocron.Locker {
			l, err := redlatchgocron.NewLocker(open(t, s).Locks(), 50*time.Minute)
			require.NoError(t, err)
			return l
		}, s
}

// go-co-op/gocron#841: the job takes a moment, so a machine that comes later finds the lock free.
func TestALockReleasedAtTheEndRunsATickTwiceAndOursOnce(t *testing.T) {
	before, after, server := lockers(t)
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const hour = time.Hour
	hourly, everyHour := gocron.CronJob("0 * * * *", false), gocron.DurationJob(hour)
	for name, c := range map[string]struct {
		locker func() gocron.Locker
		job    gocron.JobDefinition
		early  []time.Duration // when the machines start, before noon by their clocks
		due    []time.Duration // when the job is due, from there
		ran    int
	}{
		"a clock behind, redsync":          {before, hourly, []time.Duration{1e9, 5e9}, []time.Duration{1e9, 5e9}, 2},
		"a clock behind, redlatch":         {after, hourly, []time.Duration{1e9, 5e9}, []time.Duration{1e9, 5e9}, 1},
		"started at other times, redsync":  {before, everyHour, []time.Duration{9e9, 1e9}, []time.Duration{hour, hour}, 2},
		"started at other times, redlatch": {after, everyHour, []time.Duration{9e9, 1e9}, []time.Duration{hour, hour}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server.Ask(t, "FLUSHALL")
			ran := 0
			for i := range c.early { // one after the other
				err := schedule(t, c.locker(), noon.Add(-c.early[i]), c.job).advance(t, c.due[i])
				if err == nil {
					ran++
				} else {
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
					require.ErrorContains(t, err, `job "report" runs, or has begun less than 50m0s ago`)
				}
				redistest.Eventually(t, time.Minute, "redsync's release", func() bool {
					return server.Ask(t, "EXISTS", "report") == "0"
				})
			}
			require.Equal(t, c.ran, ran)
		})
	}
}

func TestTheNextTickRunsWhenThePeriodIsOver(t *testing.T) {
	s := redistest.Start(t)
	first, err := redlatchgocron.NewLocker(open(t, s).Locks(), 300*time.Millisecond)
	require.NoError(t, err)
	second, err := redlatchgocron.NewLocker(open(t, s).Locks(), time.Hour)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	lock, err := first.Lock(ended, "report")
	require.NoError(t, err)
	cancel() // as gocron does when a scheduler is shut down
	require.NoError(t, lock.Unlock(ended))
	require.Error(t, lock.Unlock(ended), "once")
	redistest.Eventually(t, time.Minute, "the end of the period", func() bool {
		lock, err = second.Lock(t.Context(), "report")
		return err == nil
	})
	_, err = first.Lock(t.Context(), "report")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired, "it runs")
	other, err := first.Lock(t.Context(), "cleanup")
	require.NoError(t, err, "another job")
	require.NoError(t, other.Unlock(t.Context()))
	require.NoError(t, lock.Unlock(t.Context()))
	_, err = first.Lock(t.Context(), "report")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired, "it has begun less than an hour ago")
}

// beWorker begins a job and does not end it.
func beWorker() error {
	red, err := redlatch.Open(context.Background(), rueidis.ClientOption{InitAddress: []string{os.Args[1]}}, patient)
	if err != nil {
		return err
	}
	locker, err := redlatchgocron.NewLocker(red.Locks(), time.Hour)
	if err != nil {
		return err
	}
	if _, err := locker.Lock(context.Background(), "report"); err != nil {
		return err
	}
	fmt.Println("runs")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

func TestAJobWhoseProcessWasKilledStaysBegun(t *testing.T) {
	s := redistest.Start(t)
	worker := redistest.Spawn(t, "worker", s)
	require.Equal(t, "runs", worker.Line(t))
	worker.Signal(t, syscall.SIGKILL)
	require.Greater(t, s.Ask(t, "PTTL", "gocron:report"), "300000", "by far longer than a lease")
	locker, err := redlatchgocron.NewLocker(open(t, s).Locks(), time.Hour)
	require.NoError(t, err)
	_, err = locker.Lock(t.Context(), "report")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
}

func TestNoJobRunsWhileTheServerIsDown(t *testing.T) {
	s := redistest.Start(t)
	red, err := redlatch.Open(t.Context(), s.Option(), redlatch.Options{Logger: quiet})
	require.NoError(t, err)
	locker, err := redlatchgocron.NewLocker(red.Locks(), time.Hour)
	require.NoError(t, err)
	s.Kill(t)
	_, err = locker.Lock(t.Context(), "report")
	require.True(t, errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknownOutcome), err)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	red.Close(ended) // what is not known to be released is not waited for
}

func TestALockerThatCannotBeIsRefused(t *testing.T) {
	_, err := redlatchgocron.NewLocker(nil, time.Hour)
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	red := open(t, redistest.Embedded(t))
	_, err = redlatchgocron.NewLocker(red.Locks(), time.Microsecond)
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	require.ErrorContains(t, err, "period is 1µs, must be 1ms to")
	l, err := redlatchgocron.NewLocker(red.Locks(), time.Hour)
	require.NoError(t, err)
	_, err = l.Lock(t.Context(), "\xff")
	require.ErrorIs(t, err, redlatch.ErrInvalidName)
}

// beCandidate campaigns, and says when it leads.
func beCandidate() error {
	red, err := redlatch.Open(context.Background(), rueidis.ClientOption{InitAddress: []string{os.Args[1]}}, patient)
	if err != nil {
		return err
	}
	x := redlatchgocron.NewElector(red.Elections().Election("jobs"), "child", nil)
	for x.IsLeader(context.Background()) != nil {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("leads")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// runs is a scheduler with a job that is due every few milliseconds.
func runs(t *testing.T, x gocron.Elector) chan struct{} {
	t.Helper()
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(x))
	require.NoError(t, err)
	t.Cleanup(func() { s.Shutdown() })
	ran := make(chan struct{})
	_, err = s.NewJob(gocron.DurationJob(5*time.Millisecond), gocron.NewTask(func(ctx context.Context) {
		select {
		case ran <- struct{}{}:
		case <-ctx.Done():
		}
	}))
	require.NoError(t, err)
	s.Start()
	return ran
}

func TestTheElectedRunsTheJobsAndAnotherWhenItIsKilled(t *testing.T) {
	s := redistest.Start(t)
	child := redistest.Spawn(t, "candidate", s)
	require.Equal(t, "leads", child.Line(t))
	x := redlatchgocron.NewElector(open(t, s).Elections().Election("jobs"), "heir", quiet)
	t.Cleanup(func() { x.Close(context.Background()) })
	require.ErrorIs(t, x.IsLeader(t.Context()), redlatch.ErrNotAcquired)
	ran := runs(t, x)
	select {
	case <-ran:
		require.Fail(t, "it ran a job while the child led")
	case <-time.After(50 * time.Millisecond):
	}
	child.Signal(t, syscall.SIGKILL)
	select {
	case <-ran:
	case <-time.After(time.Minute):
		require.Fail(t, "no process runs the jobs")
	}
	l, err := x.Leadership()
	require.NoError(t, err)
	require.Positive(t, l.Token())
	require.NoError(t, x.Close(t.Context()))
	require.ErrorIs(t, l.Err(), redlatch.ErrReleased)
	require.ErrorIs(t, x.IsLeader(t.Context()), redlatch.ErrNotAcquired)
}

func TestACampaignThatFailedIsRepeatedAndNamed(t *testing.T) {
	s := redistest.Start(t)
	s.Ask(t, "SET", "jobs", "of another program")
	red := open(t, s)
	x := redlatchgocron.NewElector(red.Elections().Election("jobs"), "a", quiet)
	redistest.Eventually(t, time.Minute, "its error", func() bool {
		return errors.Is(x.IsLeader(t.Context()), redlatch.ErrWrongType)
	})
	require.ErrorIs(t, x.IsLeader(t.Context()), redlatch.ErrNotAcquired)
	s.Ask(t, "DEL", "jobs")
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

func TestTheFunctionsOfThePageSchedule(t *testing.T) {
	red := open(t, redistest.Embedded(t))
	s, err := gocron.NewScheduler()
	require.NoError(t, err)
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
