// Package cells is the commands chaos and rivals: processes use primitives of this library, or locks of other ones, on
// real servers while one fault befalls them, and what they write down is judged.
package cells

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Main is the command, and each of its clients: the program that calls it runs itself again as those.
func Main() {
	if Role() {
		exit("", serve(os.Stdin, os.Stdout, nil))
	}
	end("chaos:", command)
}

// Role reports whether this process is to be a client.
func Role() bool { return os.Getenv(roleEnv) != "" }

// end runs a command until it ends or is interrupted, and ends the process.
func end(name string, command func(ctx context.Context, args []string, out, progress io.Writer) error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	unshim()
	cancel()
	exit(name, err)
}

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
}

func command(ctx context.Context, args []string, out, progress io.Writer) error {
	var p plan
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(progress)
	on := flags.String("deployments", "", "some of them; default: all")
	befalls := flags.String("faults", "", "some of them; default: all")
	used := flags.String("primitives", "", "some of them; default: all")
	flags.DurationVar(&p.quiet, "quiet", 2*time.Second,
		"how long nothing is wrong before the fault; from 1 s on, also after it has settled, and idle times are judged "+
			"in both")
	flags.DurationVar(&p.duration, "duration", 3*time.Second, "how long a fault befalls a cell")
	flags.Uint64Var(&p.seed, "seed", 1, "of what is drawn")
	flags.StringVar(&p.broken, "break", "", "what clients do wrong: late, steal, newid, uncounted, twice, part")
	flags.StringVar(&p.failures, "failures", "chaos-failures", "the directory for histories of cells that fail")
	resume := flags.String("resume", "", "the file of cells that were run, to which more are added")
	markdown := flags.String("markdown", "", "the report to write; its tables go into cells.md in a folder of its name")
	length := flags.Duration("soak", 0,
		"in place of cells: steady work for that long on the first deployment, with faults in the background; what is used "+
			"must not grow")
	chart := flags.String("chart", "", "the chart of a soak to write (SVG)")
	page := flags.String("html", "", "the same as a page")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q", flags.Args())
	}
	if err := p.choose(*on, *befalls, *used); err != nil {
		return err
	}
	if *length > 0 {
		return p.soak(ctx, *length, *chart, out, progress)
	}
	done, err := read(*resume)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(p.faults, func(f fault) bool { return f.clock }) {
		p.noClock = shim()
	}
	cells, err := p.run(ctx, done, *resume, progress)
	if err != nil {
		return err
	}
	write(out, cells)
	if err := report(cells, *markdown, *page); err != nil {
		return err
	}
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

// pick picks names, separated by commas, of what there is: all if none is given.
func pick(what, names string, all []string) (list []string, err error) {
	if names == "" {
		return all, nil
	}
	for _, n := range strings.Split(names, ",") {
		if !slices.Contains(all, n) {
			return nil, fmt.Errorf("no %s %q; there are: %s", what, n, strings.Join(all, ", "))
		}
		list = append(list, n)
	}
	return list, nil
}

// choose names what is played.
func (p *plan) choose(on, befalls, used string) error {
	var places, wrong, kinds []string
	for _, d := range deployments {
		places = append(places, d.name)
	}
	for _, f := range faults {
		wrong = append(wrong, f.name)
	}
	for _, x := range primitives {
		kinds = append(kinds, x.name)
	}
	var err error
	if p.deployments, err = pick("deployment", on, places); err != nil {
		return err
	}
	if wrong, err = pick("fault", befalls, wrong); err != nil {
		return err
	}
	if kinds, err = pick("primitive", used, kinds); err != nil {
		return err
	}
	for _, f := range faults {
		if slices.Contains(wrong, f.name) {
			p.faults = append(p.faults, f)
		}
	}
	for _, x := range primitives {
		if slices.Contains(kinds, x.name) {
			p.chosen = append(p.chosen, x)
		}
	}
	if p.duration <= 0 {
		return errors.New("the duration must be positive")
	}
	if !slices.Contains([]string{"", "late", "steal", "newid", "uncounted", "twice", "part"}, p.broken) {
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

// run plays every cell that is not done, and returns all.
func (p plan) run(ctx context.Context, done []cell, file string, progress io.Writer) (cells []cell, err error) {
	r := &playing{plan: p, began: time.Now()}
	defer func() { r.drop() }()
	total := len(p.deployments) * len(p.faults)
	for _, name := range p.deployments {
		r.drop()
		for _, f := range p.faults {
			r.n++
			c, old, err := r.cell(ctx, name, f, done)
			if err != nil {
				return nil, err
			}
			if c == nil {
				continue
			}
			if cells = append(cells, *c); old {
				continue
			}
			fmt.Fprintf(progress, "[%d/%d, left %s] %s: %s: %s\n", r.n, total, r.left(total), name, f.name, c.summary())
			if err := add(file, *c); err != nil {
				return nil, err
			}
		}
	}
	return cells, nil
}

// playing is a plan that is being played.
type playing struct {
	plan
	d      *deployment // that is set up; nil: none is
	began  time.Time
	n      int // the cell, counted from 1
	played int // cells
}

func (r *playing) drop() {
	if r.d != nil {
		r.d.st.Clear()
		r.d = nil
	}
}

// left is about how long the rest will take.
func (r *playing) left(total int) string {
	if r.played == 0 {
		return "?"
	}
	return (time.Since(r.began) / time.Duration(r.played) * time.Duration(total-r.n)).Round(time.Second).String()
}

// cell returns the cell of that name and fault, which it plays unless it is done, then it is old. nil: there is none.
func (r *playing) cell(ctx context.Context, name string, f fault, done []cell) (c *cell, old bool, err error) {
	applies, why := f.appliesTo(name, r.noClock)
	if !applies && why == "" || len(r.on(name)) == 0 {
		return nil, false, nil
	}
	if i := slices.IndexFunc(done, func(c cell) bool { return c.Deployment == name && c.Fault == f.name }); i >= 0 {
		return &done[i], true, nil
	}
	if !applies {
		return &cell{Deployment: name, Fault: f.name, NotRun: why}, false, nil
	}
	if f.wires {
		r.drop()
	}
	if r.d == nil {
		if r.d, err = setUp(name, f.wires); err != nil {
			return nil, false, err
		}
	}
	if why := f.lacks(r.d); why != "" {
		return &cell{Deployment: name, Fault: f.name, NotRun: why}, false, nil
	}
	s := &scene{plan: r.plan, d: r.d, f: f, prefix: fmt.Sprintf("c%d:", r.n), seed: r.seed + uint64(r.n)}
	s.chosen = r.on(name)
	played := s.play(ctx)
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	if f.spent || len(played.Failed) > 0 {
		r.drop()
	}
	r.played++
	return &played, false, r.keep(s, played)
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

// read reads the cells of a file, if there is one.
func read(file string) (cells []cell, err error) {
	f, err := os.Open(file)
	if file == "" || errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var c cell
		switch err := d.Decode(&c); {
		case errors.Is(err, io.EOF):
			return cells, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		cells = append(cells, c)
	}
}

// add adds a cell to the file.
func add(file string, c cell) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(c), f.Close())
}
