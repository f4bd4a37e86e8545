//go:build unix

package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
)

// completionTime is how long a shell waits for names. What was found by then is offered.
const completionTime = time.Second

// completions has a shell offer names that are on the server, and no files but where a file is meant.
func (t *tool) completions(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.InitDefaultCompletionCmd()
	for _, file := range []string{"tls-ca", "tls-cert", "tls-key"} {
		_ = root.MarkPersistentFlagFilename(file)
	}
	held := t.offer(func(ctx context.Context, c rueidis.Client, typed string) ([]string, error) {
		quiet := &tool{streams: streams{err: io.Discard}, server: t.server}
		s := search{tool: quiet, match: globChars.Replace(typed) + "*", count: 500, rate: 1_000_000, max: 100}
		return s.names(ctx, c)
	})
	stocks := t.offer(t.stockNames)
	visit(root, func(c *cobra.Command) {
		for flag, offered := range map[string]cobra.CompletionFunc{"lock": once(held, false), "semaphore": once(held, false),
			"only": features} {
			if c.Flags().Lookup(flag) != nil {
				_ = c.RegisterFlagCompletionFunc(flag, offered)
			}
		}
		if c.Flags().Lookup("from") != nil {
			_ = c.MarkFlagFilename("from")
		}
		switch path := strings.TrimPrefix(c.CommandPath(), "redlatch "); {
		case path == "run", path == "man":
			c.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
		case path == "elect": // after its name comes a command
			c.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
			c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveDefault
				}
				return held(c, args, typed)
			}
		case path == "inspect", path == "top":
			c.ValidArgsFunction = held
		case path == "unlock":
			c.ValidArgsFunction = once(held, true)
		case path == "stock status":
			c.ValidArgsFunction = stocks
		case strings.HasPrefix(path, "stock ") && path != "stock open":
			c.ValidArgsFunction = once(stocks, true)
		}
	})
}

func visit(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		visit(sub, do)
	}
}

// once offers nothing after the first argument, if first.
func once(offered cobra.CompletionFunc, first bool) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if first && len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return offered(c, nil, typed)
	}
}

// offer is a completion by names on the server. An error offers nothing: a shell has no place for its text.
func (t *tool) offer(names func(ctx context.Context, c rueidis.Client,
	typed string) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionTime)
		defer cancel()
		given := map[string]bool{}
		for _, name := range args {
			given[name] = true
		}
		err := t.server.with(ctx, func(red *redlatch.Client) error {
			all, err := names(ctx, red.Hub().Client(), typed)
			for _, name := range all {
				if strings.HasPrefix(name, typed) && !given[name] && printable(name) == name {
					found = append(found, name)
				}
			}
			return err
		})
		if err != nil {
			cobra.CompDebugln(words(err), false)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// stockNames are those of the stocks on the server. A stock's main key is a hash, and nothing else has a key of its
// form.
func (t *tool) stockNames(ctx context.Context, c rueidis.Client, typed string) ([]string, error) {
	before := strings.TrimSuffix(keyname.Prefix("rc", t.server.prefix+"x"), "x}")
	found := map[string]bool{}
	err := primaries(ctx, c, func(node rueidis.Client) error {
		for cursor := uint64(0); ; {
			page, err := node.Do(ctx,
				node.B().Scan().Cursor(cursor).Match(globChars.Replace(before+typed)+"*}").Count(500).Type("hash").Build()).
				AsScanEntry()
			if err != nil {
				return err
			}
			for _, key := range page.Elements {
				if name := strings.TrimSuffix(strings.TrimPrefix(key, before), "}"); !strings.ContainsAny(name, "{}") {
					found[name] = true
				}
			}
			if cursor = page.Cursor; cursor == 0 || len(found) >= 100 {
				return nil
			}
		}
	})
	return slices.Sorted(maps.Keys(found)), err
}
