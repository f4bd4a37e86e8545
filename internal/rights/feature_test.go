package rights_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
)

// one uses one feature as that user, and returns the first thing that did not work.
func one(o rueidis.ClientOption, prefix, feature string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	o.Username, o.Password = "redlatch", "secret"
	hub, err := pubsub.Dial(ctx, o, pubsub.Options{})
	if err != nil {
		return err
	}
	defer hub.Close(context.Background())
	quiet := slog.New(slog.DiscardHandler)
	must := func(what string, e error) {
		if err == nil && e != nil {
			err = fmt.Errorf("%s: %w", what, e)
		}
	}
	switch feature {
	case "locks":
		c, e := rlock.New(hub, rlock.Options{KeyPrefix: prefix, Logger: quiet, WatchdogTimeout: 210 * time.Millisecond})
		must("locks", e)
		defer c.Close(ctx)
		kinds(ctx, c, must)
		liveness(ctx, hub, prefix, must)
	case "elections":
		elections(ctx, hub, prefix, must)
		contested(ctx, hub, prefix, must)
	case "semaphores":
		semaphores(ctx, hub, prefix, must)
		livePermits(ctx, hub, prefix, must)
	case "counters":
		c, e := rcounter.New(hub, rcounter.Options{KeyPrefix: prefix})
		must("counters", e)
		useOfCounters(ctx, c, must)
	case "limits":
		c, e := ratelimit.New(hub, ratelimit.Options{KeyPrefix: prefix, AllowTimeout: 10 * time.Second})
		must("limits", e)
		useOfLimits(ctx, c, must)
	case "stocks":
		c, e := stock.New(hub, stock.Options{KeyPrefix: prefix})
		must("stocks", e)
		useOfStocks(ctx, c, must)
	case "packets":
		c, e := redpacket.New(hub, redpacket.Options{KeyPrefix: prefix})
		must("packets", e)
		useOfPackets(ctx, c, must)
	default:
		return fmt.Errorf("nothing uses %s", feature)
	}
	return err
}

// What redlatch acl --only says is enough for each feature alone. That its commands are no more than its scripts call,
// and no less, is tested in internal/acl.
func TestTheRightsOfEachFeatureAreEnoughForIt(t *testing.T) {
	t.Parallel()
	eachTopology(t, func(t *testing.T, s *redistest.Server, admins []rueidis.Client) {
		for i, feature := range acl.Features() {
			if feature == "inspect" {
				continue // of the command, which tries it
			}
			prefix, server := []string{"shop:", ""}[i%2], "single"
			if len(s.Addrs) > 1 {
				server = "cluster"
			}
			line := strings.Fields(acl.LineOn(server, "redlatch", prefix, feature))
			enoughFor(t, s, admins, line, func(o rueidis.ClientOption) error {
				return one(o, prefix, feature)
			})
		}
	})
}

// Rights that a feature does not need it does not have.
func TestTheRightsOfOneFeatureAreNotThoseOfAnother(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	require.NoError(t, admin.Do(t.Context(),
		admin.B().Arbitrary(strings.Fields(acl.Line("redlatch", "", "limits"))...).Build()).Error())
	require.ErrorIs(t, one(s.Option(), "", "locks"), errs.ErrDenied)
}
