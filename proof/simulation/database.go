package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/salebook"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// book is a client's way to the database into which the ledger of a sale is moved: slow, and gone with the client.
type book struct {
	*salebook.Book
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

// reach takes some time to reach the database, in which the client may crash. In a crowd it takes none, because the
// bounds of its calls are exact.
func (b book) reach() error {
	d := time.Duration(mix(b.w.plan.Seed, uint64(time.Now().UnixNano()))%64) * time.Millisecond / 4
	if !b.w.plan.Crowd && !b.w.sleep(b.c, d) {
		return errCrashed
	}
	return nil
}

// Opened implements stock.Book.
func (b book) Opened(ctx context.Context) (int64, error) {
	if err := b.reach(); err != nil {
		return 0, err
	}
	return b.Book.Opened(ctx)
}

// Move implements stock.Book.
func (b book) Move(ctx context.Context, entries []stock.Entry) error {
	if err := b.reach(); err != nil {
		return err
	}
	return b.Book.Move(ctx, entries)
}

// Continue implements stock.Book.
func (b book) Continue(ctx context.Context, from, to int64) (int64, error) {
	if err := b.reach(); err != nil {
		return 0, err
	}
	return b.Book.Continue(ctx, from, to)
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
