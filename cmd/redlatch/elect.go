//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock/election"
)

func (t *tool) elect() *cobra.Command {
	j := &job{tool: t, kind: "election", ttl: 30 * time.Second, grace: 5 * time.Second}
	var once, observe, asJSON bool
	c := &cobra.Command{
		Use:   "elect NAME [flags] [-- command [args...]]",
		Short: "run a command on the leader of many machines; show who leads",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || c.ArgsLenAtDash() == 0 {
				return usage("elect needs the name of an election")
			}
			if err := j.lockName(args[0]); err != nil {
				return usage("name %q: %w", args[0], err)
			}
			j.name, j.command = args[0], args[1:]
			if len(j.command) == 0 {
				if once {
					return usage("--once is for a command")
				}
				return j.leaders(c, observe, asJSON)
			}
			if observe || asJSON {
				return usage("--observe and --json take no command")
			}
			if err := j.check(); err != nil {
				return err
			}
			return j.server.with(c.Context(), func(o *redlatch.Options) {
				o.Elections = func(o *election.Options) { o.WatchdogTimeout = j.ttl }
			}, func(red *redlatch.Client) error { return j.campaign(c.Context(), red, once) })
		},
	}
	c.ValidArgsFunction = t.offer(1, cobra.ShellCompDirectiveDefault) // after the name comes a command
	c.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
	f := c.Flags()
	f.SetInterspersed(true)
	f.StringVar(&j.label, "value", defaultLabel(), "value that observers see while this machine leads")
	f.Var(within(&j.ttl, 2*time.Second, century), "ttl",
		"lease of the leader: the longest `time` for which a crashed leader stays elected")
	f.Var(within(&j.grace, 0, century), "grace", "`time` between SIGTERM and SIGKILL when the command is stopped")
	f.BoolVar(&once, "once", false, "exit with 125 when the leadership is lost, instead of campaigning again")
	f.BoolVar(&observe, "observe", false, "print each change of leader, until ctrl-c")
	f.BoolVar(&asJSON, "json", false, "print JSON: an object with elected, value, token and owner, one a line")
	return c
}

// campaign leads, loses and campaigns again until the command ends by itself.
func (j *job) campaign(ctx context.Context, red *redlatch.Client, once bool) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	for {
		c, err := j.await(ctx, red, signals)
		if err != nil {
			return err
		}
		j.say("%s leads %q, token %d", j.label, j.name, c.token)
		err = j.hold(c, signals)
		if once || j.interrupted || !errors.Is(err, errLostHold) {
			return err
		}
		j.say("%v; campaigning again", err)
	}
}

// leaders writes who leads, once or whenever it changes, until ctx ends.
func (j *job) leaders(c *cobra.Command, observe, asJSON bool) error {
	return j.with(c, func(ctx context.Context, red *redlatch.Client) error {
		for leader, err := range red.Elections().Election(j.name).Observe(ctx) {
			if err == nil && (leader.Elected() || observe || asJSON) {
				err = j.tell(leader, asJSON)
			}
			switch {
			case observe && ctx.Err() != nil:
				return nil
			case err != nil:
				return err
			case !observe && !leader.Elected():
				return silent(exitConflict)
			case !observe:
				return nil
			}
		}
		return nil
	})
}

func (j *job) tell(leader election.Leader, asJSON bool) (err error) {
	if asJSON {
		return json.NewEncoder(j.out).Encode(map[string]any{"elected": leader.Elected(), "value": leader.Value,
			"token": leader.Token, "owner": string(leader.Owner)})
	}
	_, err = fmt.Fprintln(j.out, printable(leader.Value))
	return err
}
