package rlock_test

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// The keys beside a lock x, of all kinds.
var beside = []string{"redlatch_queue:{x}", "redlatch_queue:{x}:plain", "redlatch_rw:{x}", "redlatch_rwq:{x}",
	"redisson_lock_token:{x}",
	"redisson_lock_queue:{x}", "redisson_lock_timeout:{x}", "redlatch_fair:{x}"}

// withMulti are all kinds, and a Multi of w, the lock and y.
func withMulti(t *testing.T) map[string]func(c *rlock.Client, name string) *rlock.Lock {
	kinds := maps.Clone(kindOf)
	kinds["Multi"] = func(c *rlock.Client, name string) *rlock.Lock {
		m, err := rlock.Multi(c.Reentrant("w"), c.Reentrant(name), c.NonReentrant("y"))
		require.NoError(t, err)
		return m
	}
	return kinds
}

// A lock beside which a key has another type is refused, or acquired and released. It is not left taken.
func TestALockBesideAKeyOfAnotherTypeIsNotLeftTaken(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		refused := 0
		for kind, of := range withMulti(t) {
			for _, key := range beside {
				for _, command := range [][]string{{"SET", key, "a"}, {"RPUSH", key, "a"}} {
					require.NoError(t, r.redis.Do(within(t), r.redis.B().Flushall().Build()).Error())
					require.NoError(t, r.redis.Do(within(t), r.redis.B().Arbitrary(command...).Build()).Error())
					what := kind + " " + command[0] + " " + key
					hold, err := of(r.locks, "x").TryLock(within(t), 0, time.Minute)
					if err == nil {
						require.NoError(t, hold.Unlock(within(t)), what)
					} else {
						require.ErrorIs(t, err, errs.ErrWrongType, what)
						refused++
					}
					for _, of := range []string{"x", "w", "y"} {
						require.NotContains(t, keys(t, r.redis), of, what)
					}
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
					switch {
					case first == "Read" && under: // the lease of its own hold is raised, by a script that uses no queue
						if prefix == "redlatch_rw" {
							require.ErrorIs(t, err, errs.ErrWrongType, name)
						}
					case first == "Read" || under:
						require.ErrorIs(t, err, errs.ErrWrongType, name)
					default: // refused because of the writer, whatever is beside it
						require.Error(t, err, name)
					}
					require.Equal(t, before, r.hash(t, name), name)
					runtime.KeepAlive(hold)
				}
			}
		}
	})
}

// A key beside a lock, or the lock, becomes one of another type while it is held and somebody waits. Whatever the
// holder and the waiter are told, it is not left taken when that key is gone: neither by the one whose release broke
// off, nor by the other, who was served.
func TestALockIsNotLeftTakenWhenItsKeysChangeTypeDuringAWait(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	kinds := withMulti(t)
	redistest.SideBySide(t, map[string]func(testing.TB) *redistest.Server{
		"embedded": redistest.Embedded, "redis": func(t testing.TB) *redistest.Server { return redistest.Start(t) },
	}, func(t *testing.T, _ string, start func(testing.TB) *redistest.Server) {
		s := start(t)
		o := rlock.Options{CallTimeout: 20 * time.Second, WatchdogTimeout: 10 * time.Minute, PollCap: 50 * time.Millisecond}
		r, other := newRig(t, s, o), newRig(t, s, o)
		do := func(words ...string) {
			t.Helper()
			require.NoError(t, r.redis.Do(within(t), r.redis.B().Arbitrary(words...).Build()).Error(), words)
		}
		refused := 0
		for kind, of := range kinds {
			second := of
			if kind == "Read" {
				second = kinds["Write"]
			}
			for _, key := range append([]string{"x"}, beside...) {
				for _, command := range redistest.Sized([]string{"SET"}, []string{"SET"}, []string{"SET", "RPUSH"}) {
					what := kind + " " + command + " " + key
					do("FLUSHALL")
					hold, err := of(r.locks, "x").TryLock(within(t), 0, 0)
					require.NoError(t, err, what)
					done := make(chan error, 1)
					go func() {
						h, err := second(other.locks, "x").TryLock(within(t), 20*time.Second, 0)
						if err == nil {
							err = h.Unlock(within(t))
						}
						done <- err
					}()
					redistest.Eventually(t, 20*time.Second, what+": it waits", func() bool { return other.locks.Lines() == 1 })
					do("EVAL", "redis.call('DEL', KEYS[1]) redis.call(ARGV[1], KEYS[1], 'a') return 1", "1", key, command)
					if err := hold.Unlock(within(t)); err != nil {
						refused++
					}
					do("EVAL", "if redis.call('TYPE', KEYS[1]).ok == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1", "1", key,
						map[string]string{"SET": "string", "RPUSH": "list"}[command])
					if err := <-done; err != nil && !errors.Is(err, errs.ErrLost) {
						require.ErrorIs(t, err, errs.ErrWrongType, what)
					}
					redistest.Eventually(t, 5*time.Second, what+": it is free", func() bool {
						return !slices.ContainsFunc(keys(t, r.redis), func(k string) bool { return k == "x" || k == "w" || k == "y" })
					})
				}
			}
		}
		require.Greater(t, refused, redistest.Sized(len(kinds)/2, len(kinds)/2, len(kinds)),
			"the keys are those that the scripts use")
	})
}

// Of a Quorum, on one server, on two, or on all.
func TestAQuorumBesideAKeyOfAnotherTypeIsNotLeftTaken(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	five := embedded(t, 5)
	p := five.process(t, rlock.Options{CallTimeout: 20 * time.Second, WatchdogTimeout: 10 * time.Minute,
		PollCap: 50 * time.Millisecond})
	refused := 0
	for _, key := range []string{"x", "redlatch_queue:{x}"} {
		for _, command := range []string{"SET", "RPUSH"} {
			for _, spoiled := range redistest.Sized([]int{1, 2, 5}, []int{1, 2, 5}, []int{0, 1, 2, 3, 4, 5}) {
				for _, held := range []bool{false, true} {
					what := fmt.Sprint(command, " ", key, " on ", spoiled, ", held before: ", held)
					for _, s := range five {
						s.Ask(t, "FLUSHALL")
					}
					spoil := func() {
						for _, s := range five[:spoiled] {
							s.Ask(t, "EVAL", "redis.call('DEL', KEYS[1]) redis.call(ARGV[1], KEYS[1], 'a') return 1", "1", key, command)
						}
					}
					if !held {
						spoil()
					}
					hold, err := p.lock(t, "x").TryLock(within(t), 0, 0)
					if held {
						require.NoError(t, err, what)
						spoil()
					}
					if err == nil {
						err = hold.Unlock(within(t))
					}
					if err != nil {
						refused++
					}
					for _, s := range five[:spoiled] {
						s.Ask(t, "DEL", key)
					}
					for _, s := range five {
						redistest.Eventually(t, 5*time.Second, what+": it is free", func() bool { return s.Ask(t, "EXISTS", "x") == "0" })
					}
				}
			}
		}
	}
	require.Greater(t, refused, 4)
}
