package rights_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/salebook"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
)

// brief is a watchdog's timeout such that holds of fractions of a second are renewed.
const brief = 210 * time.Millisecond

// errOf is the error of a step that also returns a value.
func errOf[T any](_ T, e error) error { return e }

// uses are the features, by the names of `redlatch acl --only`: each uses all of its clients. watchdog is of locks and
// semaphores.
func uses(hub *pubsub.Hub, prefix string, watchdog time.Duration) map[string]func(context.Context) {
	quiet, slow := slog.New(slog.DiscardHandler), 10*time.Second
	return map[string]func(context.Context){
		"locks": func(ctx context.Context) {
			c := redistest.Got(rlock.New(hub,
				rlock.Options{KeyPrefix: prefix, CallTimeout: slow, Logger: quiet, WatchdogTimeout: watchdog}))
			defer closeSoon(c)
			kinds(ctx, c)
			liveness(ctx, hub, prefix)
			deadlock(ctx, hub, prefix)
		},
		"elections": func(ctx context.Context) { elections(ctx, hub, prefix) },
		"semaphores": func(ctx context.Context) {
			semaphores(ctx, hub, prefix, watchdog)
			livePermits(ctx, hub, prefix)
			useOfCounts(ctx, hub, prefix)
		},
		"counters": func(ctx context.Context) {
			c := redistest.Got(rcounter.New(hub, rcounter.Options{KeyPrefix: prefix, CallTimeout: slow}))
			useOfCounters(ctx, c)
		},
		"limits": func(ctx context.Context) {
			c := redistest.Got(ratelimit.New(hub, ratelimit.Options{KeyPrefix: prefix, CallTimeout: slow, AllowTimeout: slow}))
			useOfLimits(ctx, c)
		},
		"sales": func(ctx context.Context) {
			book := &salebook.Book{}
			c := redistest.Got(stock.New(hub, stock.Options{KeyPrefix: prefix, CallTimeout: slow,
				Books: func(string) stock.Book { return book }}))
			useOfSales(ctx, c, book)
		},
		"packets": func(ctx context.Context) {
			c := redistest.Got(redpacket.New(hub, redpacket.Options{KeyPrefix: prefix, CallTimeout: slow}))
			useOfPackets(ctx, c)
		},
	}
}

// closeSoon closes a client. What it holds where its use ended early is held until its lease is over.
func closeSoon(c interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.Close(ctx)
}

// as dials as that user, calls fn with the hub, and returns the error that ended fn.
func as(o rueidis.ClientOption, fn func(ctx context.Context, hub *pubsub.Hub)) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	o.Username, o.Password = "redlatch", "secret"
	hub, err := pubsub.Dial(ctx, o, pubsub.Options{})
	if err != nil {
		return err
	}
	defer hub.Close(context.Background())
	return redistest.Try(func() { fn(ctx, hub) })
}

// one uses one feature as that user, and returns the first error.
func one(o rueidis.ClientOption, prefix, feature string) error {
	return as(o, func(ctx context.Context, hub *pubsub.Hub) {
		use, found := uses(hub, prefix, brief)[feature]
		if !found {
			redistest.Must(errors.New("nothing uses it"))
		}
		use(ctx)
		if feature == "elections" { // takes long, and needs no more rights: not among everything
			contested(ctx, hub, prefix)
		}
	})
}

// What redlatch acl --only says is enough for each feature alone. That its commands are no more than its scripts call,
// and no less, is tested in internal/acl.
func TestFeatureRights_OfEachFeature_AreEnough(t *testing.T) {
	t.Parallel()
	eachTopology(t, func(t *testing.T, s *redistest.Server, admins []rueidis.Client) {
		for _, feature := range acl.Features() {
			if feature == "inspect" {
				continue // of the command, which tries it
			}
			prefix, server := "shop:", "single"
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
func TestFeatureRights_ForAnotherFeature_AreDenied(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	require.NoError(t, admin.Do(t.Context(),
		admin.B().Arbitrary(strings.Fields(acl.Line("redlatch", "", "limits"))...).Build()).Error())
	require.ErrorIs(t, one(s.Option(), "", "locks"), errs.ErrDenied)
}
