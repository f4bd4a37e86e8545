//go:build unix

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/keyname"
)

func (t *tool) acl() *cobra.Command {
	var only []string
	var user, server string
	c := &cobra.Command{
		Use: "acl", Short: "print the ACL line of a user",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, f := range only {
				if !slices.Contains(acl.Features(), f) {
					return usage("--only %q: must be some of %s", f, strings.Join(acl.Features(), ","))
				}
			}
			if c.Flags().Changed("only") && len(only) == 0 {
				return usage(`--only "": must be some of %s`, strings.Join(acl.Features(), ","))
			}
			if err := inLine(user, t.server.prefix); err != nil {
				return err
			}
			fmt.Fprintln(t.out, acl.LineOn(server, user, t.server.prefix, only...))
			return nil
		},
	}
	c.Flags().StringSliceVar(&only, "only", nil, "`packages` that the user needs, separated by commas; see above")
	_ = c.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(acl.Features(), noFiles))
	c.Flags().Var(choice[string]{&server, acl.Servers}, "server",
		"`kind` of server: "+strings.Join(acl.Servers, ", ")+" (default: single and cluster)")
	c.Flags().StringVar(&user, "user", "redlatch", "`name` of the user")
	return c
}

// notInLine are spaces, control characters and quotes.
var notInLine = regexp.MustCompile(`[\pZ\pC"']`)

// inLine refuses a name and a prefix that such a line cannot have.
func inLine(user, prefix string) error {
	for flag, text := range map[string]string{"--user": user, "--prefix": prefix} {
		if notInLine.MatchString(text) {
			return usage("%s %q: has a space, a quote or a control character, which such a line cannot have", flag, text)
		}
	}
	if user == "" {
		return usage(`--user "": must be a name`)
	}
	if err := keyname.Check(prefix + "x"); err != nil {
		return usage("--prefix %q: %w", prefix, err)
	}
	return nil
}
