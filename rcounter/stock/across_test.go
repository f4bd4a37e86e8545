package stock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// dying is the connection of a process that dies at one of its calls: none reaches the server from then on.
type dying struct {
	rueidis.Client
	left atomic.Int64 // how many calls it still makes
	runs bool         // the call at which it dies reaches the server
}

func (c *dying) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	switch left := c.left.Add(-1); {
	case left == -1 && c.runs:
		c.Client.Do(ctx, cmd)
		fallthrough
	case left < 0:
		return c.Client.Do(ctx, c.B().Arbitrary("DIED").Build()) // an error after which nothing is tried again
	}
	return c.Client.Do(ctx, cmd)
}

func (c *dying) died() bool { return c.left.Load() < 0 }

// A process reserves a cart of three stocks and confirms it. It dies at any of its calls, before that reaches the server or
// before the answer is read. Then nobody goes on, or anybody does one of four things, twice. Whatever happens, no line is sold twice or
// beyond what was asked, and nothing is held after the end. Whoever confirms in time completes a cart that was reserved to the
// end, and sells nothing of another; and no cart that was confirmed is given back.
func TestACoordinatorThatDiesAtAnyCallLeavesNoLineTwiceAndNothingHeld(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	all := on(t, raw, exact)
	reserve := func(ctx context.Context, c *stock.Client, id string) (stock.Cart, error) {
		return c.ReserveAll(ctx, id, "ann", []stock.Line{{Stock: "c", N: 3}, {Stock: "a", N: 1}, {Stock: "b", N: 2}}, time.Minute)
	}
	o := spec(1 << 40)
	o.PerUser, o.OpenFor = 1<<40, 10000*time.Hour
	var stocks []*stock.Stock
	for _, name := range names {
		s := all.Stock(name)
		_, err := s.Open(ctx, o)
		require.NoError(t, err)
		stocks = append(stocks, s)
	}
	// what the stocks have for one cart: 'a' that its line is sold, 'A' held
	each := []int64{1, 2, 3}
	var sold [3]int64
	state := func() (state string) {
		for i, s := range sums(t, stocks...) {
			switch [2]int64{s[0] - sold[i], s[1]} {
			case [2]int64{0, 0}:
				state += "-"
			case [2]int64{each[i], 0}:
				state += names[i]
			case [2]int64{0, each[i]}:
				state += string(names[i][0] - 'a' + 'A')
			default:
				require.Failf(t, "more than was asked for", "%v of %v", s, sold)
			}
		}
		return state
	}
	carts, died := 0, true
	for cut := int64(0); died; cut++ {
		for _, runs := range []bool{false, true} {
			for _, then := range []string{"nothing", "confirm", "reserve and confirm", "cancel", "cancel and confirm"} {
				carts++
				id, what := fmt.Sprint("cart", carts), fmt.Sprintf("died at call %d (%v), then %s", cut, runs, then)
				wire := &dying{Client: raw, runs: runs}
				c := on(t, wire, exact)
				wire.left.Store(100) // the server's time is asked for
				_, err := c.Stock("a").Confirm(ctx, "none")
				require.ErrorIs(t, err, stock.ErrNotFound)
				wire.left.Store(cut)
				got, err := reserve(ctx, c, id)
				if err == nil {
					require.True(t, got.Won())
					require.Equal(t, "ABC", state(), what)
					_, err = c.ConfirmAll(ctx, id, names...)
				}
				died = wire.died()
				require.Equal(t, died, err != nil, what)
				for range 2 {
					at := state()
					switch then {
					case "confirm", "reserve and confirm":
						if then == "reserve and confirm" {
							got, err := reserve(ctx, all, id)
							require.NoError(t, err, what)
							require.True(t, got.Won(), what)
						}
						got, err = all.ConfirmAll(ctx, id, names...)
						if then == "reserve and confirm" || at[2] != '-' {
							require.NoError(t, err, what)
							require.True(t, got.Won(), what)
							require.Equal(t, "abc", state(), what)
						} else { // it was not reserved to the end
							require.ErrorIs(t, err, stock.ErrNotFound, what)
							require.Equal(t, at, state(), what)
						}
					case "cancel", "cancel and confirm":
						_, err := all.CancelAll(ctx, id, names...)
						require.NoError(t, err, what)
						if at[2] == 'c' {
							require.Equal(t, at, state(), "it was confirmed: %s", what)
						} else {
							require.Equal(t, "---", state(), what)
						}
						if then == "cancel and confirm" {
							got, err = all.ConfirmAll(ctx, id, names...)
							if at[2] == 'c' {
								require.NoError(t, err, what)
								require.Equal(t, "abc", state(), what)
							} else {
								require.False(t, got.Won(), what)
								require.Equal(t, "---", state(), what)
							}
						}
					}
				}
				forward(2 * time.Minute)
				for i, s := range stocks {
					_, err := s.Reap(ctx)
					require.NoError(t, err)
					st, err := s.Inspect(ctx)
					require.NoError(t, err)
					require.Zero(t, st.Held, what)
					sold[i] = st.Sold
				}
			}
		}
	}
	require.Greater(t, carts, 6*10, "it dies at every call")
}

