//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
)

const checkHelp = `check looks at a server as redlatch needs it, and tries what programs do there, with the user and the prefix that they have. Each line
is ok, a warning or a problem, with what to do about it. It takes a few seconds.

It writes objects under names that begin with redlatch_check: (after --prefix) and removes them; what is left after a crash ends by
itself. If the user's keys are restricted, give it --prefix.

It exits with 1 if there is a problem; with --strict also if there is a warning.`

// finding is a line of check.
type finding struct {
	Level string `json:"level"` // ok, warning or problem
	What  string `json:"what"`
	Says  string `json:"says"`
	Do    string `json:"do,omitempty"`
}

// checkup collects findings.
type checkup struct {
	*tool
	red    *redlatch.Client
	client rueidis.Client
	name   string // of what it tries with, before a suffix
	info   map[string]string
	all    []finding
}

func (x *checkup) ok(what, says string, args ...any) { x.add("ok", what, "", says, args) }

func (x *checkup) warn(what, do, says string, args ...any) { x.add("warning", what, do, says, args) }

func (x *checkup) problem(what, do, says string, args ...any) { x.add("problem", what, do, says, args) }

func (x *checkup) add(level, what, do, says string, args []any) {
	for i, a := range args {
		if err, ok := a.(error); ok {
			args[i] = words(err)
		}
	}
	x.all = append(x.all, finding{level, what, short(fmt.Sprintf(says, args...)), do})
}

func (t *tool) check() *cobra.Command {
	var asJSON, strict bool
	c := &cobra.Command{
		Use:     "check",
		Short:   "check a server: version, settings, rights, Pub/Sub, tracking, replicas, clock, latency",
		Long:    checkHelp + "\n\n" + exitHelp,
		Example: "  redlatch check\n  redlatch check --redis redis://redlatch@redis:6379 --prefix shop: --strict",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := interruptible(c)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			x := &checkup{tool: t}
			if err := x.run(ctx); err != nil {
				return err
			}
			if asJSON {
				if err := t.json(x.all); err != nil {
					return err
				}
			} else {
				x.table()
			}
			for _, f := range x.all {
				if f.Level == "problem" || strict && f.Level == "warning" {
					return silent(exitConflict)
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON: an array with an object for each line")
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 for a warning, too")
	return c
}

func (x *checkup) table() {
	w := tabwriter.NewWriter(x.out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	for _, f := range x.all {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.What, printable(f.Says))
		if f.Do != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", f.Do)
		}
	}
}

func (x *checkup) run(ctx context.Context) error {
	o, err := x.server.option()
	if err != nil {
		return err
	}
	if x.red, err = x.server.open(o, nil); err != nil {
		x.problem("connection", "see redlatch help connection; docs/operations.md has the rights of a user", "%v", err)
		return nil
	}
	defer x.red.Close(context.Background())
	x.client = x.red.Hub().Client()
	x.name = "redlatch_check:" + rand.Text()
	u, _ := x.server.address()
	x.ok("connection", "%s", redacted(u))
	x.settings(ctx)
	x.rights(ctx)
	x.messages(ctx)
	x.tracking(ctx)
	x.clock(ctx)
	x.latency(ctx)
	return ctx.Err()
}
