package main

import (
	"context"
	"maps"
	"sync"

	"github.com/redlatch/redlatch/rcounter/stock"
)

// bank is what the shop needs of a payment provider.
type bank interface {
	// Paid is all that was ever paid for an order.
	Paid(ctx context.Context, order string) ([]stock.Line, error)
	// RefundUpTo pays back until so much of an order has gone back, over all calls. A call that is repeated pays nothing:
	// a provider's idempotency key is the order with the total.
	RefundUpTo(ctx context.Context, order string, total []stock.Line) error
}

// account is an item of an order.
type account struct{ order, item string }

// books are who has how many units, or their money. An account with nothing is left out.
type books map[account]int64

func (b books) add(order, item string, n int64) {
	if b[account{order, item}] += n; b[account{order, item}] == 0 {
		delete(b, account{order, item})
	}
}

// memoryBank is a bank in memory.
type memoryBank struct {
	mu             sync.Mutex
	paid, refunded books
}

func newBank() *memoryBank { return &memoryBank{paid: books{}, refunded: books{}} }

// charge takes money for lines. A second charge takes it again.
func (b *memoryBank) charge(order string, lines ...stock.Line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range lines {
		b.paid.add(order, l.Item, l.N)
	}
}

func (b *memoryBank) Paid(_ context.Context, order string) (lines []stock.Line, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, n := range b.paid {
		if of.order == order {
			lines = append(lines, stock.Line{Item: of.item, N: n})
		}
	}
	return lines, nil
}

func (b *memoryBank) RefundUpTo(_ context.Context, order string, total []stock.Line) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range total {
		of := account{order, l.Item}
		b.refunded[of] = max(b.refunded[of], l.N)
	}
	return nil
}

// kept is the money that has not gone back.
func (b *memoryBank) kept() books {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := maps.Clone(b.paid)
	for of, n := range b.refunded {
		kept.add(of.order, of.item, -n)
	}
	return kept
}
