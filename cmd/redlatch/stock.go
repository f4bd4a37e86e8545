//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/salebook"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func (t *tool) stock() *cobra.Command {
	paused := func(is bool) func(context.Context, *stock.Sale) error {
		return func(ctx context.Context, s *stock.Sale) error { return s.Change(ctx, stock.Change{Paused: &is}) }
	}
	c := &cobra.Command{Use: "stock", Short: "open, show, change, end and restore sales"}
	c.AddCommand(t.opening("open NAME", "open a sale, unless it is open already",
		func(ctx context.Context, s *stock.Sale, spec stock.Spec) error { return s.Open(ctx, spec) }),
		t.inspectSale(), t.onSale("holders NAME", "show the orders that have units", t.holders),
		t.changeSale(), t.onSale("pause NAME", "stop selling for a while", paused(true)),
		t.onSale("resume NAME", "continue a paused sale", paused(false)),
		t.stopping("end NAME", "end a sale for good",
			func(ctx context.Context, s *stock.Sale) error { return s.EndSale(ctx) }),
		t.stopping("delete NAME", "remove a sale with all its orders",
			func(ctx context.Context, s *stock.Sale) error { return s.Delete(ctx) }),
		t.onSale("ledger NAME", "print the entries that no database has yet", t.ledger),
		t.opening("restore NAME", "rebuild a sale from its ledger", t.restore))
	return c
}

// onSale is a subcommand for one sale.
func (t *tool) onSale(use, short string, do func(context.Context, *stock.Sale) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: names(cobra.ExactArgs(1), t.stockName),
		RunE: func(c *cobra.Command, args []string) error {
			return t.with(c, func(ctx context.Context, red *redlatch.Client) error {
				return do(ctx, red.Sales().Sale(args[0]))
			})
		}}
}

// limits are what the flag --limit says of each item.
func limits(f *pflag.FlagSet) map[string]stock.Item {
	items := map[string]stock.Item{}
	f.Func("limit", "number of units, as `[ITEM=]UNITS[/USER]`, where USER is the most units of one user\n"+
		"(default 1); once for each item", func(text string) (err error) {
		at := strings.LastIndex(text, "=")
		units, user, _ := strings.Cut(text[at+1:], "/")
		var of stock.Item
		if of.Limit, err = strconv.ParseInt(units, 10, 64); err == nil && user != "" {
			of.PerUser, err = strconv.ParseInt(user, 10, 64)
		}
		if err == nil && of.Limit < 1 {
			err = errors.New("must be a number from 1")
		}
		items[text[:max(at, 0)]] = of
		return err
	})
	return items
}

// opening is a subcommand that may make a sale.
func (t *tool) opening(use, short string, do func(context.Context, *stock.Sale, stock.Spec) error) *cobra.Command {
	var spec stock.Spec
	c := t.onSale(use, short, func(ctx context.Context, s *stock.Sale) error { return do(ctx, s, spec) })
	spec.Items = limits(c.Flags())
	f := c.Flags()
	f.Var(within(&spec.OpenFor, time.Millisecond, century), "open-for", "`time` from the start to the end, such as 24h")
	f.Var(within(&spec.StartIn, 0, century), "start-in", "`time` until the start (default now)")
	f.Var(within(&spec.Retain, time.Millisecond, century), "retain",
		"`time` for which orders are kept after the end (default 24h)")
	f.Var(within(&spec.Remember, time.Minute, century), "remember",
		"`time` for which closed orders are kept (default 72h)")
	f.BoolVar(&spec.Ledger, "ledger", false, "keep a ledger, which restore needs")
	_, _ = c.MarkFlagRequired("limit"), c.MarkFlagRequired("open-for")
	return c
}

