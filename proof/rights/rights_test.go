// Package rights_test uses all of the library with the rights that docs/access.md asks for, and with each of them
// taken away.
package rights_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/stretchr/testify/require"
)

// denials are what the server has refused the user since the last call.
func denials(t *testing.T, admin rueidis.Client) (refused []string) {
	t.Helper()
	ctx := context.Background()
	entries := redistest.NoError(admin.Do(ctx, admin.B().Arbitrary("ACL", "LOG").Build()).ToArray())(t)
	for _, e := range entries {
		m := redistest.NoError(e.AsStrMap())(t)
		if m["object"] != "client|setinfo" { // Redis 7.2 and later; rueidis ignores the answer
			refused = append(refused, m["reason"]+" "+m["object"])
		}
	}
	require.NoError(t, admin.Do(ctx, admin.B().Arbitrary("ACL", "LOG", "RESET").Build()).Error())
	return refused
}

// everything uses all of the library as that user, until the first error.
func everything(o rueidis.ClientOption) error {
	return as(o, func(ctx context.Context, hub *pubsub.Hub) {
		defer messages(ctx, hub)()
		all := uses(hub, "", brief)
		for _, feature := range []string{"counters", "locks", "elections", "packets", "limits", "sales", "semaphores"} {
			all[feature](ctx)
		}
	})
}

// messages uses a channel of a second hub, which is unsubscribed while the rest goes on, until end is called.
func messages(ctx context.Context, hub *pubsub.Hub) (end func()) {
	other := redistest.Got(pubsub.New(hub.Client(),
		pubsub.Options{Grace: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}))
	const channel = "redisson_lock__channel:{e}"
	sub := redistest.Got(other.Subscribe(ctx, channel))
	redistest.Got(other.Publish(ctx, channel, "0"))
	sub.Close()
	return func() { other.Close(context.Background()) }
}

// eachTopology runs fn on a single server and on a Cluster, side by side: most of the time is waiting.
func eachTopology(t *testing.T, fn func(t *testing.T, s *redistest.Server, admins []rueidis.Client)) {
	for name, start := range map[string]func(testing.TB) *redistest.Server{
		"single":  func(t testing.TB) *redistest.Server { return redistest.Start(t) },
		"cluster": redistest.Cluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			var admins []rueidis.Client
			for _, addr := range s.Addrs {
				c := redistest.NoError(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true,
					DisableCache: true}))(t)
				t.Cleanup(c.Close)
				admins = append(admins, c)
			}
			fn(t, s, admins)
		})
	}
}

// run gives the user these rights, uses what use does, and returns what was refused. The keys go afterwards.
func run(t *testing.T, s *redistest.Server, admins []rueidis.Client, line []string,
	use func(rueidis.ClientOption) error) (refused []string, err error) {
	t.Helper()
	ctx := context.Background()
	for _, c := range admins {
		require.NoError(t, c.Do(ctx, c.B().Arbitrary("ACL", "DELUSER", "redlatch").Build()).Error())
		require.NoError(t, c.Do(ctx, c.B().Arbitrary(line...).Build()).Error())
		// no script may be remembered: EVAL is then needed
		require.NoError(t, c.Do(ctx, c.B().Arbitrary("SCRIPT", "FLUSH").Build()).Error())
	}
	err = use(s.Option())
	for _, c := range admins {
		refused = append(refused, denials(t, c)...)
		require.NoError(t, c.Do(ctx, c.B().Arbitrary("FLUSHALL").Build()).Error())
	}
	slices.Sort(refused)
	return slices.Compact(refused), err
}

// enoughFor checks that a use works with these rights. Nothing is refused, ever; what fails because a hold of fractions
// of a second was lost while the machine stood still is tried again.
func enoughFor(t *testing.T, s *redistest.Server, admins []rueidis.Client, line []string,
	use func(rueidis.ClientOption) error) {
	t.Helper()
	var err error
	for range 10 {
		var refused []string
		refused, err = run(t, s, admins, line, use)
		require.Empty(t, refused)
		require.NotErrorIs(t, err, errs.ErrDenied)
		if err == nil {
			return
		}
		t.Log("once more, after", err)
	}
	require.NoError(t, err)
}

// The line of docs/access.md is acl.Line (TestLine_Document_ShowsTheSame). That for one prefix is that of all
// features together, which TestFeatureRights_OfEachFeature_AreEnough tries one by one.
func TestACLLine_EveryFeature_IsEnough(t *testing.T) {
	t.Parallel()
	eachTopology(t, func(t *testing.T, s *redistest.Server, admins []rueidis.Client) {
		enoughFor(t, s, admins, strings.Fields(acl.Line("redlatch", "")), everything)
	})
}

// seldom are rights that nothing here can be made to need.
var seldom = map[string]string{
	"+cluster|slots":  "rueidis asks servers before version 8 this way",
	"+cluster|shards": "and later ones this way",
	"+pubsub|numsub":  "one hand-over in eight asks who else listens",
}

// Every other right in the line is used: taken away, something is refused, alone or in a Cluster.
func TestACLLine_OneRightLess_IsNotEnough(t *testing.T) {
	redistest.SkipShort(t) // a run for every right
	t.Parallel()
	line := strings.Fields(acl.Line("redlatch", ""))
	var mu sync.Mutex
	unused := map[string]int{}
	t.Run("less one", func(t *testing.T) { // several side by side: most of the time is waiting
		for group := range 4 {
			eachTopology(t, func(t *testing.T, s *redistest.Server, admins []rueidis.Client) {
				for i, right := range line {
					if right[0] != '+' || seldom[right] != "" || i%4 != group {
						continue
					}
					less := slices.Delete(slices.Clone(line), i, i+1)
					if refused, err := run(t, s, admins, less, everything); err == nil && len(refused) == 0 {
						mu.Lock()
						unused[right]++
						mu.Unlock()
					} else {
						t.Logf("without %s: %v %v", right, refused, err)
					}
				}
			})
		}
	})
	for right, n := range unused {
		require.Less(t, n, 2, "%s is never used", right)
	}
}
