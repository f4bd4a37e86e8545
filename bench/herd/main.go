// Command herd makes many processes wait for one name, and prints what an acquisition costs the server: a lock, a
// semaphore, a latch and a barrier must cost the same however many processes wait.
//
//	go -C bench run ./herd                                         # all kinds, 2 to 200 processes, about eight minutes
//	go -C bench run ./herd -kinds fair,semaphore -processes 10,40
//	go -C bench run ./herd -kinds latch -processes 40 -waiters 250 # 10,000 waiters wake up
//
// Every measurement has a redis-server of its own and its processes, each this program run again, with one connection
// for its commands and one for its messages. A process has one waiter of a lock or semaphore, which asks again as soon
// as it has released. The holds are so long that the machine idles most of the time: what is measured is the cost, not
// the rate. Figures of a busy machine say little: the server's CPU time grows with every other process that wants its
// caches.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if os.Getenv(roleEnv) != "" {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := command(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "herd:", err)
		os.Exit(1)
	}
}

// config is what is measured, and for how long.
type config struct {
	kinds     []string
	processes []int
	waiters   int
	permits   int
	hold      time.Duration
	duration  time.Duration
	window    time.Duration
	warm      time.Duration
	rounds    int
	settle    time.Duration
	delay     time.Duration
}

func command(args []string, out, progress io.Writer) error {
	cfg := config{}
	flags := flag.NewFlagSet("herd", flag.ContinueOnError)
	flags.SetOutput(progress)
	var all []string
	for _, k := range kinds {
		all = append(all, k.name)
	}
	named := flags.String("kinds", strings.Join(all, ","), "what to wait for")
	processes := flags.String("processes", "2,10,40,200", "how many processes")
	flags.IntVar(&cfg.waiters, "waiters", 1, "latch, barrier: waiters in each process")
	flags.IntVar(&cfg.permits, "permits", 4, "semaphores: how many; a permit is held for as many times longer")
	flags.DurationVar(&cfg.hold, "hold", 2*time.Millisecond,
		"how long a lock is held; all readers together acquire as often")
	flags.DurationVar(&cfg.duration, "duration", 5*time.Second, "how long each is measured")
	flags.DurationVar(&cfg.window, "window", 500*time.Millisecond, "the window of which the worst is named")
	flags.DurationVar(&cfg.warm, "warm", 2*time.Second, "how long each runs before that; 10 ms more for each process")
	flags.IntVar(&cfg.rounds, "rounds", 5, "latch, barrier: how often")
	flags.DurationVar(&cfg.settle, "settle", 3*time.Second,
		"latch, barrier: how long waiters get to be asleep; 10 ms more for each process")
	flags.DurationVar(&cfg.delay, "delay", 0, "added to each way between a process and the server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q", flags.Args())
	}
	cfg.kinds = strings.Split(*named, ",")
	for _, text := range strings.Split(*processes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 || n > 1000 {
			return fmt.Errorf("processes: %q: want numbers from 2 to 1000", text)
		}
		cfg.processes = append(cfg.processes, n)
	}
	if cfg.waiters < 1 || cfg.permits < 1 || cfg.rounds < 1 || cfg.hold <= 0 || cfg.window <= 0 ||
		cfg.duration < cfg.window {
		return errors.New("waiters, permits, rounds, hold and window must be positive, and the duration a window or more")
	}
	for _, name := range cfg.kinds {
		if !slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name }) {
			return fmt.Errorf("no kind %q; there are: %s", name, strings.Join(all, ", "))
		}
	}
	return cfg.run(out, progress)
}

// run measures everything, and prints the table.
func (cfg config) run(out, progress io.Writer) error {
	var table []row
	began, total, done := time.Now(), len(cfg.kinds)*len(cfg.processes), 0
	for _, name := range cfg.kinds {
		for _, n := range cfg.processes {
			left := "?"
			if done > 0 {
				left = (time.Since(began) * time.Duration(total-done) / time.Duration(done)).Round(time.Second).String()
			}
			fmt.Fprintf(progress, "[%d/%d, left %s] %s, %d processes ", done+1, total, left, name, n)
			r, err := cfg.measure(name, n)
			if err != nil {
				return fmt.Errorf("%s, %d processes: %w", name, n, err)
			}
			fmt.Fprintln(progress, strings.Join(r.cells()[2:], "  "))
			table = append(table, r)
			done++
		}
	}
	write(out, table)
	return nil
}

// row is one line of the table.
type row struct {
	kind      string
	processes int
	acquired  int64 // by locks and semaphores; woken: processes, of latches and barriers
	seconds   float64
	scripts   float64 // calls for an acquisition
	commands  float64
	scriptCPU float64 // µs of the server in scripts
	serverCPU float64 // µs of the server
	worst     float64 // window, as a share of the median one; negative: there are no windows
	p50       time.Duration
	longest   time.Duration
	unserved  int // processes that got nothing
	errors    int64
	first     string // error
}

var header = []string{"kind", "processes", "acquired/s", "script calls", "commands", "in scripts", "server CPU",
	"worst window", "p50", "longest", "without any", "errors"}

func (r row) cells() []string {
	worst := "-"
	if r.worst >= 0 {
		worst = fmt.Sprintf("%.2f", r.worst)
	}
	failed := strconv.FormatInt(r.errors, 10)
	if r.first != "" {
		failed += ": " + strings.Join(strings.Fields(strings.ReplaceAll(r.first, "|", "/")), " ")
	}
	short := func(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
	return []string{
		r.kind, strconv.Itoa(r.processes), fmt.Sprintf("%.0f", float64(r.acquired)/r.seconds),
		fmt.Sprintf("%.2f", r.scripts), fmt.Sprintf("%.1f", r.commands),
		fmt.Sprintf("%.0f us", r.scriptCPU), fmt.Sprintf("%.0f us", r.serverCPU), worst, short(r.p50), short(r.longest),
		strconv.Itoa(r.unserved), failed,
	}
}

// write writes the table, and how the costs have grown from 10 processes, or the fewest above 2, to the most.
func write(out io.Writer, table []row) {
	line := func(cells []string) { fmt.Fprintln(out, "| "+strings.Join(cells, " | ")+" |") }
	line(header)
	line(slices.Repeat([]string{"---"}, len(header)))
	few, many := map[string]row{}, map[string]row{}
	for _, r := range table {
		line(r.cells())
		if f, ok := few[r.kind]; r.processes > 2 && (!ok || r.processes < f.processes) {
			few[r.kind] = r
		}
		if r.processes > many[r.kind].processes {
			many[r.kind] = r
		}
	}
	for _, k := range kinds {
		f, m := few[k.name], many[k.name]
		if f.processes > 0 && m.processes > f.processes {
			fmt.Fprintf(out, "\n%s from %d to %d processes: script calls %.2fx, commands %.2fx, in scripts %.2fx, server CPU "+
				"%.2fx\n", k.name, f.processes, m.processes,
				m.scripts/f.scripts, m.commands/f.commands, m.scriptCPU/f.scriptCPU, m.serverCPU/f.serverCPU)
		}
	}
}
