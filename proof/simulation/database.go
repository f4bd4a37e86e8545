package simulation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// base is the database into which the ledger of one stock is moved.
type base struct {
	mu   sync.Mutex
	rows []stock.Entry // by their serials, from 1
}

var errCrashed = errors.New("simulated: the mover is gone")

// put writes entries, and reports what is wrong with them: each is there already, or follows the last.
func (b *base) put(entries []stock.Entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		switch n := int64(len(b.rows)); {
		case e.Serial < 1 || e.Serial > n+1:
			return fmt.Errorf("%w: entry %d comes after %d", errNotOurs, e.Serial, n)
		case e.Serial == n+1:
			b.rows = append(b.rows, e)
		case b.rows[e.Serial-1] != e:
			return fmt.Errorf("%w: entry %d is %+v in the database, and now %+v", errNotOurs, e.Serial, b.rows[e.Serial-1], e)
		}
	}
	return nil
}

// moveLedger is one move of a ledger into the database, of a mover that is slow before it writes, or after it, or then
// crashes.
func (w *world) moveLedger(o *object, c *client, s Step, x *stock.Stock, name string) {
	w.ask(o, c, s, move, "sale", 0, func(ctx context.Context) (stock.Grant, int64, error) {
		n, err := x.Ledger(ctx, 1+s.N, func(_ context.Context, entries []stock.Entry) error {
			if s.ID%3 == 0 && !w.sleep(c, s.For/2) {
				return errCrashed
			}
			if err := o.bases[name].put(entries); err != nil {
				return err
			}
			if s.ID%3 == 1 && !w.sleep(c, s.For/2) || s.ID == 5 {
				return errCrashed
			}
			return nil
		})
		if errors.Is(err, errCrashed) {
			err = nil
		}
		return stock.Grant{}, int64(n), err
	})
}

// drainLedger moves what is left of a ledger, after the end of all holds.
func (w *world) drainLedger(o *object, x *stock.Stock, name string) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	_, err := x.Reap(ctx)
	for n := 1; n > 0 && err == nil && o.bases[name] != nil; {
		n, err = x.Ledger(ctx, 100, func(_ context.Context, entries []stock.Entry) error {
			return o.bases[name].put(entries)
		})
	}
	_, wrong := x.Inspect(ctx)
	if err = errors.Join(err, wrong); err != nil {
		w.violated("%s: at the end: %v", name, err)
	}
}
