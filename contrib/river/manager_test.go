package redlatchriver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchriver "github.com/redlatch/redlatch/contrib/river"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/services"
	"github.com/redlatch/redlatch/redlatchtest"
)

func TestMain(m *testing.M) { services.Main(m, nil) }

var quiet = slog.New(slog.DiscardHandler)

// Poll is the job of the tests.
type Poll struct {
	Of string `json:"of"`
}

func (Poll) Kind() string { return "poll" }

func poll(of string) redlatchriver.Job {
	return redlatchriver.Job{Schedule: redlatchriver.Every(time.Second),
		Args: func(time.Time) (river.JobArgs, *river.InsertOpts) { return Poll{of}, nil }}
}

func manager(db *pgxpool.Pool, red *redlatch.Client, service string) (*redlatchriver.Manager, error) {
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{Logger: quiet})
	if err != nil {
		return nil, err
	}
	return redlatchriver.NewManager(red.Elections().Election(service), client, []redlatchriver.Job{poll(service)},
		redlatchriver.Options{CatchUp: 20 * time.Second, Logger: quiet})
}

// schema is a database with River's tables.
func schema(t testing.TB) *pgxpool.Pool {
	t.Helper()
	var host, name string
	require.NoError(t, services.PostgreSQL.Fresh(t)().QueryRow(
		"select current_setting('unix_socket_directories'), current_database()").Scan(&host, &name))
	db := redistest.NoError(pgxpool.New(t.Context(), fmt.Sprintf("host=%s user=test dbname=%s", host, name)))(t)
	t.Cleanup(db.Close)
	migrator := redistest.NoError(rivermigrate.New(riverpgxv5.New(db), &rivermigrate.Config{Logger: quiet}))(t)
	redistest.NoError(migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil))(t)
	return db
}

// ticks are the seconds for which a job was inserted, of which each follows the one before.
func ticks(t *testing.T, db *pgxpool.Pool, of string) (all []time.Time) {
	t.Helper()
	rows := redistest.NoError(db.Query(t.Context(),
		"select scheduled_at from river_job where args->>'of' = $1 order by scheduled_at", of))(t)
	defer rows.Close()
	for rows.Next() {
		var at time.Time
		require.NoError(t, rows.Scan(&at))
		if n := len(all); n > 0 {
			require.Equal(t, time.Second, at.Sub(all[n-1]), "%v after %v", at, all[n-1])
		}
		all = append(all, at)
	}
	require.NoError(t, rows.Err())
	return all
}

// riverqueue/river#342: with River's own periodic jobs only those of its leader's service are inserted. Here each
// service has its own, of which a successor inserts those of its last 20 s once more: River refuses them, whatever
// became of the jobs. Package periodic shows the same of leaders that are cut off.
func TestManager_ServicesShareASchema_InsertTheirOwnJobs(t *testing.T) {
	t.Parallel()
	db := schema(t)
	red := redlatchtest.New(t).Open()
	for _, enough := range []int{20, 22} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, service := range []string{"a", "b"} {
			m := redistest.NoError(manager(db, red, service))(t)
			go func() { ended <- m.Run(ctx, "host") }()
		}
		redistest.Eventually(t, time.Minute, "the ticks of both",
			func() bool { return len(ticks(t, db, "a")) >= enough && len(ticks(t, db, "b")) >= enough })
		cancel()
		require.NoError(t, errors.Join(<-ended, <-ended))
		redistest.NoError(db.Exec(t.Context(), "update river_job set state = 'discarded', finalized_at = now()"))(t)
	}
}

func TestManager_BadJob_IsRefused(t *testing.T) {
	red := redlatchtest.New(t).Open()
	client := redistest.NoError(river.NewClient(riverpgxv5.New(nil), &river.Config{}))(t)
	e := red.Elections().Election("a")
	parsed := func(spec string) cron.Schedule {
		s := redistest.NoError(cron.ParseStandard(spec))(t)
		return s
	}
	args, hourly := poll("a").Args, redlatchriver.Every(time.Hour)
	with := func(o river.InsertOpts) func(time.Time) (river.JobArgs, *river.InsertOpts) {
		return func(time.Time) (river.JobArgs, *river.InsertOpts) { return Poll{}, &o }
	}
	for why, jobs := range map[string][]redlatchriver.Job{
		"":                           {poll("a"), poll("b"), {parsed("0 3 * * *"), with(river.InsertOpts{Queue: "low"})}},
		"job 0: invalid option: Sch": {{}},
		"river.periodicInterval":     {{river.PeriodicInterval(time.Hour), args}},
		"cron.ConstantDelaySchedule": {{parsed("@every 1h"), args}},
		"Every is 1.5s, must be":     {{redlatchriver.Every(1500 * time.Millisecond), args}},
		"Every is 0s, must be":       {{redlatchriver.Every(0), args}},
		"UniqueOpts is set":          {{hourly, with(river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}})}},
		"ScheduledAt or Unique":      {{hourly, with(river.InsertOpts{ScheduledAt: time.Now()})}},
		`jobs 0 and 1 are both "poll" with {"of":"a"}`: {poll("a"), poll("a")},
	} {
		_, err := redlatchriver.NewManager(e, client, jobs, redlatchriver.Options{})
		if why == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, redlatch.ErrInvalidOption, why)
		require.True(t, strings.Contains(err.Error(), why), "%v: %v", why, err)
	}
	_, err := redlatchriver.NewManager(nil, nil, nil, redlatchriver.Options{})
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	_, err = redlatchriver.NewManager(e, client, nil, redlatchriver.Options{CatchUp: time.Millisecond})
	require.ErrorContains(t, err, "CatchUp is 1ms")
	m := redistest.NoError(redlatchriver.NewManager(e, client, nil, redlatchriver.Options{}))(t)
	require.ErrorIs(t, m.Run(t.Context(), string(make([]byte, 1000))), redlatch.ErrInvalidOption)
}
