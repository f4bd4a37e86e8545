package stock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func block(t testing.TB, s *stock.Stock, n int64, ttl time.Duration) *stock.Block {
	t.Helper()
	b, err := s.Block(ctx, n, ttl)
	require.NoError(t, err)
	return b
}

func remaining(t testing.TB, s *stock.Stock) int64 {
	t.Helper()
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	return st.Remaining
}

func TestABlockHandsOutItsUnitsOnceAndGivesBackTheRest(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := opened(t, on(t, raw, patient), "s", 100)
		b := block(t, s, 30, time.Hour)
		g := b.Grant()
		require.Equal(t, []int64{1, 30, 70}, []int64{g.Ordinal, g.N, g.Remaining})
		require.EqualValues(t, 70, remaining(t, s))
		var mu sync.Mutex
		got := map[int64]bool{}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 2 {
					o, ok := b.Take()
					mu.Lock()
					if !ok || got[o] || o < 1 || o > 30 {
						t.Errorf("%d %v", o, ok)
					}
					got[o] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 14, b.Left())
		for range 2 {
			require.NoError(t, b.Close(ctx))
			require.EqualValues(t, 84, remaining(t, s))
		}
		_, ok := b.Take()
		require.False(t, ok)
		require.Zero(t, b.Left())
		require.ErrorIs(t, b.Flush(ctx), stock.ErrBlockEnded)

		// a unit handed out comes back by itself, and only once
		ok, err := s.ReturnAny(ctx, stock.Grant{Outcome: stock.Granted, Request: b.Grant().Request, Ordinal: 3, N: 1})
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = s.ReturnAny(ctx, stock.Grant{Outcome: stock.Granted, Request: b.Grant().Request, Ordinal: 20, N: 1})
		require.NoError(t, err)
		require.False(t, ok, "returned by Close")
		require.EqualValues(t, 85, remaining(t, s))

		// everybody claims the rest, under other ordinals
		n := 0
		for i := range 100 {
			g, err := s.Claim(ctx, strconv.Itoa(i))
			require.NoError(t, err)
			if g.Won() {
				n++
				require.Greater(t, g.Ordinal, int64(30))
			}
		}
		require.Equal(t, 85, n)
		empty := block(t, s, 5, time.Hour)
		require.Equal(t, stock.SoldOut, empty.Grant().Outcome)
		_, ok = empty.Take()
		require.False(t, ok)
		require.NoError(t, empty.Flush(ctx))
		require.NoError(t, empty.Close(ctx))
		requireEnds(t, raw)

		absent := block(t, on(t, raw, patient).Stock("none"), 5, time.Hour)
		require.Equal(t, stock.NotOpen, absent.Grant().Outcome)
		require.EqualValues(t, 0, number(t, raw, "EXISTS", "rc:{none}"))
	})
}

func TestTheRestOfABlockReopensASoldOutStock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		raw := srv.Client(t)
		s := opened(t, on(t, raw, patient), "s", 10)
		b := block(t, s, 100, time.Hour)
		require.EqualValues(t, 10, b.Grant().N, "what there was")
		g, err := s.Claim(ctx, "ann")
		require.NoError(t, err)
		require.Equal(t, stock.SoldOut, g.Outcome)
		require.EqualValues(t, 1, number(t, raw, "EXISTS", "rc:{s}:o"))
		require.NoError(t, b.Close(ctx))
		require.EqualValues(t, 0, number(t, raw, "EXISTS", "rc:{s}:o"))
		redistest.Eventually(t, 10*time.Second, "it sells again", func() bool {
			g, err := s.Claim(ctx, "ann")
			require.NoError(t, err)
			return g.Won()
		})
	})
}

func TestTakeStopsBeforeTheServerSaysThatTheBlocksTimeIsOver(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := on(t, srv.Client(t), patient)
		s := opened(t, c, "s", 10)
		b := block(t, s, 5, 400*time.Millisecond)
		_, ok := b.Take()
		require.True(t, ok)
		require.Positive(t, time.Until(b.Grant().Until))
		redistest.Eventually(t, 20*time.Second, "Take stops", func() bool {
			all, err := s.Blocks(ctx)
			require.NoError(t, err)
			require.Len(t, all, 1)
			if !time.Now().Before(all[0].Grant.Until) { // the server has said so
				_, ok := b.Take()
				require.False(t, ok, "over on the server, and still handed out here")
			}
			return b.Left() == 0
		})
		_, ok = b.Take()
		require.False(t, ok)
		require.NoError(t, b.Flush(ctx), "nobody has settled it")
		require.EqualValues(t, 4, b.Left(), "prolonged")
		_, ok = b.Take()
		require.True(t, ok)
		require.NoError(t, b.Close(ctx))
		require.EqualValues(t, 8, remaining(t, s))
	})
}

