// Command chaos has processes use every primitive on real servers while one thing after the other goes wrong, and holds
// what each of them was answered against what docs/design/failures.md promises.
//
//	go -C proof/chaos run .                                               # every fault on every deployment: about a quarter of an hour
//	go -C proof/chaos run . -deployments "one node,Cluster" -faults "client paused,FLUSHALL" -primitives fenced,stock
//	go -C proof/chaos run . -state cells.jsonl -for 20m                   # cells that are in the file are not run again
//	go -C proof/chaos run . -soak 8h -state soak.jsonl    # steady work: memory, goroutines and keys must not grow
//	go -C proof/chaos run . -faults none -break late                      # a client that breaks the rules is found: the exit code is 1
//	go -C proof/chaos run . -old pinned                       # half of the clients are of the pinned version
//
// A cell is one fault on one deployment. Three clients, each this program run again, use all primitives side by side
// through proxies. The fault befalls the servers, the network or the clients, again and again. Then all heals, and
// every primitive has to work again. Each client writes down what it does before it does it and what it was answered.
// From that the program judges: exclusion until each holder's own deadline (and, by porcupine, whether a lock can have
// this history), capacities, unique ordinals, one answer for each claimant, exact counts, tokens that grow, keys that
// end. What a cell may violate is in the table of expect.go.
//
// A cell that fails leaves its history and its plan in a directory (-failures), and the exit code is 1.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/proof/longrun"
)

// The program is the command, and each of its clients: it runs itself again as those.
func main() {
	if isClient() {
		exit("", serve(os.Stdin, os.Stdout))
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	unshim()
	cancel()
	exit("chaos:", err)
}

// isClient reports whether this process is to be a client.
func isClient() bool { return os.Getenv(roleEnv) != "" }

func exit(name string, err error) {
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, strings.TrimSpace(name+" "+err.Error()))
	os.Exit(1)
}

// plan is what is played.
type plan struct {
	deployments []string
	faults      []fault
	chosen      []primitive
	duration    time.Duration
	quiet       time.Duration
	seed        uint64
	broken      string
	failures    string
	noClock     string
	oldProgram  string // half of the clients run it, because they are of another version; "": none does
}

func command(ctx context.Context, args []string, out, progress io.Writer) error {
	var p plan
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(progress)
	on := flags.String("deployments", "", "some of them; default: all")
	befalls := flags.String("faults", "", "some of them; default: all")
	used := flags.String("primitives", "", "some of them; default: all")
	flags.DurationVar(&p.quiet, "quiet", time.Second, "how long nothing is wrong before the fault")
	flags.DurationVar(&p.duration, "duration", 3*time.Second, "how long a fault befalls a cell")
	flags.Uint64Var(&p.seed, "seed", 1, "of what is drawn")
	flags.StringVar(&p.broken, "break", "", "what clients do wrong: late, steal, newid, uncounted, twice")
	flags.StringVar(&p.failures, "failures", "chaos-failures", "the directory for histories of cells that fail")
	state := flags.String("state", "", "the file of results: a run of the same cells goes on where the last one stopped")
	old := flags.String("old", "",
		"half of the clients are of another version: a commit, a program built of it, or \"pinned\", the commit in PINNED")
	limit := flags.Duration("for", 0, "begin no cell after this long; 0: go on to the end")
	length := flags.Duration("soak", 0, "in place of cells: steady work for that long under faults, in pieces on one "+
		"node and on a Cluster; with -state, added to the pieces of earlier runs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q", flags.Args())
	}
	if *length > 0 && *on == "" {
		*on = one + "," + cluster
	}
	if err := p.choose(*on, *befalls, *used); err != nil {
		return err
	}
	if *old != "" {
		var err error
		if p.oldProgram, err = programOf(ctx, *old); err != nil {
			return err
		}
	}
	if *length > 0 {
		return p.soak(ctx, *length, &longrun.Run[piece]{Name: "soak", File: *state, Progress: progress}, out)
	}
	if slices.ContainsFunc(p.faults, func(f fault) bool { return f.clock }) {
		p.noClock = shim()
	}
	cells, err := p.run(ctx, &longrun.Run[cell]{Name: "chaos", File: *state, For: *limit, Progress: progress})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s%s", table(cells), pairs(cells))
	failed := 0
	for _, c := range cells {
		if len(c.Failed) > 0 {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d cells failed; their histories are in %s", failed, len(cells), p.failures)
	}
	return nil
}

