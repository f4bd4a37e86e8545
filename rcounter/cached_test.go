package rcounter_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

func TestCached_NothingChanges_TakesNoRoundTrip(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	k := on(t, srv.Client(t), patient).Counter("k", rcounter.CounterOptions{})
	must(t, admin, "SET", "k", "5")
	before := redistest.CommandCalls(t, admin)
	for range 10_000 {
		v := redistest.NoError(k.Cached(ctx, time.Hour))(t)
		require.EqualValues(t, 5, v)
	}
	after := redistest.CommandCalls(t, admin)
	require.Equal(t, 1, after["getrange"]-before["getrange"])
	require.Equal(t, before["get"], after["get"])

	must(t, admin, "INCRBY", "k", "3")
	redistest.Eventually(t, 20*time.Second, "the change is here", func() bool {
		v := redistest.NoError(k.Cached(ctx, time.Hour))(t)
		return v == 8
	})
}

// A counter without a TTL is read by two commands. One with a TTL is shown for no longer than it lives, though the
// server says nothing of its end.
func TestCached_Expiry_IsAskedForWithATTLOnly(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	proxy := redistest.NewProxy(t, srv)
	c := on(t, proxy.Server().Client(t), patient)
	for _, ttl := range []time.Duration{0, 3 * time.Second} {
		k := c.Counter("k"+ttl.String(), rcounter.CounterOptions{TTL: ttl})
		redistest.NoError(k.Incr(ctx))(t)
		if ttl > 0 {
			proxy.SwallowPushes()
		}
		before := redistest.CommandCalls(t, admin)
		v := redistest.NoError(k.Cached(ctx, time.Hour))(t)
		require.EqualValues(t, 1, v)
		after := redistest.CommandCalls(t, admin)
		require.Equal(t, ttl > 0, after["multi"]-before["multi"] == 1, "%v", ttl)
		require.Equal(t, 1, after["getrange"]-before["getrange"])
	}
	k := c.Counter("k3s", rcounter.CounterOptions{TTL: 3 * time.Second})
	redistest.Eventually(t, 20*time.Second, "the counter has ended", func() bool {
		v := redistest.NoError(k.Cached(ctx, time.Hour))(t)
		return v == 0
	})
}

func TestCached_MaxStale_IsKept(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	proxy := redistest.NewProxy(t, srv)
	proxy.SwallowPushes() // nothing is heard of changes
	client := proxy.Server().Client(t)
	c := on(t, client, patient)
	k := c.Counter("k", rcounter.CounterOptions{})
	is := func(k *rcounter.Counter, age time.Duration, want int64) {
		t.Helper()
		v := redistest.NoError(k.Cached(ctx, age))(t)
		require.Equal(t, want, v)
	}
	must(t, admin, "SET", "k", "1")
	_, err := client.DoCache(ctx, client.B().Get().Key("k").Cache(), time.Hour).ToString() // somebody else, who bears more
	require.NoError(t, err)
	is(k, time.Hour, 1)
	must(t, admin, "SET", "k", "2")
	is(k, time.Hour, 1)
	is(c.Counter("k", rcounter.CounterOptions{}), 59*time.Minute, 2)
	is(k, 10*time.Millisecond, 2)
	for want := int64(3); want < 8; want++ {
		must(t, admin, "SET", "k", dec(want))
		time.Sleep(15 * time.Millisecond)
		is(k, 10*time.Millisecond, want)
		is(c.Counter("k", rcounter.CounterOptions{}), time.Hour, 1)
	}
}

func TestCached_NotCached_IsAGet(t *testing.T) {
	t.Parallel()
	eachCache(t, func(t *testing.T, srv *redistest.Server, client func() rueidis.Client) {
		admin := srv.Client(t)
		k := on(t, client(), patient).Counter("k", rcounter.CounterOptions{Initial: 7, Max: bound(9)})
		for range 2 {
			v := redistest.NoError(k.Cached(ctx, time.Hour))(t)
			require.EqualValues(t, 7, v, "missing")
		}
		for value, want := range map[string]error{"": errs.ErrWrongType, "1e3": errs.ErrWrongType, dec(minInt): nil} {
			must(t, admin, "SET", "k", value)
			redistest.Eventually(t, 20*time.Second, value, func() bool {
				v, err := k.Cached(ctx, time.Hour)
				if want == nil {
					return err == nil && v == minInt
				}
				require.Zero(t, v)
				return err != nil
			})
			if _, err := k.Cached(ctx, time.Hour); want != nil {
				require.ErrorIs(t, err, want)
			}
			must(t, admin, "DEL", "k")
			redistest.Eventually(t, 20*time.Second, "gone", func() bool {
				v, err := k.Cached(ctx, time.Hour)
				return err == nil && v == 7
			})
		}
		must(t, admin, "RPUSH", "k", "x")
		_, err := k.Cached(ctx, time.Hour)
		require.ErrorIs(t, err, errs.ErrWrongType)
	})
	for range 2 { // the embedded server has nothing for caching
		k := on(t, redistest.Embedded(t).Client(t), patient).Counter("k", rcounter.CounterOptions{})
		for want := range int64(3) {
			v := redistest.NoError(k.Cached(ctx, time.Hour))(t)
			require.Equal(t, want, v)
			redistest.NoError(k.Incr(ctx))(t)
		}
	}
}
