package rights_test

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock/election"
)

// elections elects a leader that is observed, and a second one after it.
func elections(ctx context.Context, hub *pubsub.Hub, prefix string) {
	// messages alone tell an observer: without rights on the channel it would be late
	c := redistest.Got(election.New(hub,
		election.Options{KeyPrefix: prefix, PollCap: time.Hour, Heartbeat: 10 * time.Second,
			Logger: slog.New(slog.DiscardHandler)}))
	for _, name := range []string{"boss", "boss{1}"} {
		x := c.Election(name)
		observed, stop := context.WithCancel(ctx)
		over := make(chan error, 1)
		go func() {
			for _, e := range x.Observe(observed) {
				if e != nil {
					over <- e
				}
			}
		}()
		for range 2 {
			l := redistest.Got(x.Campaign(ctx, "ann"))
			redistest.Must(l.Resign(ctx))
		}
		redistest.Got(c.Shards(name, 2).Workers(ctx))
		redistest.Got(x.Leader(ctx))
		stop()
		if e := <-over; !errors.Is(e, context.Canceled) {
			redistest.Must(e)
		}
	}
	redistest.Must(c.Close(ctx))
}

// contested has candidates wait, take over from one that is gone, and share work.
func contested(ctx context.Context, hub *pubsub.Hub, prefix string) {
	open := func() *election.Client {
		return redistest.Got(election.New(hub, election.Options{KeyPrefix: prefix, PollCap: 50 * time.Millisecond,
			Heartbeat: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}))
	}
	for _, name := range []string{"chief", "chief{1}"} {
		first, second, third := open(), open(), open()
		l := redistest.Got(first.Election(name).Campaign(ctx, "ann"))
		won := make(chan error, 1)
		go func() {
			_, e := second.Election(name).Campaign(ctx, "bob")
			won <- e
		}()
		time.Sleep(100 * time.Millisecond)                             // it waits
		if e := l.Proclaim(ctx, "anna"); !errors.Is(e, errs.ErrLost) { // a machine stood still
			redistest.Must(e)
		}
		if e := l.Resign(ctx); !errors.Is(e, errs.ErrLost) {
			redistest.Must(e)
		}
		redistest.Must(<-won)
		over, cancel := context.WithCancel(ctx)
		cancel()
		second.Close(over) // it is gone, and leads
		l = redistest.Got(third.Election(name).Campaign(ctx, "cid"))
		if e := l.Resign(ctx); !errors.Is(e, errs.ErrLost) {
			redistest.Must(e)
		}
		slot := redistest.Got(third.Shards(name+" slots", 2).Slot(ctx, "cid"))
		redistest.Must(slot.Release(ctx))
		working, stop := context.WithCancel(ctx)
		e := first.Shards(name+" work", 1).Run(working, "ann", func(context.Context, *election.Shard) error {
			stop()
			return nil
		})
		if !errors.Is(e, context.Canceled) {
			redistest.Must(e)
		}
		stop()
		redistest.Must(first.Close(ctx))
		redistest.Must(third.Close(ctx))
	}
}
