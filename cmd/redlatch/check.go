//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
)

// finding is a line of check.
type finding struct {
	Level string `json:"level"` // ok, note, warning or problem
	What  string `json:"what"`
	Says  string `json:"says"`
	Means string `json:"means,omitempty"` // for the promises of the library
	Do    string `json:"do,omitempty"`
}

// unknown is f where nothing is known but that no answer came in time.
func (f finding) unknown() finding {
	f.Do = "if the line is always that slow, raise --call-timeout here, and CallTimeout in programs"
	if f.Level != "problem" {
		f.Level, f.Says = "note", "not known: "+strings.TrimPrefix(f.Says, "not known: ")
		f.Means = "it may be missing: some proxies do not answer a command that they do not know"
	}
	return f
}

// checkup collects findings.
type checkup struct {
	*tool
	red    *redlatch.Client
	option rueidis.ClientOption
	client rueidis.Client
	safe   bool          // a missing need of the safe profile is a problem
	name   string        // the keys that check tries with are this and a suffix
	bound  time.Duration // the longest wait for a reply on a connection of check's own
	nodes  []*node
	apart  bool     // connections end at different servers
	unmet  []string // settings that the safe profile lacks
	all    []finding
}

// clean removes what would last, also when ctx has ended; without the right to it, what is left ends by itself.
func (x *checkup) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.bound)
	defer cancel()
	name := x.server.prefix + x.name
	keys := append(x.seen(), name+":semaphore", name+":counter")
	for _, fenced := range []string{":lock", ":election", ":safe"} {
		keys = append(keys, keyname.Prefix("redisson_lock_token", name+fenced))
	}
	for _, part := range []string{":p", ":a", ":g", ":e"} {
		keys = append(keys, keyname.Prefix("rc", name+":packet")+part)
	}
	_ = x.red.Sales().Sale(x.name + ":sale").Delete(ctx)
	var all rueidis.Commands
	for _, key := range keys {
		all = append(all, x.client.B().Del().Key(key).Build())
	}
	x.client.DoMulti(ctx, all...)
}

func (x *checkup) ok(what, says string, args ...any) {
	x.add(finding{"ok", what, says, "", ""}, args...)
}

// add formats what f says. That no answer came in time does not show that anything is missing.
func (x *checkup) add(f finding, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok && unanswered(err) {
			f = f.unknown()
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
		Short: "examine a server: what it lacks, and what to set",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			x := &checkup{tool: t, safe: safe}
			if err := x.run(ctx); err != nil {
				return err
			}
			write := x.table
			if asJSON {
				write = func() error { return t.json(x.all) }
			}
			if err := write(); err != nil {
				return err
			}
			if slices.ContainsFunc(x.all, func(f finding) bool {
				return f.Level == "problem" || strict && f.Level == "warning"
			}) {
				return silent(exitConflict)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false,
		"print JSON: an array of objects with level, what, says, means and do")
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 also for a warning")
	c.Flags().BoolVar(&safe, "survive-failover", false,
		"report what SurviveFailover lacks as a problem")
	return c
}

func (x *checkup) table() error {
	var rows []row
	for _, f := range x.all {
		rows = append(rows, row{f.Level, f.What, f.Says})
		if f.Means != "" {
			rows = append(rows, row{"", "", "!  " + f.Means})
		}
		if f.Do != "" {
			rows = append(rows, row{"", "", "-> " + f.Do})
		}
	}
	return table(x.out, rows)
}

func (x *checkup) run(ctx context.Context) (err error) {
	if x.option, err = x.server.option(); err != nil {
		return err
	}
	// As programs do, but what does not work is to be seen soon.
	x.red, err = x.server.open(x.option, func(o *redlatch.Options) { o.RetryTimeout = x.server.timeout })
	if err != nil {
		x.add(finding{"problem", "connection", "%v", "",
			"docs/access.md has the rights of a user"}, err)
		return nil
	}
	defer x.red.Close(context.WithoutCancel(ctx))
	x.client = x.red.Hub().Client()
	x.name = "redlatch_check:" + rand.Text()
	u, _ := x.server.address()
	x.ok("connection", "%s", redacted(u))
	x.bound = x.patience(ctx)
	defer x.clean(ctx)
	for _, look := range []func(context.Context){
		x.describe, x.identity, x.lua, x.topology, x.oneServer, x.commands, x.settings, x.rights, x.messages, x.profile,
		x.clock,
	} {
		if look(ctx); x.apart {
			break // nothing that is tried would say anything
		}
	}
	return ctx.Err()
}