func TestABlockOfADeadProcessIsAccountedFor(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	at := time.Now().Truncate(time.Millisecond)
	srv.Embedded.SetTime(at)
	raw := srv.Client(t)
	c := on(t, raw, patient)
	o := spec(100)
	o.Ledger = true
	o.OpenFor = 100 * time.Hour
	s := c.Stock("s")
	_, err := s.Open(ctx, o)
	require.NoError(t, err)
	b := block(t, s, 20, time.Hour)
	for range 7 {
		b.Take()
	}
	require.NoError(t, b.Flush(ctx))
	require.NoError(t, s.EndBlockAs(ctx, "late", b.Grant().Request, 3, "flush"), "a late copy of an earlier one")
	for range 3 {
		b.Take() // and then it dies: 10 handed out, 7 told
	}
	other := block(t, s, 5, 2*time.Hour)
	all, err := s.Blocks(ctx)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, []any{b.Grant().Request, int64(1), int64(20), int64(7), false}, []any{all[0].Grant.Request, all[0].Grant.Ordinal, all[0].Grant.N, all[0].Taken, all[0].Ended})
	require.NotEmpty(t, all[0].Owner)
	require.EqualValues(t, 75, remaining(t, s), "its units stay sold")

	_, err = s.SettleBlock(ctx, b.Grant().Request, 10)
	require.ErrorIs(t, err, stock.ErrBlockHeld)
	require.ErrorContains(t, err, "for another 1h0m0s")
	srv.Embedded.SetTime(at.Add(time.Hour))
	for _, taken := range []int64{6, 21} {
		_, err = s.SettleBlock(ctx, b.Grant().Request, taken)
		require.ErrorIs(t, err, stock.ErrInvalidOption)
		require.ErrorContains(t, err, "taken is "+dec(taken))
	}
	require.EqualValues(t, 75, remaining(t, s))
	returned, err := s.SettleBlock(ctx, b.Grant().Request, 10)
	require.NoError(t, err)
	require.EqualValues(t, 10, returned)
	require.EqualValues(t, 85, remaining(t, s))
	_, err = s.SettleBlock(ctx, b.Grant().Request, 10)
	require.ErrorIs(t, err, stock.ErrBlockEnded)
	_, err = s.SettleBlock(ctx, other.Grant().Request, 0)
	require.ErrorIs(t, err, stock.ErrBlockHeld)
	_, err = s.SettleBlock(ctx, "no such", 0)
	require.ErrorIs(t, err, stock.ErrNotFound)
	require.EqualValues(t, 85, remaining(t, s))

	// it was not dead after all
	require.ErrorIs(t, b.Flush(ctx), stock.ErrBlockEnded)
	_, ok := b.Take()
	require.False(t, ok)
	require.ErrorIs(t, b.Close(ctx), stock.ErrBlockEnded)
	require.EqualValues(t, 85, remaining(t, s))
	all, err = s.Blocks(ctx)
	require.NoError(t, err)
	require.True(t, all[0].Ended)
	require.EqualValues(t, 10, all[0].Taken)
	require.Empty(t, all[0].Owner)

	var sold, back []string
	_, err = s.Ledger(ctx, 100, func(_ context.Context, entries []stock.Entry) error {
		for _, e := range entries {
			text := fmt.Sprintf("%d+%d", e.Ordinal, e.N)
			if e.Kind == stock.KindReturn {
				back = append(back, text)
			} else {
				sold = append(sold, text)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"1+20", "21+5"}, sold)
	require.Equal(t, []string{"11+10"}, back)
	requireEnds(t, raw)
}

func TestUnitsOfABlockThatWereReturnedOneByOneAreNotReturnedAgain(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		s := opened(t, on(t, srv.Client(t), patient), "s", 40)
		b := block(t, s, 20, time.Hour)
		for range 12 {
			b.Take()
		}
		for _, part := range [][2]int64{{11, 1}, {3, 2}, {14, 2}, {20, 1}} { // 14, 15 and 20 were not handed out: a mistake, and counted once all the same
			ok, err := s.ReturnAny(ctx, stock.Grant{Outcome: stock.Granted, Request: b.Grant().Request, Ordinal: part[0], N: part[1]})
			require.NoError(t, err)
			require.True(t, ok)
		}
		require.EqualValues(t, 26, remaining(t, s))
		require.NoError(t, b.Close(ctx))
		require.EqualValues(t, 31, remaining(t, s), "13, and 16 to 19")
		for o := int64(1); o <= 20; o++ {
			ok, err := s.ReturnAny(ctx, stock.Grant{Outcome: stock.Granted, Request: b.Grant().Request, Ordinal: o, N: 1})
			require.NoError(t, err)
			require.Equal(t, o < 11 && o != 3 && o != 4 || o == 12, ok, "%d", o)
		}
		require.EqualValues(t, 40, remaining(t, s))
	})
}