func (t *tool) inspectSale() *cobra.Command {
	var asJSON bool
	c := t.onSale("inspect NAME", "show how many units are sold, reserved and left",
		func(ctx context.Context, s *stock.Sale) error {
			stand, err := s.Inspect(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return t.json(stand)
			}
			rows := []row{{"STATE", "STARTS IN", "ENDS IN", "GONE IN", "RESERVATIONS", "UNMOVED"}, {stand.Phase,
				brief(stand.UntilStart), brief(stand.UntilEnd), brief(stand.UntilGone), stand.Reservations, stand.Unmoved}, {},
				{"ITEM", "LIMIT", "PER USER", "SOLD", "RESERVED", "LEFT"}}
			for _, item := range slices.Sorted(maps.Keys(stand.Items)) {
				is := stand.Items[item]
				rows = append(rows, row{cmp.Or(item, "-"), is.Limit, is.PerUser, is.Sold, is.Reserved,
					is.Limit - is.Sold - is.Reserved})
			}
			return table(t.out, rows)
		})
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON: an object, with times in nanoseconds")
	return c
}

func (t *tool) holders(ctx context.Context, s *stock.Sale) error {
	rows := []row{{"ORDER", "USER", "STATE", "ITEM", "UNITS", "ORDINALS", "LAPSES IN"}}
	for a, err := range s.Holders(ctx) {
		if err != nil {
			return err
		}
		for _, l := range a.Lines {
			ordinals, lapses := fmt.Sprintf("%d-%d", l.Ordinal, l.Ordinal+l.N-1), "-"
			if a.State == stock.Reserved {
				ordinals, lapses = "-", brief(max(0, time.Until(a.Until)))
			}
			rows = append(rows, row{a.ID, cmp.Or(a.User, "-"), a.State, cmp.Or(l.Item, "-"), l.N, ordinals, lapses})
		}
	}
	return table(t.out, rows)
}

func (t *tool) changeSale() *cobra.Command {
	var change stock.Change
	c := t.onSale("change NAME", "change the limits, the start or the end of a sale",
		func(ctx context.Context, s *stock.Sale) error { return s.Change(ctx, change) })
	change.Items = limits(c.Flags())
	for name, to := range map[string]**time.Duration{"start-in": &change.StartIn, "end-in": &change.EndIn} {
		c.Flags().Func(name, "new `time` from now", func(text string) error {
			in, err := time.ParseDuration(text)
			*to = &in
			return err
		})
	}
	c.MarkFlagsOneRequired("limit", "start-in", "end-in")
	return c
}

// stopping is a subcommand that asks first.
func (t *tool) stopping(use, short string, do func(context.Context, *stock.Sale) error) *cobra.Command {
	var yes bool
	c := t.onSale(use, short, func(ctx context.Context, s *stock.Sale) error {
		if !yes && !t.confirmed("Really "+short+"?") {
			return silent(exitConflict)
		}
		return do(ctx, s)
	})
	c.PreRunE = func(*cobra.Command, []string) error { return t.answerable(yes) }
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// ledger writes what no database has. The function that the library calls refuses to take it, so all stays.
func (t *tool) ledger(ctx context.Context, s *stock.Sale) error {
	errStay := errors.New("the entries stay")
	_, err := s.Ledger(ctx, 10_000, func(_ context.Context, entries []stock.Entry) error {
		return cmp.Or(t.writeEntries(entries), errStay)
	})
	if errors.Is(err, errStay) {
		return nil
	}
	return err
}

// writeEntries writes a JSON object a line.
func (t *tool) writeEntries(entries []stock.Entry) (err error) {
	for _, e := range entries {
		err = cmp.Or(err, json.NewEncoder(t.out).Encode(e))
	}
	return err
}

func (t *tool) restore(ctx context.Context, s *stock.Sale, spec stock.Spec) error {
	book := &salebook.Book{}
	if err := book.Read(t.in); err != nil || len(book.All) == 0 { // of nothing it would make a sale that sells all again
		return coded{exitData, cmp.Or(err, errors.New("no entry of the ledger on stdin"))}
	}
	book.Added = t.writeEntries
	t.server.book, spec.Ledger = book, true
	lost, err := s.Restore(ctx, spec)
	for _, e := range lost {
		t.say("entry %d is lost, because another has its number: %s, order %q of user %q", e.Serial, e.Kind, e.ID, e.User)
	}
	return err
}
