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
var completionTime = time.Second // tests have more

// noFiles is for all arguments and flags but those that are files.
const noFiles = cobra.ShellCompDirectiveNoFileComp

// offer is a completion of so many arguments by names on the server, with what after says for later ones. An error
// offers nothing: a shell has no place for its text.
func (t *tool) offer(names func(ctx context.Context, c rueidis.Client, typed string) ([]string, error), most int,
	after cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, after
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTime)
		defer cancel()
		err := t.server.with(ctx, nil, func(red *redlatch.Client) (err error) {
			found, err = names(ctx, red.Hub().Client(), typed)
			return err
		})
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		return slices.DeleteFunc(found, func(name string) bool {
			return !strings.HasPrefix(name, typed) || printable(name) != name
		}), noFiles
	}
}

func (t *tool) heldNames(ctx context.Context, c rueidis.Client, typed string) ([]string, error) {
	quiet := &tool{streams: streams{err: io.Discard}, server: t.server}
	s := search{tool: quiet, match: globChars.Replace(typed) + "*", rate: 1_000_000, max: 100}
	return s.names(ctx, c)
}

// stockNames are those of the stocks on the server. A stock's main key is a hash, and nothing else has a key of its
// form.
func (t *tool) stockNames(ctx context.Context, c rueidis.Client, typed string) ([]string, error) {
	before := strings.TrimSuffix(keyname.Prefix("rc", t.server.prefix+"x"), "x}")
	found := map[string]bool{}
	match := globChars.Replace(before+typed) + "*}"
	err := eachPage(ctx, c, match, "hash", func(_ rueidis.Client, keys []string) (bool, error) {
		for _, key := range keys {
			if name := strings.TrimSuffix(strings.TrimPrefix(key, before), "}"); !strings.ContainsAny(name, "{}") {
				found[name] = true
			}
		}
		return len(found) < 100, nil
	})
	return slices.Sorted(maps.Keys(found)), err
}
