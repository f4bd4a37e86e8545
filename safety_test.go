package redlatch_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// durable are the settings of a server that SurviveFailover accepts.
var durable = []string{"--appendonly", "yes", "--appendfsync", "no", "--min-replicas-to-write", "1",
	"--min-replicas-max-lag", "10", "--repl-diskless-sync-delay", "0"}

// pairOf starts a primary and its replica, and returns when the primary accepts writes.
func pairOf(t testing.TB) (primary, replica *redistest.Server) {
	t.Helper()
	primary = redistest.Start(t, durable...)
	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	replica = redistest.Start(t, append([]string{"--replicaof", host, port}, durable...)...)
	c := primary.Client(t)
	redistest.Eventually(t, 20*time.Second, "the primary has its replica", func() bool {
		return c.Do(t.Context(), c.B().Set().Key("there").Value("1").Build()).Error() == nil
	})
	return primary, replica
}

func TestSafety_SettingsThatLoseWrites_AreRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, durable...)
	admin := s.Client(t)
	set := func(name, value string) {
		t.Helper()
		require.NoError(t, admin.Do(t.Context(), admin.B().ConfigSet().ParameterValue().ParameterValue(name, value).
			Build()).Error())
	}
	safe := redlatch.Options{SurviveFailover: true}
	opens := func(o rueidis.ClientOption, opts redlatch.Options) error {
		red, err := redlatch.Open(t.Context(), o, opts)
		if err == nil {
			require.NoError(t, red.Close(t.Context()))
		}
		return err
	}
	require.NoError(t, opens(s.Option(), safe))
	for _, x := range []struct{ setting, bad, good, text string }{
		{"appendonly", "no", "yes", `the server's appendonly is no, must be yes`},
		{"min-replicas-to-write", "0", "1", `the server's min-replicas-to-write is 0, must be 1 or more`},
		{"maxmemory-policy", "volatile-lru", "noeviction", `the server's maxmemory-policy is volatile-lru`},
	} {
		set(x.setting, x.bad)
		err := opens(s.Option(), safe)
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
		require.ErrorContains(t, err, x.text)
		taken := safe
		taken.Hub = func(h *pubsub.Options) { h.Strict, h.Durable = false, false }
		require.NoError(t, opens(s.Option(), taken), "taken back")
		set(x.setting, x.good)
	}

	require.NoError(t, admin.Do(t.Context(),
		admin.B().Arbitrary("ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-info").Build()).Error())
	o := s.Option()
	o.Username, o.Password = "app", "any"
	lax := safe
	lax.Hub = func(h *pubsub.Options) { h.Strict = false }
	for _, opts := range []redlatch.Options{safe, lax} {
		err := opens(o, opts)
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
		require.ErrorContains(t, err, "the server's INFO is NOPERM")
	}

	_, err := pubsub.New(admin, pubsub.Options{Durable: true})
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	require.ErrorContains(t, err, "Durable is true, must be false")
}

// Each option that SurviveFailover sets is there when the function of its package is called.
func TestSafety_OptionOfAPackage_CanBeTakenBack(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	seen := 0
	red := open(t, server, redlatch.Options{SurviveFailover: true,
		Hub: func(o *pubsub.Options) {
			require.True(t, o.Strict && o.Durable)
			o.Strict, o.Durable = false, false
			seen++
		},
		Locks: func(o *rlock.Options) {
			require.True(t, o.Fenced)
			require.Equal(t, 1, o.MinReplicas)
			o.Fenced, o.MinReplicas = false, 0
			seen++
		},
		Elections: func(o *election.Options) {
			require.Equal(t, 1, o.MinReplicas)
			seen++
		},
		Semaphores: func(o *rsemaphore.Options) {
			require.Equal(t, 1, o.MinReplicas)
			seen++
		},
	})
	require.Equal(t, 4, seen)
	hold := redistest.NoError(red.Locks().Reentrant("report").Lock(t.Context()))(t)
	_, fenced := hold.Token()
	require.False(t, fenced)
	require.Less(t, server.Embedded.TTL("report"), 31*time.Second)
	require.NoError(t, hold.Unlock(t.Context()))

	open(t, server, redlatch.Options{SurviveFailover: true, MinReplicas: 2,
		Hub:   func(o *pubsub.Options) { o.Strict, o.Durable = false, false },
		Locks: func(o *rlock.Options) { require.Equal(t, 2, o.MinReplicas) }})
}

func TestSafety_Grant_IsOnAReplicaOrRefused(t *testing.T) {
	t.Parallel()
	primary, replica := pairOf(t)
	safe := redlatch.Options{SurviveFailover: true, CallTimeout: 20 * time.Second,
		ReplicaTimeout: 10 * time.Second}
	red := open(t, primary, safe)
	safe.ReplicaTimeout = 200 * time.Millisecond
	impatient := open(t, primary, safe)
	behind := replica.Client(t)
	exists := func(key string) bool {
		n := redistest.NoError(behind.Do(t.Context(), behind.B().Exists().Key(key).Build()).AsInt64())(t)
		return n == 1
	}
	hold := redistest.NoError(red.Locks().Reentrant("l").Lock(t.Context()))(t)
	_, fenced := hold.Token()
	require.True(t, fenced)
	require.True(t, exists("l"))
	permit := redistest.NoError(red.Semaphores().Semaphore("s", 1).Acquire(t.Context(), 1))(t)
	require.True(t, exists("s"))
	require.NoError(t, hold.Unlock(t.Context()))
	require.NoError(t, permit.Release(t.Context()))

	replica.Stop(t)
	_, err := impatient.Locks().Reentrant("l").TryLock(t.Context(), 0, 0)
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
	replica.Resume(t)
	redistest.Eventually(t, 20*time.Second, "what was refused is given back, and the replica confirms again", func() bool {
		hold, err := red.Locks().Reentrant("l").TryLock(context.Background(), 0, 0)
		return err == nil && hold.Unlock(context.Background()) == nil
	})
}
