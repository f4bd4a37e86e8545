package redpacket_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

// A sending's requests stay in the network. The packet is sent by another copy of them, and is lost with all that it
// has; then they arrive, after their caller has long had its answer. Nobody asked for what would be given out again.
func TestALateCopyOfASendOpensNothing(t *testing.T) {
	srv := redistest.Embedded(t)
	at := time.Now()
	srv.Embedded.SetTime(at)
	admin := srv.Client(t)
	wire := &recording{Client: admin}
	c := on(t, wire, patient)
	packet, o := c.Packet("p"), redpacket.Spec{Total: 10, Shares: 3, OpenFor: time.Hour}
	_, err := packet.Send(ctx, o)
	require.NoError(t, err)
	sent := slices.Clone(wire.Sent)
	srv.Embedded.FlushAll()
	srv.Embedded.SetTime(at.Add(6 * patient.CallTimeout))
	for range 2 {
		for _, args := range sent {
			raw(admin, args...) // some are EVALSHA that the server does not know now
		}
		share, err := packet.Grab(ctx, "bob")
		require.NoError(t, err)
		require.Equal(t, redpacket.NotOpen, share.Outcome)
		if _, err = c.Packet("other").Send(ctx, o); err != nil { // loads the script
			require.ErrorIs(t, err, errs.ErrAlreadyOpen)
		}
	}
}
