package redpacket_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

func TestAnObserverIsToldOfEveryGrabOnce(t *testing.T) {
	t.Parallel()
	type key struct{}
	var told []string
	o := patient
	o.Observer = func(ctx context.Context, e redpacket.Event) {
		require.Equal(t, "v", ctx.Value(key{}))
		require.Positive(t, e.Took)
		told = append(told, fmt.Sprintf("%s: %v, %d, %v", e.Name, e.Outcome, e.Cents, e.Err))
	}
	srv := redistest.Embedded(t)
	p := on(t, srv.Client(t), o).Packet("p")
	ctx := context.WithValue(ctx, key{}, "v")
	grab := func(user string) { p.Grab(ctx, user) }
	grab("ann")
	_, err := p.Send(ctx, redpacket.Spec{Total: 70, Shares: 1, OpenFor: time.Hour})
	require.NoError(t, err)
	grab("ann")
	grab("ann")
	grab("bob")
	grab("") // not sent
	must(t, srv.Client(t), "DEL", "rc:{p}:g")
	grab("ann")
	require.Equal(t, []string{"p: not open, 0, <nil>", "p: granted, 70, <nil>", "p: replayed, 70, <nil>",
		"p: sold out, 0, <nil>",
		`p: , 0, redpacket: corrupt: "rc:{p}:p" counts 1 records or shares, and 0 are there`}, told)
}

func TestAnObserverThatPanicsIsLoggedAndChangesNothing(t *testing.T) {
	t.Parallel()
	log, logged := rig.Logged()
	o := patient
	o.Logger = log
	o.Observer = func(context.Context, redpacket.Event) { panic("ouch") }
	s, err := on(t, redistest.Embedded(t).Client(t), o).Packet("p").Grab(ctx, "ann")
	require.NoError(t, err)
	require.Equal(t, redpacket.NotOpen, s.Outcome)
	require.Contains(t, logged(), "ouch")
}
