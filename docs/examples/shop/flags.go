package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// options are the flags, checked.
type options struct {
	duration  time.Duration
	units     int
	customers int
	workers   int
	movers    int
	hold      time.Duration
	cents     int64
	seed      uint64
	chaos     bool
	keep      time.Duration
	page      string

	redisServer bool
}

const help = `shop runs a flash sale with payment: several shop workers sell, movers write every sale into an
order database, and a crowd of customers reserves, pays, cancels, pays too late and wants its money back. At the end it
proves that the answers to the customers, the sales of the stock, the orders in the database and the money at the bank
agree.

Usage: go run . [flags]           in docs/examples/shop

  -chaos             kill workers and movers, cut connections, lose replies, flush scripts, restart Redis
  -redis-server      on a redis-server of its own, with appendfsync always, in place of the embedded one
  -duration D        how long customers come (default 20s)
  -units N           units to sell (default 500)
  -customers N       (default 1000)
  -workers N         shop workers, processes (default 3)
  -movers N          ledger movers, processes (default 2)
  -hold D            how long a unit is held for its payment (default 2s)
  -seed N            of customers, bank and faults: the same number, the same plan (default 1)
  -page ADDR         where the live page is (default a free port of 127.0.0.1)
  -keep D            keep the page up after the sale (default 0)
  -help              print this

Exit status: 0 all is well; 1 the final check has found something, or the run broke off; 2 bad flags.
`

// parseFlags checks args. Its error is one line that names the flag and the value.
func parseFlags(args []string) (options, error) {
	o := options{cents: 1990}
	fs := flag.NewFlagSet("shop", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&o.chaos, "chaos", false, "")
	fs.BoolVar(&o.redisServer, "redis-server", false, "")
	fs.DurationVar(&o.duration, "duration", 20*time.Second, "")
	fs.IntVar(&o.units, "units", 500, "")
	fs.IntVar(&o.customers, "customers", 1000, "")
	fs.IntVar(&o.workers, "workers", 3, "")
	fs.IntVar(&o.movers, "movers", 2, "")
	fs.DurationVar(&o.hold, "hold", 2*time.Second, "")
	fs.Uint64Var(&o.seed, "seed", 1, "")
	fs.StringVar(&o.page, "page", "127.0.0.1:0", "")
	fs.DurationVar(&o.keep, "keep", 0, "")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: everything is set by flags", fs.Arg(0))
	}
	between := func(name string, n, least, most int) error {
		if n < least || n > most {
			return fmt.Errorf("-%s %d: want %d to %d", name, n, least, most)
		}
		return nil
	}
	long := func(name string, d, least, most time.Duration) error {
		if d < least || d > most {
			return fmt.Errorf("-%s %v: want %v to %v", name, d, least, most)
		}
		return nil
	}
	return o, errors.Join(
		between("units", o.units, 1, 1_000_000), between("customers", o.customers, 1, 100_000),
		between("workers", o.workers, 1, 32), between("movers", o.movers, 1, 8),
		long("duration", o.duration, time.Second, time.Hour), long("hold", o.hold, 100*time.Millisecond, time.Minute),
		long("keep", o.keep, 0, 24*time.Hour))
}
