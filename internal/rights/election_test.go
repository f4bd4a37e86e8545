package rights_test

import (
	"context"
	"errors"
	"log/slog"
	"time"

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
