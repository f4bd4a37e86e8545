//go:build unix && !solaris && !aix

// Command paused counts the updates that are lost when holders of a lock are stopped beyond their lease, and then
// write.
//
//	nice go -C contrib/fence run ./paused                    10,000 trials of each guard; half an hour
//	nice go -C contrib/fence run ./paused -trials 100 -guards redis,files
//
// It needs redis-server, and PostgreSQL and MariaDB for their guards, and runs its own of each.
//
// In a trial a holder in a child process acquires a Fenced lock, reads an account and is about to add 1. There the
// child is stopped (SIGSTOP) until its lease has ended and another holder, in this process, has the lock. That one adds
// 1, too. The child goes on, and writes what it had computed: in a quarter of the trials before the other one reads, in
// a quarter between its reading and its writing, in a quarter after its writing, and in a quarter while it does both.
// An update is lost if the account has less than what was acknowledged.
//
// Each guard is tried in three ways: "none" checks no token, "write" checks it with each write, and "guard" advances
// before it reads, too.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	trials := flag.Int("trials", 10_000, "how many trials of each guard, in each way")
	batch := flag.Int("batch", 100, "how many trials of each share a child that is stopped")
	lease := flag.Duration("lease", time.Second, "of the holders that are stopped")
	guards := flag.String("guards", strings.Join(kinds, ","), "which guards, with commas between them")
	holder := flag.Bool("holder", false, "be the child that is stopped (started by the program)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *holder, strings.Split(*guards, ","), *trials, *batch, *lease, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "paused:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, holder bool, guards []string, trials, batch int, lease time.Duration,
	out io.Writer) error {
	if holder {
		return beHolder(ctx, os.Stdin, out)
	}
	for _, g := range guards {
		if !slices.Contains(kinds, g) {
			return fmt.Errorf("no guard %q, only %s", g, strings.Join(kinds, ", "))
		}
	}
	if trials < 4 || batch < 4 {
		return fmt.Errorf("-trials and -batch must be 4 or more")
	}
	began := time.Now()
	counts, err := try(ctx, guards, trials, batch, lease)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d trials each, lease %v, %v\n\n", trials, lease, time.Since(began).Round(time.Second))
	return table(out, guards, counts)
}

// count is what became of the trials of a guard in one way.
type count struct {
	Trials, Taken, Refused, Lost int
}

func table(out io.Writer, guards []string, counts map[string]*count) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "guard\tchecked\ttrials\tlate writes taken\trefused\tlost updates\t")
	for _, g := range guards {
		for _, way := range ways {
			c := counts[g+"-"+way]
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t\n", g, way, c.Trials, c.Taken, c.Refused, c.Lost)
		}
	}
	return t.Flush()
}

// orders are what a child is to do.
type orders struct {
	Sites sites
	Names map[string][]string // the accounts of each guard and way
	Lease time.Duration
}

// each are the accounts, with their guard and way, in the one order in which both holders come to them: first those
// that both write at the same time.
func (o orders) each(yield func(name, key string) bool) {
	for moment := range moments {
		for _, key := range slices.Sorted(maps.Keys(o.Names)) {
			for _, name := range o.Names[key] {
				if momentOf(name) == moment && !yield(name, key) {
					return
				}
			}
		}
	}
}

func (o orders) text() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it has texts only
	}
	return string(text)
}
