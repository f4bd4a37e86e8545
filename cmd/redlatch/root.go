//go:build unix

package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
)

// tool is what all commands share.
type tool struct {
	streams
	server *server
	begun  bool // a command runs: what is refused from now on is not how it was called
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
	if err != nil && !t.begun { // cobra's refusals, too
		err = usage("%w", err)
	}
	if c := (coded{}); err != nil && !(errors.As(err, &c) && c.err == nil) {
		t.say("%v", err)
	}
	return exitCode(err)
}

func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "redlatch",
		Short:         "locks, semaphores and sales on Redis or Valkey, from the command line",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.err)
	root.SetVersionTemplate("{{.Version}}\n")
	t.server.flags(root.PersistentFlags())
	root.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	root.AddCommand(t.run(), t.once(), t.inspect(), t.elect(), t.unlock(), t.check(), t.stock(), t.limit(), t.acl(),
		guard(t.err), become(),
		&cobra.Command{Use: "connection", Short: "how to name the server"},
		&cobra.Command{Use: "exit-codes", Short: "what the exit codes mean"})
	root.InitDefaultHelpCmd()
	root.CompletionOptions.SetDefaultShellCompDirective(noFiles)
	root.InitDefaultCompletionCmd()
	for _, file := range []string{"tls-ca", "tls-cert", "tls-key"} {
		_ = root.MarkPersistentFlagFilename(file)
	}
	t.document(root)
	help, _, _ := root.Find([]string{"help"})
	help.Run, help.RunE = nil, func(_ *cobra.Command, args []string) error {
		root.SetArgs(append(args, "--help"))
		return root.Execute()
	}
	return root
}

//go:embed help
var pages embed.FS

// page is a page of help.
func page(name string) string {
	text, _ := pages.ReadFile("help/" + name + ".txt") // no page is no text
	return strings.TrimSpace(string(text))
}

// document gives commands their pages of help, and notes when one begins. What only has commands under it
// shows its page, and refuses other words.
func (t *tool) document(c *cobra.Command) {
	c.Long, c.Example, _ = strings.Cut(page(strings.ReplaceAll(strings.TrimPrefix(c.CommandPath(), "redlatch "), " ", "-")),
		"\n\nExamples:\n")
	if c.HasSubCommands() {
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		if c.HasParent() { // cobra refuses other words of the root's, and says what may have been meant
			c.Args = cobra.NoArgs
		}
	} else if c.Long != "" && c.Runnable() {
		c.Long += "\n\n" + page("exit-codes")
	}
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			t.begun = true
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		t.document(sub)
	}
}

// version is that of this program, as it was built: by go install its module's, from a checkout that of the commit.
func version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "redlatch, of an unknown version"
	}
	return fmt.Sprintf("redlatch %s, %s", cmp.Or(b.Main.Version, "(devel)"), b.GoVersion)
}

// with connects, does what a command is for until SIGINT or SIGTERM, and closes.
func (t *tool) with(c *cobra.Command, do func(ctx context.Context, red *redlatch.Client) error) error {
	ctx, stop := untilSignal(c.Context())
	defer stop()
	return t.server.with(ctx, nil, func(red *redlatch.Client) error { return do(ctx, red) })
}

// untilSignal is ctx until SIGINT or SIGTERM.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// names are arguments of which count allows the number, and check each.
func names(count cobra.PositionalArgs, check func(name string) error) cobra.PositionalArgs {
	return cobra.MatchAll(count, func(_ *cobra.Command, args []string) error {
		for _, name := range args {
			if err := check(name); err != nil {
				return usage("name %q: %w", name, err)
			}
		}
		return nil
	})
}

// lockName refuses what is no name of a lock, semaphore or election.
func (t *tool) lockName(name string) error {
	return keyname.Check(t.server.prefix + name)
}

// stockName refuses what is no name of a sale or limiter.
func (t *tool) stockName(name string) error {
	_, err := keyname.Braced(t.server.prefix, name, "a sale or limiter")
	return err
}
