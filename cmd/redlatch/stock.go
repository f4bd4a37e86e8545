//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func (t *tool) stock() *cobra.Command {
	c := &cobra.Command{
		Use:   "stock",
		Short: "look at stocks; pause, resume, end and restore them",
	}
	c.AddCommand(t.stockStatus(),
		t.stockChange("pause NAME", "have a stock grant nothing for a while", stock.Change{Pause: true}),
		t.stockChange("resume NAME", "end a pause", stock.Change{Resume: true}),
		t.stockEnd(), t.stockRestore())
	return c
}

// onStock is a subcommand for one stock.
func (t *tool) onStock(use, short string, do func(ctx context.Context, s *stock.Stock) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: names(cobra.ExactArgs(1), t.stockName),
		ValidArgsFunction: t.offer(t.stockNames, 1, noFiles)}
	c.RunE = func(c *cobra.Command, args []string) error {
		return t.with(c, func(ctx context.Context, red *redlatch.Client) error {
			return do(ctx, red.Stocks().Stock(args[0]))
		})
	}
	return c
}

// stockStatus is what status tells of a stock.
type stockStatus struct {
	Name         string `json:"name"`
	State        string `json:"state"`
	Limit        int64  `json:"limit"`
	Sold         int64  `json:"sold"`
	Held         int64  `json:"held"`
	Remaining    int64  `json:"remaining"`
	Reservations int64  `json:"reservations"`
	Epoch        int64  `json:"epoch"`
	StartsInMS   int64  `json:"starts_in_ms"`
	EndsInMS     int64  `json:"ends_in_ms"`
	GoneInMS     int64  `json:"gone_in_ms"`
	Error        string `json:"error,omitempty"`
}

func (t *tool) stockStatus() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "status NAME...", Short: "show how many units are sold, held and left",
		Args: names(cobra.MinimumNArgs(1), t.stockName), ValidArgsFunction: t.offer(t.stockNames, 1000, noFiles),
		RunE: func(c *cobra.Command, names []string) error {
			return t.with(c, func(ctx context.Context, red *redlatch.Client) error {
				return t.showStocks(ctx, red, names, asJSON)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON: an array with an object for each stock")
	return c
}

func (t *tool) showStocks(ctx context.Context, red *redlatch.Client, names []string, asJSON bool) (result error) {
	var all []stockStatus
	for _, name := range names {
		s, err := red.Stocks().Stock(name).Inspect(ctx)
		if err != nil && !errors.Is(err, redlatch.ErrCorrupt) {
			return err
		}
		x := stockStatus{name, string(s.Phase), s.Limit, s.Sold, s.Held, s.Remaining, s.Reservations, s.Epoch,
			s.UntilStart.Milliseconds(), s.UntilEnd.Milliseconds(), s.UntilGone.Milliseconds(), ""}
		if err != nil {
			x.State, x.Error, result = "corrupt", err.Error(), err
		} else if s.Phase == stock.PhaseAbsent && result == nil {
			result = silent(exitConflict)
		}
		all = append(all, x)
	}
	if asJSON {
		return errors.Join(t.json(all), result)
	}
	in := func(ms int64) string {
		if ms == 0 {
			return "-"
		}
		return briefMillis(&ms)
	}
	rows := []row{{"NAME", "STATE", "LIMIT", "SOLD", "HELD", "LEFT", "STARTS IN", "ENDS IN", "GONE IN"}}
	for _, x := range all {
		rows = append(rows, row{x.Name, x.State, x.Limit, x.Sold, x.Held, x.Remaining, in(x.StartsInMS), in(x.EndsInMS),
			in(x.GoneInMS)})
	}
	return errors.Join(table(t.out, rows), result)
}

// stockChange is a subcommand that changes a stock and needs no flags.
func (t *tool) stockChange(use, short string, change stock.Change) *cobra.Command {
	return t.onStock(use, short, func(ctx context.Context, s *stock.Stock) error { return s.Change(ctx, change) })
}

func (t *tool) stockEnd() *cobra.Command {
	var yes bool
	c := t.onStock("end NAME", "end a sale for good", func(ctx context.Context, s *stock.Stock) error {
		if !yes && !t.confirmed("End this sale for good?") {
			return silent(exitConflict)
		}
		return s.EndSale(ctx)
	})
	c.PreRunE = func(*cobra.Command, []string) error { return t.answerable(yes) }
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (t *tool) stockRestore() *cobra.Command {
	const short = "repair a stock from your own records"
	return t.onStock("restore NAME", short, func(ctx context.Context, s *stock.Stock) error {
		r, err := s.Restore(ctx, records(t.in))
		if err != nil {
			return err
		}
		fmt.Fprintf(t.out, "added %d\ndisplaced %d\nunaccounted %d\n", r.Added, len(r.Displaced), r.Unaccounted)
		for _, d := range r.Displaced {
			t.say("displaced: ordinal %d of %q", d.Ordinal, d.Claimant)
		}
		return nil
	})
}

// records reads entries of a ledger, a JSON object each.
func records(in io.Reader) iter.Seq2[stock.Entry, error] {
	return func(yield func(stock.Entry, error) bool) {
		d := json.NewDecoder(in)
		d.DisallowUnknownFields()
		for n := 1; ; n++ {
			var e stock.Entry // kind, ordinal, n, claimant, request; serial, epoch, at
			err := d.Decode(&e)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(stock.Entry{}, coded{exitData, fmt.Errorf("record %d: %w", n, err)})
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}
