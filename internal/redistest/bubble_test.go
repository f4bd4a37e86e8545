package redistest_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// said is the answer to a command, or its error.
func said(c rueidis.Client, limit time.Duration, words ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	text, err := c.Do(ctx, c.B().Arbitrary(words...).Build()).ToString()
	if err != nil {
		return err.Error()
	}
	return text
}

func TestBubble_Server_HasItsOwnTime(t *testing.T) {
	redistest.Simulated(t, 2, func(t *testing.T, servers []*redistest.Server) {
		require.True(t, redistest.InABubble(), "the time is that of the world")
		s, c := servers[0], servers[0].Client(t)
		require.Equal(t, "OK", said(c, time.Second, "SET", "k", "v", "PX", "60000"))
		time.Sleep(59 * time.Second)
		require.Equal(t, "v", said(c, time.Second, "GET", "k"))
		time.Sleep(2 * time.Second)
		require.NotEqual(t, "v", said(c, time.Second, "GET", "k"))
		require.Equal(t, 2, redistest.CommandCalls(t, c)["get"])
		said(c, time.Second, "SET", "k", "v")
		s.Restart(t)
		require.False(t, s.Embedded.Exists("k"), "it was not emptied")
		redistest.Eventually(t, time.Minute, "it is back", func() bool { return said(c, time.Second, "PING") == "PONG" })
		s.Kill(t)
		require.NotEqual(t, "PONG", said(c, time.Second, "PING"))
		require.Equal(t, "PONG", said(servers[1].Client(t), time.Second, "PING"))
	})
}
