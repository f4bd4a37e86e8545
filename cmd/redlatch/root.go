//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// tool is what all commands share.
type tool struct {
	streams
	server *server
}

// say writes a message for people.
func (t *tool) say(format string, args ...any) {
	fmt.Fprintf(t.err, "redlatch: "+format+"\n", args...)
}

// execute runs one command line and returns its exit code.
func execute(args []string, s streams) int {
	t := &tool{streams: s, server: &server{log: s.err}}
	root := t.root()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if c := (coded{}); err != nil && !(errors.As(err, &c) && c.err == nil) {
		t.say("%v", err)
	}
	return exitCode(err)
}

func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "redlatch",
		Short: "locks, semaphores and stocks on Redis or Valkey, from the command line",
		Long: `redlatch runs commands under locks and semaphores that live on a Redis or Valkey server, shows who holds them and who waits,
and manages stocks. Go programs that use the library, and Java programs that use Redisson, hold the same locks by the same names.

Data goes to stdout, messages go to stderr. A flag or argument that cannot be used is refused before anything is sent.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("%q is no command; see redlatch help", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return coded{exitUsage, err} })
	root.SetVersionTemplate("{{.Version}}\n")
	t.server.flags(root.PersistentFlags())
	root.AddCommand(t.run(), t.inspect(), t.elect(), t.unlock(), t.top(), t.check(), t.stock(), t.limit(), t.bench(), guard(t.err), become(),
		topic("connection", "how to name the server", connectionHelp),
		topic("exit-codes", "what the exit codes mean", exitHelp))
	return root
}

// version is that of this program, as it was built: by go install its module's, from a checkout the commit.
func version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "redlatch, of an unknown version"
	}
	v, of := b.Main.Version, map[string]string{}
	for _, s := range b.Settings {
		of[s.Key] = s.Value
	}
	if commit := of["vcs.revision"]; commit != "" {
		v += ", commit " + commit[:min(12, len(commit))]
		if of["vcs.modified"] == "true" {
			v += " with changes"
		}
	}
	return fmt.Sprintf("redlatch %s, %s", cmp.Or(v, "(devel)"), b.GoVersion)
}

// topic is a page of help that is no command.
func topic(name, short, text string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: text}
}

// interruptible is a context that ends with SIGINT or SIGTERM.
func interruptible(c *cobra.Command) (context.Context, func()) {
	return signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
}

// exactly refuses another number of arguments than n, which are named.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("%s needs %s; it was given %d argument(s)", c.CommandPath(), what, len(args))
		}
		return nil
	}
}