// pick picks of what there is by names, separated by commas: all if none is given.
func pick[T any](what, names string, all []T, name func(T) string) (list []T, err error) {
	known := map[string]bool{}
	for _, x := range all {
		known[name(x)] = true
		if names == "" || slices.Contains(strings.Split(names, ","), name(x)) {
			list = append(list, x)
		}
	}
	for _, n := range strings.Split(names, ",") {
		if names != "" && !known[n] {
			return nil, fmt.Errorf("no %s %q; there are: %s", what, n, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return list, nil
}

// choose names what is played.
func (p *plan) choose(on, befalls, used string) error {
	var wrong [3]error
	p.deployments, wrong[0] = pick("deployment", on, []string{one, sentinel, cluster, five}, func(d string) string {
		return d
	})
	p.faults, wrong[1] = pick("fault", befalls, faults, func(f fault) string { return f.name })
	p.chosen, wrong[2] = pick("primitive", used, primitives, func(x primitive) string { return x.name })
	switch err := errors.Join(wrong[:]...); {
	case err != nil:
		return err
	case p.duration <= 0:
		return errors.New("the duration must be positive")
	case !slices.Contains([]string{"", "late", "steal", "newid", "uncounted", "twice"}, p.broken):
		return fmt.Errorf("nothing is broken by %q", p.broken)
	}
	return nil
}

// on are the primitives of a deployment.
func (p plan) on(deployment string) (list []primitive) {
	for _, x := range p.chosen {
		if x.quorum == (deployment == five) {
			list = append(list, x)
		}
	}
	return list
}

// itemOf names a cell.
func itemOf(deployment, fault string) string { return deployment + ": " + fault }

// run plays every cell without a result, and returns all.
func (p plan) run(ctx context.Context, run *longrun.Run[cell]) (cells []cell, err error) {
	r := &playing{plan: p}
	defer func() { r.drop() }()
	var items []string
	plays := map[string]func(ctx context.Context) (cell, error){}
	for _, name := range p.deployments {
		for _, f := range p.faults {
			applies, why := f.appliesTo(name, p.noClock)
			if !applies && why == "" || len(p.on(name)) == 0 {
				continue
			}
			item, n := itemOf(name, f.name), len(items)+1
			if p.oldProgram != "" {
				item += ", two versions"
			}
			items = append(items, item)
			plays[item] = func(ctx context.Context) (cell, error) {
				if why != "" {
					return cell{Deployment: name, Fault: f.name, NotRun: why}, nil
				}
				return r.cell(ctx, name, f, n)
			}
		}
	}
	results, err := run.Each(ctx, items, cell.summary, func(ctx context.Context, item string) (cell, error) {
		return plays[item](ctx)
	})
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		cells = append(cells, results[item])
	}
	return cells, nil
}

// playing is a plan that is being played.
type playing struct {
	plan
	d *deployment // that is set up; nil: none is
}

func (r *playing) drop() {
	if r.d != nil {
		r.d.st.Clear()
		r.d = nil
	}
}

// cell plays the n-th cell.
func (r *playing) cell(ctx context.Context, name string, f fault, n int) (c cell, err error) {
	if f.wires || r.d != nil && r.d.name != name {
		r.drop()
	}
	if r.d == nil {
		if r.d, err = setUp(name, f.wires); err != nil {
			return c, err
		}
	}
	if why := f.lacks(r.d); why != "" {
		return cell{Deployment: name, Fault: f.name, NotRun: why}, nil
	}
	s := &scene{plan: r.plan, d: r.d, f: f, prefix: fmt.Sprintf("c%d:", n), seed: r.seed + uint64(n)}
	s.chosen = r.on(name)
	c = s.play(ctx)
	if ctx.Err() != nil {
		return c, context.Cause(ctx)
	}
	if f.spent || len(c.Failed) > 0 {
		r.drop()
	}
	return c, r.keep(s, c)
}

// keep writes down what a cell that failed was, and all that its clients said.
func (p plan) keep(s *scene, c cell) error {
	if len(c.Failed) == 0 || p.failures == "" {
		return nil
	}
	dir := filepath.Join(p.failures, strings.ReplaceAll(c.Deployment+" "+c.Fault, " ", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(c, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cell.json"), text, 0o644); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	lines := json.NewEncoder(w)
	for _, e := range s.events {
		if err := lines.Encode(e); err != nil {
			return err
		}
	}
	return w.Flush()
}
