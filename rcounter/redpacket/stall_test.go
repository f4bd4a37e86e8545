package redpacket_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

func TestPacket_BigOneEnds_HoldsNobodyUp(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	c := on(t, admin, patient)
	rig.StallsLess(t, srv, func(t *testing.T) func() bool {
		p := sent(t, c, "p", packet(10, 2))
		grab(t, p, "ann")
		rig.Grown(t, admin, "rc:{p}:g", rig.Records()-1)
		must(t, admin, "HSET", "rc:{p}:p", "n", dec(rig.Records()+1), "taken", dec(rig.Records()))
		// its time is over soon, and a grab gives the keys the ends that are theirs
		must(t, admin, "PERSIST", "rc:{p}:g")
		must(t, admin, "HSET", "rc:{p}:p", "gone", dec(serverNow(t, admin)+500))
		require.True(t, grab(t, p, "bob").Won())
		return func() bool {
			_, err := p.Inspect(ctx) // as the process does that sent it
			if err != nil {
				require.ErrorIs(t, err, redpacket.ErrNoPacket)
			}
			return number(t, admin, "DBSIZE") == 0
		}
	})
}

func grab(t testing.TB, p *redpacket.Packet, user string) redpacket.Share {
	t.Helper()
	s := redistest.NoError(p.Grab(ctx, user))(t)
	return s
}
