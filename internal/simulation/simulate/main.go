// Command simulate runs the whole library in simulated time, on a simulated network and simulated servers, each seed a
// run. It prints the seeds that fail, with their shortest failing plans, and how much time it has simulated.
//
//	go run ./internal/simulation/simulate -for 10m                        # seeds 1, 2, 3 and so on, for that long
//	go run ./internal/simulation/simulate -seeds 1-5000 -state sim.json   # and again: it goes on where it was
//	go run ./internal/simulation/simulate -seeds 17 -v                    # one seed, with all that happened
//	go run ./internal/simulation/simulate -seeds 17 -keep 3,9,12 -times 20
//	go run ./internal/simulation/simulate -crowds -for 10m                # nothing goes wrong, and callers give up
//	go run ./internal/simulation/simulate -mutants                        # planted faults: which seeds find them
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/simulation"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2)
	}
	// What is simulated is in a bubble of testing/synctest, which only a test has.
	os.Args = os.Args[:1]
	testing.Main(func(string, string) (bool, error) {
		return true, nil
	}, []testing.InternalTest{{Name: "simulate", F: func(t *testing.T) {
		do := run
		if o.mutants {
			do = tryMutants
		}
		if err := do(ctx, t, o, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "simulate:", err)
			os.Exit(1)
		}
		if !t.Failed() {
			os.Exit(0)
		}
	}}}, nil, nil)
}

// orders are the flags.
type orders struct {
	seeds   string
	long    time.Duration
	state   string
	kinds   string
	keep    string
	times   int
	verbose bool
	mutants bool
	mutant  string
	one     bool
	crowds  bool
	keeping bool
	mute    bool
	whole   bool
	stop    int
}

// state is how far a range of seeds is.
type state struct {
	Next    uint64
	Figures simulation.Figures
	Failed  []uint64
	Real    time.Duration
}

func parse(args []string) (o orders, err error) {
	f := flag.NewFlagSet("simulate", flag.ContinueOnError)
	f.StringVar(&o.seeds, "seeds", "", "`from-to`, from- or one seed; default 1-")
	f.DurationVar(&o.long, "for", 0, "how long to go on, of real time; 0: to the last seed, or a minute")
	f.StringVar(&o.state, "state", "", "`file` that says how far this is; it goes on from there")
	f.StringVar(&o.kinds, "kinds", "",
		"objects of all plans, such as reentrant,stock; default by the seed: "+strings.Join(simulation.Kinds(), " "))
	f.StringVar(&o.keep, "keep", "", "`numbers` of the plan's steps; the others are left out")
	f.IntVar(&o.times, "times", 1,
		"how often each seed is run; for a plan that is shortened, how often a shorter one may pass")
	f.BoolVar(&o.verbose, "v", false, "print the plan, and all that happens")
	f.BoolVar(&o.mutants, "mutants", false, "plant each fault in turn, and run seeds until one finds it")
	f.StringVar(&o.mutant, "mutant", "", "plant the fault of that `name`")
	f.BoolVar(&o.crowds, "crowds", false, "play crowds: nothing goes wrong, and callers give up")
	f.BoolVar(&o.keeping, "keeping", false, "of -crowds, those that release by UnlockAfter")
	f.BoolVar(&o.mute, "mute", false, "of -crowds, those in which no client may subscribe")
	f.BoolVar(&o.whole, "whole", false, "do not look for the shortest plan that fails")
	f.BoolVar(&o.one, "1", false, "one processor: runs of a seed are more alike")
	f.IntVar(&o.stop, "failures", 3, "end after so many seeds that fail")
	err = f.Parse(args)
	if o.one {
		runtime.GOMAXPROCS(1)
	}
	return o, err
}

func run(ctx context.Context, t *testing.T, o orders, out io.Writer) error {
	from, to, err := rangeOf(o.seeds)
	if err != nil {
		return err
	}
	if o.long == 0 && o.seeds == "" {
		o.long = time.Minute
	}
	s := state{Next: from}
	if err := load(o.state, &s); err != nil {
		return err
	}
	var m *simulation.Mutant
	if o.mutant != "" {
		if m = simulation.MutantOf(o.mutant); m == nil {
			return fmt.Errorf("no mutant %q", o.mutant)
		}
	}
	began, said, before := time.Now(), time.Now(), s.Real
	for ; s.Next <= to && ctx.Err() == nil && (o.long == 0 || time.Since(began) < o.long) &&
		len(s.Failed) < o.stop; s.Next++ {
		if err := seed(t, o, s.Next, m, &s, out); err != nil {
			return err
		}
		s.Real = before + time.Since(began)
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			progress(out, s)
			if err := save(o.state, s); err != nil {
				return err
			}
		}
	}
	if err := save(o.state, s); err != nil {
		return err
	}
	progress(out, s)
	if len(s.Failed) > 0 {
		return fmt.Errorf("seeds that fail: %v", s.Failed)
	}
	return nil
}

