package stock_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// TestReserve_LastMicrosecond_UnitIsItsHolders has units reserved in every way, by a server whose clock
// counts microseconds.
func TestReserve_LastMicrosecond_UnitIsItsHolders(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redistest.Embedded(t)
	redis := srv.Client(t)
	mine, others := on(t, redis, exact), on(t, redis, exact)
	var names atomic.Int64
	opened := func(t *testing.T, limit int64) (s, other *stock.Stock) {
		name := fmt.Sprint("sale", names.Add(1))
		_, err := mine.Stock(name).Open(ctx, stock.Spec{Limit: limit, PerUser: 2, OpenFor: time.Hour, Retain: time.Hour})
		require.NoError(t, err)
		return mine.Stock(name), others.Stock(name)
	}
	won := func(t *testing.T, g stock.Grant, err error) {
		require.NoError(t, err)
		require.True(t, g.Won(), "%+v", g)
	}
	another := func(s *stock.Stock) func(t *testing.T) bool {
		return func(t *testing.T) bool {
			g, err := s.Reserve(ctx, "bob", stock.Request{ID: "other", N: 1}, time.Minute)
			require.NoError(t, err)
			if !g.Won() {
				require.Equal(t, stock.SoldOut, g.Outcome)
			}
			return g.Won()
		}
	}
	held := func(s *stock.Stock, id string) func(t *testing.T) {
		return func(t *testing.T) {
			h, err := s.Lookup(ctx, stock.Units{Request: id})
			require.NoError(t, err)
			require.Equal(t, stock.Replayed, h.Outcome)
			require.False(t, h.Until.IsZero())
		}
	}
	const ttl = 20 * time.Second
	for name, make := range map[string]func(t *testing.T) redistest.Last{
		"reserved": func(t *testing.T) redistest.Last {
			s, other := opened(t, 1)
			return redistest.Last{Gone: another(other), Kept: held(s, "id"), Take: func(t *testing.T) time.Duration {
				g, err := s.Reserve(ctx, "ann", stock.Request{ID: "id", N: 1}, ttl)
				won(t, g, err)
				return ttl
			}}
		},
		"reserved in a straight line": func(t *testing.T) redistest.Last { // not the last unit
			s, other := opened(t, 3)
			_, err := s.Reserve(ctx, "cid", stock.Request{ID: "first", N: 1}, time.Hour)
			require.NoError(t, err)
			return redistest.Last{Gone: another(other), Kept: held(s, "id"), Take: func(t *testing.T) time.Duration {
				g, err := s.Reserve(ctx, "ann", stock.Request{ID: "id", N: 1}, ttl)
				won(t, g, err)
				_, err = s.Reserve(ctx, "dan", stock.Request{ID: "last", N: 1}, time.Hour)
				require.NoError(t, err)
				return ttl
			}}
		},
		"reserved beside one that is over": func(t *testing.T) redistest.Last {
			s, other := opened(t, 2)
			return redistest.Last{Once: true, Kept: held(s, "id"), Take: func(t *testing.T) time.Duration {
				_, err := s.Reserve(ctx, "cid", stock.Request{ID: "first", N: 1}, ttl/2)
				require.NoError(t, err)
				g, err := s.Reserve(ctx, "ann", stock.Request{ID: "id", N: 1}, ttl)
				won(t, g, err)
				return ttl
			}, Gone: func(t *testing.T) bool {
				g, err := other.Reserve(ctx, "bob", stock.Request{ID: "other", N: 2}, time.Minute)
				require.NoError(t, err)
				return g.Won()
			}}
		},
		"extended": func(t *testing.T) redistest.Last {
			s, other := opened(t, 1)
			return redistest.Last{Gone: another(other), Kept: held(s, "id"), Take: func(t *testing.T) time.Duration {
				_, err := s.Reserve(ctx, "ann", stock.Request{ID: "id", N: 1}, ttl)
				require.NoError(t, err)
				g, err := s.Extend(ctx, "id", 2*ttl)
				won(t, g, err)
				return 2 * ttl
			}}
		},
		"reserved in a cart": func(t *testing.T) redistest.Last {
			group := fmt.Sprint("group", names.Add(1))
			for _, name := range []string{"x", "y"} {
				_, err := mine.Group(group).Stock(name).Open(ctx, spec(1))
				require.NoError(t, err)
			}
			return redistest.Last{Gone: another(others.Group(group).Stock("y")), Take: func(t *testing.T) time.Duration {
				cart, err := mine.Group(group).Reserve(ctx, "ann",
					stock.CartRequest{ID: "id", Lines: []stock.Line{{Stock: "x", N: 1}, {Stock: "y", N: 1}}}, ttl)
				require.NoError(t, err)
				require.Equal(t, stock.Granted, cart.Outcome)
				return ttl
			}}
		},
		"confirmed in its last microsecond": func(t *testing.T) redistest.Last {
			s, _ := opened(t, 1)
			return redistest.Last{Once: true, Take: func(t *testing.T) time.Duration {
				_, err := s.Reserve(ctx, "ann", stock.Request{ID: "id", N: 1}, ttl)
				require.NoError(t, err)
				require.NoError(t, s.Change(ctx, stock.Change{EndIn: stock.In(0)})) // nothing is sold late
				return ttl
			}, Gone: func(t *testing.T) bool {
				g, err := s.Confirm(ctx, "id")
				require.NoError(t, err)
				return g.Outcome == stock.Expired
			}}
		},
		"confirmed in part in its last microsecond": func(t *testing.T) redistest.Last {
			s, _ := opened(t, 2)
			return redistest.Last{Once: true, Take: func(t *testing.T) time.Duration {
				_, err := s.Reserve(ctx, "ann", stock.Request{ID: "id", N: 2}, ttl)
				require.NoError(t, err)
				require.NoError(t, s.Change(ctx, stock.Change{EndIn: stock.In(0)})) // nothing is sold late
				return ttl
			}, Gone: func(t *testing.T) bool {
				g, err := s.Confirm(ctx, "id", stock.Paid(1))
				require.NoError(t, err)
				return g.Outcome == stock.Expired
			}}
		},
	} {
		t.Run(name, func(t *testing.T) { redistest.LastsWholly(t, srv, make) })
	}
}

