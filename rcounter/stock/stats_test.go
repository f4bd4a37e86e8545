package stock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func TestStats_ClaimsShareCalls_AreCounted(t *testing.T) {
	t.Parallel()
	const claims = 20
	proxy := redistest.NewProxy(t, redistest.Embedded(t))
	c := on(t, proxy.Server().Client(t), stock.Options{CallTimeout: 60 * time.Second})
	sale := c.Stock("s")
	_, err := sale.Open(ctx, stock.Spec{Limit: 100, OpenFor: time.Hour})
	require.NoError(t, err)
	_, err = sale.Claim(ctx, "first") // the script is on the server
	require.NoError(t, err)
	require.Zero(t, c.Stats())

	answer := make(chan struct{})
	under := proxy.Trap(&redistest.Trap{Match: redistest.With("EVALSHA", "alone"), Fate: redistest.HoldReply,
		Release: answer})
	var all sync.WaitGroup
	claim := func(who string) {
		all.Go(func() {
			if _, err := sale.Claim(ctx, who); err != nil {
				t.Error(err)
			}
		})
	}
	claim("alone")
	under.Wait(t)
	for i := range claims {
		claim(fmt.Sprint("user ", i))
	}
	require.Eventually(t, func() bool { return c.Stats().SharedRequests == claims }, 30*time.Second, time.Millisecond)
	close(answer)
	all.Wait()
	s := c.Stats()
	require.EqualValues(t, claims, s.SharedRequests)
	require.Positive(t, s.SharedCalls)
	require.LessOrEqual(t, s.SharedCalls, s.SharedRequests)
}
