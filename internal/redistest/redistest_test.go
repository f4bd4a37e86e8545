package redistest_test

import (
	"context"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestServersAnswer(t *testing.T) {
	check := func(t *testing.T, s *redistest.Server) {
		c := s.Client(t)
		require.NoError(t, c.Do(context.Background(), c.B().Set().Key("k").Value("v").Build()).Error())
		v, err := c.Do(context.Background(), c.B().Get().Key("k").Build()).ToString()
		require.NoError(t, err)
		require.Equal(t, "v", v)
	}
	redistest.Each(t, check)
	t.Run("cluster", func(t *testing.T) { check(t, redistest.Cluster(t)) })
}

func TestCommandCallsCountCommandsInsideScripts(t *testing.T) {
	c := redistest.Start(t).Client(t)
	require.NoError(t, c.Do(context.Background(), c.B().Eval().Script("redis.call('set',KEYS[1],1) return 1").Numkeys(1).Key("k").Build()).Error())
	calls := redistest.CommandCalls(t, c)
	require.Equal(t, 1, calls["eval"])
	require.Equal(t, 1, calls["set"])
}
