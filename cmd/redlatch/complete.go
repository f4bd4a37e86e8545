//go:build unix

package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
)

// completionTime is how long a shell waits for names. What was found by then is offered.
var completionTime = time.Second // tests have more

// noFiles is for all arguments and flags but those that are files.
const noFiles = cobra.ShellCompDirectiveNoFileComp

// offer is a completion of so many arguments by names of what is held on the server, with what after says for later
// ones. An error offers nothing: a shell has no place for its text.
func (t *tool) offer(most int, after cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, after
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTime)
		defer cancel()
		err := t.server.with(ctx, nil, func(red *redlatch.Client) (err error) {
			quiet := &tool{streams: streams{err: io.Discard}, server: t.server}
			s := search{tool: quiet, match: globChars.Replace(typed) + "*", rate: 1_000_000, max: 100}
			found, err = s.names(ctx, red.Hub().Client())
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
