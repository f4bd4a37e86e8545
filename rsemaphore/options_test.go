package rsemaphore_test

import (
	"context"
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestOptionsOutOfBoundsAreRefusedByName(t *testing.T) {
	t.Parallel()
	hub, err := pubsub.New(redistest.Embedded(t).Client(t), pubsub.Options{})
	require.NoError(t, err)
	defer hub.Close(context.Background())
	for field, o := range map[string]rsemaphore.Options{
		"KeyPrefix":       {KeyPrefix: "a}"},
		"WatchdogTimeout": {WatchdogTimeout: 99 * time.Millisecond},
		"PollCap":         {PollCap: -1},
		"CallTimeout":     {CallTimeout: time.Microsecond},
		"MaxHold":         {MaxHold: math.MaxInt64},
		"MinReplicas":     {MinReplicas: -1},
		"ReplicaTimeout":  {ReplicaTimeout: time.Second},
		"Heartbeat":       {Heartbeat: 49 * time.Millisecond},
	} {
		_, err := rsemaphore.New(hub, o)
		require.ErrorIs(t, err, errs.ErrInvalidOption, field)
		require.ErrorContains(t, err, field+" is ")
	}
	_, err = rsemaphore.New(nil, rsemaphore.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "hub")
}

func TestEveryClientHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	a, b := newRig(t, s, rsemaphore.Options{}), newRig(t, s, rsemaphore.Options{})
	require.NotEqual(t, a.c.ID(), b.c.ID())
	require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
		a.c.ID())
}

func TestAClosedClientCloses(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Embedded(t), rsemaphore.Options{})
	require.NoError(t, r.c.Close(context.Background()))
	require.NoError(t, r.c.Close(context.Background()))
}

func TestAReplyThatNobodyExpectsIsSaidAsItIs(t *testing.T) {
	t.Parallel()
	hub, err := pubsub.New(redistest.Forged{Client: redistest.Embedded(t).Client(t)}, pubsub.Options{})
	require.NoError(t, err)
	defer hub.Close(context.Background())
	c, err := rsemaphore.New(hub, rsemaphore.Options{})
	require.NoError(t, err)
	_, err = c.Semaphore("s", 1).Inspect(context.Background())
	require.ErrorContains(t, err, `unexpected reply to inspect on "s": {`)
	require.NotContains(t, err.Error(), "%!")
	require.NoError(t, c.Close(context.Background()))
}

func TestAnEvictingServerIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	for first, use := range map[string]func(c *rsemaphore.Client) error{
		"Acquire": func(c *rsemaphore.Client) error {
			p, err := c.Semaphore("s", 1).Acquire(within(t), 1)
			if err == nil {
				err = p.Release(within(t))
			}
			return err
		},
		"counting": func(c *rsemaphore.Client) error {
			_, err := c.CountingSemaphore("c").TrySetPermits(within(t), 1, 0)
			return err
		},
		"latch": func(c *rsemaphore.Client) error {
			_, err := c.CountDownLatch("l").TrySetCount(within(t), 1, time.Minute)
			return err
		},
		"barrier": func(c *rsemaphore.Client) error {
			_, err := c.CyclicBarrier("b", 1).Await(within(t))
			return err
		},
	} {
		log := &redistest.Logbook{}
		o := patient
		o.Logger = log.Logger()
		r := newRig(t, s, o)
		for range 3 {
			require.NoError(t, use(r.c), first)
		}
		redistest.Eventually(t, 10*time.Second, "a warning", func() bool { return log.Count("allkeys-lru") == 1 })
		require.NoError(t, r.c.Close(within(t)))
		require.Equal(t, 1, log.Count("allkeys-lru"), first)
	}
}
