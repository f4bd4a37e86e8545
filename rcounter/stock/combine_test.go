package stock_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/oracle/judges"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// gauge watches the script calls that pass: how many there were, how many at once, and of how many words at most.
type gauge struct {
	rueidis.Client
	calls, now, most, words atomic.Int64
	hold                    time.Duration // every call takes at least that long
}

func (c *gauge) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if cmd.Commands()[0] != "EVALSHA" {
		return c.Client.Do(ctx, cmd)
	}
	c.calls.Add(1)
	raise(&c.most, c.now.Add(1))
	raise(&c.words, int64(len(cmd.Commands())))
	defer c.now.Add(-1)
	if c.hold > 0 {
		time.Sleep(c.hold)
	}
	return c.Client.Do(ctx, cmd)
}

func raise(v *atomic.Int64, to int64) {
	for old := v.Load(); old < to && !v.CompareAndSwap(old, to); old = v.Load() {
	}
}

func TestClaims_Crowd_ShareCalls(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		o           stock.Options
		batch, most int64
		shared      bool
	}{
		"by default":  {stock.Options{}, 128, 64, true},
		"few flights": {stock.Options{MaxCalls: 2}, 128, 2, true},
		"one flight":  {stock.Options{MaxCalls: 1, MaxBatch: 4}, 4, 1, true},
		"small":       {stock.Options{MaxBatch: 10, BatchWindow: time.Second}, 10, 64, true},
		"batch of 1":  {stock.Options{MaxBatch: 1, MaxCalls: 3}, 1, 3, false},
		"off":         {stock.Options{MaxBatch: -1}, 1, 1 << 40, false},
	} {
		t.Run(name, func(t *testing.T) {
			wire := &gauge{Client: redistest.Start(t).Client(t), hold: time.Millisecond}
			o := tc.o
			o.CallTimeout, o.SoldOutTrust = exact.CallTimeout, exact.SoldOutTrust
			c := on(t, wire, o)
			const callers, each = 64, 6
			s, a := opened(t, c, "s", 300), opened(t, c, "a", 3*callers*each)
			_, err := a.ClaimAny(ctx, 1) // loads the script
			require.NoError(t, err)
			wire.calls.Store(0)
			wire.words.Store(0)
			var l judges.Winners
			var units atomic.Int64
			crowd(callers, each, func(caller, i int) {
				u := strconv.Itoa(caller*each + i)
				g, err := s.Claim(ctx, u)
				if err != nil {
					t.Error(err)
				}
				recorded(&l, u, g)
			})
			claims := wire.calls.Swap(0)
			taken := make([]atomic.Bool, 3*callers*each+1)
			taken[1].Store(true)
			crowd(callers, each, func(_, i int) {
				n := int64(1 + i%3)
				g, err := a.ClaimAny(ctx, n)
				if err != nil || g.N < 1 || g.N > n {
					t.Error(g, err)
					return
				}
				for o := g.Ordinal; o < g.Ordinal+g.N; o++ {
					if taken[o].Swap(true) {
						t.Errorf("unit %d twice", o)
					}
				}
				units.Add(g.N)
			})
			anys := wire.calls.Load()
			require.NoError(t, l.Exactly(300, 0))
			require.EqualValues(t, callers*2*(1+2+3), units.Load())
			require.LessOrEqual(t, wire.most.Load(), tc.most, "flights")
			require.LessOrEqual(t, wire.words.Load(), tc.batch+12, "EVALSHA sha 7, seven keys, two arguments, the claimants")
			if tc.shared {
				require.Less(t, claims, int64(callers*each)/2)
				require.Less(t, anys, int64(callers*each)/2)
			} else {
				require.EqualValues(t, callers*each, claims)
				require.EqualValues(t, callers*each, anys)
			}
		})
	}
}

// The sum of what callers were given is what the stock says is sold, whoever leaves and whatever is lost.
func TestClaimAny_CallerLeavesItsBatch_LosesNoUnit(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		for name, lose := range map[string]func() bool{
			"replies arrive":        func() bool { return false },
			"some replies are lost": func() bool { return rand.IntN(10) == 0 },
			// not combined: the caller leaves a flight of its own
			"by itself": func() bool { return rand.IntN(10) == 0 },
		} {
			t.Run(name, func(t *testing.T) {
				calm := on(t, srv.Client(t), exact).Stock(name)
				_, err := calm.Open(ctx, spec(1_000_000))
				require.NoError(t, err)
				wire := &gauge{Client: newLossy(t, srv, lose), hold: 2 * time.Millisecond}
				o := exact
				if name == "by itself" {
					o.MaxBatch = -1
				}
				c := on(t, wire, o)
				s := c.Stock(name)
				_, err = s.Inspect(ctx)
				require.NoError(t, err)
				var delivered, left atomic.Int64
				each := redistest.Sized(6, 6, 20)
				if redistest.RaceEnabled {
					each = 6
				}
				crowd(48, each, func(_, i int) {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					if rand.IntN(2) == 0 {
						after := time.AfterFunc(rand.N(6*time.Millisecond), cancel)
						defer after.Stop()
					}
					g, err := s.ClaimAny(ctx, int64(1+i%4))
					if err != nil {
						left.Add(1)
						return
					}
					delivered.Add(g.N)
				})
				require.Positive(t, left.Load())
				require.NoError(t, c.Close(ctx), "and what it still had to return is returned")
				st, err := calm.Inspect(ctx)
				require.NoError(t, err)
				require.Equal(t, delivered.Load(), st.Sold)
				require.GreaterOrEqual(t, st.Seq, st.Sold)
				t.Logf("%d callers left, %d units given out, %d returned", left.Load(), delivered.Load(), st.Seq-st.Sold)
			})
		}
	})
}

func TestClaimAny_GivenUp_NeverRuns(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		s := opened(t, on(t, srv.Client(t), patient), "s", 10)
		_, err := s.GiveUp(ctx, "late")
		require.NoError(t, err)
		g, err := s.AnyAs(ctx, "late", 3)
		require.NoError(t, err)
		require.Equal(t, stock.Returned, g.Outcome)
		_, err = s.AnyAs(ctx, "early", 3)
		require.NoError(t, err)
		for _, want := range []int64{3, 0} {
			n, err := s.GiveUp(ctx, "early")
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		require.Zero(t, st.Sold)
	})
}
