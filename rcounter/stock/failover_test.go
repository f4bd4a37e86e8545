package stock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// twoUnits are the lines of the order in these tables.
var twoUnits = []stock.Line{{N: 2}}

// orderStates make an order in each state.
var orderStates = map[string]func(s *stock.Sale, id string) error{
	"none":     func(*stock.Sale, string) error { return nil },
	"reserved": func(s *stock.Sale, id string) error { return second(orderVerbs["reserve"](s, id)) },
	"lapsed": func(s *stock.Sale, id string) error {
		_, err := s.Reserve(ctx, stock.Order{ID: id, User: "ann", Lines: twoUnits}, time.Millisecond)
		time.Sleep(3 * time.Millisecond)
		return errors.Join(err, second(s.Status(ctx, id)))
	},
	"sold":   func(s *stock.Sale, id string) error { return second(orderVerbs["buy"](s, id)) },
	"closed": func(s *stock.Sale, id string) error { return second(orderVerbs["cancel"](s, id)) },
}

func second(_ stock.Answer, err error) error { return err }

// orderVerbs are the verbs of a shop.
var orderVerbs = map[string]func(s *stock.Sale, id string) (stock.Answer, error){
	"buy": func(s *stock.Sale, id string) (stock.Answer, error) {
		return s.Buy(ctx, stock.Order{ID: id, User: "ann", Lines: twoUnits})
	},
	"reserve": func(s *stock.Sale, id string) (stock.Answer, error) {
		return s.Reserve(ctx, stock.Order{ID: id, User: "ann", Lines: twoUnits}, time.Hour)
	},
	"extend": func(s *stock.Sale, id string) (stock.Answer, error) { return s.Extend(ctx, id, 2*time.Hour) },
	"pay":    func(s *stock.Sale, id string) (stock.Answer, error) { return s.Pay(ctx, id) },
	"part":   func(s *stock.Sale, id string) (stock.Answer, error) { return s.Pay(ctx, id, stock.Line{N: 1}) },
	"cancel": func(s *stock.Sale, id string) (stock.Answer, error) { return s.Cancel(ctx, id) },
	"return": func(s *stock.Sale, id string) (stock.Answer, error) { return s.Return(ctx, id) },
	"keep":   func(s *stock.Sale, id string) (stock.Answer, error) { return s.Return(ctx, id, stock.Line{N: 1}) },
	"status": func(s *stock.Sale, id string) (stock.Answer, error) { return s.Status(ctx, id) },
}

// Each verb on an order in each state: its answer, which the book has, is its answer after Restore too, whatever the
// server has lost since. Before Restore a loss that the server can see is ErrNoStock, and refunds nothing.
func TestVerbs_EachState_SurviveEachLoss(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	var b *book
	o := exact
	o.Books = func(string) stock.Book { return b }
	c := on(t, raw, o)
	losses := map[string]func(s *stock.Sale, setBack func()) (seen bool){
		"failover": func(_ *stock.Sale, setBack func()) bool { setBack(); return false },
		"all": func(s *stock.Sale, _ func()) bool {
			rig.Must(t, raw, append([]string{"DEL"}, s.Keys()...)...)
			return true
		},
		"hash":   func(s *stock.Sale, _ func()) bool { return rig.Number(t, raw, "DEL", s.Keys()[0]) > 0 },
		"orders": func(s *stock.Sale, _ func()) bool { return rig.Number(t, raw, "DEL", s.Keys()[1]) > 0 },
	}
	is := spec(20)
	is.PerUser = 9
	for state, prepare := range orderStates {
		for name, verb := range orderVerbs {
			for loss, lose := range losses {
				what, id := state+" "+name+" "+loss, "o"
				b = &book{}
				s := opened(t, c, what, is)
				require.NoError(t, prepare(s, id))
				setBack := snapshot(t, raw, s)
				before, err := verb(s, id)
				require.NoError(t, err, what)
				_, err = s.Ledger(ctx, 100, b.Move)
				require.NoError(t, err, what)
				if lose(s, setBack) {
					got, err := verb(s, id)
					require.ErrorIs(t, err, stock.ErrNoStock, what)
					require.Nil(t, got.Refund(twoUnits...), what)
				}
				_, err = s.Restore(ctx, is)
				require.NoError(t, err, what)
				after, err := verb(s, id)
				require.NoError(t, err, what)
				before.Again, before.Until, before.Epoch = after.Again, after.Until, after.Epoch
				if before.State == "" && after.ID == id {
					before.ID = id
				}
				require.Equal(t, before, after, what)
				require.Equal(t, before.Refund(twoUnits...), after.Refund(twoUnits...), what)
				require.NoError(t, s.Delete(ctx))
			}
		}
	}
}
