package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestTheJobRunsOnceATickWithAMinimumHold(t *testing.T) {
	redistest.SkipShort(t)
	for name, s := range map[string]string{"embedded": "", "redis": redistest.Start(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c := config{redis: s, machines: 3, ticks: 3, period: 3 * time.Second, skew: 300 * time.Millisecond}
			require.NoError(t, run(context.Background(), c, &out), out.String())
			require.Regexp(t, `ran [4-9] times with Unlock, 3 times with UnlockAfter; it was due 3 times`, out.String(),
				"and without it too often")
		})
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	for _, c := range []config{
		{machines: 1, ticks: 1, period: time.Second, skew: time.Millisecond},
		{machines: 2, ticks: 0, period: time.Second, skew: time.Millisecond},
		{machines: 2, ticks: 1, period: time.Second, skew: time.Second},
	} {
		require.ErrorContains(t, run(context.Background(), c, &bytes.Buffer{}), "must be")
	}
}
