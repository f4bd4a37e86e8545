package stock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// A server whose memory is full refuses new sales. A winner has its answer all the same, though a hold is over and ends
// in the same script, and what gives units back works.
func TestAFullServerAnswersWinnersAndTakesUnitsBack(t *testing.T) {
	t.Parallel()
	for name, ledger := range map[string]bool{"with a ledger": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			raw := redistest.Start(t).Client(t)
			o := exact
			o.CallTimeout, o.RetryTimeout = time.Second, time.Second
			s := on(t, raw, o).Stock("s")
			_, err := s.Open(ctx, stock.Spec{Limit: 9, PerUser: 2, OpenFor: time.Hour, Ledger: ledger})
			require.NoError(t, err)
			unit := claimed(t, s, "ann")
			any, err := s.ClaimAny(ctx, 2)
			require.NoError(t, err)
			for _, id := range []string{"over", "cancelled", "sold"} {
				_, err = s.Reserve(ctx, "of "+id, stock.Request{ID: id, N: 1}, time.Hour)
				require.NoError(t, err)
			}
			_, err = s.Confirm(ctx, "sold")
			require.NoError(t, err)
			must(t, raw, "ZADD", "rc:{s}:h", "XX", "1", "over")
			must(t, raw, "CONFIG", "SET", "maxmemory", "100kb")
			again := claimed(t, s, "ann")
			require.Equal(t, stock.Replayed, again.Outcome)
			require.Equal(t, unit.Ordinal, again.Ordinal)
			// refused again and again until ctx ends; if it ends while an answer is awaited, that is all that is known
			redistest.Eventually(t, 10*time.Second, "a claim of another is ErrUnavailable", func() bool {
				brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				_, err := s.Claim(brief, "bob")
				require.Error(t, err)
				return errors.Is(err, errs.ErrUnavailable)
			})
			for _, u := range []stock.Units{{Claimant: "ann", Ordinal: unit.Ordinal},
				{Request: any.Request, Ordinal: any.Ordinal, N: 1}, {Request: "sold"}} {
				n, err := s.Return(ctx, u)
				require.NoError(t, err)
				require.EqualValues(t, 1, n)
			}
			back, err := s.Cancel(ctx, "cancelled")
			require.NoError(t, err)
			require.True(t, back)
			st, err := s.Inspect(ctx)
			require.NoError(t, err)
			require.Equal(t, [2]int64{1, 0}, [2]int64{st.Sold, st.Held})
			must(t, raw, "CONFIG", "SET", "maxmemory", "0")
			require.Equal(t, stock.Granted, claimed(t, s, "bob").Outcome)
		})
	}
}
