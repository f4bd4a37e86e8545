// Command peers measures redlatch and other Go libraries side by side on one machine. The program prints one table, in
// Markdown, and writes one CSV:
//
//	go -C bench/peers run .                       # everything, three rounds: about six minutes; out/results.csv
//	go -C bench/peers run . -rounds 1 -duration 100ms   # a first look
//	go -C bench/peers run . -workloads contended -peers 'redlatch|rueidislock'
//	go -C bench/peers run . -pictures out           # draws, too
//
// Workloads:
//
//	uncontended  lock and unlock, every goroutine a lock of its own
//	contended    64 workers in 8 processes want one lock, and 16. The holder sends one INCR; after its release a worker
//	             pauses for 1 ms, otherwise a lock that its last holder takes again at once would look best
//	impatient    64 callers in 4 processes want one lock for 100 us. Each gives up at a deadline, and asks again at once
//	claims       the first N win: redlatch's counters and sales, beside scripts and locks as one writes them by hand
//	limits       a unit of a rate limit, on one key; nothing is refused
//
// A measurement has a redis-server and processes of its own: this program, run again. Peers take part in another order
// in each round. The table has medians over the rounds; "of the floor" is the rate divided by that of the shortest code
// that does the work, in the same round.
//
// The run also checks mutual exclusion: all processes of a contended run share a page of memory where each sees who is
// inside, and a counter that only the lock protects. Claims are compared with the counts of the server. A broken
// promise stands in the table's last column. The program exits with 1 if a lock of redlatch was free for more than 100
// ms while impatient callers wanted it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	var err error
	if os.Getenv(roleEnv) != "" {
		err = work(os.Stdin, os.Stdout)
	} else {
		err = command(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	b := &bench{Warm: 150 * time.Millisecond}
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.IntVar(&b.Rounds, "rounds", 3, "how often everything is measured")
	flags.DurationVar(&b.Duration, "duration", 750*time.Millisecond, "how long each measurement lasts")
	flags.Func("workloads", "only those that this `pattern` matches", pattern(&b.Workloads))
	flags.Func("peers", "only those whose names this `pattern` matches", pattern(&b.Peers))
	out := flags.String("out", filepath.Join("out", "results.csv"), "the CSV to write")
	pictures := flags.String("pictures", "", "draw into this folder, too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q", flags.Args())
	}
	if b.Duration <= 0 || len(b.plan()) == 0 {
		return errors.New("nothing to measure")
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	f, err := b.run(ctx, os.Stderr)
	if len(f.Rows) > 0 {
		err = errors.Join(err, f.save(*out))
	}
	fmt.Print(f.table())
	if *pictures != "" {
		err = errors.Join(err, f.draw(*pictures))
	}
	return errors.Join(err, f.idle())
}

// pattern is a flag that matches whole names.
func pattern(to **regexp.Regexp) func(string) error {
	return func(s string) (err error) {
		*to, err = regexp.Compile("^(?:" + s + ")$")
		return err
	}
}
