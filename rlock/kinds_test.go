package rlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

type exclusiveKind struct {
	lock  func(c *rlock.Client, name string) *rlock.Lock
	again bool // an owner re-enters
	typ   string
}

// exclusive are the kinds of locks with one owner at a time.
var exclusive = map[string]exclusiveKind{
	"Reentrant":    {lock: (*rlock.Client).Reentrant, again: true, typ: "hash"},
	"NonReentrant": {lock: (*rlock.Client).NonReentrant, typ: "hash"},
	"Fenced":       {lock: (*rlock.Client).Fenced, again: true, typ: "hash"},
	"Fair":         {lock: (*rlock.Client).Fair, again: true, typ: "hash"},
	"Spin": {lock: func(c *rlock.Client, name string) *rlock.Lock {
		return c.Spin(name, 0, 4*time.Millisecond)
	}, again: true, typ: "hash"},
	"Plain": {lock: func(c *rlock.Client, name string) *rlock.Lock { return c.Plain(name) }, typ: "string"},
}

// lease is long enough that no stall of the machine ends it.
const lease = 5 * time.Minute

func TestKind_HeldAlready_IsReenteredOrRefused(t *testing.T) {
	t.Parallel()
	for kind, k := range exclusive {
		t.Run(kind, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				o := rlock.Options{KeyPrefix: "app:", WatchdogTimeout: lease, CallTimeout: 5 * time.Second}
				r, other := newRig(t, s, o), newRig(t, s, o)
				l, theirs, ctx := k.lock(r.locks, "l"), k.lock(other.locks, "l"), within(t)
				h := lock(t, l, ctx)
				require.Equal(t, "l", h.Name())
				typ, err := r.redis.Do(ctx, r.redis.B().Type().Key("app:l").Build()).ToString()
				require.NoError(t, err)
				require.Equal(t, k.typ, typ)
				locked, err := theirs.IsLocked(ctx)
				require.NoError(t, err)
				require.True(t, locked)

				in, err := l.Lock(h.Context(ctx))
				if k.again {
					require.NoError(t, err)
					require.NoError(t, in.Unlock(ctx))
				} else {
					require.ErrorIs(t, err, rlock.ErrReentry)
				}
				_, err = l.Lock(l.WithOwner(ctx, rlock.Owner("1a2b3c4d-5a1e-8c61-9d0a-6f4f3a2b1c0d:7")))
				if kind == "Reentrant" {
					require.ErrorIs(t, err, errs.ErrLost)
				} else {
					require.ErrorIs(t, err, errs.ErrInvalidOption, "cannot be joined")
				}
				for _, held := range []bool{true, false} {
					ok, err := theirs.ForceUnlock(ctx)
					require.NoError(t, err)
					require.Equal(t, held, ok)
				}
				require.ErrorIs(t, h.Unlock(ctx), errs.ErrLost)
				require.NotContains(t, keys(t, r.redis), "app:l")
			})
		})
	}
}

