package rlock_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

// Redisson's four scripts, written anew from the description of what they do (version 4.7), without the latch and the
// choice between PUBLISH and SPUBLISH. Keys of which only the prefix is known beforehand are made in the script, as
// there.
const (
	javaReadLock = redistest.Undeclared + `
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[2], 1)
  redis.call('SET', KEYS[2] .. ':1', 1, 'PX', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return nil
end
if mode == 'read' or redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1 then
  local k = redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('SET', KEYS[2] .. ':' .. k, 1, 'PX', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[1])))
  return nil
end
return redis.call('PTTL', KEYS[1])`

	javaReadUnlock = redistest.Undeclared + `
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
  redis.call('PUBLISH', KEYS[2], 0)
  return nil
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return nil
end
local left = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if left == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
redis.call('DEL', KEYS[3] .. ':' .. (left + 1))
if redis.call('HLEN', KEYS[1]) > 1 then
  local most = -3
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    local count = tonumber(redis.call('HGET', KEYS[1], field))
    if count then
      for k = count, 1, -1 do
        most = math.max(most, redis.call('PTTL', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. k))
      end
    end
  end
  if most > 0 then
    redis.call('PEXPIRE', KEYS[1], most)
    return 0
  end
  if mode == 'write' then
    return 0
  end
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], 0)
return 1`

	javaWriteLock = `
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return nil
end
if mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]) + ARGV[1])
  return nil
end
return redis.call('PTTL', KEYS[1])`

	javaWriteUnlock = `
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
  redis.call('PUBLISH', KEYS[2], 1)
  return nil
end
if mode ~= 'write' or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return nil
end
if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[2])
if redis.call('HLEN', KEYS[1]) == 1 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[2], 1)
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
return 1`
)

// javaRW is a thread of a Java process on a read-write lock.
type javaRW struct {
	c          rueidis.Client
	name, self string
}

func (j *javaRW) timeouts() string { return "{" + j.name + "}:" + j.self + ":rwlock_timeout" }
func (j *javaRW) channel() string  { return "redisson_rwlock:{" + j.name + "}" }

// eval returns the reply, or false for nil, which means acquired, or not held.
func (j *javaRW) eval(ctx context.Context, src string, keys []string, args ...string) (int64, bool, error) {
	v, err := j.c.Do(ctx, j.c.B().Eval().Script(src).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0, false, nil
	}
	return v, true, err
}

func (j *javaRW) read(ctx context.Context, lease time.Duration) (bool, error) {
	_, held, err := j.eval(ctx, javaReadLock, []string{j.name, j.timeouts()}, strconv.FormatInt(lease.Milliseconds(), 10),
		j.self, j.self+":write")
	return !held, err
}

func (j *javaRW) readUnlock(ctx context.Context) error {
	_, ok, err := j.eval(ctx, javaReadUnlock, []string{j.name, j.channel(), j.timeouts(), "{" + j.name + "}"}, j.self)
	if err == nil && !ok {
		err = errors.New("not held")
	}
	return err
}

func (j *javaRW) write(ctx context.Context, lease time.Duration) (bool, error) {
	_, held, err := j.eval(ctx, javaWriteLock, []string{j.name}, strconv.FormatInt(lease.Milliseconds(), 10),
		j.self+":write")
	return !held, err
}

func (j *javaRW) writeUnlock(ctx context.Context) error {
	_, ok, err := j.eval(ctx, javaWriteUnlock, []string{j.name, j.channel()}, "30000", j.self+":write")
	if err == nil && !ok {
		err = errors.New("not held")
	}
	return err
}

