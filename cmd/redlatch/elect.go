//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/rlock/election"
)

const electHelp = `elect runs a command on one of many machines: on the leader. All of them run redlatch elect with
the same name. Who is elected starts the command, the others wait, for as long as it takes. If the leader dies or is
cut off, its command is stopped, as run stops it, and another leads about four seconds later. It then campaigns again,
unless --once is given. When the command ends by itself, the leader resigns, and elect exits with its exit code.

The election is one of package rlock/election, so programs and commands campaign in the same one, and follow it. The
command finds its fencing token in REDLATCH_TOKEN, and the name in REDLATCH_ELECTION. redlatch inspect shows who
waits.

Without a command elect writes who leads to stdout, by its --value, and exits with 1 if there is no leader. With
--observe it goes on, and writes a line whenever that changes, an empty one if there is no leader. It hears of changes
by messages, and looks once a second in any case.

With --drain, and without a command, elect asks the leader to hand over, and waits until it leads no more. That
leader's command is stopped, and it does not campaign for the time given. Programs do the same if they use
Election.Run.

With --priority, a candidate is preferred to those with a lower one (default 0): while it waits no other is elected,
and after about three seconds a leader with a lower priority hands over to it.`

func (t *tool) elect() *cobra.Command {
	j := &job{tool: t, election: true}
	var once, observe bool
	var drain time.Duration
	c := &cobra.Command{
		Use:   "elect NAME [flags] [-- command [args...]]",
		Short: "run a command on the leader of many machines; show who leads",
		Long:  electHelp + "\n\n" + exitHelp,
		Example: "  redlatch elect scheduler -- ./scheduler\n  redlatch elect scheduler\n" +
			"  redlatch elect scheduler --value 10.0.0.7:8080 --once -- ./scheduler",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || c.ArgsLenAtDash() == 0 {
				return usage("elect needs the name of an election")
			}
			j.lock, j.command = args[0], args[1:]
			draining := c.Flags().Changed("drain")
			if len(j.command) == 0 {
				switch {
				case once || c.Flags().Changed("priority"):
					return usage("--once and --priority are for a command")
				case draining && (observe || drain < 0):
					return usage("--drain %v: must be at least 0s, and without --observe", drain)
				case draining:
					return j.drain(c, drain)
				}
				return j.leaders(c, observe)
			}
			if observe || draining {
				return usage("--observe and --drain take no command")
			}
			if j.priority < 0 || j.priority > 1<<31-1 {
				return usage("--priority %d: must be from 0 to 2147483647", j.priority)
			}
			if err := j.check(c.Flags().Changed); err != nil {
				return err
			}
			return j.lead(c.Context(), once)
		},
	}
	f := c.Flags()
	f.SetInterspersed(true)
	f.StringVar(&j.label, "value", defaultLabel(), "what is shown of this candidate while it leads")
	f.DurationVar(&j.ttl, "ttl", 30*time.Second,
		"the lease: how long the leader's place is kept by those without heartbeats at most")
	f.DurationVar(&j.grace, "grace", 5*time.Second, "the `time` between SIGTERM and SIGKILL when the command is stopped")
	f.BoolVar(&once, "once", false, "exit with 125 when the leadership is lost, and do not campaign again")
	f.IntVar(&j.priority, "priority", 0, "candidates with a higher `number` are preferred")
	f.DurationVar(&drain, "drain", 0, "ask the leader to hand over, and not to campaign for this `time` after that")
	f.BoolVar(&observe, "observe", false, "write who leads whenever it changes, until ctrl-c")
	return c
}

// lead campaigns with a client of its own.
func (j *job) lead(ctx context.Context, once bool) error {
	o, err := j.server.option()
	if err != nil {
		return err
	}
	red, err := j.server.open(o, func(o *redlatch.Options) {
		o.Elections = func(o *election.Options) { o.WatchdogTimeout = j.ttl }
	})
	if err != nil {
		return err
	}
	err = j.campaign(ctx, red, once)
	j.server.close(ctx, red, err)
	return err
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
		j.say("%s leads %q, token %d", j.label, j.lock, c.token())
		err = j.hold(c, signals)
		if once || j.interrupted || !errors.Is(err, errLostHold) {
			return err
		}
		j.say("%v; campaigning again", err)
	}
}

// drain asks the leader to hand over, and waits until it leads no more.
func (j *job) drain(c *cobra.Command, rest time.Duration) error {
	if err := keyname.Check(j.server.prefix + j.lock); err != nil {
		return usage("name %q: %w", j.lock, err)
	}
	ctx, stop := interruptible(c)
	defer stop()
	return j.server.with(ctx, func(red *redlatch.Client) error {
		return red.Elections().Election(j.lock).Drain(ctx, rest)
	})
}

// leaders writes who leads, once or whenever it changes.
func (j *job) leaders(c *cobra.Command, observe bool) error {
	if err := keyname.Check(j.server.prefix + j.lock); err != nil {
		return usage("name %q: %w", j.lock, err)
	}
	ctx, stop := interruptible(c)
	defer stop()
	return j.server.with(ctx, func(red *redlatch.Client) error {
		of := red.Elections().Election(j.lock)
		if observe {
			return j.observe(ctx, of)
		}
		leader, err := of.Leader(ctx)
		if err == nil && !leader.Elected() {
			err = silent(exitConflict)
		}
		if err != nil {
			return err
		}
		j.tell(leader)
		return nil
	})
}

// observe writes who leads whenever that changes, until ctx ends.
func (j *job) observe(ctx context.Context, of *election.Election) error {
	for leader, err := range of.Observe(ctx) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		j.tell(leader)
	}
	return nil
}

func (j *job) tell(leader election.Leader) { fmt.Fprintln(j.out, printable(leader.Value)) }
