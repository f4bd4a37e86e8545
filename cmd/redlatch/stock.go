//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/rcounter/stock"
)

const stockHelp = `stock manages stocks: numbers of units of which the first claims get one each, by programs that use
rcounter/stock. A stock is opened by one program or by hand, once; claims are made by programs.`

const restoreHelp = `restore repairs a stock from your own records of the sale: after a failover that lost grants,
when the stock is corrupt, and after it was lost and opened again with stock open --suspended. The stock grants
nothing while it runs, and sells on afterwards.

The records are read from stdin, or --from a file: a JSON object a line for each grant that is held, as the ledger has
it:

  {"ordinal": 17, "claimant": "user-4711"}
  {"ordinal": 18, "n": 2, "claimant": "user-4712", "request": "order-99"}
  {"ordinal": 20, "kind": "return"}      sold and returned
  {"epoch": 1719000000000000, "serial": 57, "kind": "held"}      the last entry of the ledger that you have, if it tells of no unit

Where they and the stock differ, the records are right. It can be repeated after any error; until one succeeds the
stock stays suspended.`

func (t *tool) stock() *cobra.Command {
	c := &cobra.Command{
		Use:   "stock",
		Short: "look at stocks; open, change, pause, end, delete and restore them",
		Long:  stockHelp,
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(t.stockStatus(), t.stockOpen(), t.stockChange(), t.stockPause(), t.stockResume(), t.stockEnd(),
		t.stockDelete(), t.stockRestore())
	return c
}

// onStock is a subcommand for one stock. check refuses flags before anything is sent.
func (t *tool) onStock(c *cobra.Command, check func() error,
	do func(ctx context.Context, s *stock.Stock) error) *cobra.Command {
	c.Args = exactly(1, "the name of a stock")
	c.Long += "\n\n" + exitHelp
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := t.stockName(args[0]); err != nil {
			return err
		}
		if check != nil {
			if err := check(); err != nil {
				return err
			}
		}
		ctx, stop := interruptible(c)
		defer stop()
		return t.server.with(ctx, func(red *redlatch.Client) error { return do(ctx, red.Stocks().Stock(args[0])) })
	}
	return c
}

func (t *tool) stockName(name string) error {
	if _, err := keyname.Braced(t.server.prefix, name, "a stock"); err != nil {
		return usage("name %q: %w", name, err)
	}
	return nil
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
		Long: "status shows stocks. It exits with 1 if one of them is absent, and with 65 if one is corrupt.\n\n" +
			exitHelp,
		Example: "  redlatch stock status sneakers\n  redlatch stock status sneakers --json | jq '.[0].remaining'",
		RunE: func(c *cobra.Command, names []string) error {
			if len(names) == 0 {
				return usage("stock status needs names of stocks")
			}
			for _, name := range names {
				if err := t.stockName(name); err != nil {
					return err
				}
			}
			ctx, stop := interruptible(c)
			defer stop()
			return t.server.with(ctx, func(red *redlatch.Client) error { return t.showStocks(ctx, red, names, asJSON) })
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
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tLIMIT\tSOLD\tHELD\tLEFT\tSTARTS IN\tENDS IN\tGONE IN")
	for _, x := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d", printable(x.Name), x.State, x.Limit, x.Sold, x.Held, x.Remaining)
		for _, ms := range []int64{x.StartsInMS, x.EndsInMS, x.GoneInMS} {
			if ms == 0 {
				fmt.Fprint(w, "\t-")
			} else {
				fmt.Fprintf(w, "\t%s", brief(time.Duration(ms)*time.Millisecond))
			}
		}
		fmt.Fprintln(w)
	}
	return errors.Join(w.Flush(), result)
}

func (t *tool) stockOpen() *cobra.Command {
	var o stock.Spec
	c := t.onStock(&cobra.Command{
		Use: "open NAME --limit N --open-for TIME", Short: "open a stock, unless it is there",
		Long: "open creates a stock and writes its epoch to stdout. If a stock of that name is there, it changes " +
			"nothing and exits with 1.",
		Example: "  redlatch stock open sneakers --limit 100 --open-for 2h --start-in 10m --ledger",
	}, func() error {
		if o.Limit < 1 {
			return usage("--limit %d: must be at least 1", o.Limit)
		}
		if o.PerUser < 1 {
			return usage("--per-user %d: must be at least 1", o.PerUser)
		}
		for _, d := range []struct {
			flag         string
			value, least time.Duration
		}{{"open-for", o.OpenFor, time.Millisecond}, {"start-in", o.StartIn, 0}, {"retain", o.Retain, time.Millisecond}} {
			if d.value < d.least {
				return usage("--%s %v: must be at least %v", d.flag, d.value, d.least)
			}
		}
		return nil
	}, func(ctx context.Context, s *stock.Stock) error {
		epoch, err := s.Open(ctx, o)
		if err == nil {
			fmt.Fprintln(t.out, epoch)
		}
		return err
	})
	f := c.Flags()
	f.Int64Var(&o.Limit, "limit", 0, "how many units there are")
	f.Int64Var(&o.PerUser, "per-user", 1, "how many of them a claimant may have")
	f.DurationVar(&o.StartIn, "start-in", 0, "the time until claims are granted")
	f.DurationVar(&o.OpenFor, "open-for", 0, "the time from then to the end")
	f.DurationVar(&o.Retain, "retain", 24*time.Hour, "how long after the end its answers stay")
	f.BoolVar(&o.Ledger, "ledger", false, "keep a ledger, which a program moves to a database")
	f.BoolVar(&o.Suspended, "suspended", false, "grant nothing until stock restore: for a stock that was lost")
	return c
}

