package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// options are the flags, checked.
type options struct {
	addrs  []string // empty: the embedded server
	units  int64
	users  int64
	claims string // file, "-" for stdin, "" for a simulated crowd
	procs  int
	out    string
	json   bool
	rate   int64  // claims a second; 0: as fast as they are answered
	name   string // "" for one of its own
	form

	unitsGiven bool
}

// maxShares is the most shares that a packet takes.
const maxShares = 1_000_000

const (
	defaultUnits = 5000
	defaultUsers = 10_000
	defaultRate  = 500 // of the simulated crowd
	defaultProcs = 4
	maxProcs     = 64
	maxRate      = 1_000_000
	maxUnits     = 1_000_000_000
	maxUsers     = 1_000_000_000_000
)

const help = `flashsale allocates a stock of units to a crowd: first come, first served, one unit to a user.

Usage: go -C docs/examples run ./flashsale [flags]

Without flags it needs nothing but Go: it serves a Redis of its own (miniredis) on a loopback port and lets 10,000
simulated users claim 5,000 units through 4 worker processes, 500 claims a second, for 20 seconds. One worker takes a
leader lock (rlock) and opens the sale (rcounter/stock). Then all of them claim. Kill any worker at any moment: the
next one continues where it stopped, and no winner is lost or doubled. At the end the run checks itself.

  -redis ADDR[,ADDR...]  use this Redis or Valkey, host:port; several addresses are nodes of one Cluster
  -stock N               units to allocate (default 5,000)
  -users N               simulated users, one claim each (default 10,000); not with -claims
  -claims FILE           read the claims from a CSV file; - is stdin
  -rate N                claims a second (default 500; with -claims there is no limit)
  -fast                  no limit: as fast as they are answered
  -procs N               worker processes, 1 to 64 (default 4)
  -out FILE              write the winners, by ordinal, as CSV with the header ordinal,user
  -name NAME             name of the stock in Redis (default: one of its own for every run)
  -reserve               hold a unit for every claim first, and sell it when the hold is confirmed
  -redpacket TOTAL       the units are shares of so much money, like 200.00, split at random
  -json                  print the summary as one JSON object
  -help                  print this

Claims. One claim a line, the user id in the first column, further columns ignored. The first line is a header if its
first column is user, user_id, user-id, "user id", userid, id, uid or claimant, in any case. White space around an id
does not count. A line is malformed if its user id is blank, longer than 1,024 bytes, not UTF-8 or has a control
character in it, if its quotes do not match (a quoted field ends on its line), or if it is longer than 1,048,576
bytes; malformed lines are reported with their number on stderr, counted and skipped. Windows line ends and a UTF-8
byte order mark are fine. The file is streamed, never held in memory. Claims are made side by side, so the first in
the file are not always the first to win.

Names. With -name the stock stays open for 30 days: a later run with the same name goes on with the units that are
left, and -stock, if given, has to agree with it. A winner of an earlier run is counted as "already had one". Runs may
share a name at the same time. A user that wins through the other run meanwhile is counted as a winner in both. Without
-name the stock is closed at the end, and Redis forgets it 25 hours after it was opened.

Forms. Without further flags a claim is one call of a Stock; claims of a worker share script calls. With -reserve a
claim is two calls: the unit is held for a minute, and then sold. A worker that is killed in between leaves a hold
that its successor confirms. With -redpacket the units are the shares of a red packet, at most 1,000,000 of them and
at least a cent each, drawn when the sale opens. -out then has a third column, cents, and the self-check adds the
amounts up. The two exclude each other.
Goods of different forms are different, whatever their name.

Output. The summary, or the JSON object, goes to stdout, progress and errors to stderr. Every claim read
is counted exactly once: as a winner, as one whose user already had a unit, as sold out, as malformed, as an error
(Redis gave no answer for 10 s, or refused), or as unanswered if the run was stopped. p50 and p99 are the time from
handing a claim to the library to its answer.

The self-check fails if a unit was given twice, a user won twice, more was won than was free, the server's own count
disagrees, or, with every line answered, the winners are not min(free units, distinct users that had none).

Exit status: 0 all well; 1 the self-check failed, or the run is incomplete (errors, lines left unanswered); 2 bad
flags or files, nothing was done; 130 stopped by Ctrl-C, with the summary so far (129 and 143 for SIGHUP and SIGTERM).
`

// parseFlags checks args. Its error is one line that names the flag and the value.
func parseFlags(args []string) (options, error) {
	o := options{units: defaultUnits, users: defaultUsers, procs: defaultProcs}
	fs := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	usersGiven, fast := false, false
	number := func(to *int64, most int64) func(string) error {
		return func(s string) error {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n < 1 || n > most {
				return fmt.Errorf("want a whole number from 1 to %s", group(most))
			}
			*to = n
			return nil
		}
	}
	text := func(to *string, what string) func(string) error {
		return func(s string) error {
			if strings.TrimSpace(s) == "" {
				return fmt.Errorf("want %s", what)
			}
			*to = s
			return nil
		}
	}
	procs := int64(o.procs)
	fs.BoolVar(&o.Reserve, "reserve", false, "")
	fs.Func("redpacket", "", func(s string) (err error) { o.Packet, err = parseAmount(s); return err })
	fs.Func("redis", "", func(s string) (err error) { o.addrs, err = parseAddrs(s); return err })
	fs.Func("stock", "", func(s string) error { o.unitsGiven = true; return number(&o.units, maxUnits)(s) })
	fs.Func("users", "", func(s string) error { usersGiven = true; return number(&o.users, maxUsers)(s) })
	fs.Func("rate", "", number(&o.rate, maxRate))
	fs.BoolVar(&fast, "fast", false, "")
	fs.Func("procs", "", number(&procs, maxProcs))
	fs.Func("claims", "", text(&o.claims, "a file, or - for stdin"))
	fs.Func("out", "", text(&o.out, "a file"))
	fs.Func("name", "", text(&o.name, "a name"))
	fs.BoolVar(&o.json, "json", false, "")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.procs = int(procs)
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: everything is set by flags", fs.Arg(0))
	case o.claims != "" && usersGiven:
		return o, fmt.Errorf("-users %d and -claims %s: the users are those in the file, leave one of the two out", o.users,
			o.claims)
	case fast && o.rate > 0:
		return o, fmt.Errorf("-fast and -rate %d: leave one of the two out", o.rate)
	case o.Reserve && o.Packet > 0:
		return o, fmt.Errorf("-reserve and -redpacket %s: leave one of the two out", money(o.Packet))
	case o.Packet > 0 && o.units > maxShares:
		return o, fmt.Errorf("-stock %d with -redpacket: want at most %s shares", o.units, group(maxShares))
	case o.Packet > 0 && o.Packet < o.units:
		return o, fmt.Errorf("-redpacket %s: too little for %s of at least a cent", money(o.Packet), plural(o.units, "share"))
	case o.out == "-":
		return o, errors.New("-out -: want a file; stdout is for the summary")
	}
	if o.rate == 0 && !fast && o.claims == "" {
		o.rate = defaultRate
	}
	return o, nil
}

// parseAmount reads an amount, with two decimals or none, as cents.
func parseAmount(s string) (int64, error) {
	whole, cents, dot := strings.Cut(s, ".")
	bad := errors.New("want an amount like 200 or 88.88, at least 0.01")
	if dot && len(cents) != 2 || whole == "" || len(whole) > 13 || strings.ContainsAny(whole+cents, "+-_") {
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

// group writes n with thousands separators.
func group(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return group(n) + " " + thing + "s"
}
