package ratelimit_test

import (
	"context"
	"testing"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/stretchr/testify/require"
)

func TestAClosedHubIsErrClosedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	hub, err := pubsub.Dial(srv.Option(), pubsub.Options{})
	require.NoError(t, err)
	c, err := ratelimit.New(hub, patient)
	require.NoError(t, err)
	require.NoError(t, hub.Close(context.Background()))
	_, err = c.Limiter("l", ratelimit.LimiterOptions{Rate: 1}).Allow(ctx, "", 1)
	require.ErrorIs(t, err, errs.ErrClosed)
	_, err = ratelimit.New(hub, patient)
	require.ErrorIs(t, err, errs.ErrClosed)
	require.NoError(t, c.Close(ctx))
}
