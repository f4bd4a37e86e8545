package redlatchriver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/periodic"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/rlock/election"
)

// Client is what a Manager needs of a river.Client, with any driver. It may be one that only inserts.
type Client interface {
	Insert(ctx context.Context, args river.JobArgs, opts *river.InsertOpts) (*rivertype.JobInsertResult, error)
}

// Job is a periodic job.
type Job struct {
	// Schedule says when the job is due: [Every], or a cron.Schedule of robfig/cron. It is asked in UTC; a cron expression
	// with CRON_TZ= has its own zone. Its times must not depend on when it is asked, so that all processes have the same:
	// river.PeriodicInterval is refused, and so is "@every" of cron.
	Schedule river.PeriodicSchedule
	// Args returns the job of a tick. It is called at least once for a tick, and must return the same arguments each time:
	// those with the struct tag river:"unique" if there are any. Of the options ScheduledAt and UniqueOpts must not be
	// set: the Manager sets them.
	Args func(tick time.Time) (river.JobArgs, *river.InsertOpts)
}

// Every is due at each multiple of d in UTC: Every(5*time.Minute) at 12:00, 12:05 and so on. d is a multiple of a
// second; NewManager refuses others.
func Every(d time.Duration) river.PeriodicSchedule { return every(d) }

type every time.Duration

func (e every) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(e)).Add(time.Duration(e))
}

const defaultCatchUp = time.Minute

// Options are the settings of a Manager. The zero value has the defaults. All processes should have the same.
type Options struct {
	// CatchUp is how late a tick may be inserted: longer than there is no leader after one crashed, 3 to 4 s by default,
	// and than a deploy takes. A leader begins that long ago, also the first of all. At least 1 s, and less than River
	// keeps jobs that are done (river.Config). Defaults to 1 min.
	CatchUp time.Duration
	// Logger gets a line when a job cannot be inserted. Defaults to slog.Default().
	Logger *slog.Logger
}

// Manager inserts periodic jobs while its process leads.
type Manager struct {
	election *election.Election
	entries  []periodic.Entry
	opts     Options
}

// NewManager makes a Manager of the processes that campaign in e, which is for these jobs alone. Nothing is sent.
//
// The error is redlatch.ErrInvalidOption, and names the job: if a Schedule or an option cannot be, or if two jobs have
// the same kind and arguments, since River would take ticks that they have in common for one. Args is called once for
// that.
func NewManager(e *election.Election, client Client, jobs []Job, o Options) (*Manager, error) {
	if e == nil || client == nil {
		return nil, errs.Edge("redlatchriver", errs.InvalidOption("election or client", "nil", "given"))
	}
	o.CatchUp = cmp.Or(o.CatchUp, defaultCatchUp)
	if err := session.CheckRange("CatchUp", o.CatchUp, time.Second); err != nil {
		return nil, errs.Edge("redlatchriver", err)
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	m := &Manager{election: e, opts: o}
	tick, seen := time.Now().UTC().Truncate(time.Second), map[string]int{}
	for i, job := range jobs {
		kind, args, err := job.check(tick)
		if err != nil {
			return nil, fmt.Errorf("redlatchriver: job %d: %w", i, err)
		}
		if other, twice := seen[kind+args]; twice {
			return nil, fmt.Errorf("redlatchriver: jobs %d and %d are both %q with %.64s: %w", other, i, kind, args,
				errs.ErrInvalidOption)
		}
		seen[kind+args] = i
		m.entries = append(m.entries, periodic.Entry{ID: fmt.Sprintf("%s (job %d)", kind, i), Insert: job.insert(client),
			Next: func(t time.Time) time.Time { return job.Schedule.Next(t.UTC()) }})
	}
	return m, nil
}

// check refuses a job that cannot be inserted once a tick.
func (j Job) check(tick time.Time) (kind, args string, err error) {
	if j.Schedule == nil || j.Args == nil {
		return "", "", errs.InvalidOption("Schedule or Args", "nil", "given")
	}
	if e, ok := j.Schedule.(every); ok && (e <= 0 || time.Duration(e)%time.Second != 0) {
		return "", "", errs.InvalidOption("Every", time.Duration(e), "a multiple of a second")
	}
	next := j.Schedule.Next(tick)
	switch before := next.Add(-time.Second); {
	case next.IsZero(): // it is due no more
	case next.Nanosecond() != 0:
		return "", "", errs.InvalidOption("Schedule", next.Format(time.RFC3339Nano), "whole seconds")
	case !j.Schedule.Next(before).Equal(next), !j.Schedule.Next(before.Add(time.Second / 2)).Equal(next):
		return "", "", errs.InvalidOption("Schedule", fmt.Sprintf("%T", j.Schedule),
			"the same whenever it is asked, as Every is")
	}
	made, _, err := j.make(tick)
	if err != nil {
		return "", "", err
	}
	text, err := json.Marshal(made)
	if err != nil {
		return "", "", fmt.Errorf("%w: Args: %w", errs.ErrInvalidOption, err)
	}
	return made.Kind(), string(text), nil
}

// make returns the job of a tick, which is unique.
func (j Job) make(tick time.Time) (river.JobArgs, *river.InsertOpts, error) {
	args, opts := j.Args(tick)
	if args == nil {
		return nil, nil, errs.InvalidOption("Args", "nil", "given")
	}
	var o river.InsertOpts
	if opts != nil {
		o = *opts
	}
	u := o.UniqueOpts
	if !o.ScheduledAt.IsZero() || u.ByArgs || u.ByPeriod != 0 || u.ByQueue || len(u.ByState) > 0 || u.ExcludeKind {
		return nil, nil, errs.InvalidOption("ScheduledAt or UniqueOpts", "set", "left out")
	}
	o.ScheduledAt = tick // and so the period below is the tick: since River v0.48
	o.UniqueOpts = river.UniqueOpts{ByArgs: true, ByPeriod: time.Second, ByState: rivertype.JobStates()}
	return args, &o, nil
}

func (j Job) insert(client Client) func(ctx context.Context, tick time.Time) error {
	return func(ctx context.Context, tick time.Time) error {
		args, opts, err := j.make(tick.UTC())
		if err != nil {
			return err
		}
		_, err = client.Insert(ctx, args, opts) // without an error, too, if it is there
		return err
	}
}

// Run campaigns under value, which others see as the leader's, and inserts while this process leads, until ctx ends:
// then it resigns, and returns nil. Every process of the service calls it, and one of them inserts.
//
// While the database cannot be reached a tick is tried again each second, until CatchUp is over; then it is logged and
// left out. The errors are those of election.Election's Run, such as redlatch.ErrDenied and ErrClosed.
func (m *Manager) Run(ctx context.Context, value string) error {
	err := periodic.Run(ctx, m.election, value, func() ([]periodic.Entry, error) { return m.entries, nil },
		periodic.Options{CatchUp: m.opts.CatchUp, Logger: m.opts.Logger})
	if err != nil {
		return errs.Edge("redlatchriver", err)
	}
	return nil
}
