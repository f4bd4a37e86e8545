//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/keyname"
)

const aclHelp = `acl writes the ACL SETUSER command that gives a user of the server the rights that programs need, and
no others: for everything, or for the packages that --only names, and for all keys, or for those of --prefix. It asks
no server. Put a password of your own in place of the word secret.

  locks       rlock, and redlatch run --lock and unlock
  elections   rlock/election, and redlatch elect
  semaphores  rsemaphore, and redlatch run --semaphore
  counters    rcounter
  limits      rcounter/ratelimit, and redlatch limit
  stocks      rcounter/stock, and redlatch stock
  packets     rcounter/redpacket
  inspect     redlatch inspect and top, also without names; everything does not have it, because it may read the names of all keys

With --server it leaves out what that kind of server is never sent, and adds +role for Sentinel. Programs with MinReplicas need +wait, too.`

func (t *tool) acl() *cobra.Command {
	var only []string
	var user, server string
	c := &cobra.Command{
		Use: "acl", Short: "write the ACL line of a user's rights", Long: aclHelp,
		Example: "  redlatch acl --only locks --prefix shop:\n  redlatch acl --user batch --only locks,semaphores | redis-cli",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, f := range only {
				if !slices.Contains(acl.Features(), f) {
					return usage("--only %q: must be some of %s", f, strings.Join(acl.Features(), ","))
				}
			}
			if c.Flags().Changed("only") && len(only) == 0 {
				return usage(`--only "": must be some of %s`, strings.Join(acl.Features(), ","))
			}
			if server != "" && !slices.Contains(acl.Servers, server) {
				return usage("--server %q: must be one of %s", server, strings.Join(acl.Servers, ","))
			}
			if err := inLine(user, t.server.prefix); err != nil {
				return err
			}
			fmt.Fprintln(t.out, acl.LineOn(server, user, t.server.prefix, only...))
			return nil
		},
	}
	c.Flags().StringSliceVar(&only, "only", nil, "the rights for these `packages`, with commas between them; see above")
	c.Flags().StringVar(&server, "server", "",
		"what the line is for: a `kind` of "+strings.Join(acl.Servers, ", ")+" (default: single and cluster)")
	c.Flags().StringVar(&user, "user", "redlatch", "the `name` of the user")
	return c
}

// inLine refuses a name and a prefix that such a line cannot have.
func inLine(user, prefix string) error {
	for flag, text := range map[string]string{"--user": user, "--prefix": prefix} {
		if strings.ContainsFunc(text, func(r rune) bool {
			return unicode.IsSpace(r) || unicode.IsControl(r) || r == '"' || r == '\''
		}) {
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

// features completes --only, of which the last of several is typed.
func features(_ *cobra.Command, _ []string, typed string) (found []string, _ cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	for _, f := range acl.Features() {
		if !slices.Contains(strings.Split(before, ","), f) {
			found = append(found, before+f)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