func (t *tool) stockChange() *cobra.Command {
	var o stock.Change
	var startIn, endIn time.Duration
	var c *cobra.Command
	c = t.onStock(&cobra.Command{
		Use:   "change NAME [--limit N] [--per-user N] [--start-in TIME] [--end-in TIME]",
		Short: "change how much a stock sells, and when",
		Long: "change changes what its flags name, all of it or nothing, and leaves the rest. A limit below what is sold " +
			"and held exits with 64. A " +
			"sale whose end has come sells again if the new end is ahead; its answers stay for as long after the new end as " +
			"before. One that was " +
			"ended for good does not. A sale whose start is put off sells nothing until then.",
		Example: "  redlatch stock change sneakers --end-in 30m\n  redlatch stock change sneakers --limit 200 --per-user 2",
	}, func() error {
		f := c.Flags()
		for _, n := range []struct {
			flag  string
			value int64
		}{{"limit", o.Limit}, {"per-user", o.PerUser}} {
			if f.Changed(n.flag) && n.value < 1 {
				return usage("--%s %d: must be at least 1", n.flag, n.value)
			}
		}
		for _, d := range []struct {
			flag string
			in   *time.Duration
			to   **time.Duration
		}{{"start-in", &startIn, &o.StartIn}, {"end-in", &endIn, &o.EndIn}} {
			if !f.Changed(d.flag) {
				continue
			}
			if *d.in < 0 {
				return usage("--%s %v: must be at least 0", d.flag, *d.in)
			}
			*d.to = d.in
		}
		if o == (stock.Change{}) {
			return usage("stock change needs --limit, --per-user, --start-in or --end-in")
		}
		return nil
	}, func(ctx context.Context, s *stock.Stock) error {
		err := s.Change(ctx, o)
		if errors.Is(err, redlatch.ErrOutOfRange) {
			return fmt.Errorf("--limit %d: %w", o.Limit, err)
		}
		return err
	})
	f := c.Flags()
	f.Int64Var(&o.Limit, "limit", 0, "how many units there are to be")
	f.Int64Var(&o.PerUser, "per-user", 0, "how many of them a claimant may have")
	f.DurationVar(&startIn, "start-in", 0, "the time from now to the start")
	f.DurationVar(&endIn, "end-in", 0, "the time from now to the end")
	for _, name := range []string{"limit", "per-user", "start-in", "end-in"} {
		f.Lookup(name).DefValue = ""
	}
	return c
}

func (t *tool) stockPause() *cobra.Command {
	return t.onStock(&cobra.Command{
		Use: "pause NAME", Short: "have a stock grant nothing for a while",
		Long: "pause has a stock grant nothing until resume. What was granted stays; reservations can be paid and expire " +
			"as before, units can be " +
			"returned, and the end does not move.",
	}, nil, func(ctx context.Context, s *stock.Stock) error { return s.Change(ctx, stock.Change{Pause: true}) })
}

func (t *tool) stockResume() *cobra.Command {
	return t.onStock(&cobra.Command{
		Use: "resume NAME", Short: "end a pause",
		Long: "resume has a stock that was paused grant again what it has. It changes nothing if the stock is not paused.",
	}, nil, func(ctx context.Context, s *stock.Stock) error { return s.Change(ctx, stock.Change{Resume: true}) })
}

func (t *tool) stockEnd() *cobra.Command {
	var yes bool
	c := t.onStock(&cobra.Command{
		Use: "end NAME", Short: "end a sale for good",
		Long: "end ends a sale: no more grants, and it cannot be opened again until its retention is over. It asks, and " +
			"refuses without a " +
			"terminal unless --yes is given.",
	}, func() error { return t.answerable(yes) }, func(ctx context.Context, s *stock.Stock) error {
		if !yes && !t.confirmed("End this sale for good?") {
			return silent(exitConflict)
		}
		return s.EndSale(ctx)
	})
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (t *tool) stockDelete() *cobra.Command {
	var yes bool
	c := t.onStock(&cobra.Command{
		Use: "delete NAME", Short: "remove a stock with all that it knows",
		Long: "delete removes a stock in any state: who has units, reservations, and the entries of its ledger that were " +
			"not moved yet. The name " +
			"can be opened again at once. It asks, and refuses without a terminal unless --yes is given.",
	}, func() error { return t.answerable(yes) }, func(ctx context.Context, s *stock.Stock) error {
		if !yes && !t.confirmed("Delete this stock, and who has its units?") {
			return silent(exitConflict)
		}
		return s.Delete(ctx)
	})
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (t *tool) stockRestore() *cobra.Command {
	var from string
	var in io.ReadCloser
	c := t.onStock(&cobra.Command{
		Use: "restore NAME [--from FILE]", Short: "repair a stock from your own records",
		Long:    restoreHelp,
		Example: `  psql -Atc "select json_build_object('ordinal', ordinal, 'claimant', claimant) from sold" | redlatch stock restore sneakers`,
	}, func() (err error) {
		if from == "-" {
			in = io.NopCloser(t.in)
			return nil
		}
		if in, err = os.Open(from); err != nil {
			return usage("--from %q: %w", from, err)
		}
		return nil
	}, func(ctx context.Context, s *stock.Stock) error {
		defer in.Close()
		r, err := s.Restore(ctx, records(in))
		if err != nil {
			return err
		}
		fmt.Fprintf(t.out, "added %d\ndisplaced %d\nunaccounted %d\n", r.Added, len(r.Displaced), r.Unaccounted)
		for _, d := range r.Displaced {
			t.say("displaced: ordinal %d of %q", d.Ordinal, d.Claimant)
		}
		return nil
	})
	c.Flags().StringVar(&from, "from", "-", "the `file` with the records; -: stdin")
	return c
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