// Blocks, claims and crashes in any order, over wires that repeat and lose: what is sold is what was claimed, plus what
// open blocks have, plus what ended ones handed out.
func TestBlocksKeepToTheirModel(t *testing.T) {
	t.Parallel()
	for wire, wrap := range map[string]func(t *testing.T, s *redistest.Server, rnd *rand.Rand) rueidis.Client{
		"once": func(t *testing.T, s *redistest.Server, _ *rand.Rand) rueidis.Client { return s.Client(t) },
		"twice": func(t *testing.T, s *redistest.Server, _ *rand.Rand) rueidis.Client {
			return twice{Client: s.Client(t)}
		},
		"lossy": func(t *testing.T, s *redistest.Server, rnd *rand.Rand) rueidis.Client {
			var mu sync.Mutex
			return newLossy(t, s, func() bool { mu.Lock(); defer mu.Unlock(); return rnd.IntN(3) == 0 })
		},
	} {
		t.Run(wire, func(t *testing.T) {
			seed := rand.Uint64()
			rnd := rand.New(rand.NewPCG(seed, 1))
			srv := redistest.Embedded(t)
			at := time.Now().Truncate(time.Millisecond)
			srv.Embedded.SetTime(at)
			o := stock.Options{CallTimeout: patient.CallTimeout, SoldOutTrust: -1}
			s := opened(t, on(t, wrap(t, srv, rand.New(rand.NewPCG(seed, 2))), o), "s", 60) // for an hour: there are no more than twenty jumps of two minutes
			type live struct {
				*stock.Block
				taken int64
			}
			var open, dead []*live
			given := map[int64]bool{}
			give := func(o int64) {
				require.False(t, given[o], "seed %d: ordinal %d twice", seed, o)
				given[o] = true
			}
			jumps := 0
			var reserved int64 // in open and dead blocks, not handed out
			for i := range 80 {
				left := 60 - int64(len(given)) - reserved
				switch op := rnd.IntN(10); {
				case op < 2:
					n := 1 + rnd.Int64N(12)
					b := block(t, s, n, time.Minute)
					if left == 0 {
						require.Equal(t, stock.SoldOut, b.Grant().Outcome)
						break
					}
					require.Equal(t, min(n, left), b.Grant().N, "seed %d", seed)
					reserved += b.Grant().N
					open = append(open, &live{Block: b})
				case op < 5 && len(open) > 0:
					b := open[rnd.IntN(len(open))]
					o, ok := b.Take()
					require.Equal(t, b.taken < b.Grant().N, ok)
					if ok {
						give(o)
						b.taken++
						reserved--
					}
				case op < 6 && len(open) > 0:
					require.NoError(t, open[rnd.IntN(len(open))].Flush(ctx))
				case op < 7 && len(open) > 0:
					i := rnd.IntN(len(open))
					b := open[i]
					open = append(open[:i:i], open[i+1:]...)
					if rnd.IntN(2) == 0 {
						dead = append(dead, b)
						break
					}
					require.NoError(t, b.Close(ctx))
					reserved -= b.Grant().N - b.taken
				case op < 8 && len(dead) > 0 && jumps < 20:
					jumps++
					b := dead[0]
					dead = dead[1:]
					if _, err := s.SettleBlock(ctx, b.Grant().Request, b.taken); err != nil {
						require.ErrorIs(t, err, stock.ErrBlockHeld)
						at = at.Add(2 * time.Minute) // for the living, who take by their own clock, no time has passed
						srv.Embedded.SetTime(at)
						returned, err := s.SettleBlock(ctx, b.Grant().Request, b.taken)
						require.NoError(t, err)
						require.Equal(t, b.Grant().N-b.taken, returned)
					}
					require.ErrorIs(t, b.Close(ctx), stock.ErrBlockEnded)
					reserved -= b.Grant().N - b.taken
				default:
					g, err := s.Claim(ctx, strconv.Itoa(i))
					require.NoError(t, err)
					if left == 0 {
						require.Equal(t, stock.SoldOut, g.Outcome)
						break
					}
					require.Equal(t, stock.Granted, g.Outcome, "seed %d", seed)
					give(g.Ordinal)
				}
				require.EqualValues(t, 60-int64(len(given))-reserved, remaining(t, s), "seed %d", seed)
				requireEnds(t, srv.Client(t))
			}
			for _, b := range open {
				require.NoError(t, b.Close(ctx))
				reserved -= b.Grant().N - b.taken
			}
			require.EqualValues(t, 60-int64(len(given))-reserved, remaining(t, s), "seed %d", seed)
		})
	}
}

