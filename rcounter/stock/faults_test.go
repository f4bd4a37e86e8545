package stock_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/oracle/judges"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// unanswered counts the attempts of untilAnswered that ended without an answer.
var unanswered atomic.Int64

// untilAnswered claims with a fresh deadline as often as it takes.
func untilAnswered(s *stock.Stock, claimant string, patience time.Duration) (stock.Grant, error) {
	for end := time.Now().Add(20 * time.Second); ; {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		g, err := s.Claim(ctx, claimant)
		cancel()
		if err == nil || time.Now().After(end) {
			return g, err
		}
		unanswered.Add(1)
	}
}

func claimAll(t *testing.T, stocks []*stock.Stock, users int, patience time.Duration) *judges.Winners {
	l := &judges.Winners{}
	var wg sync.WaitGroup
	next := make(chan string, 3*users)
	for range 3 { // everybody asks three times, in no order, whatever the first answer was
		for _, i := range rand.Perm(users) {
			next <- "u" + strconv.Itoa(i)
		}
	}
	close(next)
	for i := range 32 {
		wg.Go(func() {
			for u := range next {
				g, err := untilAnswered(stocks[i%len(stocks)], u, patience)
				if err != nil {
					t.Error(err)
					return
				}
				recorded(l, u, g)
			}
		})
	}
	wg.Wait()
	return l
}

func TestClaims_ServerDisturbed_GiveEveryUserOneUnit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		patience time.Duration
		disturb  func(t *testing.T, control rueidis.Client)
	}{
		"paused": {20 * time.Millisecond, func(t *testing.T, control rueidis.Client) {
			must(t, control, "CLIENT", "PAUSE", "60")
			must(t, control, "PING") // answered when the pause is over
			for range 200 {          // and as many round trips without one
				must(t, control, "PING")
			}
		}},
		"connections killed": {10 * time.Second, func(_ *testing.T, control rueidis.Client) {
			raw(control, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			for range 50 {
				raw(control, "PING")
			}
		}},
		"scripts flushed": {10 * time.Second, func(t *testing.T, control rueidis.Client) {
			must(t, control, "SCRIPT", "FLUSH")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			control := srv.Client(t)
			const users, limit = 300, 200
			o := stock.Options{CallTimeout: min(tc.patience, 5*time.Second)}
			stocks := []*stock.Stock{on(t, srv.Client(t), o).Stock("s"), on(t, srv.Client(t), o).Stock("s")}
			unhurried := opened(t, on(t, control, patient), "s", limit)
			var l *judges.Winners
			before := unanswered.Load()
			during(func() { tc.disturb(t, control) }, func() { l = claimAll(t, stocks, users, tc.patience) })
			if name == "paused" {
				require.Greater(t, unanswered.Load(), before, "the pauses were felt")
			}
			require.NoError(t, l.Exactly(limit, 0))
			st, err := unhurried.Inspect(ctx)
			require.NoError(t, err)
			require.EqualValues(t, limit, st.Sold)
			require.EqualValues(t, limit, st.Seq, "no unit without a user")
			require.EqualValues(t, limit, number(t, control, "HLEN", "rc:{s}:u"))
			requireEnds(t, control)
		})
	}
}
