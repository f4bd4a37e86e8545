package stock_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// A script ends only so many holds at once. Those that it leaves must refuse nobody.
func TestHolds_ManyAreOver_RefuseNoClaim(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	const users = 1200 // more than a script ends at once
	last := "u" + strconv.Itoa(users-1)
	for name, call := range map[string]func(t *testing.T, s *stock.Stock){
		"Claim by the claimant of one": func(t *testing.T, s *stock.Stock) {
			require.Equal(t, stock.Granted, claimed(t, s, last).Outcome)
		},
		"Claim in company": func(t *testing.T, s *stock.Stock) {
			gs, err := s.ClaimAs(ctx, "B", "ann", last, "bob")
			require.NoError(t, err)
			require.Equal(t, "granted 1, granted 2, granted 3", answers(gs))
		},
		"ClaimOnce by the claimant of one": func(t *testing.T, s *stock.Stock) {
			g, err := s.Claim(ctx, last, stock.Request{ID: "r", N: 1})
			require.NoError(t, err)
			require.Equal(t, stock.Granted, g.Outcome)
		},
		"Reserve by the claimant of one": func(t *testing.T, s *stock.Stock) {
			r, err := s.Reserve(ctx, last, stock.Request{ID: "again", N: 1}, time.Hour)
			require.NoError(t, err)
			require.Equal(t, stock.Granted, r.Outcome)
		},
		"ClaimAny of all": func(t *testing.T, s *stock.Stock) {
			g, err := s.ClaimAny(ctx, users)
			require.NoError(t, err)
			require.EqualValues(t, users, g.N)
		},
		"Resize to less than was held": func(t *testing.T, s *stock.Stock) {
			require.NoError(t, s.Change(ctx, stock.Change{Limit: 1}))
		},
	} {
		t.Run(name, func(t *testing.T) { overdue(t, users, 1, call) })
	}
	t.Run("ClaimOnce of all", func(t *testing.T) {
		overdue(t, users, users, func(t *testing.T, s *stock.Stock) {
			g, err := s.Claim(ctx, "ann", stock.Request{ID: "r", N: users})
			require.NoError(t, err)
			require.EqualValues(t, users, g.N)
		})
	})
	t.Run("Reserve of all", func(t *testing.T) {
		overdue(t, users, users, func(t *testing.T, s *stock.Stock) {
			r, err := s.Reserve(ctx, "ann", stock.Request{ID: "all", N: users}, time.Hour)
			require.NoError(t, err)
			require.Equal(t, stock.Granted, r.Outcome)
		})
	})
}

// overdue calls with a stock of so many units that are all held, by reservations whose time is over.
func overdue(t *testing.T, users, per int64, call func(t *testing.T, s *stock.Stock)) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	s := on(t, admin, exact).Stock("s")
	_, err := s.Open(ctx, stock.Spec{Limit: users, PerUser: per, OpenFor: time.Hour})
	require.NoError(t, err)
	crowd(25, int(users)/25, func(c, i int) {
		n := strconv.Itoa(c*int(users)/25 + i)
		if _, err := s.Reserve(ctx, "u"+n, stock.Request{ID: "h" + n, N: 1}, time.Hour); err != nil {
			t.Error(err)
		}
	})
	over := []string{"ZADD", "rc:{s}:h", "XX"}
	for i := range users {
		over = append(over, dec(i+1), "h"+dec(i))
	}
	must(t, admin, over...)
	ended := int64(0)
	wire := &recording{Client: admin, Before: func([]string) {
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		now := users - st.Reservations
		require.LessOrEqual(t, now-ended, int64(1024+128), "no script does it all")
		ended = now
	}}
	call(t, on(t, wire, exact).Stock("s"))
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.GreaterOrEqual(t, users-st.Reservations, users-1)
	require.LessOrEqual(t, st.Sold+st.Held, users)
	require.Equal(t, st.Seq, st.Sold, "what was refused on the way left nothing")
}

func TestConfirm_SoldOut_LeavesTheFlag(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		admin := srv.Client(t)
		s := opened(t, on(t, admin, exact), "s", 4)
		for id, ttl := range map[string]time.Duration{"soon": 20 * time.Minute, "later": 30 * time.Minute,
			"last": 40 * time.Minute, "lasting": 2 * time.Hour} {
			_, err := s.Reserve(ctx, id, stock.Request{ID: id, N: 1}, ttl)
			require.NoError(t, err)
		}
		flag := text(t, admin, "GET", "rc:{s}:o")
		require.NotEqual(t, "(nil)", flag)
		left := func() time.Duration {
			return time.Duration(number(t, admin, "PTTL", "rc:{s}:o")) * time.Millisecond
		}
		for _, confirm := range []string{"", "later", "soon", "last", "lasting"} {
			for range 2 {
				if confirm != "" {
					_, err := s.Confirm(ctx, confirm)
					require.NoError(t, err)
				}
				require.Equal(t, flag, text(t, admin, "GET", "rc:{s}:o"), confirm)
				require.LessOrEqual(t, left(), 20*time.Minute, confirm)
				require.Positive(t, left(), confirm)
			}
		}
	})
}
