// Command simulate runs the whole library in simulated time, on a simulated network and simulated servers, each seed a
// run. It ends at the first seed that fails, and prints the shortest plan of it that fails.
//
//	go -C proof run ./simulation/simulate -for 10m                         # seeds 1, 2, 3 and so on, for that long
//	go -C proof run ./simulation/simulate -seeds 1-5000 -state /tmp/seeds  # and again: it goes on where it was
//	go -C proof run ./simulation/simulate -seeds 17 -v                     # one seed, with all that happened
//	go -C proof run ./simulation/simulate -seeds 17 -keep 3,9,12 -times 20 # some steps of its plan, 20 times
//	go -C proof run ./simulation/simulate -play crowds -for 10m            # nothing goes wrong, and callers give up
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/proof/longrun"
	"github.com/redlatch/redlatch/proof/simulation"
)

// orders are the flags.
type orders struct {
	how, seeds, state, kinds, keep string
	long                           time.Duration
	times                          int
	verbose                        bool
}

func main() {
	var o orders
	f := flag.NewFlagSet("simulate", flag.ExitOnError)
	f.StringVar(&o.seeds, "seeds", "", "`from-to` or one seed; default: from 1 on, for a minute or -for")
	f.DurationVar(&o.long, "for", 0, "begin no seeds after this long")
	f.StringVar(&o.state, "state", "", "`file` of results; a run goes on after the seeds that it has")
	f.StringVar(&o.kinds, "kinds", "", "objects of all plans, such as reentrant,stock; default by the seed: "+
		strings.Join(simulation.Kinds(), " "))
	f.StringVar(&o.keep, "keep", "", "`numbers` of the plan's steps; the others are left out")
	f.IntVar(&o.times, "times", 1, "how often each seed is run")
	f.StringVar(&o.how, "play", "plans", "plans; or crowds, in which nothing goes wrong and callers give up; of those, "+
		"keeping, which release by UnlockAfter, terms, whose callers have leases and labels, and mute, in which no client "+
		"may subscribe")
	f.BoolVar(&o.verbose, "v", false, "print the plan, and all that happens")
	_ = f.Parse(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// What is simulated is in a bubble of testing/synctest, which only a test has.
	os.Args = os.Args[:1]
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "simulate",
		F: func(t *testing.T) {
			if err := o.run(ctx, t); err != nil {
				t.Fatal(err)
			}
		}}}, nil, nil)
}

// atOnce is how many seeds have one result: five crowds take half a minute of a processor.
const atOnce = 5

func (o *orders) run(ctx context.Context, t *testing.T) error {
	if o.seeds == "" {
		o.seeds, o.long = "1-1000000", cmp.Or(o.long, time.Minute)
	}
	first, last, err := between(o.seeds)
	if err != nil {
		return err
	}
	var items []string
	for at := first; at <= last; at += atOnce {
		items = append(items, fmt.Sprintf("%d-%d", at, min(at+atOnce-1, last)))
	}
	all := longrun.Run[simulation.Figures]{Name: "seeds", File: o.state, For: o.long, Progress: os.Stdout}
	results, err := all.Each(ctx, items, simulation.Figures.String,
		func(ctx context.Context, item string) (total simulation.Figures, err error) {
			from, to, err := between(item)
			for seed := from; err == nil && seed <= to && ctx.Err() == nil; seed++ {
				err = o.play(t, seed, &total)
			}
			return total, err
		})
	var total simulation.Figures
	for _, figures := range results {
		total.Add(figures)
	}
	fmt.Println(total)
	if errors.Is(err, longrun.ErrTime) {
		return nil
	}
	return err
}

func between(seeds string) (first, last uint64, err error) {
	from, to, several := strings.Cut(seeds, "-")
	if !several {
		to = from
	}
	first, err = strconv.ParseUint(from, 10, 63)
	last, wrong := strconv.ParseUint(to, 10, 63)
	return first, last, errors.Join(err, wrong)
}

// play runs one seed, and shortens its plan if it fails.
func (o *orders) play(t *testing.T, seed uint64, total *simulation.Figures) error {
	plan := simulation.Plays[o.how]
	if plan == nil {
		return fmt.Errorf("nothing to play is called %q", o.how)
	}
	p := plan(seed, words(o.kinds)...)
	if o.keep != "" {
		var steps []int
		for _, w := range words(o.keep) {
			n, err := strconv.Atoi(w)
			if err != nil {
				return err
			}
			steps = append(steps, n)
		}
		p = p.Keep(steps)
	}
	var failed []string
	for range o.times {
		r := simulation.Run(t, p, nil)
		total.Add(r.Figures)
		if o.verbose {
			fmt.Printf("%v%s\n", p, strings.Join(r.Log, "\n"))
		}
		failed = append(failed, r.Violations...)
	}
	switch {
	case failed == nil:
		return nil
	case !o.verbose && o.keep == "":
		p, _ = simulation.Shrink(t, p, nil, max(3, o.times))
	}
	steps := strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Numbers()), "[]"), " ", ",")
	return fmt.Errorf("seed %d: %s\n%vagain: the same flags with -seeds %d -times 10 -keep %s", seed,
		strings.Join(failed, "\n"), p, seed, steps)
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
