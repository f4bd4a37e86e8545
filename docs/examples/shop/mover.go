package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// move is a ledger mover: it writes what was sold and returned into the order database. Several run side by side, and
// each may be killed before or after its commit: what it had in hand is moved again.
func move(ctx context.Context, s station) error {
	red, err := s.open()
	if err != nil {
		return err
	}
	defer closeNow(red)
	orders, err := openOrders(s.Orders, s.Stock)
	if err != nil {
		return err
	}
	defer orders.close()
	orders.mover.Failed = func(err error) { fmt.Fprintln(os.Stderr, err) }
	sale := red.Stocks().Stock(s.Stock)
	ctx, stop := context.WithCancel(ctx) // if one of the two cannot go on, the process ends and another is started
	defer stop()
	reaped := make(chan error, 1)
	go func() { // so that the page shows units free though no customer asks for them
		defer stop()
		reaped <- unlessOver(ctx, sale.KeepReaped(ctx, 500*time.Millisecond))
	}()
	err = unlessOver(ctx, orders.keep(ctx, sale))
	stop()
	return errors.Join(err, <-reaped)
}

// unlessOver is err, or nil if ctx has ended.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
