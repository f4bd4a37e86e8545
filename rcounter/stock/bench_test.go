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

// A new claimant each time: every claim is granted.
func BenchmarkClaim(b *testing.B) {
	s := opened(b, on(b, redistest.Start(b).Client(b), patient), "s", int64(1<<53-1))
	var n atomic.Int64
	both(b, func() error { _, err := s.Claim(ctx, strconv.FormatInt(n.Add(1), 10)); return err })
}

// Losers: of a claimant, without one, and under Fresh.
func BenchmarkSoldOut(b *testing.B) {
	var n atomic.Int64
	claimant := func() string { return strconv.FormatInt(n.Add(1), 10) }
	fresh := stock.Fresh(ctx)
	for _, o := range []struct {
		name string
		ask  func(s *stock.Stock) (stock.Grant, error)
	}{
		{"claimant", func(s *stock.Stock) (stock.Grant, error) { return s.Claim(ctx, claimant()) }},
		{"any", func(s *stock.Stock) (stock.Grant, error) { return s.ClaimAny(ctx, 1) }},
		{"fresh", func(s *stock.Stock) (stock.Grant, error) { return s.Claim(fresh, claimant()) }},
	} {
		b.Run(o.name, func(b *testing.B) {
			s := opened(b, on(b, redistest.Start(b).Client(b), patient), "s", 1)
			_, err := s.Claim(ctx, "winner")
			require.NoError(b, err)
			both(b, func() error {
				g, err := o.ask(s)
				if err == nil && g.Outcome != stock.SoldOut {
					err = fmt.Errorf("%v", g.Outcome)
				}
				return err
			})
		})
	}
}

// The smallest script that grants one unit to a claimant, sent as cheaply as rueidis can: what Claim's care costs.
func BenchmarkRawClaimScript(b *testing.B) {
	c := redistest.Start(b).Client(b)
	lua := rueidis.NewLuaScript(redistest.PlainClaim)
	require.NoError(b, c.Do(ctx,
		c.B().Hset().Key("{s}").FieldValue().FieldValue("limit", dec(int64(1<<53-1))).Build()).Error())
	var n atomic.Int64
	both(b, func() error {
		return lua.Exec(ctx, c, []string{"{s}", "{s}:u"}, []string{strconv.FormatInt(n.Add(1), 10)}).Error()
	})
}

// plainPair reserves a unit and confirms it with two plain scripts.
func plainPair(b *testing.B, c rueidis.Client) func(id, claimant string) error {
	reserve, confirm := rueidis.NewLuaScript(redistest.PlainReserve), rueidis.NewLuaScript(redistest.PlainConfirm)
	require.NoError(b, c.Do(ctx, c.B().Hset().Key("{p}").FieldValue().FieldValue("left", "1099511627776").Build()).Error())
	keys := []string{"{p}", "{p}:r", "{p}:h"}
	return func(id, claimant string) error {
		if err := reserve.Exec(ctx, c, keys, []string{id, claimant, "1", "1763000000000"}).Error(); err != nil {
			return err
		}
		return confirm.Exec(ctx, c, keys, []string{id}).Error()
	}
}

func bought(s *stock.Stock) func(id, claimant string) error {
	return func(id, claimant string) error {
		g, err := s.Reserve(ctx, claimant, stock.Request{ID: id, N: 1}, time.Minute)
		if err == nil && g.Outcome == stock.Granted {
			g, err = s.Confirm(ctx, id)
		}
		if err == nil && g.Outcome != stock.Granted {
			err = fmt.Errorf("%v", g.Outcome)
		}
		return err
	}
}

// A unit is reserved and confirmed, beside two plain scripts: x is how many times as many pairs there are in a second,
// and us/pair what one takes the server.
func BenchmarkReserveConfirm(b *testing.B) {
	for _, with := range []struct {
		name   string
		ledger bool
	}{{"", false}, {"ledger/", true}} {
		for _, callers := range []int{1, 16, 256} {
			b.Run(with.name+strconv.Itoa(callers), func(b *testing.B) {
				srv := redistest.Start(b, "--save", "")
				c := on(b, srv.Client(b), patient)
				s := c.Stock("s")
				_, err := s.Open(ctx, stock.Spec{Limit: 1 << 40, OpenFor: time.Hour, Ledger: with.ledger})
				require.NoError(b, err)
				var n atomic.Int64
				numbered := func(do func(id, claimant string) error) func() error {
					return func() error {
						i := n.Add(1)
						return do(fmt.Sprintf("ord-%08d", i), fmt.Sprintf("user-%09d", i))
					}
				}
				plain, ours := numbered(plainPair(b, srv.Client(b))), numbered(bought(s))
				compare(b, callers, plain, ours)
				admin := srv.Client(b)
				b.ReportMetric(serverTime(b, admin, callers, plain), "plain-us/pair")
				b.ReportMetric(serverTime(b, admin, callers, ours), "us/pair")
			})
		}
	}
}

// serverTime is how many us of a server's time go into one op, by its own count.
func serverTime(b *testing.B, admin rueidis.Client, callers int, op func() error) float64 {
	must(b, admin, "CONFIG", "RESETSTAT")
	d := redistest.Sized(50*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond)
	rate := rate(b, callers, d, op)
	us := 0.0
	for line := range strings.Lines(text(b, admin, "INFO", "commandstats")) {
		if _, stats, ok := strings.Cut(line, "cmdstat_eval"); ok {
			_, used, _ := strings.Cut(stats, "usec=")
			used, _, _ = strings.Cut(used, ",")
			v, err := strconv.ParseFloat(used, 64)
			require.NoError(b, err)
			us += v
		}
	}
	return us / (rate * d.Seconds())
}
