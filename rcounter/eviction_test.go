package rcounter_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

func TestAnEvictingServerIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	clients := rig.Evicting(t)
	for first, call := range map[string]func(c *rcounter.Client) error{
		"Incr": func(c *rcounter.Client) error {
			_, err := c.Counter("k", rcounter.CounterOptions{}).Incr(ctx)
			return err
		},
	} {
		for client, at := range clients {
			log, text := rig.Logged()
			c := on(t, at, rcounter.Options{CallTimeout: patient.CallTimeout, Logger: log})
			for range 3 {
				require.NoError(t, call(c), "%s: %s", first, client)
			}
			rig.Warned(t, client, text, func() error { return c.Close(ctx) })
		}
	}
}
