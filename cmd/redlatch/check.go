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

const checkHelp = `check says what a server is, what redlatch does without there, and what to set. It reads what the
server says of itself, and tries what programs do, with the user and the prefix that they have. It takes a few
seconds.

Each line has a level, what was looked at and what was found; under it, what that means for the promises (!) and what
to do (->):

  ok       as it should be
  note     a feature that is off by default does not work here, or something could not be seen
  warning  something degrades: waiting is slower, or a failure costs more than it must
  problem  a promise does not hold, or calls fail

A command that the server or the user's rights refuse is a finding, and not a failure of check. INFO and CONFIG GET
are asked for settings; programs need neither. The library uses no SCRIPT, FUNCTION or WAITAOF, so they are not tried.

With --survive-failover, what Options{Safety: SurviveFailover} needs is a problem where it is missing; without, it is
a note.

check writes objects under names that begin with redlatch_check: (after --prefix) and removes them; what is left after
a crash, and the mark of the process (redlatch_alive:), end by themselves. If the user's keys are restricted, give it
--prefix.

It exits with 1 if there is a problem, also where there is no connection; with --strict also if there is a warning.
Notes do not count.`

// finding is a line of check.
type finding struct {
	Level string `json:"level"` // ok, note, warning or problem
	What  string `json:"what"`
	Says  string `json:"says"`
	Means string `json:"means,omitempty"` // for the promises of the library
	Do    string `json:"do,omitempty"`
}

// checkup collects findings.
type checkup struct {
	*tool
	red    *redlatch.Client
	option rueidis.ClientOption
	client rueidis.Client
	safe   bool   // what the safe profile needs is a problem where it is missing
	name   string // of what it tries with, before a suffix
	nodes  []*node
	apart  bool     // connections end at different servers
	tracks bool     // the server tracks keys
	unmet  []string // what would have to be set for the safe profile
	all    []finding
}

func (x *checkup) ok(what, says string, args ...any) {
	x.add(finding{"ok", what, says, "", ""}, args...)
}

// add formats what f says.
func (x *checkup) add(f finding, args ...any) {
	for i, a := range args {
		if err, ok := a.(error); ok {
			args[i] = words(err)
		}
	}
	if len(args) > 0 {
		f.Says = fmt.Sprintf(f.Says, args...)
	}
	f.Says = short(f.Says)
	x.all = append(x.all, f)
}

func (t *tool) check() *cobra.Command {
	var asJSON, strict, safe bool
	c := &cobra.Command{
		Use:   "check",
		Short: "say what a server is, what redlatch does without there, and what to set",
		Long:  checkHelp + "\n\n" + exitHelp,
		Example: "  redlatch check\n  redlatch check --redis redis://redlatch@redis:6379 --prefix shop: --strict\n" +
			"  redlatch check --survive-failover --json | jq '.[] | select(.level == \"problem\")'",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := interruptible(c)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			x := &checkup{tool: t, safe: safe}
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
	c.Flags().BoolVar(&asJSON, "json", false,
		"write JSON: an array with an object for each line, with level, what, says, means and do")
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 for a warning, too")
	c.Flags().BoolVar(&safe, "survive-failover", false,
		"what Safety: SurviveFailover needs is a problem where it is missing")
	return c
}

func (x *checkup) table() {
	w := tabwriter.NewWriter(x.out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	for _, f := range x.all {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.What, printable(f.Says))
		if f.Means != "" {
			fmt.Fprintf(w, "\t\t!  %s\n", printable(f.Means))
		}
		if f.Do != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", printable(f.Do))
		}
	}
}

func (x *checkup) run(ctx context.Context) (err error) {
	if x.option, err = x.server.option(); err != nil {
		return err
	}
	if err := x.connect(); err != nil {
		x.add(finding{"problem", "connection", "%v", "",
			"see redlatch help connection; docs/operations.md has the rights of a user"},
			err)
		return nil
	}
	defer x.red.Close(context.WithoutCancel(ctx))
	x.name = "redlatch_check:" + rand.Text()
	u, _ := x.server.address()
	x.ok("connection", "%s", redacted(u))
	for _, look := range []func(context.Context){
		x.describe, x.identity, x.topology, x.oneServer, x.commands, x.settings, x.rights, x.messages, x.tracking, x.profile,
		x.clock, x.latency,
	} {
		if look(ctx); x.apart {
			break // nothing that is tried would say anything
		}
	}
	return ctx.Err()
}

// connect opens the client as programs do. What does not work is to be seen soon.
func (x *checkup) connect() (err error) {
	x.red, err = x.server.open(x.option, func(o *redlatch.Options) { o.RetryTimeout = x.server.timeout })
	if err == nil {
		x.client = x.red.Hub().Client()
	}
	return err
}
