// Command places measures what a cycle of lock and unlock costs where users are: through TLS, as a user with rights of
// its own, in a Cluster, behind Sentinel, with a replica that has to confirm, and a millisecond away; compared with
// plain loopback. It prints a table, and writes a CSV for bench/report.
//
//	go -C bench run ./places                                          # a minute
//	go -C bench run ./places -rounds 7 -out ../docs/benchmarks/places.csv && go -C bench run ./report
//
// All places are set up at the start and take turns, in another order in each round: whatever else the machine does
// meets all alike.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/redlatch/redlatch/internal/redistest/stage"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		cancel()
		fmt.Fprintln(os.Stderr, "places:", err)
		os.Exit(1)
	}
}

// choose returns loopback and the places of those names; all if none is given.
func choose(only string) ([]place, error) {
	if only == "" {
		return places, nil
	}
	chosen := places[:1:1]
	for _, name := range strings.Split(only, ",") {
		i := slices.IndexFunc(places, func(p place) bool { return p.name == name })
		if i < 1 {
			return nil, fmt.Errorf("no place %q", name)
		}
		chosen = append(chosen, places[i])
	}
	return chosen, nil
}

func settleAll(ctx context.Context, s *stage.Stage, chosen []place, progress io.Writer) (set []*settled, err error) {
	for _, p := range chosen {
		fmt.Fprintf(progress, "setting up: %s\n", p.name)
		x, err := settle(ctx, s, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		set = append(set, x)
	}
	return set, nil
}

func command(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("places", flag.ContinueOnError)
	flags.SetOutput(progress)
	rounds := flags.Int("rounds", 7, "how often everybody has a turn")
	turn := flags.Duration("turn", 300*time.Millisecond, "how long a turn is")
	only := flags.String("only", "", "some of the places, besides loopback")
	file := flags.String("out", "", "the CSV to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q", flags.Args())
	}
	if *rounds < 1 || *turn <= 0 {
		return errors.New("rounds and turn must be positive")
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	s := &stage.Stage{}
	defer s.Clear()
	set, err := settleAll(ctx, s, chosen, progress)
	if err != nil {
		return err
	}
	began := time.Now()
	f := &results.File{Facts: []results.Fact{
		{Name: "date", Value: began.UTC().Format("2006-01-02 15:04 UTC")},
		{Name: "machine", Value: fmt.Sprintf("%d processors, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
			runtime.Version())},
		{Name: "command", Value: "go -C bench run ./places"}, {Name: "rounds", Value: strconv.Itoa(*rounds)},
	}}
	for _, p := range chosen {
		f.Facts = append(f.Facts, results.Fact{Name: "peer " + p.name, Value: p.what})
	}
	turns := *rounds * len(set) * 2
	for round := 1; round <= *rounds; round++ {
		r := rand.New(rand.NewPCG(uint64(round), 0))
		for _, goroutines := range []int{1, 64} {
			r.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
			for _, x := range set {
				row, err := x.turn(ctx, round, goroutines, *turn)
				if err != nil {
					return fmt.Errorf("%s: %w", x.name, err)
				}
				f.Rows = append(f.Rows, row)
				fmt.Fprintf(progress, "[%d/%d] round %d %2d goroutines %-20s %8.0f/s\n", len(f.Rows), turns, round, goroutines,
					x.name, row.OpsPerSec)
			}
		}
	}
	f.Facts = append(f.Facts, results.Fact{Name: "took", Value: time.Since(began).Round(time.Second).String()})
	if err := write(out, f, chosen); err != nil || *file == "" {
		return err
	}
	return f.Save(*file)
}

// turn has goroutines lock and unlock, each a lock of its own, for a while.
func (x *settled) turn(ctx context.Context, round, goroutines int, lasts time.Duration) (results.Row, error) {
	row := results.Blank("places", 1, goroutines, x.name, round)
	before, err := x.usage(ctx)
	if err != nil {
		return row, err
	}
	run, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	began := time.Now()
	out := load.Run(run, load.Spec{
		Workers: goroutines, Cycle: true,
		Name: func(i int) string { return "bench:own:" + strconv.Itoa(i) },
		// the end of the turn cuts nothing off
		Acquire: func(_ context.Context, name string) (load.Release, error) { return x.lock(ctx, name) },
	})
	row.Seconds = time.Since(began).Seconds()
	after, err := x.usage(ctx)
	if err != nil {
		return row, err
	}
	row.Ops, row.Errors, row.Note = out.Ops, out.Errors, strings.Join(strings.Fields(out.FirstError), " ")
	row.OpsPerSec = float64(out.Ops) / row.Seconds
	if out.Ops > 0 {
		us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
		row.P50, row.P99, row.Max = us(out.Waits.Quantile(0.5)), us(out.Waits.Quantile(0.99)), us(out.Waits.Max)
		row.Commands = float64(after.Since(before, others...)) / float64(out.Ops)
		row.Scripts = float64(after.Scripts(before)) / float64(out.Ops)
	}
	return row, nil
}

// others are commands of replicas, nodes and sentinels among themselves.
var others = []string{"ping", "replconf", "hello", "cluster|slots", "cluster|shards"}

func write(out io.Writer, f *results.File, chosen []place) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tgoroutines\tp50 us\tover loopback\trate\tover loopback\tscripts\t")
	p50 := func(r results.Row) float64 { return r.P50 }
	rate := func(r results.Row) float64 { return r.OpsPerSec }
	scripts := func(r results.Row) float64 { return r.Scripts }
	for _, goroutines := range []int{1, 64} {
		base := rowsOf(f, places[0].name, goroutines)
		for _, p := range chosen {
			of := rowsOf(f, p.name, goroutines)
			fmt.Fprintf(w, "%s\t%d\t%.1f\t%.2fx\t%.0f\t%.2fx\t%.2f\t\n", p.name, goroutines, of.median(p50),
				of.over(base, p50), of.median(rate), of.over(base, rate), of.median(scripts))
		}
	}
	return w.Flush()
}

// turns are the rows of one place with one number of goroutines.
type turns []results.Row

func rowsOf(f *results.File, place string, goroutines int) (of turns) {
	for _, r := range f.Rows {
		if r.Peer == place && r.Workers == goroutines {
			of = append(of, r)
		}
	}
	return of
}

func (t turns) median(m func(results.Row) float64) float64 {
	var values []float64
	for _, r := range t {
		values = append(values, m(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// over is the median of what m is as a multiple of that of base in the same round.
func (t turns) over(base turns, m func(results.Row) float64) float64 {
	of := map[int]float64{}
	for _, r := range base {
		of[r.Round] = m(r)
	}
	return t.median(func(r results.Row) float64 { return m(r) / of[r.Round] })
}
