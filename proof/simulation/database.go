package simulation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	stock "github.com/redlatch/redlatch/rcounter/stock/sale"
)

// base is the database into which the ledger of a sale is moved.
type base struct {
	mu    sync.Mutex
	rows  []stock.Entry // by their serials, from 1
	epoch int64         // of the opening whose entries it takes
}

// book is a client's way to a base, the stock.Book of its sales: slow, and gone with the client.
type book struct {
	*base
	w *world
	c *client
}

var errCrashed = errors.New("simulated: the client is gone")

// books are those of a client.
func (w *world) books(c *client) func(sale string) stock.Book {
	return func(sale string) stock.Book {
		for _, o := range w.objects {
			if o.name == sale && o.shop.base != nil {
				return book{o.shop.base, w, c}
			}
		}
		return nil
	}
}

// enter takes some time to reach the base, in which the client may crash. In a crowd it takes none, because the bounds
// of its calls are exact.
func (b book) enter() (leave func(), err error) {
	d := time.Duration(mix(b.w.plan.Seed, uint64(time.Now().UnixNano()))%64) * time.Millisecond / 4
	if !b.w.plan.Crowd && !b.w.sleep(b.c, d) {
		return func() {}, errCrashed
	}
	b.mu.Lock()
	return b.mu.Unlock, nil
}

// Opened implements stock.Book.
func (b book) Opened(context.Context) (int64, error) {
	leave, err := b.enter()
	defer leave()
	return b.epoch, err
}

// Move implements stock.Book.
func (b book) Move(_ context.Context, entries []stock.Entry) error {
	leave, err := b.enter()
	defer leave()
	if err != nil {
		return err
	}
	rows, epoch := b.rows, b.epoch
	for _, e := range entries {
		switch at := int(e.Serial) - 1; {
		case at >= 0 && at < len(rows) && rows[at] == e:
		case at == len(rows) && (epoch == 0 || epoch == e.Epoch):
			rows, epoch = append(rows, e), e.Epoch
		default:
			return fmt.Errorf("%w: entry %+v after %d, of the opening %d", errs.ErrMismatch, e, len(rows), epoch)
		}
	}
	b.rows, b.epoch = rows, epoch
	return nil
}

// Continue implements stock.Book.
func (b book) Continue(_ context.Context, from, to int64) (int64, error) {
	leave, err := b.enter()
	defer leave()
	switch {
	case err != nil:
		return 0, err
	case from != b.epoch:
		return 0, fmt.Errorf("%w: the opening %d, not %d", errs.ErrMismatch, b.epoch, from)
	}
	b.epoch = to
	return int64(len(b.rows)), nil
}

// Entries implements stock.Book.
func (b book) Entries(context.Context) iter.Seq2[stock.Entry, error] {
	return func(yield func(stock.Entry, error) bool) {
		leave, err := b.enter()
		rows := b.rows
		leave()
		if err != nil {
			yield(stock.Entry{}, err)
			return
		}
		for _, e := range rows {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Order implements stock.Book.
func (b book) Order(ctx context.Context, id string) (of []stock.Entry, err error) {
	for e, err := range b.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		if e.ID == id {
			of = append(of, e)
		}
	}
	return of, nil
}

// moveLedger is one move of a ledger. Some movers crash when they have written.
func (d *desk) moveLedger(n int, crashes bool) (moved int, err error) {
	err = d.do(move, func(ctx context.Context) (err error) {
		moved, err = d.Ledger(ctx, n, func(ctx context.Context, entries []stock.Entry) error {
			err := book{d.shop.base, d.world, d.c}.Move(ctx, entries)
			if err == nil && crashes {
				err = errCrashed
			}
			return err
		})
		if errors.Is(err, errCrashed) {
			err = nil
		}
		return err
	})
	return moved, err
}

// drain moves what is left of a ledger, after the end of all reservations.
func (d *desk) drain() error {
	n, err := d.moveLedger(100, false)
	for n > 0 && err == nil {
		n, err = d.moveLedger(100, false)
	}
	return err
}
