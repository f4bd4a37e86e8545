package rights_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/salebook"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// useOfSales uses all of a sale. book is c's.
func useOfSales(ctx context.Context, c *stock.Client, book *salebook.Book) {
	spec := stock.Spec{Limit: 1, OpenFor: time.Hour, Retain: time.Minute}
	sale, user := c.Sale("sale"), stock.Order{User: "ann"}
	redistest.Must(sale.Open(ctx, spec))
	redistest.Got(sale.Buy(ctx, user))
	redistest.Got(sale.Buy(ctx, user))
	redistest.Got(sale.Return(ctx, "ann"))
	redistest.Must(sale.EndSale(ctx))
	redistest.Must(sale.Delete(ctx))

	spec.Limit, spec.PerUser, spec.Ledger = 9, 9, true
	s := c.Sale("complete")
	redistest.Must(s.Open(ctx, spec))
	reserve := func(id, user string, n int64, ttl time.Duration) {
		redistest.Got(s.Reserve(ctx, stock.Order{ID: id, User: user, Lines: []stock.Line{{N: n}}}, ttl))
	}
	reserve("late", "ann", 1, time.Millisecond)
	reserve("paid", "ann", 2, time.Hour)
	reserve("cancelled", "bob", 1, time.Hour)
	redistest.Got(s.Extend(ctx, "paid", 2*time.Hour))
	redistest.Got(s.Pay(ctx, "paid", stock.Line{N: 1}))
	redistest.Got(s.Cancel(ctx, "cancelled"))
	redistest.Got(s.Cancel(ctx, "never made"))
	time.Sleep(5 * time.Millisecond)
	redistest.Got(s.Pay(ctx, "late"))
	redistest.Got(s.Return(ctx, "late"))
	redistest.Got(s.Buy(ctx, user))
	rest := stock.Order{Anyone: true, UpTo: true, Lines: []stock.Line{{N: 9}}}
	some := redistest.Got(s.Buy(ctx, rest))
	for range 3 { // sold out: the process reads the flag from then on
		redistest.Got(s.Buy(ctx, rest))
		time.Sleep(5 * time.Millisecond)
	}
	redistest.Got(s.Return(ctx, some.ID, stock.Line{N: 1}))
	redistest.Got(s.Status(ctx, "paid"))
	redistest.Got(s.Inspect(ctx))
	for _, err := range s.Holders(ctx) {
		redistest.Must(err)
	}
	redistest.Got(s.Ledger(ctx, 3, book.Move))
	later := 2 * time.Hour
	redistest.Must(s.Change(ctx, stock.Change{Items: map[string]stock.Item{"": {Limit: 20}}, EndIn: &later}))
	redistest.Got(s.Restore(ctx, spec))
	redistest.Got(s.Buy(ctx, stock.Order{ID: "cart", User: "cid", Lines: []stock.Line{{N: 2}}}))
}

// A key cannot have its end before it is there. So the first order of a user without that right leaves keys without an
// end, and is decided: the same order is answered the next time. The next call of the operator gives the keys their
// ends; otherwise they would outlive the sale.
func TestSale_RightToExpireMissing_OperatorGivesEnds(t *testing.T) {
	t.Parallel()
	for verb, do := range map[string]func(s *stock.Sale) error{
		"Buy":     func(s *stock.Sale) error { return errOf(s.Buy(t.Context(), stock.Order{User: "ann"})) },
		"Reserve": func(s *stock.Sale) error { return errOf(s.Reserve(t.Context(), stock.Order{User: "ann"}, time.Hour)) },
		"Cancel":  func(s *stock.Sale) error { return errOf(s.Cancel(t.Context(), "ann")) },
	} {
		t.Run(verb, func(t *testing.T) {
			s := redistest.Start(t)
			admin := s.Client(t)
			rig.Must(t, admin, "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-pexpire")
			client := func(o rueidis.ClientOption) *stock.Client {
				c := redistest.NoError(rueidis.NewClient(o))(t)
				t.Cleanup(c.Close)
				sales := redistest.NoError(stock.New(rig.Hub(t, c), stock.Options{CallTimeout: 10 * time.Second}))(t)
				return sales
			}
			mayNot := s.Option()
			mayNot.Username, mayNot.Password = "app", "any"
			operator, app := client(s.Option()).Sale("s"), client(mayNot).Sale("s")
			for _, ledger := range []bool{false, true} {
				require.NoError(t, operator.Open(t.Context(), stock.Spec{Limit: 5, OpenFor: time.Hour, Ledger: ledger}))
				require.ErrorIs(t, do(app), errs.ErrDenied)
				require.Positive(t, endlessKeys(t, admin))
				require.NoError(t, do(app))
				require.NoError(t, errOf(operator.Inspect(t.Context())))
				require.Zero(t, endlessKeys(t, admin))
				require.NoError(t, operator.Delete(t.Context()))
			}
		})
	}
}

func endlessKeys(t *testing.T, c rueidis.Client) (n int) {
	for _, key := range rig.Keys(t, c) {
		if rig.Number(t, c, "PTTL", key) == -1 {
			n++
		}
	}
	return n
}
