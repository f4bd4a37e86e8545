package stock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// orderDatabase is the database of a shop that keeps no ledger. Each method is one transaction.
type orderDatabase struct {
	limit, units int64  // of the first sale, and of the current one
	current      string // the sale that sells
	orders       map[string]*orderRow
}

type orderRow struct {
	sale  string
	n     int64
	state string // "", "sold", "refunded"
}

// decide writes what has become of an order. A row that is decided stays; an order of an earlier sale is not sold any
// more.
func (db *orderDatabase) decide(id string, sold bool) (state string) {
	row := db.orders[id]
	if row.state == "" {
		if row.state = "refunded"; sold && row.sale == db.current {
			row.state = "sold"
		}
	}
	return row.state
}

// replace begins another sale of the units that no row has.
func (db *orderDatabase) replace() {
	db.units = db.limit
	for _, row := range db.orders {
		if row.state == "sold" {
			db.units -= row.n
		}
	}
	db.current += "'"
}

// Without a ledger nothing is mended. The recipe: in one transaction the database names another sale, of the units that
// none of its rows has. From then on an order of the earlier sale is decided by its row. Then the earlier sale is
// deleted, and the other opened. Each step may be repeated.
func TestRecipe_WithoutALedger_SellsNoUnitTwice(t *testing.T) {
	t.Parallel()
	for seed := range redistest.Sized(10, 10, 100) {
		rnd := rand.New(rand.NewPCG(uint64(seed), 49))
		raw := redistest.Embedded(t).Client(t)
		off := 0
		w := &wire{Client: raw, copies: 1, off: func([]string) bool { off--; return off == 0 }}
		c := on(t, w, exact)
		db := &orderDatabase{limit: 15, units: 15, current: "phones", orders: map[string]*orderRow{}}
		open := func() error {
			if db.units == 0 {
				return nil
			}
			return c.Sale(db.current).Open(ctx, stock.Spec{Limit: db.units, OpenFor: time.Hour})
		}
		try := func(step func() error) {
			for n := 0; ; n++ {
				off = rnd.IntN(4)
				err := step()
				if err == nil {
					return
				}
				require.Less(t, n, 100, err)
			}
		}
		repair := func() {
			old := db.current
			db.replace()
			try(func() error { return c.Sale(old).Delete(ctx) })
			try(open)
		}
		// pay asks the sale; late, the database is asked after that, and other things happen in between.
		type answered struct {
			id   string
			sold bool
		}
		var late []answered
		try(open)
		for n := range 40 {
			id, units := fmt.Sprint("order", n), int64(1+rnd.IntN(2))
			row := &orderRow{sale: db.current, n: units}
			var a stock.Answer
			try(func() (err error) {
				a, err = c.Sale(row.sale).Reserve(ctx, stock.Order{ID: id, Lines: []stock.Line{{N: units}}}, time.Hour)
				if errors.Is(err, stock.ErrNoStock) { // lost, or sold out for good
					return nil
				}
				return err
			})
			if a.State != stock.Reserved {
				continue
			}
			db.orders[id] = row
			if rnd.IntN(6) == 0 {
				rig.Must(t, raw, append([]string{"DEL"}, c.Sale(db.current).Keys()[rnd.IntN(2):]...)...)
			}
			try(func() (err error) {
				a, err = c.Sale(row.sale).Pay(ctx, id)
				if errors.Is(err, stock.ErrNoStock) { // somebody repairs it, and then the row decides
					if row.sale == db.current {
						repair()
					}
					return nil
				}
				return err
			})
			late = append(late, answered{id, a.State == stock.Sold})
			for len(late) > 0 && rnd.IntN(3) > 0 {
				db.decide(late[0].id, late[0].sold)
				late = late[1:]
			}
		}
		for _, a := range late {
			db.decide(a.id, a.sold)
		}
		sold := int64(0)
		for id, row := range db.orders {
			require.Contains(t, []string{"sold", "refunded"}, row.state, id)
			if row.state == "sold" {
				sold += row.n
			}
		}
		require.LessOrEqual(t, sold, db.limit)
		require.Positive(t, sold)
	}
}
