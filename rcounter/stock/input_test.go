package stock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

func stockVerbs(s *stock.Stock) map[string]func() error {
	return map[string]func() error{
		"Open":    func() error { _, err := s.Open(ctx, spec(1)); return err },
		"Claim":   func() error { _, err := s.Claim(ctx, "u"); return err },
		"Lookup":  func() error { _, _, err := lookup(s, "u"); return err },
		"Return":  func() error { _, err := s.Return(ctx, stock.Units{Claimant: "u", Ordinal: 1}); return err },
		"Inspect": func() error { _, err := s.Inspect(ctx); return err },
		"EndSale": func() error { return s.EndSale(ctx) },

		"ClaimAny":   func() error { _, err := s.ClaimAny(ctx, 1); return err },
		"ClaimOnce":  func() error { _, err := s.Claim(ctx, "u", stock.Request{ID: "r", N: 1}); return err },
		"ReturnOnce": func() error { _, err := s.Return(ctx, stock.Units{Request: "r"}); return err },
		"ReturnAny":  func() error { _, err := s.Return(ctx, stock.Units{Request: "a", Ordinal: 1, N: 1}); return err },
		"Reserve": func() error {
			_, err := s.Reserve(ctx, "u", stock.Request{ID: "h", N: 1}, time.Minute)
			return inSomeOrder(err)
		},
		"ClaimUpTo":  func() error { _, err := s.Claim(ctx, "u", stock.Request{ID: "up to", N: 1, UpTo: true}); return err },
		"ReturnPart": func() error { _, err := s.Return(ctx, stock.Units{Request: "r", Keep: 1}); return err },
		"ReserveUpTo": func() error {
			_, err := s.Reserve(ctx, "u", stock.Request{ID: "h2", N: 1, UpTo: true}, time.Minute)
			return inSomeOrder(err)
		},
		"Confirm": func() error {
			_, err := s.Confirm(ctx, "h")
			return inSomeOrder(err)
		},
		"Confirm a part": func() error {
			_, err := s.Confirm(ctx, "h", stock.Paid(1))
			return inSomeOrder(err)
		},
		"Extend": func() error {
			_, err := s.Extend(ctx, "h", time.Minute)
			return inSomeOrder(err)
		},
		"Cancel": func() error { _, err := s.Cancel(ctx, "h"); return err },
		"Reap":   func() error { _, err := s.Reap(ctx); return err },
		"Resize": func() error { return s.Change(ctx, stock.Change{Limit: 100}) },
		"OpenOrJoin": func() error {
			_, err := s.OpenOrJoin(ctx, spec(1))
			if errors.Is(err, errs.ErrMismatch) { // an earlier one has resized it
				err = nil
			}
			return err
		},
		"Pause":    func() error { return s.Change(ctx, stock.Change{Pause: true}) },
		"Resume":   func() error { return s.Change(ctx, stock.Change{Resume: true}) },
		"SetEnd":   func() error { return s.Change(ctx, stock.Change{EndIn: stock.In(time.Hour)}) },
		"LookupID": func() error { _, err := s.Lookup(ctx, stock.Units{Request: "r"}); return err },
		"Units":    func() error { _, err := unitsOf(s, "u"); return err },
		"Holders": func() error {
			for _, err := range s.Holders(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"Ledger": func() error {
			_, err := s.Ledger(ctx, 1, func(context.Context, []stock.Entry) error { return nil })
			return err
		},
		"Restore": func() error {
			_, err := s.Restore(ctx, func(func(stock.Entry, error) bool) {})
			return err
		},
	}
}

// inSomeOrder is err, unless it is how a reservation answers when these verbs come in another order.
func inSomeOrder(err error) error {
	if errors.Is(err, stock.ErrNotFound) {
		return nil
	}
	return err
}

// requirePrefix fails if the error does not begin with the package's name, once.
func requirePrefix(t testing.TB, err error) {
	t.Helper()
	require.True(t, strings.HasPrefix(err.Error(), "stock: "), err)
	require.Equal(t, 1, strings.Count(err.Error(), "stock: "), err)
}

func second[A any](_ A, err error) error { return err }

// cartVerbs are the verbs of a cart with an id.
func cartVerbs(g *stock.Group, lines []stock.Line) map[string]func(id string) error {
	names := namesOf(lines)
	return map[string]func(id string) error{
		"Reserve": func(id string) error {
			return second(g.Reserve(ctx, "u", stock.CartRequest{ID: id, Lines: lines}, time.Minute))
		},
		"Confirm": func(id string) error { return second(g.Confirm(ctx, id, lines...)) },
		"Extend":  func(id string) error { return second(g.Extend(ctx, id, time.Minute, names...)) },
		"Lookup":  func(id string) error { return second(g.Lookup(ctx, id, names...)) },
		"Cancel":  func(id string) error { return second(g.Cancel(ctx, id, names...)) },
		"Return":  func(id string) error { return second(g.Return(ctx, id, names...)) },
	}
}
