package rights_test

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock/election"
)

// elections elects a leader that is observed, and a second one after it.
func elections(ctx context.Context, hub *pubsub.Hub, prefix string, must func(what string, e error)) {
	// messages alone tell an observer: without rights on the channel it would be late
	c, e := election.New(hub,
		election.Options{KeyPrefix: prefix, PollCap: time.Hour, Heartbeat: 10 * time.Second,
			Logger: slog.New(slog.DiscardHandler)})
	must("elections", e)
	if e != nil {
		return
	}
	for _, name := range []string{"boss", "boss{1}"} {
		x := c.Election(name).WithPriority(1) // which needs the right to the requests
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
			l, e := x.Campaign(ctx, "ann")
			must("campaign", e)
			if e == nil {
				must("resign", l.Resign(ctx))
			}
		}
		_, e = c.Shards(name, 2).Workers(ctx)
		must("workers", e)
		_, e = x.Leader(ctx)
		must("leader", e)
		stop()
		if e := <-over; !errors.Is(e, context.Canceled) {
			must("observe", e)
		}
	}
	must("elections: close", c.Close(ctx))
}

// contested has candidates wait, take over from one that is gone, and share work.
func contested(ctx context.Context, hub *pubsub.Hub, prefix string, must func(what string, e error)) {
	open := func() *election.Client {
		c, e := election.New(hub, election.Options{KeyPrefix: prefix, PollCap: 50 * time.Millisecond,
			Heartbeat: 200 * time.Millisecond, LockDelay: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
		must("elections", e)
		return c
	}
	for _, name := range []string{"chief", "chief{1}"} {
		first, second, third := open(), open(), open()
		l, e := first.Election(name).Campaign(ctx, "ann")
		must("campaign", e)
		if e != nil {
			return
		}
		won := make(chan error, 1)
		go func() {
			_, e := second.Election(name).Campaign(ctx, "bob")
			won <- e
		}()
		time.Sleep(100 * time.Millisecond)                             // it waits
		if e := l.Proclaim(ctx, "anna"); !errors.Is(e, errs.ErrLost) { // a machine stood still
			must("proclaim", e)
		}
		if e := l.Resign(ctx); !errors.Is(e, errs.ErrLost) {
			must("resign", e)
		}
		must("wait", <-won)
		over, cancel := context.WithCancel(ctx)
		cancel()
		second.Close(over) // it is gone, and leads
		l, e = third.Election(name).Campaign(ctx, "cid")
		must("take over", e)
		if e == nil {
			if e := l.Resign(ctx); !errors.Is(e, errs.ErrLost) {
				must("resign", e)
			}
		}
		slot, e := third.Shards(name+" slots", 2).Slot(ctx, "cid")
		must("slot", e)
		if e == nil {
			must("slot: release", slot.Release(ctx))
		}
		working, stop := context.WithCancel(ctx)
		e = first.Shards(name+" work", 1).Run(working, "ann", func(context.Context, *election.Shard) error {
			stop()
			return nil
		})
		if !errors.Is(e, context.Canceled) {
			must("shards", e)
		}
		stop()
		must("first: close", first.Close(ctx))
		must("third: close", third.Close(ctx))
	}
}
