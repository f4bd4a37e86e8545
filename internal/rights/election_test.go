package rights_test

import (
	"context"
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
		x := c.Election(name)
		observed, stop := context.WithCancel(ctx)
		told, e := x.Observe(observed)
		must("observe", e)
		if e != nil {
			stop()
			return
		}
		for range 2 {
			l, e := x.Campaign(ctx, "ann")
			must("campaign", e)
			if e == nil {
				must("resign", l.Resign(ctx))
			}
		}
		_, e = x.Leader(ctx)
		must("leader", e)
		stop()
		for range told {
		}
	}
	must("elections: close", c.Close(ctx))
}
