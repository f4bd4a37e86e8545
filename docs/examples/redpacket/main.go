// Redpacket sends a red packet to a group of friends and shows how much each of them got. A red packet is an amount of
// money, split into random shares. The first users get one share each. The sender gets back what is left. The
// program uses package rcounter/redpacket.
//
// Run it from the root of the repository. It needs nothing but Go:
//
//	go -C docs/examples run ./redpacket
//	go -C docs/examples run ./redpacket -total 88.88 -shares 10 -method line -users 8 -open 3s
//	go -C docs/examples run ./redpacket -redis 127.0.0.1:6379 -shares 10000 -total 20000 -users 12000 -svg amounts.svg
//	go -C docs/examples run ./redpacket -help
//
// # How it works
//
// main.go reads the flags. party.go sends the packet, lets the users tap, and refunds what is left. terminal.go and
// svg.go draw the amounts. At the end the program reads the shares back from Redis and checks the promises:
//
//   - Each user has at most one share.
//   - Each user got the same answer both times.
//   - What was taken and what was refunded add up to the total.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/rcounter/redpacket"
)

// Exit statuses.
const (
	exitOK    = 0
	exitBad   = 1 // the check failed, or Redis gave no answer
	exitUsage = 2
)

const help = `redpacket sends a red packet, lets a crowd tap for its shares, and shows who got how much.

Usage: go -C docs/examples run ./redpacket [flags]

Without flags it needs nothing but Go: it serves a Redis of its own (miniredis) on a loopback port, and 60 users tap
for 50 shares of 200.00.

  -redis ADDR[,ADDR...]  use this Redis or Valkey, host:port; several addresses are nodes of one Cluster
  -total AMOUNT          what is in the packet, like 200 or 88.88 (default 200.00)
  -shares N              into how many shares it is split, 1 to 100,000 (default 50)
  -min AMOUNT            the least a share may be (default 0.01)
  -max AMOUNT            the most a share may be (default: no upper limit)
  -method NAME           how it is split: double (double mean, shuffled), line (line cutting) or equal (default double)
  -users N               users who tap, each twice, all at the same time, 1 to 1,000,000 (default 60)
  -open DURATION         how long the packet is open, like 10s or 5m (default 10s); what is left then is refunded
  -name NAME             name of the packet in Redis (default: one of its own for every run)
  -seed N                draw the shares from this seed, the same every time (default: unpredictable)
  -svg FILE              draw the amounts into this file
  -help                  print this

Amounts are whole cents. The chart and the summary go to stdout, whatever went wrong to stderr.

Exit status: 0 all well; 1 a promise was broken, or Redis gave no answer; 2 bad flags or files, nothing was sent.
`

// options are the flags, checked as far as possible without the server.
type options struct {
	addrs  []string // empty: the embedded server
	packet redpacket.Spec
	users  int64
	name   string
	svg    string
	seed   *uint64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		io.WriteString(stdout, help)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "redpacket: %v (-help lists the flags)\n", err)
		return exitUsage
	}
	var out *os.File
	if o.svg != "" {
		if out, err = os.Create(o.svg); err != nil {
			fmt.Fprintf(stderr, "redpacket: -svg: %v\n", err)
			return exitUsage
		}
		defer out.Close()
	}
	p, status, err := hold(ctx, o)
	if err != nil {
		fmt.Fprintf(stderr, "redpacket: %v\n", err)
		if out != nil {
			os.Remove(o.svg)
		}
		return status
	}
	io.WriteString(stdout, p.text())
	if out != nil {
		_, err := io.WriteString(out, p.svg())
		if err = errors.Join(err, out.Close()); err != nil {
			fmt.Fprintf(stderr, "redpacket: -svg: %v\n", err)
			return exitBad
		}
	}
	if len(p.faults) > 0 {
		return exitBad
	}
	return exitOK
}

