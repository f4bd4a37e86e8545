// Package salebook has the ledger of a sale in memory: a stock.Book for the command's restore, and for tests.
package salebook

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// Book is a stock.Book. The zero value is empty, and knows no opening. Its methods are safe for concurrent use.
type Book struct {
	All   []stock.Entry
	Epoch int64                             // of the opening whose entries the book takes; 0: of any
	Fail  func() error                      // if it is set, each method asks it first
	Added func(entries []stock.Entry) error // if it is set, Move calls it before it keeps entries that are new

	mu sync.Mutex
}

// Read adds entries that are written in JSON, an object each, from serial 1 on, of one opening or of several. An entry
// may be there twice. Afterwards the book takes entries of any opening.
func (b *Book) Read(in io.Reader) error {
	from := json.NewDecoder(in)
	from.DisallowUnknownFields()
	for n := 1; ; n++ {
		var e stock.Entry
		if err := from.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		e.At, e.Until = e.At.UTC(), e.Until.UTC() // one form, because Move compares
		if err := b.Move(context.Background(), []stock.Entry{e}); err != nil {
			return fmt.Errorf("record %d: it has the serial %d, and must be entry %d or repeat one", n, e.Serial, len(b.All)+1)
		}
		b.Epoch = 0
	}
}

func (b *Book) enter() (leave func(), err error) {
	b.mu.Lock()
	if b.Fail != nil {
		err = b.Fail()
	}
	return b.mu.Unlock, err
}

// Opened implements stock.Book.
func (b *Book) Opened(context.Context) (epoch int64, err error) {
	leave, err := b.enter()
	defer leave()
	return b.Epoch, err
}

// Move implements stock.Book.
func (b *Book) Move(_ context.Context, entries []stock.Entry) error {
	leave, err := b.enter()
	defer leave()
	if err != nil {
		return err
	}
	all, epoch := b.All, b.Epoch // of an append beyond its end b.All shows nothing
	for _, e := range entries {
		switch at := e.Serial - 1; {
		case at >= 0 && at < int64(len(all)) && all[at] == e:
		case at == int64(len(all)) && (epoch == 0 || e.Epoch == epoch):
			all, epoch = append(all, e), e.Epoch
		default:
			return fmt.Errorf("%w: entry %d", errs.ErrMismatch, e.Serial)
		}
	}
	if b.Added != nil {
		if err := b.Added(all[len(b.All):]); err != nil {
			return err
		}
	}
	b.All, b.Epoch = all, epoch
	return nil
}

// Continue implements stock.Book.
func (b *Book) Continue(_ context.Context, from, to int64) (last int64, err error) {
	leave, err := b.enter()
	defer leave()
	if err != nil {
		return 0, err
	}
	if from != b.Epoch {
		return 0, fmt.Errorf("%w: epoch %d, not %d", errs.ErrMismatch, b.Epoch, from)
	}
	b.Epoch = to
	return int64(len(b.All)), nil
}

// Entries implements stock.Book.
func (b *Book) Entries(context.Context) iter.Seq2[stock.Entry, error] {
	return func(yield func(stock.Entry, error) bool) {
		leave, err := b.enter()
		all := b.All
		leave()
		if err != nil {
			yield(stock.Entry{}, err)
			return
		}
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Order implements stock.Book.
func (b *Book) Order(_ context.Context, id string) (found []stock.Entry, err error) {
	leave, err := b.enter()
	defer leave()
	for _, e := range b.All {
		if e.ID == id {
			found = append(found, e)
		}
	}
	return found, err
}
