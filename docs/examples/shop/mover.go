package main

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// move is a ledger mover: it writes what was sold and returned into the order database. Several run side by side, and each may be
// killed before or after its commit: what it had in hand is moved again.
func move(ctx context.Context, s station) error {
	red, err := s.open()
	if err != nil {
		return err
	}
	defer closeNow(red)
	orders, err := openOrders(s.Orders)
	if err != nil {
		return err
	}
	defer orders.close()
	sale := red.Stocks().Stock(s.Stock)
	reaped := make(chan error, 1)
	go func() { reaped <- sale.KeepReaped(ctx, 500*time.Millisecond) }() // so that the page shows units free though nobody asks for them
	err = sale.KeepLedger(ctx, 50*time.Millisecond, 200, func(ctx context.Context, entries []stock.Entry) error {
		return orders.move(ctx, s.Stock, entries)
	})
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, ignoreEnd(ctx, <-reaped))
}

// ignoreEnd is err, unless ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