// While Java writes, a reader of ours listens where Redisson publishes, and its process goes on to listen when it has
// been let in.
func TestReadWrite_OurListener_KeepsNoReaderOut(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		a, b := newRig(t, s, rlock.Options{PollCap: 50 * time.Millisecond}), newRig(t, s, rlock.Options{})
		j := &javaRW{a.redis, "l", java}
		for _, acquire := range []func(context.Context, time.Duration) (bool, error){j.write, j.read} {
			ok, err := acquire(within(t), time.Minute)
			require.NoError(t, err)
			require.True(t, ok)
		}
		first := acquiring(t, a.locks.ReadWrite("l").Read())
		listeners := func() int64 {
			n, err := a.redis.Do(within(t), a.redis.B().PubsubNumsub().Channel(j.channel()).Build()).AsIntMap()
			require.NoError(t, err)
			return n[j.channel()]
		}
		redistest.Eventually(t, 20*time.Second, "our reader listens", func() bool { return listeners() == 1 })
		require.NoError(t, j.writeUnlock(within(t))) // it reads on
		h := <-first
		require.NoError(t, h.err)
		try := func() error {
			h, err := b.locks.ReadWrite("l").Read().TryLock(within(t), 0, 0)
			if err == nil {
				require.NoError(t, h.Unlock(within(t)))
			}
			return err
		}
		for began := time.Now(); time.Since(began) < 400*time.Millisecond; { // twice the time after which Java has a turn
			require.NoError(t, try())
			time.Sleep(2 * time.Millisecond)
		}
		require.EqualValues(t, 1, listeners(), "of ours, still")

		_, stop := wire.Overhear(t, a.redis, []string{j.channel()}, nil) // a writer of Redisson's waits
		redistest.Eventually(t, 20*time.Second, "readers make room for it", func() bool {
			return errors.Is(try(), errs.ErrNotAcquired)
		})
		stop()
		redistest.Eventually(t, 20*time.Second, "it has given up", func() bool { return try() == nil })
		require.NoError(t, h.hold.Unlock(within(t)))
	})
}

// The last reader was Java's, or its lease ended: nobody has said that its phase is over.
func TestReadPhase_LastEndUnreported_BeginsWithItsFirstReader(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		const queue = "redlatch_rwq:{l}"
		now := func() int64 {
			at, err := r.redis.Do(within(t), r.redis.B().Time().Build()).AsIntSlice()
			require.NoError(t, err)
			return at[0] * 1000
		}
		began := now()
		require.NoError(t, r.redis.Do(within(t),
			r.redis.B().Zadd().Key(queue).ScoreMember().ScoreMember(float64(-4e12+60_000-began), "!readfrom").Build()).Error())
		wire.Must(t, r.redis, "PEXPIRE", queue, "60000")
		h := lock(t, r.locks.ReadWrite("l").Read(), within(t))
		from, err := r.redis.Do(within(t), r.redis.B().Zscore().Key(queue).Member("!readfrom").Build()).AsFloat64()
		require.NoError(t, err)
		require.GreaterOrEqual(t, int64(-from-4e12), began, "Redisson's waiters are given a turn 200 ms after it")
		require.NoError(t, h.Unlock(within(t)))
	})
}

// The keys of Java's ends follow from the hash alone, so the release looks there, and has its end set by a second call.
func TestReadWrite_GoAndJavaReaders_EndsWithTheLast(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		dead := &javaRW{r.redis, "rw", "6bb2ee1f-0000-4000-8000-000000000000:1"}
		for name, end := range map[string]func(h *rlock.Hold) error{
			"unlock":       func(h *rlock.Hold) error { return h.Unlock(within(t)) },
			"unlock after": func(h *rlock.Hold) error { return h.UnlockAfter(within(t), time.Second) },
		} {
			h, err := r.locks.ReadWrite("rw").Read().Lock(within(t))
			require.NoError(t, err, name)
			_, _, err = dead.eval(within(t), javaReadLock, []string{"rw", dead.timeouts()}, "2000", dead.self,
				dead.self+":write")
			require.NoError(t, err, name)
			require.NoError(t, end(h), name)
			left, err := r.redis.Do(within(t), r.redis.B().Pttl().Key("rw").Build()).AsInt64()
			require.NoError(t, err, name)
			require.LessOrEqual(t, left, int64(2000), name)
			wire.Must(t, r.redis, "FLUSHALL")
		}
	})
}
