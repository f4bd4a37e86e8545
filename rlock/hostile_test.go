package rlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

// The end of a reader of Redisson's is looked for in as many keys as its count says.
func TestRead_HostileCount_KeepsNoServerBusy(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t, "--busy-reply-threshold", "100"), rlock.Options{CallTimeout: 2 * time.Second})
	for _, count := range []string{"inf", "1e300", "1000000000000000000", "nan", "-1", "x", "1001"} {
		h, err := r.locks.ReadWrite("rw").Read().Lock(within(t))
		require.NoError(t, err)
		other := "6bb2ee1f-0000-4000-8000-000000000000:1"
		wire.Must(t, r.redis, "HSET", "rw", other, count)
		wire.Must(t, r.redis, "PEXPIRE", "rw", "600000") // longer than our reader's
		require.NoError(t, h.Unlock(within(t)), count)
		require.Equal(t, "PONG", wire.Text(t, r.redis, "PING"), count)
		require.Equal(t, count, r.hash(t, "rw")[other], "nobody knows when it ends")
		wire.Must(t, r.redis, "DEL", "rw")
	}
}

func TestLineOfLocks_TextThatIsNoEntry_IsTakenOut(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rs := newRigs(t, s, 2, rlock.Options{PollCap: 500 * time.Millisecond})
	holder, waiter := rs[0], rs[1]
	for _, text := range []string{"", "nan", "PROCESS", "1 x 1 0 2500 0 PROCESS - :1", "v x 1 8000 2500 0 PROCESS - :1",
		"1 x 1 1000000000000000000 2500 0 PROCESS - :1", "1 x 1 9223372036854775807 2500 0 PROCESS - :1",
		"1 x 1 8000 1000000000000000000 0 PROCESS - :1", "1 x 1 inf 2500 0 PROCESS - :1", "1 x 1 8000 nan 0 PROCESS - :1"} {
		h, err := holder.locks.Reentrant("l").Lock(within(t))
		require.NoError(t, err)
		had := make(chan error, 1)
		go func() {
			h, err := waiter.locks.Reentrant("l").Lock(within(t))
			if err == nil {
				err = h.Unlock(within(t))
			}
			had <- err
		}()
		waiter.waits(t, "l", 1)
		var listens string // for grants; one that a busy machine kept from asking for three polls comes back
		redistest.Eventually(t, 20*time.Second, "it waits", func() bool {
			state, err := holder.locks.Reentrant("l").Inspect(within(t))
			require.NoError(t, err)
			if len(state.Waiters) > 0 {
				listens = string(state.Waiters[0].Owner)
			}
			return listens != ""
		})
		text = strings.Replace(text, "PROCESS", listens[:36], 1)
		wire.Must(t, holder.redis, "EVAL",
			`local first = redis.call('ZRANGEBYSCORE', KEYS[1], '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
redis.call('ZADD', KEYS[1], string.format('%.0f', first[2] - 1), ARGV[1])`, "1", "redlatch_queue:{l}", text)
		require.NoError(t, h.Unlock(within(t)), text)
		require.NoError(t, <-had, text)
		require.NotEqual(t, int64(-1), wire.Number(t, holder.redis, "PTTL", "l"), "%q: a lock without an end", text)
		require.NotContains(t,
			wire.Text(t, holder.redis, "EVAL", "return table.concat(redis.call('ZRANGE', KEYS[1], 0, -1), '|')", "1",
				"redlatch_queue:{l}"), text+"|")
	}
}

// The end of such a lease is later than any time.Time that a Go program can count to.
func TestWait_LeaseOfCenturies_IsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{})
	for _, ms := range []string{"9223372036854", "9223372036855", "1000000000000000"} {
		wire.Must(t, r.redis, "HSET", "l", "6bb2ee1f-0000-4000-8000-000000000000:1", "1")
		wire.Must(t, r.redis, "PEXPIRE", "l", ms)
		_, err := r.locks.Reentrant("l").TryLock(within(t), 100*time.Millisecond, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired, "%s ms", ms)
		state, err := r.locks.Reentrant("l").Inspect(within(t))
		require.NoError(t, err)
		require.Greater(t, state.Lease, 100*365*24*time.Hour, "%s ms", ms)
		wire.Must(t, r.redis, "DEL", "l")
	}
}
