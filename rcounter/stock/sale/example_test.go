package sale_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/rcounter/stock/sale"
)

// bank pays money back. RefundUpTo brings what was paid back for an order, in all, to a total: its idempotency key is
// the order with the total, so a call that is repeated pays nothing.
type bank interface {
	RefundUpTo(ctx context.Context, order string, total []sale.Line) error
}

var errNothing = errors.New("nothing was sold")

// 1. Every process announces the sale when it starts, and Buy answers each request.
func announce(ctx context.Context, c *sale.Client, noon time.Time) error {
	return c.Sale("phones").Open(ctx, sale.Spec{Limit: 100, Ledger: true,
		StartIn: max(0, time.Until(noon)), OpenFor: time.Hour})
}

func buy(ctx context.Context, c *sale.Client, user string) (unit int64, err error) {
	a, err := c.Sale("phones").Buy(ctx, sale.Order{User: user})
	switch {
	case err != nil:
		return 0, err // ask again
	case a.Won():
		return a.Lines[0].Ordinal, nil
	}
	return 0, fmt.Errorf("%w: %s", errNothing, a.Why)
}

// 2. The page shows what Reserve answers. Called again it is the same.
func reserve(ctx context.Context, s *sale.Sale, order, user string, cart ...sale.Line) (sale.Answer, error) {
	return s.Reserve(ctx, sale.Order{ID: order, User: user, Lines: cart}, 10*time.Minute)
}

// webhook is called by the bank: in time, late, twice, or by a job that reads payments that nobody has told of. An
// error is HTTP 500, and the bank calls again. paid are all lines that the customer has paid for.
func webhook(ctx context.Context, s *sale.Sale, bank bank, order string, paid ...sale.Line) error {
	a, err := s.Pay(ctx, order, paid...)
	if err != nil {
		return err // nothing is decided, or nobody knows: never a refund
	}
	return bank.RefundUpTo(ctx, order, a.Refund(paid...))
}

// giveUp is for what was never paid: the customer's browser, or a job. A payment in flight is refunded by webhook.
func giveUp(ctx context.Context, s *sale.Sale, order string) (sold bool, err error) {
	a, err := s.Cancel(ctx, order)
	return a.State == sale.Sold, err
}

// 3. A cart is an order of several lines: all or none. Refused says what is left of each.
func cart(ctx context.Context, s *sale.Sale, order, user string, lines []sale.Line) (missing []string, err error) {
	a, err := reserve(ctx, s, order, user, lines...)
	if err != nil || a.State != sale.Refused {
		return nil, err
	}
	for i, left := range a.Lines {
		if left.N < lines[i].N {
			missing = append(missing, left.Item)
		}
	}
	return missing, nil
}

// 4. Refund all, or all but what the customer keeps.
func refund(ctx context.Context, s *sale.Sale, bank bank, order string, paid []sale.Line, keep ...sale.Line) error {
	a, err := s.Return(ctx, order, keep...)
	if err != nil {
		return err
	}
	return bank.RefundUpTo(ctx, order, a.Refund(paid...))
}

// 5. The night shift pauses and ends the sale, and repairs it if the server came back empty, with a part, or after a
// failover. Until Restore returns nil every verb is an error.
func pause(ctx context.Context, s *sale.Sale, paused bool) error {
	return s.Change(ctx, sale.Change{Paused: &paused})
}

func repair(ctx context.Context, s *sale.Sale, spec sale.Spec) error {
	lost, err := s.Restore(ctx, spec)
	for _, e := range lost {
		slog.Warn("an order that a failover forgot", "order", e.ID, "user", e.User, "item", e.Item, "n", e.N)
	}
	return err // run it again
}

// 6. A database gets the records. The interface Book says what its Move does.
func records(ctx context.Context, s *sale.Sale, orders sale.Book) error {
	return s.KeepLedger(ctx, time.Second, 1000, orders.Move)
}
