// Command faults measures how much of the library its tests judge. It plants faults in the library, one after the
// other, and reports the faults that no test notices: these are holes in the tests.
//
//   - A planted fault breaks a promise that it names, and names the tests that notice it. All have to be noticed.
//   - A random fault exchanges an operator or leaves out a call, in Go or Lua. The table is fixed, 40 faults for each
//     area, so that the figure before and after a change of the tests can be compared.
//   - Cover is the part of the statements that the tests run, in Go and in Lua.
//
// The results are kept in a file for each step, so that a run that was stopped goes on where it was.
//
//	go -C proof run ./faults                              # all steps; then the table
//	go -C proof run ./faults -steps planted -only lease   # planted faults whose name or file has the word
//	go -C proof run ./faults -steps planted -shard 2/4    # a quarter of them, for one of four machines
//	go -C proof run ./faults -area rlock -for 20m         # one area, for 20 minutes; run again to go on
//	go -C proof run ./faults -write                       # and write proof/faults/measure.md
//	go -C proof run ./faults -list                        # the planted faults in Markdown
//	go -C proof run ./faults -draw rlock -seed 1          # draw the random faults of an area anew
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/proof/longrun"
)

// measure is one run of the command.
type measure struct {
	*bench
	state    string // the folder of results
	duration time.Duration
	began    time.Time
	show     bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	m := &measure{began: time.Now()}
	steps := flags.String("steps", "planted,cover,random", "what to do")
	only := flags.String("only", "", "faults whose name or file contains one of `WORDS`, separated by commas")
	of := flags.String("area", "", "faults of this area only: "+strings.Join(areas, ", "))
	shard := flags.String("shard", "1/1", "`N/M`: one part of the faults")
	flags.StringVar(&m.state, "state", filepath.Join(os.TempDir(), "redlatch-faults"), "the folder of results")
	flags.DurationVar(&m.duration, "for", 0, "begin nothing after this long; 0: go on to the end")
	flags.BoolVar(&m.show, "show", false, "print the output of the tests")
	testing := flags.String("tests", "", "run the tests of these `PACKAGES` only, separated by commas; default: all")
	list := flags.Bool("list", false, "list the planted faults in Markdown, and run nothing")
	write := flags.Bool("write", false, "write the table into proof/faults/measure.md")
	drawn := flags.String("draw", "", "draw the random faults of this `AREA` anew")
	seed := flags.Uint64("seed", 1, "of -draw")
	if err := flags.Parse(args); err != nil {
		return err
	}
	planted, err := chosen("planted", *only, *of, *shard)
	if err != nil {
		return err
	}
	if *list {
		fmt.Print(markdown(planted))
		return nil
	}
	b, end, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer end()
	m.bench = b
	if *testing != "" {
		b.testing = strings.Split(*testing, ",")
	}
	if *drawn != "" {
		return m.draw(ctx, *drawn, *seed)
	}
	random, err := chosen("random", *only, *of, *shard)
	if err != nil {
		return err
	}
	t := table{planted: planted, random: random}
	for step := range strings.SplitSeq(*steps, ",") {
		switch step {
		case "planted":
			t.plantedNoticed, err = m.planted(ctx, planted)
		case "cover":
			t.cover, err = m.cover(ctx)
		case "random":
			t.randomNoticed, err = m.random(ctx, random, t.cover)
		default:
			err = fmt.Errorf("no step %q", step)
		}
		if err != nil {
			return err
		}
	}
	fmt.Print(t.String())
	if *write {
		if err := os.WriteFile(filepath.Join(m.root, "proof", "faults", "measure.md"), []byte(t.page()), 0o644); err != nil {
			return err
		}
	}
	if holes := t.survivors(); holes > 0 {
		return fmt.Errorf("%d planted faults were not noticed", holes)
	}
	return nil
}

// chosen returns the faults of a folder that the flags ask for.
func chosen(folder, only, of, shard string) (some []fault, err error) {
	var part, parts int
	if _, err := fmt.Sscanf(shard, "%d/%d", &part, &parts); err != nil || part < 1 || part > parts {
		return nil, fmt.Errorf("-shard %q: must be N/M, N from 1 to M", shard)
	}
	if of != "" && !slices.Contains(areas, of) {
		return nil, fmt.Errorf("-area %q: must be one of %s", of, strings.Join(areas, ", "))
	}
	all, err := read(folder)
	for _, f := range all {
		if (of == "" || area(f.file) == of) && slices.ContainsFunc(strings.Split(only, ","), func(word string) bool {
			return strings.Contains(f.name, word) || strings.Contains(f.file, word)
		}) {
			some = append(some, f)
		}
	}
	from, to := len(some)*(part-1)/parts, len(some)*part/parts
	return some[from:to], err
}

func newRun[R any](m *measure, step string) *longrun.Run[R] {
	left := m.duration
	if left > 0 {
		left = max(left-time.Since(m.began), time.Nanosecond)
	}
	return &longrun.Run[R]{Name: step, File: filepath.Join(m.state, step+".jsonl"), For: left, Progress: os.Stderr}
}
