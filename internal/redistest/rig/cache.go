package rig

import (
	"testing"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// EachCache runs fn with clients that cache on their side, and with clients that do not, at the same time.
func EachCache(t *testing.T, fn func(t *testing.T, srv *redistest.Server, client func() rueidis.Client)) {
	redistest.SideBySide(t, map[string]bool{"with client-side caching": false, "without": true},
		func(t *testing.T, _ string, off bool) {
			srv := redistest.Start(t)
			fn(t, srv, func() rueidis.Client {
				o := srv.Option()
				o.DisableCache = off
				c, err := rueidis.NewClient(o)
				require.NoError(t, err)
				t.Cleanup(c.Close)
				return c
			})
		})
}
