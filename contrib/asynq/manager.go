package redlatchasynq

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/periodic"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/rlock/election"
)

const (
	defaultCatchUp      = time.Minute
	defaultRetention    = time.Hour
	defaultSyncInterval = 3 * time.Minute
)

// Options are the settings of a Manager. The zero value has the defaults. All processes should have the same.
type Options struct {
	// Location is the time zone of cronspecs that name none (CRON_TZ=…). Defaults to UTC.
	Location *time.Location
	// CatchUp is how late a tick may be enqueued: longer than there is no leader after one crashed, 3 to 4 s by default,
	// and than a deploy takes. A leader begins that long ago, also the first of all. At least 1 s, at most half of each
	// task's Retention. Defaults to 1 min.
	CatchUp time.Duration
	// SyncInterval is how often the leader asks the provider for the tasks of now. At least 1 s. Defaults to 3 min.
	SyncInterval time.Duration
	// Logger gets a line when a task cannot be enqueued, and when the provider fails. Defaults to slog.Default().
	Logger *slog.Logger
}

// Manager enqueues periodic tasks while its process leads.
type Manager struct {
	election *election.Election
	client   *asynq.Client
	provider asynq.PeriodicTaskConfigProvider
	opts     Options
}

// NewManager makes a Manager of the processes that campaign in e, which is for that alone. Nothing is sent. The
// election need not be on the Redis of asynq. Options that are out of bounds are ErrInvalidOption.
func NewManager(e *election.Election, client *asynq.Client, provider asynq.PeriodicTaskConfigProvider,
	o Options) (*Manager, error) {
	if e == nil || client == nil || provider == nil {
		return nil, errs.Edge("redlatchasynq",
			errs.InvalidOption("election, client or provider", "nil", "given"))
	}
	o.Location = cmp.Or(o.Location, time.UTC)
	o.CatchUp = cmp.Or(o.CatchUp, defaultCatchUp)
	o.SyncInterval = cmp.Or(o.SyncInterval, defaultSyncInterval)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if err := errors.Join(session.CheckRange("CatchUp", o.CatchUp, time.Second),
		session.CheckRange("SyncInterval", o.SyncInterval, time.Second)); err != nil {
		return nil, errs.Edge("redlatchasynq", err)
	}
	return &Manager{e, client, provider, o}, nil
}

// Run campaigns under value, which others see as the leader's, and enqueues while this process leads, until ctx ends:
// then it resigns, and returns nil. Every process calls it, and one of them enqueues.
//
// It asks the provider once before it campaigns, and returns an error if that fails, or if a task cannot be:
//
//   - Cronspec is as in asynq. "@every 5m" is due at each multiple of five minutes of UTC, not five minutes after the
//     program began, so that it is due at the same time in every process.
//   - Opts have no TaskID: the Manager makes it of the task and the time at which it was due.
//   - Retention in Opts is at least twice CatchUp. If they have none, it is an hour, or twice CatchUp if that
//     is longer; that of asynq.NewTask does not count.
//   - No two tasks have the same Cronspec, type, payload and Opts.
//
// If the provider fails later, or its tasks cannot be, the leader goes on with those of before, and logs it. A task
// that is new while the process leads is due from then on.
//
// While Redis cannot be reached a tick is tried again each second, until CatchUp is over; then it is logged and left
// out. A task that asynq refuses as a duplicate (asynq.Unique) is left out, as by asynq's own scheduler.
//
// Other errors are those of election.Election's Run, such as redlatch.ErrDenied and ErrClosed.
func (m *Manager) Run(ctx context.Context, value string) error {
	if _, err := m.entries(); err != nil {
		return err
	}
	if err := periodic.Run(ctx, m.election, value, m.entries, periodic.Options{CatchUp: m.opts.CatchUp,
		Sync: m.opts.SyncInterval, Logger: m.opts.Logger}); err != nil {
		return errs.Edge("redlatchasynq", err)
	}
	return nil
}

// entries are the tasks of now.
func (m *Manager) entries() ([]periodic.Entry, error) {
	configs, err := m.provider.GetConfigs()
	if err != nil {
		return nil, fmt.Errorf("redlatchasynq: the provider of periodic tasks: %w", err)
	}
	var all []periodic.Entry
	for i, c := range configs {
		e, err := m.entry(c)
		if err != nil {
			return nil, fmt.Errorf("redlatchasynq: periodic task %d: %w", i, err)
		}
		if slices.ContainsFunc(all, func(other periodic.Entry) bool { return other.ID == e.ID }) {
			return nil, fmt.Errorf("redlatchasynq: periodic task %d, %q at %q, is there twice: %w", i, c.Task.Type(),
				c.Cronspec, errs.ErrInvalidOption)
		}
		all = append(all, e)
	}
	return all, nil
}

func (m *Manager) entry(c *asynq.PeriodicTaskConfig) (periodic.Entry, error) {
	if c == nil || c.Task == nil {
		return periodic.Entry{}, errs.InvalidOption("Task", "nil", "given")
	}
	next, err := schedule(c.Cronspec, m.opts.Location)
	if err != nil {
		return periodic.Entry{}, err
	}
	opts := slices.Clone(c.Opts)
	retention := max(defaultRetention, 2*m.opts.CatchUp)
	for _, o := range opts {
		switch o.Type() {
		case asynq.TaskIDOpt:
			return periodic.Entry{}, errs.InvalidOption("TaskID", o.Value(), "left out")
		case asynq.RetentionOpt:
			retention, _ = o.Value().(time.Duration)
		}
	}
	if retention < 2*m.opts.CatchUp {
		return periodic.Entry{}, errs.InvalidOption("Retention", retention,
			fmt.Sprintf("at least %v", 2*m.opts.CatchUp))
	}
	opts = append(opts, asynq.Retention(retention))
	id := identity(c)
	return periodic.Entry{ID: id, Next: next, Insert: func(ctx context.Context, tick time.Time) error {
		_, err := m.client.EnqueueContext(ctx, c.Task,
			append(slices.Clone(opts), asynq.TaskID(id+":"+tick.UTC().Format(time.RFC3339)))...)
		if errors.Is(err, asynq.ErrTaskIDConflict) || errors.Is(err, asynq.ErrDuplicateTask) {
			return nil
		}
		return err
	}}, nil
}

// schedule returns the first time of a cronspec after another. Those of "@every" are multiples of its interval.
func schedule(spec string, in *time.Location) (next func(time.Time) time.Time, err error) {
	s, err := cron.ParseStandard(spec)
	if err != nil {
		return nil, fmt.Errorf("%w: Cronspec is %q: %w", errs.ErrInvalidOption, spec, err)
	}
	if every, ok := s.(cron.ConstantDelaySchedule); ok {
		return func(t time.Time) time.Time { return t.Truncate(every.Delay).Add(every.Delay) }, nil
	}
	return func(t time.Time) time.Time { return s.Next(t.In(in)) }, nil
}

// identity is the same for the same task in every process, and another one if anything of the task is.
func identity(c *asynq.PeriodicTaskConfig) string {
	parts := []string{c.Cronspec, c.Task.Type(), string(c.Task.Payload())}
	var opts []string
	for _, o := range c.Opts {
		opts = append(opts, o.String())
	}
	slices.Sort(opts)
	h := sha256.New()
	for _, part := range append(parts, opts...) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // so that no two lists are alike
		h.Write([]byte(part))
	}
	return c.Task.Type() + ":" + hex.EncodeToString(h.Sum(nil)[:8])
}
