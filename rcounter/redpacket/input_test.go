package redpacket_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

func TestBadInputIsRefusedByNameAndValueAndNothingIsSent(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Embedded(t).Client(t)}
	c := on(t, wire, patient)
	wire.Sent.Store(0)
	for what, id := range map[string]string{"empty": "", "1025": strings.Repeat("x", 1025), "UTF-8": "a\xff",
		`"a\x00b" has a NUL`: "a\x00b"} {
		_, err := c.Packet("p").Grab(ctx, id)
		require.ErrorIs(t, err, errs.ErrInvalidName, what)
		require.ErrorContains(t, err, what)
		requirePrefix(t, err)
	}
	for _, err := range c.Packet("a{b}").Shares(ctx) {
		require.ErrorIs(t, err, errs.ErrInvalidName)
		requirePrefix(t, err)
	}
	require.Zero(t, wire.Sent.Load())
}

// requirePrefix fails if the error does not begin with the package's name, once.
func requirePrefix(t testing.TB, err error) {
	t.Helper()
	require.True(t, strings.HasPrefix(err.Error(), "redpacket: "), err)
	require.Equal(t, 1, strings.Count(err.Error(), "redpacket: "), err)
}

func TestNewRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	_, err := redpacket.New(nil, redpacket.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "hub is nil")

	h, err := pubsub.New(redistest.Embedded(t).Client(t), pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { h.Close(context.Background()) })
	for _, tc := range []struct {
		o    redpacket.Options
		says []string
	}{
		{redpacket.Options{CallTimeout: -time.Second}, []string{"CallTimeout", "-1s"}},
		{redpacket.Options{CallTimeout: time.Microsecond}, []string{"CallTimeout", "1µs"}},
		{redpacket.Options{MinReplicas: -1}, []string{"MinReplicas", "-1"}},
		{redpacket.Options{ReplicaTimeout: -time.Second}, []string{"ReplicaTimeout", "-1s"}},
		{redpacket.Options{MinReplicas: 1, ReplicaTimeout: time.Microsecond}, []string{"ReplicaTimeout", "1µs"}},
		{redpacket.Options{CallTimeout: time.Second, ReplicaTimeout: time.Second}, []string{"ReplicaTimeout", "1s"}},
		{redpacket.Options{MaxBatch: 129}, []string{"MaxBatch", "129", "128"}},
		{redpacket.Options{KeyPrefix: "a\xff"}, []string{"KeyPrefix", `"a\xff"`}},
		{redpacket.Options{KeyPrefix: "a\x00"}, []string{"KeyPrefix", `"a\x00"`}},
		{redpacket.Options{KeyPrefix: "shop{}:"}, []string{"KeyPrefix", `"shop{}:"`}},
		{redpacket.Options{KeyPrefix: "{}"}, []string{"KeyPrefix", `"{}"`}},
		{redpacket.Options{KeyPrefix: strings.Repeat("x", 64<<10)}, []string{"KeyPrefix", `"xxx`}},
	} {
		_, err := redpacket.New(h, tc.o)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		requirePrefix(t, err)
		for _, s := range tc.says {
			require.ErrorContains(t, err, s)
		}
	}
}