// A lock that is free goes to those who queue on the server, whoever comes by: a program that tries again and again
// would keep it from them forever.
func TestTryLock_OthersQueue_OvertakesNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	spin := func(c *rlock.Client, name string) *rlock.Lock { return c.Spin(name, 0, 0) }
	for _, x := range []struct {
		kind          string
		waiters, late func(*rlock.Client, string) *rlock.Lock
		queue         string // on the server
	}{
		{"Reentrant", (*rlock.Client).Reentrant, (*rlock.Client).Reentrant, "redlatch_queue:"},
		{"NonReentrant", (*rlock.Client).NonReentrant, (*rlock.Client).NonReentrant, "redlatch_queue:"},
		{"Fenced", (*rlock.Client).Fenced, (*rlock.Client).Fenced, "redlatch_queue:"},
		{"Spin", (*rlock.Client).Reentrant, spin, "redlatch_queue:"},
		{"Fair", (*rlock.Client).Fair, (*rlock.Client).Fair, "redisson_lock_queue:"},
	} {
		t.Run(x.kind, func(t *testing.T) {
			t.Parallel()
			name := x.kind
			o := rlock.Options{PollCap: 10 * time.Second}
			holder, waiter, other := newRig(t, s, rlock.Options{}), newRig(t, s, o), newRig(t, s, o)
			h := lock(t, x.waiters(holder.locks, name), within(t))
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			waiting := make(chan result, 1)
			go func() {
				h, err := x.waiters(waiter.locks, name).Lock(ctx)
				waiting <- result{h, err, time.Now()}
			}()
			redistest.Eventually(t, 20*time.Second, "it waits on the server", func() bool {
				n, err := other.redis.Do(within(t), other.redis.B().Exists().Key(x.queue+"{"+name+"}").Build()).AsInt64()
				return err == nil && n == 1
			})
			// as if the holder had died: nobody is told
			wire.Must(t, other.redis, "DEL", name)
			for _, r := range []*rig{other, waiter} {
				for range 3 {
					_, err := x.late(r.locks, name).TryLock(within(t), 0, 0)
					require.ErrorIs(t, err, errs.ErrNotAcquired)
				}
			}
			cancel()
			if got := <-waiting; got.err == nil { // handed over by who came by
				got.unlock(t)
			}
			require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
			redistest.Eventually(t, 20*time.Second, "nobody queues", func() bool {
				h, err := x.late(other.locks, name).TryLock(within(t), 0, 0)
				return err == nil && h.Unlock(within(t)) == nil
			})
		})
	}
}

func TestKinds_OfOneName_ExcludeEachOther(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{PollCap: 50 * time.Millisecond})
		for holder, a := range exclusive {
			h := lock(t, a.lock(r.locks, "l"), within(t))
			for waiter, b := range exclusive {
				_, err := b.lock(r.locks, "l").TryLock(within(t), 0, 0)
				var held *rlock.NotAcquiredError
				require.ErrorAs(t, err, &held, "%s on %s", waiter, holder)
				kind := ""
				if holder == "Plain" && waiter != "Plain" {
					kind = "string"
				} else if holder != "Plain" && waiter == "Plain" {
					kind = "hash"
				}
				require.Equal(t, kind, held.Kind, "%s on %s", waiter, holder)
				require.False(t, held.Foreign, "%s on %s", waiter, holder)
				locked, err := b.lock(r.locks, "l").IsLocked(within(t))
				require.NoError(t, err, "%s on %s", waiter, holder)
				require.True(t, locked, "%s on %s", waiter, holder)
			}
			require.NoError(t, h.Unlock(within(t)))
		}
	})
}

func token(t testing.TB, h *rlock.Hold) int64 {
	t.Helper()
	n, ok := h.Token()
	require.True(t, ok)
	return n
}