// parseFlags checks args. Its error is one line that names the flag and the value.
func parseFlags(args []string) (options, error) {
	o := options{users: 60,
		packet: redpacket.Spec{Total: 20_000, Shares: 50, Method: redpacket.DoubleMean, OpenFor: 10 * time.Second,
			Retain: time.Hour}}
	fs := flag.NewFlagSet("redpacket", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	number := func(to *int64, most int64) func(string) error {
		return func(s string) error {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n < 1 || n > most {
				return fmt.Errorf("want a whole number from 1 to %d", most)
			}
			*to = n
			return nil
		}
	}
	amount := func(to *int64) func(string) error {
		return func(s string) (err error) { *to, err = parseAmount(s); return err }
	}
	text := func(to *string, what string) func(string) error {
		return func(s string) error {
			if *to = strings.TrimSpace(s); *to == "" {
				return fmt.Errorf("want %s", what)
			}
			return nil
		}
	}
	fs.Func("redis", "", func(s string) (err error) { o.addrs, err = parseAddrs(s); return err })
	fs.Func("total", "", amount(&o.packet.Total))
	fs.Func("shares", "", number(&o.packet.Shares, 100_000))
	fs.Func("min", "", amount(&o.packet.Min))
	fs.Func("max", "", amount(&o.packet.Max))
	fs.Func("users", "", number(&o.users, 1_000_000))
	fs.Func("name", "", text(&o.name, "a name"))
	fs.Func("svg", "", text(&o.svg, "a file"))
	fs.Func("method", "", func(s string) error {
		methods := map[string]redpacket.Method{"double": redpacket.DoubleMean, "line": redpacket.LineCutting,
			"equal": redpacket.Equal}
		m, ok := methods[s]
		if !ok {
			return errors.New("want double, line or equal")
		}
		o.packet.Method = m
		return nil
	})
	fs.Func("open", "", func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < time.Millisecond || d > 24*time.Hour {
			return errors.New("want a duration from 1ms to 24h")
		}
		o.packet.OpenFor = d
		return nil
	})
	fs.Func("seed", "", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return errors.New("want a whole number, at least 0")
		}
		o.seed = &n
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: everything is set by flags", fs.Arg(0))
	}
	if o.packet.Min == 0 {
		o.packet.Min = 1
	}
	// package redpacket decides what fits together; the error is in the words of the flags
	if _, err := redpacket.Split(o.packet.Total, o.packet.Shares, o.packet.Min, o.packet.Max, o.packet.Method,
		nil); err != nil {
		most := "no -max"
		if o.packet.Max > 0 {
			most = "-max " + money(o.packet.Max)
		}
		return o, fmt.Errorf("-total %s cannot be split into -shares %d with -min %s and %s", money(o.packet.Total),
			o.packet.Shares, money(o.packet.Min), most)
	}
	return o, nil
}

// parseAmount reads an amount, with two decimals or none, as cents.
func parseAmount(s string) (int64, error) {
	bad := errors.New("want an amount like 200 or 88.88, at least 0.01")
	whole, cents, dot := strings.Cut(s, ".")
	if dot && len(cents) != 2 || len(whole) == 0 || len(whole) > 13 || strings.ContainsAny(whole+cents, "+-_") {
		return 0, bad
	}
	n, err := strconv.ParseInt(whole+cents, 10, 64)
	if !dot {
		n *= 100
	}
	if err != nil || n < 1 {
		return 0, bad
	}
	return n, nil
}

// money writes cents as an amount.
func money(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

func parseAddrs(s string) ([]string, error) {
	addrs := strings.Split(s, ",")
	for i, a := range addrs {
		a = strings.TrimSpace(a)
		host, port, err := net.SplitHostPort(a)
		n, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || perr != nil || n == 0 || strings.ContainsAny(host, " /@") {
			return nil, fmt.Errorf("%q is not an address, want host:port", a)
		}
		addrs[i] = a
	}
	return addrs, nil
}
