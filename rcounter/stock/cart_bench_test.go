package stock_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// cartTime is how many us of the processor a server's main thread uses for one of so many ops, one after the other,
// with what it takes to read them and to reply. Unlike the time that scripts take, that hardly depends on what else the
// machine does.
func cartTime(b *testing.B, admin rueidis.Client, ops int, op func() error) float64 {
	used := func() (s float64) {
		for line := range strings.Lines(text(b, admin, "INFO", "cpu")) {
			if name, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && strings.HasSuffix(name, "_main_thread") {
				f, err := strconv.ParseFloat(v, 64)
				require.NoError(b, err)
				s += f
			}
		}
		return s
	}
	before := used()
	for range ops {
		require.NoError(b, op())
	}
	return (used() - before) * 1e6 / float64(ops)
}

// Carts of several stocks: us is what one takes the server's processor, to reserve it and to confirm it.
func BenchmarkCart(b *testing.B) {
	for _, n := range []int{1, 2, 3, 5, 10, 16} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			srv := redistest.Start(b, "--save", "")
			c := on(b, srv.Client(b), patient)
			g := c.Group("sale")
			var names []string
			for i := range n {
				names = append(names, fmt.Sprint("sku", i))
			}
			grouped(b, g, stock.Spec{Limit: 1 << 40, OpenFor: time.Hour}, names...)
			var reserved, confirmed atomic.Int64
			reserve := func() error {
				i := reserved.Add(1)
				_, err := g.Reserve(ctx, fmt.Sprintf("user-%09d", i),
					stock.CartRequest{ID: fmt.Sprintf("ord-%08d", i), Lines: lines(1, names...)}, time.Hour)
				return err
			}
			confirm := func() error {
				c, err := g.Confirm(ctx, fmt.Sprintf("ord-%08d", confirmed.Add(1)), lines(0, names...)...)
				if err == nil && c.Outcome != stock.Granted {
					err = fmt.Errorf("%v", c.Outcome)
				}
				return err
			}
			require.NoError(b, reserve()) // one more than is confirmed: others hold units too
			for b.Loop() {
				require.NoError(b, reserve())
				require.NoError(b, confirm())
			}
			admin, ops := srv.Client(b), redistest.Sized(50, 2000, 2000)
			b.ReportMetric(cartTime(b, admin, ops, reserve), "reserve-us")
			b.ReportMetric(cartTime(b, admin, ops, confirm), "confirm-us")
		})
	}
}
