package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// account is what the database says of one id.
type account struct {
	held, sold    int64
	expired, gone int64 // units that went back at the end of a hold; that were cancelled
	ordinal, n    int64 // of what was sold
}

// auditLedger: the database has every serial once, its entries make sense one after the other, they never add up to
// more than the limit, to what the stock says, and to what was answered.
func (w *world) auditLedger(o *object, x *stock.Stock, name string, list []*entry) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	b := o.bases[name]
	_, err := x.Reap(ctx)
	for n := 1; n > 0 && err == nil; {
		n, err = x.Ledger(ctx, 100, func(_ context.Context, entries []stock.Entry) error { return b.put(entries) })
	}
	status, wrong := x.Inspect(ctx)
	if err = errors.Join(err, wrong); err != nil {
		w.violated("%s: at the end: %v", name, err)
		return
	}
	accounts := map[string]*account{}
	var held, sold, seq int64
	for _, e := range b.rows {
		a := accounts[e.Request]
		if a == nil {
			a = &account{}
			accounts[e.Request] = a
		}
		was := *a
		if !a.add(e) {
			w.violated("%s: entry %+v of the ledger cannot follow %+v", name, e, was)
			return
		}
		held, sold = held+a.held-was.held, sold+a.sold-was.sold
		if e.Kind == stock.KindGrant || e.Kind == stock.KindLate {
			if e.Ordinal != seq+1 {
				w.violated("%s: entry %+v of the ledger comes after ordinal %d", name, e, seq)
			}
			seq = e.Ordinal + e.N - 1
		}
		if held+sold > stockLimit {
			w.violated("%s: by entry %d of the ledger %d units are held and %d sold of %d", name, e.Serial, held, sold,
				stockLimit)
		}
	}
	if status.Held != held || status.Sold != sold || status.Seq != seq || held != 0 {
		w.violated("%s: the database has %d units held and %d sold up to %d, and the stock says %+v", name, held, sold, seq,
			status)
	}
	for _, e := range list {
		of, id, ok := strings.Cut(e.key, "/")
		if !ok {
			of, id = name, e.key
		}
		if e.says() != isSold || of != name {
			continue
		}
		if a := accounts[id]; a == nil || a.ordinal != e.grant.Ordinal || e.grant.N > a.n {
			w.violated("%s: step %d was answered that %s has %d units from %d, and the database says %+v", name, e.step, e.key,
				e.grant.N, e.grant.Ordinal, a)
		}
	}
}

// add reports whether an entry can come next.
func (a *account) add(e stock.Entry) bool {
	switch e.Kind {
	case stock.KindHeld:
		a.held += e.N
		return *a == account{held: e.N} && e.Ordinal == 0
	case stock.KindExtended:
		return a.held == e.N
	case stock.KindExpired:
		a.held, a.expired = a.held-e.N, e.N
		return a.held == 0
	case stock.KindCancelled:
		a.held, a.gone = a.held-e.N, e.N
		return a.held >= 0
	case stock.KindGrant: // a claim, or all that is still held
		right := a.sold == 0 && a.n == 0 && a.expired == 0 && (a.held == e.N || *a == account{})
		a.held, a.sold, a.ordinal, a.n = 0, e.N, e.Ordinal, e.N
		return right
	case stock.KindLate:
		right := a.held == 0 && a.n == 0 && a.gone == 0 && a.expired >= e.N
		a.sold, a.ordinal, a.n = e.N, e.Ordinal, e.N
		return right
	case stock.KindReturn: // the last units of what it has
		a.sold -= e.N
		return a.sold >= 0 && e.Ordinal == a.ordinal+a.sold
	}
	return false
}

// moments are when entries of a kind about an id were written.
func (b *base) moments(id string, kind stock.Kind) (at []time.Time) {
	for _, e := range b.rows {
		if e.Request == id && e.Kind == kind {
			at = append(at, e.At)
		}
	}
	return at
}
