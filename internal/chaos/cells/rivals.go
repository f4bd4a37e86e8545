package cells

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/stage"
)

// Contest is the command that has each library's lock contended for under each fault, and each of its clients. It ends
// the process.
func Contest(libraries []Library, claims []Claim) {
	if Role() {
		exit("", serve(os.Stdin, os.Stdout, libraries))
	}
	end("rivals:", func(ctx context.Context, args []string, out, progress io.Writer) error {
		return contest(ctx, libraries, claims, args, out, progress)
	})
}

// Play is Contest for tests: it returns what a failing command ends with.
func Play(ctx context.Context, libraries []Library, claims []Claim, args []string, out, progress io.Writer) error {
	return contest(ctx, libraries, claims, args, out, progress)
}

func contest(ctx context.Context, libraries []Library, claims []Claim, args []string, out, progress io.Writer) error {
	p := plan{}
	flags := flag.NewFlagSet("rivals", flag.ContinueOnError)
	flags.SetOutput(progress)
	only := flags.String("only", "", "some libraries, or cells: redsync,etcd/holder-paused,*/FLUSHALL; default: all")
	without := flags.String("without", "", "libraries to leave out")
	flags.DurationVar(&p.quiet, "quiet", time.Second,
		"how long nothing is wrong before the fault, and after it has healed")
	flags.DurationVar(&p.duration, "duration", 6*time.Second, "how long a fault befalls a cell, again and again")
	flags.Uint64Var(&p.seed, "seed", 1, "of what is drawn in each cell")
	edn := flags.String("edn", "", "the directory for the history of each cell, as Knossos reads it")
	resume := flags.String("resume", "", "the file of cells that were run, to which more are added")
	markdown := flags.String("markdown", "", "the page to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q", flags.Args())
	}
	if p.duration <= 0 {
		return errors.New("the duration must be positive")
	}
	all := places(libraries)
	chosen, err := picked(all, *only, *without)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(chosen, func(x place) bool { return x.f.clock }) {
		p.noClock = shim()
	}
	rounds, err := readRounds(*resume)
	if err != nil {
		return err
	}
	broken := 0
	for i, x := range chosen {
		if slices.ContainsFunc(rounds, x.is) {
			continue
		}
		r := p.compete(ctx, x, *edn)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.Violations > 0 && x.lib.Module == "" && promised(x.f, x.deployment, "reentrant") == survives {
			broken++
		}
		fmt.Fprintf(progress, "[%d/%d] %s\n", i+1, len(chosen), r.line())
		rounds = append(rounds, r)
		if err := addRound(*resume, r); err != nil {
			return err
		}
	}
	slices.SortStableFunc(rounds, func(a, b round) int {
		return slices.IndexFunc(all, func(x place) bool {
			return x.is(a)
		}) - slices.IndexFunc(all, func(x place) bool { return x.is(b) })
	})
	if err := writeContest(*markdown, libraries, claims, rounds, out); err != nil {
		return err
	}
	if broken > 0 {
		return fmt.Errorf("%d cells in which this library promises exclusion had two holders", broken)
	}
	return nil
}

// place is where a round is played.
type place struct {
	lib        Library
	f          fault
	deployment string
}

func (x place) is(r round) bool { return r.Library == x.lib.Name && r.Fault == x.f.name }

// places are all rounds.
func places(libraries []Library) (list []place) {
	for _, l := range libraries {
		for _, f := range rivalFaults {
			x := place{l, f, one}
			switch {
			case l.Start != nil:
				if x.deployment = l.Name; foreign[f.name] == nil && !slices.Contains(ofClients, f.name) {
					continue
				}
			case l.Servers != "":
				if x.deployment = l.Servers; f.on != nil {
					continue
				}
			case f.on != nil:
				x.deployment = sentinel
			}
			list = append(list, x)
		}
	}
	return list
}

