package redpacket_test

import (
	"context"
	"testing"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

func TestAClosedHubIsErrClosedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	hub, err := pubsub.Dial(srv.Option(), pubsub.Options{})
	require.NoError(t, err)
	c, err := redpacket.New(hub, patient)
	require.NoError(t, err)
	require.NoError(t, hub.Close(context.Background()))
	_, err = c.Packet("p").Grab(ctx, "who")
	require.ErrorIs(t, err, errs.ErrClosed)
	_, err = redpacket.New(hub, patient)
	require.ErrorIs(t, err, errs.ErrClosed)
	require.NoError(t, c.Close(ctx))
}
