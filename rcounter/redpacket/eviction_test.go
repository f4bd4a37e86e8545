package redpacket_test

import (
	"crypto/rand"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

func TestAnEvictingServerIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	clients := rig.Evicting(t)
	for first, call := range map[string]func(c *redpacket.Client) error{
		"Send": func(c *redpacket.Client) error { _, err := c.Packet(rand.Text()).Send(ctx, packet(5, 2)); return err },
		"Grab": func(c *redpacket.Client) error { _, err := c.Packet("none").Grab(ctx, "ann"); return err },
	} {
		for client, at := range clients {
			log, text := rig.Logged()
			c := on(t, at, redpacket.Options{CallTimeout: patient.CallTimeout, Logger: log})
			for range 3 {
				require.NoError(t, call(c), "%s: %s", first, client)
			}
			rig.Warned(t, client, text, func() error { return c.Close(ctx) })
		}
	}
}