func TestTokens_KeysLost_KeepGrowing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		l := r.locks.Fenced("l")
		ctx := within(t)
		do := func(args ...string) {
			t.Helper()
			require.NoError(t, r.redis.Do(ctx, r.redis.B().Arbitrary(args...).Build()).Error())
		}
		const key = "redisson_lock_token:{l}"
		last := int64(0)
		for _, between := range []struct {
			name string
			do   func()
		}{
			{"unlocked", func() {}},
			{"unlocked again", func() {}},
			{"the lock was deleted", func() { do("DEL", "l") }},
			{"the token was deleted", func() { do("DEL", key) }},
			{"the token has expired", func() {
				do("PEXPIRE", key, "1")
				time.Sleep(20 * time.Millisecond)
				expire(s, 20*time.Millisecond)
			}},
			{"everything was flushed", func() { do("FLUSHALL") }},
			{"the scripts were forgotten", func() { do("SCRIPT", "FLUSH") }},
			{"Redisson counted on", func() { do("INCR", key); last++ }},
			{"the clock had been far ahead", func() { do("SET", key, "5000000000000000"); last = 5000000000000000 }},
		} {
			h := lock(t, l, ctx)
			in := lock(t, l, h.Context(ctx))
			require.Equal(t, token(t, h), token(t, in), "a re-entry has the token of its hold")
			require.Greater(t, token(t, h), last, "after %s", between.name)
			last = token(t, h)
			require.NoError(t, in.Unlock(ctx))
			require.NoError(t, h.Unlock(ctx))
			between.do()
		}
		h := lock(t, l, ctx)
		require.Greater(t, token(t, h), last)
		require.EqualValues(t, -1, r.pttl(t, key)/time.Millisecond, "what Redisson keeps forever is left to it")
		require.NoError(t, h.Unlock(ctx))
		do("DEL", key)
		h = lock(t, l, ctx)
		require.Greater(t, r.pttl(t, key), rlock.DefaultTokenRetention-time.Minute)
		require.NoError(t, h.Unlock(ctx))
		_, ok := lock(t, r.locks.Reentrant("plain"), ctx).Token()
		require.False(t, ok)
	})
}

// expire has a server that counts TTLs down by hand do so.
func expire(s *redistest.Server, d time.Duration) {
	if s.Embedded != nil {
		s.Embedded.FastForward(d)
	}
}

func TestSpin_WaitsOrReleases_SubscribesToNothingButWakesOthers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	l := r.locks.Spin("l", 0, 0)
	h := lock(t, l, within(t))
	got := pass(t, l)
	redistest.Eventually(t, 10*time.Second, "it waits", func() bool { return r.locks.Waiting("l") == 1 })
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, h.Unlock(within(t)))
	require.NoError(t, <-got)
	calls := redistest.CommandCalls(t, r.redis)
	require.Zero(t, calls["subscribe"])

	const pollCap = 20 * time.Second
	other := newRig(t, s, rlock.Options{PollCap: pollCap})
	h = lock(t, l, within(t))
	got = pass(t, other.locks.Reentrant("l"))
	redistest.Eventually(t, 10*time.Second, "it queues", func() bool {
		n, err := r.redis.Do(within(t), r.redis.B().Zcard().Key("redlatch_queue:{l}").Build()).AsInt64()
		return err == nil && n == 1
	})
	began := time.Now()
	require.NoError(t, h.Unlock(within(t)))
	require.NoError(t, <-got)
	require.Less(t, time.Since(began), 8*time.Second, "woken, not by its poll")
}

func TestPlain_BesideTheSETPattern_ExcludesAndIsExcluded(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{PollCap: 20 * time.Millisecond, HashOver: 100})
		c, ctx := r.redis, within(t)
		l := r.locks.Plain("l")
		take := func() error {
			return c.Do(ctx, c.B().Set().Key("l").Value("theirs").Nx().PxMilliseconds(300_000).Build()).Error()
		}
		require.NoError(t, take())
		_, err := l.TryLock(ctx, 0, 0)
		require.ErrorIs(t, err, errs.ErrNotAcquired)
		got := pass(t, l)
		redistest.Eventually(t, 10*time.Second, "it waits", func() bool { return r.locks.Waiting("l") == 1 })
		const drop = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0"
		n, err := c.Do(ctx, c.B().Eval().Script(drop).Numkeys(1).Key("l").Arg("theirs").Build()).AsInt64()
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.NoError(t, <-got)

		h := lock(t, l, ctx)
		require.True(t, rueidis.IsRedisNil(take()), "refused")
		n, err = c.Do(ctx, c.B().Eval().Script(drop).Numkeys(1).Key("l").Arg("theirs").Build()).AsInt64()
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, h.Unlock(ctx))

		long := strings.Repeat("x{", 1000) + "\xff"
		hashed := r.locks.Plain(long)
		h = lock(t, hashed, ctx)
		keys, err := c.Do(ctx, c.B().Keys().Pattern("*").Build()).AsStrSlice()
		require.NoError(t, err)
		require.Len(t, keys, 1)
		require.Len(t, keys[0], 64)
		require.Equal(t, long, h.Name())
		_, err = hashed.Lock(h.Context(ctx))
		require.ErrorIs(t, err, rlock.ErrReentry)
		require.NoError(t, h.Unlock(ctx))
		_, err = newRig(t, s, rlock.Options{}).locks.Plain(long).TryLock(ctx, 0, 0)
		require.ErrorIs(t, err, errs.ErrInvalidName)
	})
}