// A reservation that is asked for again is told the rest of its time. What is left is a whole number of milliseconds,
// and the server was somewhere in one when it counted them.
func TestReserve_AskedAgain_SaysNoMoreThanTheRest(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	c := on(t, srv.Client(t), exact)
	at := time.Now().Truncate(time.Second)
	const ttl = 20 * time.Second
	for i, phase := range []time.Duration{0, time.Microsecond, 400 * time.Microsecond, 999 * time.Microsecond} {
		for j, later := range []time.Duration{0, 3*time.Millisecond + time.Microsecond, 999 * time.Microsecond,
			ttl - time.Millisecond, ttl - time.Microsecond} {
			at = at.Add(24 * time.Hour)
			srv.Embedded.SetTime(at.Add(phase))
			s := c.Stock(fmt.Sprint("s", i, j))
			_, err := s.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Hour, Retain: time.Hour})
			require.NoError(t, err)
			_, err = s.Reserve(ctx, "ann", stock.Request{ID: "id", N: 1}, ttl)
			require.NoError(t, err)
			srv.Embedded.SetTime(at.Add(phase + later))
			g, err := s.Reserve(ctx, "ann", stock.Request{ID: "id", N: 1}, ttl)
			require.NoError(t, err)
			require.Equal(t, stock.Replayed, g.Outcome)
			promised := (time.Until(g.Until) + time.Millisecond - 1).Truncate(time.Millisecond) // from the second request on
			srv.Embedded.SetTime(at.Add(phase + later + promised - time.Microsecond))
			other, err := s.Reserve(ctx, "bob", stock.Request{ID: "other", N: 1}, ttl)
			require.NoError(t, err)
			require.Equal(t, stock.SoldOut, other.Outcome, "%v, %v later, promised for %v", phase, later, promised)
		}
	}
}
