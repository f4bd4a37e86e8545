package pages_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

// Share makes a client of locks on the rueidis client of the program, which the program closes.
func Share(client rueidis.Client) (locks *rlock.Client, end func(context.Context) error, err error) {
	hub, err := pubsub.New(client, pubsub.Options{})
	if err != nil {
		return nil, nil, err
	}
	locks, err = rlock.New(hub, rlock.Options{})
	if err != nil {
		hub.Close(context.Background())
		return nil, nil, err
	}
	return locks, func(ctx context.Context) error {
		defer hub.Close(ctx) // after its clients
		return locks.Close(ctx)
	}, nil
}

func TestShare_ClientOfTheProgram_StaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.NoError(rueidis.NewClient(redlatchtest.New(t).Option()))(t)
		defer client.Close()
		locks, end, err := Share(client)
		require.NoError(t, err)
		require.NoError(t, locks.Reentrant("a").WithWait(time.Minute).Do(t.Context(), nothing))
		require.NoError(t, end(t.Context()))
		require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error())
	})
}
