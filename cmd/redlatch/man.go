//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const manHelp = `man writes the manual pages of redlatch and of each of its commands into a directory, which it makes:
redlatch.1, redlatch-run.1 and so on. They say what redlatch help says.`

func (t *tool) man() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "write manual pages into a directory", Long: manHelp,
		Example: "  redlatch man ~/.local/share/man/man1 && man redlatch-run",
		Args:    exactly(1, "a directory"),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return coded{exitOS, err}
			}
			visit(c.Root(), func(of *cobra.Command) {
				if err != nil || of.Hidden {
					return
				}
				of.InitDefaultHelpFlag()
				err = os.WriteFile(filepath.Join(args[0], pageName(of)+".1"), []byte(page(of)), 0o644)
			})
			if err != nil {
				return coded{exitOS, err}
			}
			return nil
		},
	}
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

var roffChars = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`)

// roff is a text in which groff sees no request of its own.
func roff(text string) string {
	lines := strings.Split(roffChars.Replace(text), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// page is the manual page of a command. Long texts are paragraphs; what is indented in them keeps its lines, and what
// is all capitals is a heading.
func page(c *cobra.Command) string {
	var b strings.Builder
	head := func(name string) { fmt.Fprintf(&b, ".SH %s\n", name) }
	asIs := func(text string) { fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(text)) }
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s\" \"redlatch\"\n", strings.ToUpper(roff(pageName(c))), roff(version()))
	head("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(pageName(c)), roff(c.Short))
	if c.Runnable() {
		head("SYNOPSIS")
		fmt.Fprintf(&b, ".B %s\n", roff(c.UseLine()))
	}
	if c.Long != "" {
		head("DESCRIPTION")
		for _, part := range strings.Split(c.Long, "\n\n") {
			title, rest, _ := strings.Cut(part, "\n")
			switch {
			case title == strings.ToUpper(title) && !strings.HasPrefix(title, " "):
				head(roff(title))
				asIs(rest)
			case strings.Contains(part, "\n  ") || strings.HasPrefix(part, "  "):
				b.WriteString(".PP\n")
				asIs(part)
			default:
				fmt.Fprintf(&b, ".PP\n%s\n", roff(part))
			}
		}
	}
	flags(&b, "OPTIONS", c.NonInheritedFlags())
	if c.HasParent() {
		flags(&b, "OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	}
	if c.Example != "" {
		head("EXAMPLES")
		asIs(c.Example)
	}
	var also []string
	if c.HasParent() {
		also = append(also, fmt.Sprintf(".BR %s (1)", roff(pageName(c.Parent()))))
	}
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			also = append(also, fmt.Sprintf(".BR %s (1)", roff(pageName(sub))))
		}
	}
	if len(also) > 0 {
		head(`SEE ALSO`)
		b.WriteString(strings.Join(also, ",\n") + "\n")
	}
	return b.String()
}

func flags(b *strings.Builder, title string, of *pflag.FlagSet) {
	if !of.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	of.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, says := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
		}
		switch f.DefValue {
		case "", "0", "0s", "false", "[]":
		case defaultLabel():
			says += " (default host:pid)"
		default:
			says += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "\n%s\n", roff(says))
	})
}
