package rcounter_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

func TestCountersWorkOnEverySlotOfACluster(t *testing.T) {
	t.Parallel()
	srv := redistest.Cluster(t)
	c := on(t, srv.Client(t), rcounter.Options{KeyPrefix: "shop:", CallTimeout: patient.CallTimeout})
	for i := range 30 {
		k := c.Counter("hits"+strconv.Itoa(i), rcounter.CounterOptions{Max: bound(2), TTL: time.Hour})
		_, err := k.Incr(ctx)
		require.NoError(t, err)
		for _, id := range []string{"a", "a"} {
			_, _, err = k.AddOnce(ctx, id, 1)
			require.NoError(t, err)
			v, err := k.Cached(ctx, time.Minute)
			require.NoError(t, err)
			require.EqualValues(t, 2, v)
		}
		require.NoError(t, k.Set(ctx, 2))
		_, err = k.Incr(ctx)
		require.ErrorIs(t, err, errs.ErrOutOfRange)
	}
	for _, name := range []string{"a{b}", "{a}b"} {
		k := c.Counter(name, rcounter.CounterOptions{})
		_, err := k.Incr(ctx)
		require.NoError(t, err, "a counter is one key: braces are the caller's")
		for range 2 {
			v, _, err := k.AddOnce(ctx, "order", 4)
			require.NoError(t, err, "and its ids are in its slot")
			require.EqualValues(t, 5, v)
		}
	}
}
