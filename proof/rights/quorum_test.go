package rights_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// A Quorum takes three servers, so it is not among everything.
func TestACLLines_Quorum_AreEnough(t *testing.T) {
	for _, prefix := range []string{"", "shop:"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			line := strings.Fields(acl.Line("redlatch", prefix))
			var admins []rueidis.Client
			var members []*rlock.Lock
			client := func(s *redistest.Server) *rlock.Client {
				o := s.Option()
				o.Username, o.Password = "redlatch", "secret"
				hub := redistest.NoError(pubsub.Dial(ctx, o, pubsub.Options{}))(t)
				t.Cleanup(func() { hub.Close(context.Background()) })
				c := redistest.NoError(rlock.New(hub,
					rlock.Options{KeyPrefix: prefix, WatchdogTimeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)}))(t)
				t.Cleanup(func() { c.Close(context.Background()) })
				return c
			}
			for range 3 {
				s := redistest.Start(t)
				admin := s.Client(t)
				require.NoError(t, admin.Do(ctx, admin.B().Arbitrary(line...).Build()).Error())
				admins = append(admins, admin)
				members = append(members, client(s).Reentrant("q"))
			}
			q := redistest.NoError(rlock.Quorum(members...))(t)
			hold, err := q.Lock(ctx) // when the servers have been up for long enough
			require.NoError(t, err)
			waited := make(chan error, 1)
			go func() {
				h, err := q.Lock(ctx)
				if err == nil {
					err = h.Unlock(ctx)
				}
				waited <- err
			}()
			until := hold.Until()
			redistest.Eventually(t, 20*time.Second, "a renewal; the waiter subscribes meanwhile", func() bool {
				return hold.Until().After(until)
			})
			require.NoError(t, hold.Unlock(ctx))
			require.NoError(t, <-waited)
			for _, admin := range admins {
				require.Empty(t, denials(t, admin))
			}

			// Without INFO there is no vote, and the error says so.
			for _, admin := range admins {
				less := slices.DeleteFunc(slices.Clone(line), func(w string) bool { return w == "+info" })
				require.NoError(t, admin.Do(ctx, admin.B().Arbitrary("ACL", "DELUSER", "redlatch").Build()).Error())
				require.NoError(t, admin.Do(ctx, admin.B().Arbitrary(less...).Build()).Error())
			}
			redistest.Eventually(t, 10*time.Second, "refused by name", func() bool {
				_, err = q.TryLock(ctx, 0, 0)
				// the change of users has cut connections
				return err != nil && !errors.Is(err, errs.ErrUnavailable) && !errors.Is(err, errs.ErrUnknownOutcome)
			})
			require.ErrorContains(t, err, "no vote without INFO server")
		})
	}
}
