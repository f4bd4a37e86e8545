package pages_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// ledgered is the sale of the recipe, whose ledger goes to a database.
type ledgered struct {
	*shop
	rows []stock.Entry
}

func (s *ledgered) open(suspended bool) {
	s.sale = s.red.Stocks().Stock("sale")
	_, err := s.sale.Open(s.t.Context(), stock.Spec{Limit: 1, OpenFor: 24 * time.Hour, Remember: 12 * time.Hour,
		Ledger: true, Suspended: suspended})
	require.NoError(s.t, err)
}

// lose has the server come back empty.
func (s *ledgered) lose() {
	_, err := s.sale.Ledger(s.t.Context(), 100, func(_ context.Context, e []stock.Entry) error {
		s.rows = append(s.rows, e...)
		return nil
	})
	require.NoError(s.t, err)
	s.srv.Redis().FlushAll()
}

func (s *ledgered) restore() {
	_, err := s.sale.Restore(s.t.Context(), func(yield func(stock.Entry, error) bool) {
		for _, e := range s.rows {
			e.Serial = 0
			if !yield(e, nil) {
				return
			}
		}
	})
	require.NoError(s.t, err)
}

// stages are how far the operator has come when the order is called again, and what he does next.
var stages = map[string]struct{ until, then func(*ledgered) }{
	"lost":      {func(*ledgered) {}, func(s *ledgered) { s.open(true); s.restore() }},
	"suspended": {func(s *ledgered) { s.open(true) }, (*ledgered).restore},
	"restored":  {func(s *ledgered) { s.open(true); s.restore() }, func(*ledgered) {}},
	"sold out":  {func(s *ledgered) { s.open(true); s.restore(); s.rivalTakes() }, func(*ledgered) {}},
	"paused": {func(s *ledgered) {
		s.open(true)
		s.restore()
		require.NoError(s.t, s.sale.Change(s.t.Context(), stock.Change{Pause: true}))
	}, func(s *ledgered) { require.NoError(s.t, s.sale.Change(s.t.Context(), stock.Change{Resume: true})) }},
}

// A process is killed at any step, and then the server loses its data; or it loses them before any step of a process
// that lives. The order is called again while the stock is lost, suspended, restored, sold out or paused, until an
// answer is final. Then the customer has a unit and the bank the money, or neither.
func TestOrder_DataLostAtAnyStep_IsPaidAndSoldOrNeither(t *testing.T) {
	for stage, operator := range stages {
		for _, how := range redistest.Sized([]string{"unheard"}, []string{"at once", "unheard", "later", "declined"},
			[]string{"at once", "unheard", "later", "declined"}) {
			t.Run(stage+", "+how, func(t *testing.T) {
				t.Parallel()
				eachStep(t, stage, 0, 1, func(t *testing.T, shop *shop, fate plan) (reached bool) {
					s := &ledgered{shop: shop}
					s.open(false)
					b, tried := &bank{}, false
					order := func(fate plan) error {
						p := start(t, s.srv, fate)
						defer p.red.Close(context.Background())
						before := tried
						tried = true
						err := Order(t.Context(), p.red, "1", "ann", before, b.pay(p, how), b.refund(p))
						if fate.kill >= 0 || fate.at >= 0 {
							reached = p.steps > max(p.kill, p.at)
						}
						if p.killed() {
							return errDead
						}
						return err
					}
					final := func(err error) bool { return err == nil || errors.Is(err, errNotSold) }
					lost := false
					fate.other = func() { s.lose(); operator.until(s); lost = true }
					err := order(fate)
					if !lost && !final(err) {
						fate.other()
					}
					if lost {
						if !final(err) {
							err = order(lives)
						}
						operator.then(s)
					}
					for range 5 {
						if !final(err) {
							err = order(lives)
						}
					}
					time.Sleep(time.Hour)
					require.True(t, final(err), err)
					g, looked := s.sale.Lookup(t.Context(), stock.Units{Request: "1"})
					require.NoError(t, looked)
					has := g.Outcome == stock.Replayed && g.Ordinal > 0
					require.Equal(t, err == nil, has, "the answer %v, and the unit", err)
					require.Equal(t, b.has(), has, "the answer %v, money and unit", err)
					return reached
				})
			})
		}
	}
}
