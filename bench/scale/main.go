// Command scale measures what large numbers cost: names, held locks, waiters, processes that wait, clients. It prints a
// table, and writes it as a CSV for bench/report.
//
//	go -C bench run ./scale                     # a tenth of everything, a minute or two
//	go -C bench run ./scale -scale 1 -out ../docs/benchmarks/scale.csv && go -C bench run ./report
//	go -C bench run ./scale -only waiters,processes
//
// Every measurement has a redis-server of its own. Memory is heap and stacks in use after a collection, and includes
// what the caller has for each: a hold, a goroutine that waits. What is finished should leave nothing behind: that is
// measured too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/redlatch/redlatch/bench/internal/results"
)

func main() {
	if os.Getenv(roleEnv) != "" {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		cancel()
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// kind is one thing of which there are many.
type kind struct {
	name, what string
	full       int // how many at -scale 1
	processes  int
	measure    func(ctx context.Context, s *scene, row *results.Row) error
}

var kinds = []kind{
	{"names", "names, each locked and unlocked once", 1_000_000, 1, names},
	{"held", "locks held by one process", 100_000, 1, held},
	{"waiters", "waiters in one process, a hundred for each name", 100_000, 1, waiters},
	{"processes", "names, each waited for in four processes of forty", 10_000, 40, inProcesses},
	{"clients", "clients of one server", 1_000, 1, clients},
	{"stock", "reservations of one stock", 5_000_000, 1, reservations},
	{"limits", "keys of a rate limit", 10_000_000, 1, limits},
}

func command(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(progress)
	scale := flags.Float64("scale", 0.1, "how much of everything, 0.001 to 1")
	only := flags.String("only", "", "some of: names, held, waiters, processes, clients, stock, limits")
	watch := flags.Duration("watch", 10*time.Second, "how long is watched what is only held, or waits")
	file := flags.String("out", "", "the CSV to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q", flags.Args())
	}
	if *scale < 0.001 || *scale > 1 || *watch <= 0 {
		return errors.New("scale must be 0.001 to 1, watch positive")
	}
	chosen := kinds
	if *only != "" {
		chosen = nil
		for _, name := range strings.Split(*only, ",") {
			i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
			if i < 0 {
				return fmt.Errorf("no kind %q", name)
			}
			chosen = append(chosen, kinds[i])
		}
	}
	f := &results.File{Facts: []results.Fact{
		{Name: "date", Value: time.Now().UTC().Format("2006-01-02 15:04 UTC")},
		{Name: "machine", Value: fmt.Sprintf("%d processors, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
			runtime.Version())},
		{Name: "command", Value: fmt.Sprintf("go -C bench run ./scale -scale %g", *scale)},
	}}
	for _, k := range chosen {
		f.Facts = append(f.Facts, results.Fact{Name: "scale " + k.name, Value: k.what})
	}
	for i, k := range chosen {
		n := max(int(float64(k.full)**scale), 1)
		fmt.Fprintf(progress, "[%d/%d] %d %s\n", i+1, len(chosen), n, k.what)
		row, err := k.run(ctx, n, *watch, progress)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		f.Rows = append(f.Rows, row)
	}
	if err := write(out, f); err != nil || *file == "" {
		return err
	}
	return f.Save(*file)
}

// run measures a kind, with a server of its own.
func (k kind) run(ctx context.Context, n int, watch time.Duration, progress io.Writer) (results.Row, error) {
	row := results.Blank("scale", k.processes, n, k.name, 1)
	s, err := begin(watch, progress)
	if err != nil {
		return row, err
	}
	defer s.end()
	began := time.Now()
	if err := k.measure(ctx, s, &row); err != nil {
		return row, err
	}
	fmt.Fprintf(progress, "  %v\n", time.Since(began).Round(100*time.Millisecond))
	return row, nil
}

// columns are the figures of a row's Extra, as the table names them.
var columns = []struct{ key, title string }{
	{"bytes", "bytes each"}, {"goroutines", "goroutines more"}, {"server_bytes", "server bytes each"},
	{"commands_per_s", "commands/s meanwhile"},
	{"held", "held bytes"}, {"sold", "sold bytes"}, {"ended", "ended bytes"}, {"forgotten", "forgotten bytes"},
	{"ping_idle_ms", "worst PING, ms"}, {"ping_fill_ms", "meanwhile"}, {"ping_end_ms", "at the end"},
	{"ping_idle_p99_ms", "p99 PING, ms"}, {"ping_fill_p99_ms", "meanwhile"}, {"ping_end_p99_ms", "at the end"},
	{"left_bytes", "bytes left"}, {"left_goroutines", "goroutines left"}, {"left_keys", "keys left"},
	{"left_connections", "connections left"},
}

func write(out io.Writer, f *results.File) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\tprocesses\tnumber\teach second\tcommands each\tscripts each\tconnections\t")
	for _, c := range columns {
		fmt.Fprint(w, c.title+"\t")
	}
	fmt.Fprintln(w)
	for _, r := range f.Rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.0f\t%.2f\t%.2f\t%d\t", r.Peer, r.Processes, r.Workers, r.OpsPerSec, r.Commands,
			r.Scripts, r.Conns)
		for _, c := range columns {
			if v, ok := r.Value(c.key); ok {
				fmt.Fprintf(w, "%s\t", strconv.FormatFloat(v, 'f', map[bool]int{true: 2}[strings.HasPrefix(c.key, "ping_")], 64))
			} else {
				fmt.Fprint(w, "-\t")
			}
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