func TestABlockThatTheCallerNeverSawIsReturned(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), stock.Options{CallTimeout: 300 * time.Millisecond})
	s := opened(t, on(t, srv.Client(t), patient), "s", 10)
	mine := c.Stock("s")
	require.NoError(t, block(t, mine, 1, time.Hour).Close(ctx)) // the scripts are known
	control := srv.Client(t)
	must(t, control, "CLIENT", "PAUSE", "400")
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := mine.Block(short, 5, time.Hour)
	require.ErrorIs(t, err, stock.ErrUnknownOutcome)
	redistest.Eventually(t, 20*time.Second, "it is closed", func() bool {
		all, err := s.Blocks(ctx)
		require.NoError(t, err)
		return len(all) == 2 && all[1].Ended && remaining(t, s) == 10 || len(all) == 1 && remaining(t, s) == 10 && number(t, control, "HLEN", "rc:{s}:r") == 2
	})

	// a close that comes before the block: it is never made
	require.NoError(t, mine.EndBlockAs(ctx, "C", "x", 0, "close"))
	require.NoError(t, mine.EndBlockAs(ctx, "C", "x", 0, "close"))
	g, err := mine.BlockAs(ctx, "x", 5)
	require.NoError(t, err)
	require.False(t, g.Won())
	require.EqualValues(t, 10, remaining(t, s))
}

func TestABlocksBadInputIsRefusedByNameAndValueAndNothingIsSent(t *testing.T) {
	t.Parallel()
	wire := &counting{Client: redistest.Embedded(t).Client(t)}
	c := on(t, wire, patient)
	s := opened(t, c, "s", 5)
	b := block(t, s, 2, time.Hour)
	wire.Sent.Store(0)
	_, err := c.Stock("a{").Block(ctx, 1, time.Hour)
	require.ErrorIs(t, err, stock.ErrInvalidName)
	for says, call := range map[string]func() error{
		"n is 0":       func() error { _, err := s.Block(ctx, 0, time.Hour); return err },
		"n is -1":      func() error { _, err := s.Block(ctx, -1, time.Hour); return err },
		"ttl is 9ms":   func() error { _, err := s.Block(ctx, 1, 9*time.Millisecond); return err },
		"ttl is -1s":   func() error { _, err := s.Block(ctx, 1, -time.Second); return err },
		"ttl is 87600": func() error { _, err := s.Block(ctx, 1, lifetime+876000*time.Hour); return err },
		"taken is -1":  func() error { _, err := s.SettleBlock(ctx, "x", -1); return err },
	} {
		if strings.HasPrefix(says, "ttl is 87600") {
			says = "ttl is"
		}
		require.ErrorIs(t, call(), stock.ErrInvalidOption)
		require.ErrorContains(t, call(), says)
	}
	_, err = s.SettleBlock(ctx, "", 1)
	require.ErrorIs(t, err, stock.ErrInvalidName)
	require.Zero(t, wire.Sent.Load())
	require.NoError(t, c.Close(ctx))
	_, err = s.Block(ctx, 1, time.Hour)
	require.ErrorIs(t, err, stock.ErrClosed)
	_, err = s.Blocks(ctx)
	require.ErrorIs(t, err, stock.ErrClosed)
	_, err = s.SettleBlock(ctx, "x", 1)
	require.ErrorIs(t, err, stock.ErrClosed)
	require.ErrorIs(t, b.Flush(ctx), stock.ErrClosed)
	require.ErrorIs(t, b.Close(ctx), stock.ErrClosed)
}

func BenchmarkBlock(b *testing.B) {
	s := opened(b, on(b, redistest.Start(b).Client(b), patient), "s", int64(1<<53-1))
	var mu sync.Mutex
	var blk *stock.Block
	both(b, func() error {
		mu.Lock()
		defer mu.Unlock()
		for {
			if blk != nil {
				if _, ok := blk.Take(); ok {
					return nil
				}
			}
			var err error
			if blk, err = s.Block(ctx, 1000, time.Hour); err != nil {
				return err
			}
		}
	})
}
