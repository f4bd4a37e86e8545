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
	"github.com/redlatch/redlatch/internal/keyname"
)

const unlockHelp = `unlock --force takes a lock from its holder, and hands it to those who wait.

The holder is not asked. It learns of the loss within milliseconds where the server tracks its key, otherwise at its
next renewal, within a third of its lease; until then it may work at the same time as the next holder. The lock of a
process that died is free by itself at the end of its lease, which inspect shows.

It asks before it does so. Without a terminal it refuses, unless --yes says that the answer is known.

It exits with 0 if it took the lock, and with 1 if it was free, or the answer was no.`

func (t *tool) unlock() *cobra.Command {
	var force, yes bool
	c := &cobra.Command{
		Use:     "unlock --force NAME",
		Short:   "take a lock from its holder",
		Long:    unlockHelp + "\n\n" + exitHelp,
		Example: "  redlatch unlock --force nightly-report\n  redlatch unlock --force --yes nightly-report",
		Args:    exactly(1, "the name of a lock"),
		RunE: func(c *cobra.Command, args []string) error {
			name := args[0]
			if err := keyname.Check(t.server.prefix + name); err != nil {
				return usage("name %q: %w", name, err)
			}
			if !force {
				return usage("--force is missing: only a holder itself can release a lock without it")
			}
			if err := t.answerable(yes); err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			return t.server.with(ctx, func(red *redlatch.Client) error { return t.takeAway(ctx, red, name, yes) })
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
		return coded{exitData, fmt.Errorf("%q is a %s", name, s.Kind)}
	}
	if !s.Held {
		t.say("lock %q is free", name)
		return silent(exitConflict)
	}
	for _, h := range s.Holders {
		t.say("lock %q is held by %s, lease %s", name, printable(h.Who), briefMillis(h.LeaseMS))
	}
	if !yes && !t.confirmed("Take it away? Its holder may go on for a while.") {
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
