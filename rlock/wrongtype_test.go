package rlock_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// The keys beside a lock x, of all kinds.
var beside = []string{"redlatch_queue:{x}", "redlatch_queue:{x}:plain", "redlatch_rw:{x}", "redlatch_rwq:{x}", "redisson_lock_token:{x}",
	"redisson_lock_queue:{x}", "redisson_lock_timeout:{x}", "redlatch_fair:{x}"}

// A lock beside which a key has another type is refused, or acquired and released. It is not left taken.
func TestALockBesideAKeyOfAnotherTypeIsNotLeftTaken(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		refused := 0
		for kind, of := range kindOf {
			for _, key := range beside {
				for _, command := range [][]string{{"SET", key, "a"}, {"RPUSH", key, "a"}} {
					require.NoError(t, r.redis.Do(within(t), r.redis.B().Flushall().Build()).Error())
					require.NoError(t, r.redis.Do(within(t), r.redis.B().Arbitrary(command...).Build()).Error())
					what := kind + " " + command[0] + " " + key
					hold, err := of(r.locks, "x").TryLock(within(t), 0, time.Minute)
					if err == nil {
						require.NoError(t, hold.Unlock(within(t)), what)
					} else {
						require.ErrorIs(t, err, rlock.ErrWrongType, what)
						refused++
					}
					require.NotContains(t, keys(t, r.redis), "x", what)
				}
			}
		}
		require.GreaterOrEqual(t, refused, 2*8, "the keys are those that the scripts use")
	})
}

// A hold under a hold, or beside another's, is refused as well before anything has changed.
func TestAHoldBesideAKeyOfAnotherTypeChangesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		for _, prefix := range []string{"redlatch_rw", "redlatch_rwq"} {
			for _, first := range []string{"Read", "Write"} {
				for _, under := range []bool{false, true} {
					name := fmt.Sprint(prefix, first, under)
					key := prefix + ":{" + name + "}"
					hold := lock(t, kindOf[first](r.locks, name), within(t))
					before := r.hash(t, name)
					require.NoError(t, r.redis.Do(within(t), r.redis.B().Set().Key(key).Value("a").Build()).Error())
					ctx := within(t)
					if under {
						ctx = hold.Context(ctx)
					}
					_, err := r.locks.ReadWrite(name).Read().TryLock(ctx, 0, time.Minute)
					if first == "Read" || under {
						require.ErrorIs(t, err, rlock.ErrWrongType, name)
					} else { // refused because of the writer, whatever is beside it
						require.Error(t, err, name)
					}
					require.Equal(t, before, r.hash(t, name), name)
					runtime.KeepAlive(hold)
				}
			}
		}
	})
}