func TestHashedName_OfAnotherKind_IsAnotherLock(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), rlock.Options{WatchdogTimeout: lease, HashOver: 64})
	name := strings.Repeat("x", 100)
	h := lock(t, r.locks.Plain(name), within(t))
	other := lock(t, r.locks.Reentrant(name), h.Context(within(t)))
	require.NotEqual(t, h.Owner(), other.Owner())
	require.NoError(t, other.Unlock(within(t)))
	_, err := r.locks.Plain(name).Lock(h.Context(within(t)))
	require.ErrorIs(t, err, rlock.ErrReentry)
	require.NoError(t, h.Unlock(within(t)))
}

// Who holds one of two locks and waits for the other must not stand behind somebody who waits for the first.
func TestLocks_IndependentOfOneName_NeverWaitForEachOther(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("x", 100)
	five := embedded(t, 5).process(t, rlock.Options{WatchdogTimeout: lease, HashOver: 64})
	quorum := func(servers ...int) *rlock.Lock {
		p := &process{}
		for _, i := range servers {
			p.rigs = append(p.rigs, five.rigs[i])
		}
		return p.lock(t, name)
	}
	r := five.rigs[0]
	for what, locks := range map[string][2]*rlock.Lock{
		"a hashed name":               {r.locks.Plain(name), r.locks.Reentrant(name)},
		"majorities of other servers": {quorum(0, 1, 2), quorum(0, 3, 4)},
	} {
		t.Run(what, func(t *testing.T) {
			h := lock(t, locks[0], within(t))
			behind := pass(t, locks[0])
			redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return r.locks.Lines() == 1 })
			other, err := locks[1].TryLock(within(t), 10*time.Second, 0)
			require.NoError(t, err)
			require.NoError(t, other.Unlock(within(t)))
			require.NoError(t, h.Unlock(within(t)))
			require.NoError(t, <-behind)
		})
	}
}

// A Spin waiter has the lock only when nobody queues. Those of its process that do queue must not wait for that.
func TestKinds_InOneProcess_StarveNoOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	o := rlock.Options{PollCap: 10 * time.Second}
	holder, r := newRig(t, s, o).warmUp(t), newRig(t, s, o).warmUp(t)
	h := lock(t, holder.locks.Reentrant("l"), within(t))
	spun := pass(t, r.locks.Spin("l", 20*time.Second, 40*time.Second))
	redistest.Eventually(t, 20*time.Second, "it waits", func() bool { return r.locks.Waiting("l") == 1 })
	w := queueUp(t, c, r.locks.Reentrant("l"), within(t), 1)
	require.NoError(t, h.Unlock(within(t)))
	got := <-w
	require.NoError(t, got.err)
	began := time.Now()
	got.unlock(t)
	require.NoError(t, <-spun)
	require.Less(t, time.Since(began), 10*time.Second, "the release wakes also the waiters of another class")
}

func TestReentrant_OptionFenced_HasTokens(t *testing.T) {
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{Fenced: true})
	l := r.locks.Reentrant("l")
	h := lock(t, l, within(t))
	before, ok := h.Token()
	require.True(t, ok)
	require.NoError(t, h.Unlock(within(t)))
	h = lock(t, r.locks.Fenced("l"), within(t))
	after, _ := h.Token()
	require.Greater(t, after, before)
	require.NoError(t, h.Unlock(within(t)))
}