// The same where the process gives the cart up, because a line is refused, or because it cancels it.
func TestACoordinatorThatDiesWhileItGivesUpLeavesNothingHeld(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	srv := redistest.Embedded(t)
	raw, forward := srv.Client(t), srv.Clock()
	all := on(t, raw, exact)
	var stocks []*stock.Stock
	for _, name := range names {
		o := spec(10)
		o.OpenFor = 10000 * time.Hour
		s := all.Stock(name)
		_, err := s.Open(ctx, o)
		require.NoError(t, err)
		stocks = append(stocks, s)
	}
	nothing := make([][2]int64, 3)
	carts, died := 0, true
	for cut := int64(0); died; cut++ {
		died = false
		for _, runs := range []bool{false, true} {
			for _, refused := range []string{"", "b", "c"} {
				carts++
				id := fmt.Sprint("cart", carts)
				what := fmt.Sprintf("died at call %d (%v), refused %q", cut, runs, refused)
				wire := &dying{Client: raw, runs: runs}
				wire.left.Store(cut)
				c := on(t, wire, exact)
				claimant := "ann"
				if refused != "" { // it may have one unit of each
					claimant = "bob of " + refused
					_, err := all.Stock(refused).Reserve(ctx, "alone"+id, claimant, 1, time.Minute)
					require.NoError(t, err)
				}
				got, err := c.ReserveAll(ctx, id, claimant, lines(1, names...), time.Minute)
				if err == nil && refused != "" {
					require.Equal(t, stock.UserLimit, got.Outcome, what)
				} else if err == nil {
					c.CancelAll(ctx, id, names...)
				}
				died = died || wire.died()
				if refused != "" {
					_, err = all.Stock(refused).Cancel(ctx, "alone"+id)
					require.NoError(t, err)
				}
				if carts%2 == 0 {
					for range 2 {
						_, err := all.CancelAll(ctx, id, names...)
						require.NoError(t, err)
						require.Equal(t, nothing, sums(t, stocks...), what)
					}
					got, err := all.ConfirmAll(ctx, id, names...)
					require.NoError(t, err, what)
					require.Equal(t, stock.Cancelled, got.Outcome)
				} else {
					forward(2 * time.Minute)
					for _, s := range stocks {
						_, err := s.Reap(ctx)
						require.NoError(t, err)
					}
				}
				require.Equal(t, nothing, sums(t, stocks...), what)
			}
		}
	}
}

func TestConfirmAllAndCancelAllAtOnceLeaveEveryCartWhole(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	c := on(t, srv.Client(t), exact)
	names := []string{"a", "b", "c"}
	const carts = 40
	var stocks []*stock.Stock
	for _, name := range names {
		stocks = append(stocks, opened(t, c, name, carts))
	}
	var won atomic.Int64
	crowd(8, carts/8, func(caller, i int) {
		id := fmt.Sprint("cart ", caller, " ", i)
		got, err := c.ReserveAll(ctx, id, id, lines(1, names...), time.Hour)
		if err != nil || !got.Won() {
			t.Error(got, err)
			return
		}
		cancelled := make(chan bool, 1)
		go func() {
			back, err := c.CancelAll(ctx, id, names...)
			if err != nil {
				t.Error(err)
			}
			cancelled <- back
		}()
		got, err = c.ConfirmAll(ctx, id, names...)
		back := <-cancelled
		if err != nil || !got.Won() && got.Outcome != stock.Cancelled {
			t.Error(got, err)
		}
		if back == got.Won() {
			t.Errorf("%s: given back: %v; sold: %v", id, back, got.Won())
		}
		if got.Won() {
			won.Add(1)
		}
	})
	require.Equal(t, [][2]int64{{won.Load(), 0}, {won.Load(), 0}, {won.Load(), 0}}, sums(t, stocks...))
}

// The process that repeats the call is so slow that the cart's time is over before it comes to the last line. That line was sold long
// before, and it is answered so.
func TestASlowRepetitionOfReserveAllIsAnsweredWhatTheCartHas(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	o := exact
	var slow atomic.Bool
	const short = 20 * time.Millisecond
	o.Observer.Claimed = func(_ context.Context, name string, _ stock.Outcome, _ int64, _ time.Duration, _ error) {
		if slow.Load() && name == "a" {
			time.Sleep(2 * short)
		}
	}
	c := on(t, srv.Client(t), o)
	a, b := opened(t, c, "a", 3), opened(t, c, "b", 3)
	got, err := c.ReserveAll(ctx, "cart", "ann", lines(1, "a", "b"), time.Hour)
	require.NoError(t, err)
	require.Equal(t, stock.Granted, got.Outcome)
	_, err = c.ConfirmAll(ctx, "cart", "a", "b")
	require.NoError(t, err)

	slow.Store(true)
	got, err = c.ReserveAll(ctx, "cart", "ann", lines(1, "a", "b"), short)
	require.NoError(t, err)
	require.Equal(t, stock.Replayed, got.Outcome)
	require.EqualValues(t, 1, got.Lines[1].Grant.Ordinal)
	require.Equal(t, [][2]int64{{1, 0}, {1, 0}}, sums(t, a, b))

	got, err = c.ReserveAll(ctx, "another cart", "bob", lines(1, "a", "b"), short)
	require.NoError(t, err)
	require.Equal(t, stock.Expired, got.Outcome)
	require.Equal(t, [][2]int64{{1, 0}, {1, 0}}, sums(t, a, b))
}