// picked are those that the command names.
func picked(all []place, only, without string) (list []place, err error) {
	matches := func(x place, pattern string) bool {
		lib, f, both := strings.Cut(pattern, "/")
		return (lib == x.lib.Name || lib == "*") && (!both || strings.ReplaceAll(f, "-", " ") == x.f.name)
	}
	fits := func(patterns string) func(place) bool {
		return func(x place) bool {
			return slices.ContainsFunc(strings.Split(patterns, ","), func(s string) bool {
				return matches(x, strings.TrimSpace(s))
			})
		}
	}
	for _, s := range strings.Split(only+","+without, ",") {
		if s != "" && !slices.ContainsFunc(all, fits(s)) {
			return nil, fmt.Errorf("no cell %q; a cell is LIBRARY/FAULT, such as %s/%s", s, all[0].lib.Name,
				hyphened(all[1].f.name))
		}
	}
	for _, x := range all {
		if (only == "" || fits(only)(x)) && (without == "" || !fits(without)(x)) {
			list = append(list, x)
		}
	}
	return list, nil
}

// compete plays a round on servers of its own.
func (p plan) compete(ctx context.Context, x place, edn string) round {
	r := round{Library: x.lib.Name, Fault: x.f.name, Deployment: x.deployment, Seed: p.seed}
	if _, why := x.f.appliesTo(x.deployment, p.noClock); why != "" && x.lib.Start == nil {
		r.NotRun = why
		return r
	}
	release, err := x.lib.Release(ctx)
	if err != nil {
		r.NotRun = err.Error()
		return r
	}
	r.Release = release
	d, err := x.setUp()
	if err != nil {
		r.NotRun = err.Error()
		return r
	}
	defer d.st.Clear()
	s := &scene{plan: p, d: d, f: x.f, prefix: "rivals:", seed: p.seed, library: x.lib.Name}
	s.compete(ctx, &r)
	if edn != "" {
		if err := writeEDN(edn, r, record{events: s.events, ended: s.ended}); err != nil {
			r.Notes = append(r.Notes, err.Error())
		}
	}
	return r
}

// setUp starts the servers of a round.
func (x place) setUp() (*deployment, error) {
	if x.lib.Start == nil {
		return setUp(x.deployment, x.f.wires)
	}
	st := &stage.Stage{}
	d := &deployment{name: x.deployment, st: st}
	err := st.Try(func() {
		d.foreign = x.lib.Start(st)
		d.entry.Addrs = []string{d.foreign.Addr()}
	})
	if err != nil {
		st.Clear()
		return nil, err
	}
	return d, nil
}

// Release is the release that is run, or why none can be.
func (l Library) Release(ctx context.Context) (string, error) {
	if l.Version != nil {
		return l.Version(ctx)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == l.Module {
				return d.Version, nil
			}
		}
	}
	return "", nil
}

// line is a round to read.
func (r round) line() string {
	text := r.Library + "/" + hyphened(r.Fault) + ": "
	if r.NotRun != "" {
		return text + "not run: " + r.NotRun
	}
	text += fmt.Sprintf("%d acquired, %d violations", r.Acquired, r.Violations)
	if r.Violations > 0 {
		text += " (longest " + short(r.Longest) + ")"
	}
	text += fmt.Sprintf(", stalled for %v, lost %d with a report, %d found at release, %d never, longest wait %v, again "+
		"after %v",
		short(r.Stall), r.Reported, r.Late, r.Never, short(r.Wait), short(r.Again))
	for _, n := range slices.Concat(r.Shown[:min(1, len(r.Shown))], r.Notes) {
		text += "\n\t" + n
	}
	return text
}

func readRounds(file string) (rounds []round, err error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if file == "" || errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var k noted
		if err := d.Decode(&k); errors.Is(err, io.EOF) {
			return rounds, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		k.evidence = k.Evidence
		rounds = append(rounds, k.round)
	}
}

// noted is a round in a file.
type noted struct {
	round
	Evidence map[Kind][]event `json:",omitempty"`
}

func addRound(file string, r round) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(noted{r, r.evidence}), f.Close())
}

// Machine is what the rounds ran on.
func Machine() string {
	server := "a server whose version is not known"
	if bin, err := redistest.Program(); err == nil {
		if name, version, err := redistest.VersionOf(bin); err == nil {
			server = name + " " + version
		}
	}
	return fmt.Sprintf("%s, %s, %d processors, %s", server, runtime.Version(), runtime.NumCPU(),
		time.Now().UTC().Format("2 January 2006"))
}
