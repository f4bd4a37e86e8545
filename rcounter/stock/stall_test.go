package stock_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/stretchr/testify/require"
)

func TestStock_BigOneEnds_HoldsNobodyUp(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	c := on(t, admin, exact)
	rig.StallsLess(t, srv, func(t *testing.T) func() bool {
		s := opened(t, c, "s", 1<<53-1)
		claimed(t, s, "ann")
		rig.Grown(t, admin, "rc:{s}:u", rig.Records()-1)
		must(t, admin, "HSET", "rc:{s}", "sold", dec(rig.Records()), "seq", dec(rig.Records()), "recorded",
			dec(rig.Records()))
		// its time is over soon, and a claim gives the keys the ends that are theirs
		must(t, admin, "PERSIST", "rc:{s}:u")
		must(t, admin, "HSET", "rc:{s}", "gone", dec(serverNow(t, admin)+500))
		claimed(t, s, "bob")
		return func() bool {
			_, err := s.Reap(ctx) // as KeepReaped does
			require.NoError(t, err)
			return number(t, admin, "DBSIZE") == 0
		}
	})
}
