package rsemaphore_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rsemaphore"
)

// A user who lacks one command of the scripts of a semaphore, or has the rights of locks, uses it. Either the user gets
// no permit, or returns it. Then a user with all rights acquires all that is free.
func TestPermit_RightMissing_OthersAcquireAll(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	full := newRig(t, srv, rsemaphore.Options{})
	for kind, scripts := range map[string][]string{
		"permits": {"acquire", "release"}, "weights": {"weighted_acquire", "weighted_release"},
	} {
		users := map[string][]string{"locks": strings.Fields(acl.Line("app", "", "locks"))}
		for _, file := range scripts {
			text := redistest.NoError(script.Compose(os.DirFS("."), file))(t)
			for _, c := range redistest.ScriptCommands(text) {
				users["no-"+c] = []string{"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-" + strings.ToLower(c)}
			}
		}
		for user, line := range users {
			t.Run(kind+" "+user, func(t *testing.T) {
				t.Parallel()
				name := kind + "-" + user
				line[2] = name
				grant(t, full, line)
				for state, leases := range map[string][2]time.Duration{ // of the holder, if there is one, and of the user
					"unused": {0, time.Minute}, "ends later": {2 * time.Minute, time.Minute},
					"ends sooner": {time.Minute, 2 * time.Minute},
				} {
					othersAcquire(t, full, as(t, srv, name).c, kind, name+state, leases)
				}
			})
		}
	}
}

// grant sends a line of ACL SETUSER.
func grant(t *testing.T, full *rig, line []string) {
	t.Helper()
	require.NoError(t, full.redis.Do(within(t), full.redis.B().Arbitrary(line...).Build()).Error())
}

// as is a client of a user.
func as(t *testing.T, s *redistest.Server, user string) *rig {
	t.Helper()
	return newRigWith(t, s, rsemaphore.Options{}, func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.DisableCache = user, "secret", true
	})
}

// acquireAs takes n of three permits.
func acquireAs(t *testing.T, c *rsemaphore.Client, kind, name string, n int,
	lease time.Duration) (*rsemaphore.Permit, error) {
	if kind == "weights" {
		return c.WeightedSemaphore(name, 3).TryAcquire(within(t), n, 0, lease)
	}
	return c.Semaphore(name, 3).TryAcquire(within(t), n, 0, lease)
}

func othersAcquire(t *testing.T, full *rig, few *rsemaphore.Client, kind, name string, leases [2]time.Duration) {
	t.Helper()
	free, what := 3, "not acquired"
	if leases[0] > 0 {
		redistest.NoError(acquireAs(t, full.c, kind, name, 1, leases[0]))(t)
		free--
	}
	p, err := acquireAs(t, few, kind, name, 1, leases[1])
	if err == nil {
		what = "acquired"
		require.NoError(t, p.Release(within(t)), "%s: a permit is granted to a user who cannot return it", name)
	} else {
		require.ErrorIs(t, err, errs.ErrDenied, name)
	}
	redistest.Eventually(t, 5*time.Second, fmt.Sprintf("%s, %s: all that is free", name, what), func() bool {
		_, err = acquireAs(t, full.c, kind, name, free, time.Minute) // the user's call is undone in the background
		return err == nil
	})
}
