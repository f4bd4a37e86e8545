// Package periodic inserts the jobs of a queue at the times of their schedules, from one of several processes, for the
// adapters to queues in contrib.
//
// The leader of an election inserts. An insertion has the tick in its identity, so that the queue refuses a second one
// of the same tick: Entry.Insert may be called any number of times for a tick, by any process. So a new leader begins
// CatchUp ago and inserts those ticks again. It inserts what its predecessor could not, because it was killed, cut off
// or stopped:
//
//	ann: leads, inserts 12:00, is killed at 12:04:59
//	bob: is elected at 12:05:03, begins at 12:04:03, inserts 12:05
//
// and changes nothing where the predecessor could:
//
//	ann: leads, inserts 12:05, resigns at 12:05:01; its clock was fast
//	bob: is elected at 12:04:58 by its own clock, inserts 12:05, which the queue refuses
//
// The election bounds how many ask the queue; it is not what makes a tick unique.
package periodic

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rlock/election"
)

// Entry is a job that is due at the times of a schedule.
type Entry struct {
	// ID is the same in all processes, and of no other entry.
	ID string
	// Next returns the first time of the schedule after t. It must be the same in all processes.
	Next func(t time.Time) time.Time
	// Insert inserts the job of a tick. It returns nil, too, if that was inserted before.
	Insert func(ctx context.Context, tick time.Time) error
}

// Options are how a leader inserts.
type Options struct {
	CatchUp time.Duration // how late a tick may be inserted
	Sync    time.Duration // how often the entries are asked for again; 0: never
	Logger  *slog.Logger
}

const (
	longest = 10 * time.Second // of a sleep, since the clock may be set meanwhile, and of an insertion
	pause   = time.Second      // after an insertion that failed
)

// Run campaigns under value, and inserts while it leads, until ctx ends, which is not an error. entries returns
// those of now; a later failure of it leaves those that were.
func Run(ctx context.Context, e *election.Election, value string, entries func() ([]Entry, error), o Options) error {
	err := e.Run(ctx, value, func(ctx context.Context, _ *election.Leadership) error {
		t := term{Options: o, entries: entries, from: now().Add(-o.CatchUp)}
		t.sync()
		for ctx.Err() == nil {
			script.Pause(ctx, t.turn(ctx))
		}
		return nil
	})
	if ctx.Err() != nil && (err == nil || errors.Is(err, errs.ErrNotAcquired)) {
		return nil
	}
	return err
}

// now is the time of the wall clock, by which schedules go, without the monotonic one.
func now() time.Time { return time.Now().Round(0) }

// term is what a leader has to do.
type term struct {
	Options
	entries func() ([]Entry, error)
	from    time.Time // after which the first entries are due; later entries are due from their arrival on
	next    time.Time // when the entries are asked for again
	due     []tick
}

type tick struct {
	Entry
	at    time.Time // when the entry is due
	again time.Time // after a failure, when it is tried again
}

// sync has those entries be due that there are now.
func (t *term) sync() {
	at := now()
	t.next = at.Add(t.Sync)
	entries, err := t.entries()
	if err != nil {
		t.Logger.Error("redlatch: periodic jobs cannot be read; the previous jobs stay", "error", err)
		t.next = at.Add(min(t.Sync, longest))
		return
	}
	after := at
	if !t.from.IsZero() {
		after, t.from = t.from, time.Time{}
	}
	before := map[string]tick{}
	for _, d := range t.due {
		before[d.ID] = d
	}
	t.due = t.due[:0]
	for _, e := range entries {
		d, known := before[e.ID]
		if !known {
			d.at = e.Next(after)
		}
		d.Entry = e
		t.due = append(t.due, d)
	}
}

// turn inserts what is due, and returns how long nothing is.
func (t *term) turn(ctx context.Context) time.Duration {
	if t.Sync > 0 && !now().Before(t.next) {
		t.sync()
	}
	for i := range t.due {
		for d := &t.due[i]; d.ready(now()) && ctx.Err() == nil; {
			t.insert(ctx, d)
		}
	}
	wait, at := longest, now()
	for _, d := range t.due {
		if !d.at.IsZero() { // else its schedule has ended
			wait = min(wait, max(d.at.Sub(at), d.again.Sub(at)))
		}
	}
	if t.Sync > 0 {
		wait = min(wait, t.next.Sub(at))
	}
	return max(wait, time.Millisecond)
}

func (d *tick) ready(at time.Time) bool {
	return !d.at.IsZero() && !d.at.After(at) && !d.again.After(at)
}

// insert inserts one tick, or passes over those that are too late.
func (t *term) insert(ctx context.Context, d *tick) {
	if oldest := now().Add(-t.CatchUp); d.at.Before(oldest) {
		t.Logger.Error("redlatch: a periodic job is too late, and is not inserted", "name", d.ID, "due", d.at)
		d.at, d.again = d.Next(oldest), time.Time{}
		return
	}
	limited, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	err := d.Insert(limited, d.at)
	switch {
	case err == nil:
		d.at, d.again = d.Next(d.at), time.Time{}
	case ctx.Err() == nil:
		t.Logger.Warn("redlatch: a periodic job was not inserted; trying again", "name", d.ID, "due", d.at,
			"error", err)
		d.again = now().Add(pause)
	}
}
