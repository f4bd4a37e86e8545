package rcounter_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

// The whole of what AddOnce remembers is forgotten by its turn, and by its expiry, in parts of which the server feels
// none.
func TestAddOnce_ManyIDsEnd_HoldNobodyUp(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	k := on(t, admin, patient).Counter("k", rcounter.CounterOptions{Remember: time.Hour})
	i0, i1 := k.IDKeys("one")
	rig.StallsLess(t, srv, func(t *testing.T) func() bool {
		must(t, admin, "FLUSHALL")
		_, _, err := k.AddOnce(ctx, "one", 1)
		require.NoError(t, err)
		rig.Grown(t, admin, i1, rig.Records()) // a part is never so large
		now := serverNow(t, admin)
		must(t, admin, "HSET", i0, "from", dec(now-2*hour))
		must(t, admin, "HSET", i1, "from", dec(now-3*hour))
		return func() bool {
			must(t, admin, "HDEL", i0, ":one")
			must(t, admin, "HDEL", i1, ":one")
			_, _, err := k.AddOnce(ctx, "one", 1)
			require.NoError(t, err)
			return number(t, admin, "HLEN", i1) < 3
		}
	})
}

func TestAddOnce_IDs_EndInPartsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client(t)
	k := on(t, c, patient).Counter("k", rcounter.CounterOptions{})
	for i := range 2000 {
		_, _, err := k.AddOnce(ctx, dec(int64(i)), 1)
		require.NoError(t, err)
	}
	var ends []int64
	for _, key := range keys(t, c) {
		if key == "k" {
			continue
		}
		require.Less(t, number(t, c, "HLEN", key), int64(2000/64*2), key)
		left := number(t, c, "PTTL", key)
		require.Greater(t, left, int64(hour), "no id is forgotten early")
		ends = append(ends, left)
	}
	slices.Sort(ends)
	require.Len(t, ends, 64)
	require.Greater(t, ends[63]-ends[0], int64(40_000), "ms from the first to the last")
}
