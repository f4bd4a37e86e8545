//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"runtime/debug"
	"strings"
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
	fmt.Fprintf(t.err, "redlatch: %s\n", short(fmt.Sprintf(format, args...)))
}

// execute runs one command line and returns its exit code.
func execute(args []string, s streams) int {
	t := &tool{streams: s, server: &server{log: s.err}}
	root := t.root()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if c := (coded{}); err != nil && !(errors.As(err, &c) && c.err == nil) {
		t.say("%s", words(err))
	}
	return exitCode(err)
}

func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "redlatch",
		Short: "locks, semaphores and stocks on Redis or Valkey, from the command line",
		Long: `redlatch runs commands under locks and semaphores that live on a Redis or Valkey server, shows who holds them
and who waits, and manages stocks. Go programs that use the library, and Java programs that use Redisson, hold the same
locks by the same names.

Data goes to stdout, messages go to stderr. A flag or argument that cannot be used is refused before anything is sent.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return coded{exitUsage, err} })
	root.SetVersionTemplate("{{.Version}}\n")
	t.server.flags(root.PersistentFlags())
	root.AddCommand(t.run(), t.inspect(), t.elect(), t.unlock(), t.top(), t.check(), t.stock(), t.limit(), t.bench(),
		t.acl(), t.man(), guard(t.err), become(),
		topic("connection", "how to name the server", connectionHelp),
		topic("exit-codes", "what the exit codes mean", exitHelp))
	root.SetHelpCommand(helpCommand(root))
	t.completions(root)
	refusals(root)
	return root
}

// helpCommand refuses what is not a command, where cobra's own shows the help of the command above and exits with 0.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "say everything about a command", DisableFlagsInUseLine: true,
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
			if of, left, err := root.Find(args); err == nil && len(left) == 0 {
				for _, c := range of.Commands() {
					if !c.Hidden && strings.HasPrefix(c.Name(), typed) {
						found = append(found, c.Name()+"\t"+c.Short)
					}
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			of, left, _ := root.Find(args)
			if of == nil || len(left) > 0 && of.HasSubCommands() {
				return unknown(cmp.Or(of, root), left[0])
			}
			return of.Help()
		},
	}
}

// unknown is the refusal of a word that is not a command, with those that it may have been meant to be.
func unknown(c *cobra.Command, word string) error {
	see := "redlatch help"
	if c.HasParent() {
		see += strings.TrimPrefix(c.CommandPath(), "redlatch")
	}
	meant := ""
	if c.SuggestionsMinimumDistance <= 0 {
		c.SuggestionsMinimumDistance = 2
	}
	if like := c.SuggestionsFor(word); len(like) > 0 {
		meant = fmt.Sprintf(" (did you mean %s?)", strings.Join(like, " or "))
	}
	return usage("unknown command %q for %s%s; see %s", word, c.CommandPath(), meant, see)
}

// refusals gives what cobra refuses its exit code, and has commands that only have others under them refuse words that
// are none.
func refusals(c *cobra.Command) {
	if args := c.Args; args != nil {
		c.Args = func(c *cobra.Command, given []string) error {
			err := args(c, given)
			if had := (coded{}); err == nil || errors.As(err, &had) {
				return err
			}
			return usage("%s takes no arguments; it was given %q", c.CommandPath(), given) // all others have the code of exactly
		}
	}
	if c.HasSubCommands() {
		c.Args = func(c *cobra.Command, given []string) error {
			if len(given) > 0 {
				return unknown(c, given[0])
			}
			return nil
		}
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	for _, sub := range c.Commands() {
		refusals(sub)
	}
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

// topic is a page of help that is not a command.
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