// seed runs one seed, and shortens its plan if it fails.
func seed(t *testing.T, o orders, number uint64, m *simulation.Mutant, s *state, out io.Writer) error {
	plan := simulation.NewPlan
	switch {
	case o.crowds && o.keeping:
		plan = simulation.NewKeepingCrowd
	case o.crowds && o.mute:
		plan = simulation.NewMuteCrowd
	case o.crowds:
		plan = simulation.NewCrowd
	}
	p := plan(number, words(o.kinds)...)
	if o.keep != "" {
		var kept []int
		for _, w := range words(o.keep) {
			n, err := strconv.Atoi(w)
			if err != nil {
				return err
			}
			kept = append(kept, n)
		}
		p = p.Keep(kept)
	}
	traces, outcomes, failed := map[uint64]int{}, map[uint64]int{}, simulation.Result{}
	runs := 0
	for range o.times {
		r := simulation.Run(t, p, m)
		s.Figures.Add(r.Figures)
		traces[r.Trace]++
		outcomes[r.Outcomes]++
		runs++
		if len(r.Violations) > 0 {
			failed = r
		}
		if o.verbose {
			fmt.Fprintf(out, "%v%s\n", p, strings.Join(r.Log, "\n"))
			for _, v := range r.Violations {
				fmt.Fprintln(out, "VIOLATION", v)
			}
		}
	}
	if o.times > 1 {
		fmt.Fprintf(out, "seed %d: of %d runs %d had the same outcome of every step, and %d were the same to the last "+
			"parcel and nanosecond\n",
			number, runs, slices.Max(slices.Collect(maps.Values(outcomes))), slices.Max(slices.Collect(maps.Values(traces))))
	}
	if len(failed.Violations) == 0 {
		return nil
	}
	s.Failed = append(s.Failed, number)
	fmt.Fprintf(out, "seed %d fails: %s\n", number, failed.Violations[0])
	if o.verbose || o.whole || o.keep != "" {
		return nil
	}
	shorter, r := simulation.Shrink(t, p, m, max(3, o.times))
	report(out, o, shorter, r)
	return nil
}

// report prints a shortened plan, and how to run it again.
func report(out io.Writer, o orders, p simulation.Plan, r simulation.Result) {
	if len(r.Violations) == 0 {
		fmt.Fprintln(out, "  it did not fail again: run it with -times 20")
		return
	}
	var numbers []string
	for _, n := range p.Numbers() {
		numbers = append(numbers, strconv.Itoa(n))
	}
	fmt.Fprintf(out, "shortest plan that fails:\n%v  => %s\n", p, strings.Join(r.Violations, "\n     "))
	again := fmt.Sprintf("go run ./internal/simulation/simulate -seeds %d -keep %s", p.Seed, strings.Join(numbers, ","))
	if o.kinds != "" {
		again += " -kinds " + o.kinds
	}
	if p.Crowd {
		again += " -crowds"
	}
	if o.mutant != "" {
		again += fmt.Sprintf(" -mutant %q", o.mutant)
	}
	fmt.Fprintf(out, "again: %s -times 10\n\n", again)
}

// tryMutants plants each fault in turn, and prints which seed finds it.
func tryMutants(ctx context.Context, t *testing.T, o orders, out io.Writer) error {
	var alive []string
	for i := range simulation.Mutants {
		m := &simulation.Mutants[i]
		if o.mutant != "" && o.mutant != m.Name {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p, r, seeds := simulation.Kill(t, m, 300)
		if len(r.Violations) == 0 {
			alive = append(alive, m.Name)
			fmt.Fprintf(out, "%s: SURVIVES %d seeds\n", m.Name, seeds)
			continue
		}
		fmt.Fprintf(out, "%s: found by seed %d, the %dth tried: %s\n", m.Name, p.Seed, seeds, r.Violations[0])
		short, worst := simulation.Shrink(t, p, m, 3)
		with := o
		with.mutant, with.kinds = m.Name, strings.Join(m.Kinds, ",")
		report(out, with, short, worst)
	}
	if len(alive) > 0 {
		return fmt.Errorf("mutants that survive: %v", alive)
	}
	return nil
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func rangeOf(s string) (from, to uint64, err error) {
	from, to = 1, 1<<63
	if s == "" {
		return from, to, nil
	}
	first, last, several := strings.Cut(s, "-")
	if from, err = strconv.ParseUint(first, 10, 63); err != nil {
		return 0, 0, fmt.Errorf("-seeds %q: %w", s, err)
	}
	switch {
	case !several:
		to = from
	case last != "":
		to, err = strconv.ParseUint(last, 10, 63)
	}
	return from, to, err
}

func progress(out io.Writer, s state) {
	fmt.Fprintf(out, "seed %d: %v; %d failed; %.2f simulated hours a second\n", s.Next, s.Figures, len(s.Failed),
		s.Figures.Simulated.Hours()/max(s.Real.Seconds(), 0.001))
}

func load(name string, s *state) error {
	if name == "" {
		return nil
	}
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(b, s)
}

func save(name string, s state) error {
	if name == "" {
		return nil
	}
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}
