//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redlatch/redlatch"
)

func (t *tool) unlock() *cobra.Command {
	var force, yes bool
	c := &cobra.Command{
		Use:   "unlock --force NAME",
		Short: "take a lock from its holder",
		Args:  names(cobra.ExactArgs(1), t.lockName), ValidArgsFunction: t.offer(1, noFiles),
		RunE: func(c *cobra.Command, args []string) error {
			if !force {
				return usage("--force is missing: only a holder itself can release a lock without it")
			}
			if err := t.answerable(yes); err != nil {
				return err
			}
			return t.with(c, func(ctx context.Context, red *redlatch.Client) error {
				return t.takeAway(ctx, red, args[0], yes)
			})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "required: the holder may still be running")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// takeAway takes a lock from its holder, once that is confirmed.
func (t *tool) takeAway(ctx context.Context, red *redlatch.Client, name string, yes bool) error {
	s, err := look(ctx, red, t.server.prefix, name)
	if err != nil {
		return err
	}
	if s.Kind != "lock" {
		return coded{exitData, fmt.Errorf("%q is a %s, not a lock", name, s.Kind)}
	}
	if !s.Held {
		t.say("lock %q is free", name)
		return silent(exitConflict)
	}
	for _, h := range s.Holders {
		t.say("lock %q is held by %s, lease %s", name, printable(h.Who), briefMillis(h.LeaseMS))
	}
	if !yes && !t.confirmed("Take it away? Its holder may continue for a while.") {
		return silent(exitConflict)
	}
	taken, err := red.Locks().Reentrant(name).ForceUnlock(ctx)
	switch {
	case err != nil:
		return err
	case !taken:
		t.say("lock %q was released meanwhile", name)
		return silent(exitConflict)
	}
	t.say("lock %q was taken from its holder", name)
	return nil
}

// answerable refuses a question that cannot be answered.
func (t *tool) answerable(yes bool) error {
	if f, ok := t.in.(*os.File); yes || ok && term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return usage("stdin is not a terminal: use --yes to confirm")
}

// confirmed asks.
func (t *tool) confirmed(question string) bool {
	fmt.Fprint(t.err, "redlatch: ", question, " [y/N] ")
	answer, err := bufio.NewReader(t.in).ReadString('\n')
	if err != nil && err != io.EOF {
		return false
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
