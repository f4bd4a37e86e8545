package redpacket_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

// From Redis 7.2 on WAIT waits for nothing if its connection has written nothing. So a call that only finds what its
// first copy, or another call, has done must write something, or its answer is confirmed by nobody.
func TestAnswers_Confirmed_ComeWithAWrite(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Start(t, "--hz", "100") // by default WAIT ends with the next 100 ms, whatever its timeout
	admin := srv.Client(t)
	c := on(t, srv.Client(t),
		redpacket.Options{CallTimeout: patient.CallTimeout, MinReplicas: 1, ReplicaTimeout: time.Millisecond})
	p := c.Packet("p")
	packet := redpacket.Spec{Total: 10, Shares: 3, OpenFor: time.Hour, Retain: time.Hour, Ledger: true}
	_, err := p.SendAs(ctx, "S", packet, []int64{3, 3, 4}, 0, 3)
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	brief := c.Packet("brief")
	_, err = brief.SendAs(ctx, "S", redpacket.Spec{Total: 10, Shares: 3, OpenFor: time.Millisecond, Retain: time.Hour},
		[]int64{3, 3, 4}, 0, 3)
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	for _, tc := range []struct {
		name string
		call func() error
	}{
		{"Grab", func() error { _, err := p.GrabEach(ctx, "ann"); return err }},
		{"Ledger", func() error {
			_, err := p.Ledger(ctx, 9, func(context.Context, []redpacket.Entry) error {
				t.Error("fn has what no replica has")
				return nil
			})
			return err
		}},
		{"Refund", func() error { _, err := brief.Refund(ctx); return err }},
		{"Send", func() error { _, err := p.SendAs(ctx, "S", packet, []int64{3, 3, 4}, 0, 3); return err }},
	} {
		require.ErrorIs(t, tc.call(), errs.ErrNotReplicated, tc.name)
		before := rig.Writes(t, admin)
		require.ErrorIs(t, tc.call(), errs.ErrNotReplicated, tc.name)
		require.Greater(t, rig.Writes(t, admin), before, tc.name)
	}
}

// A refusal needs no replica, and what no replica had is confirmed once there is one.
func TestShares_ReplicaIsThereLater_AreConfirmed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := on(t, srv.Client(t), redpacket.Options{CallTimeout: 10 * time.Second, MinReplicas: 1,
		ReplicaTimeout: 50 * time.Millisecond}).Packet("p")
	sent(t, on(t, srv.Client(t), patient), "p", packet(10, 1))
	s, err := p.Grab(ctx, "ann")
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	require.False(t, s.Won())
	s = redistest.NoError(p.Grab(ctx, "bob"))(t)
	require.Equal(t, redpacket.SoldOut, s.Why)
	host, port, _ := strings.Cut(srv.Addr(), ":")
	redistest.Start(t, "--replicaof", host, port)
	redistest.Eventually(t, 20*time.Second, "a replica has it", func() bool {
		s, err = p.Grab(ctx, "ann")
		return err == nil
	})
	require.True(t, s.Won() && s.Again)
}
