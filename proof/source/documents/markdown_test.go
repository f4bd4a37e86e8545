package documents_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	fenceLine = regexp.MustCompile("^(```|~~~)[a-z]*$")
	ruleLine  = regexp.MustCompile(`^\|[\s:|-]+$`)
	headLine  = regexp.MustCompile(`^(#+) +(.*)$`)
	itemLine  = regexp.MustCompile(`^([-*]|1\.) `) // another number does not begin a list under text
	escaped   = regexp.MustCompile(`\\.`)
)

// cells returns how many cells GitHub shows in a row of a table. A bar in code divides cells unless it is escaped.
func cells(row string) int {
	return strings.Count(strings.Trim(escaped.ReplaceAllString(strings.TrimSpace(row), ""), "|"), "|") + 1
}

// damage returns what a renderer shows differently from what the author of a page meant, a line for each place.
func damage(page string) (found []string) {
	report := func(line int, format string, args ...any) {
		found = append(found, fmt.Sprintf("line %d: %s", line+1, fmt.Sprintf(format, args...)))
	}
	lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
	at := func(i int) string {
		if i < 0 || i >= len(lines) {
			return ""
		}
		return strings.TrimSpace(lines[i])
	}
	codeFrom, heading, columns := -1, 0, 0 // the open block's line, the level of a heading without text yet, the table
	listed := false                        // the lines belong to a list, until a paragraph begins
	for i := range lines {
		line := at(i)
		if strings.Contains(line, "```") || strings.HasPrefix(line, "~~~") {
			if !fenceLine.MatchString(line) || codeFrom >= 0 && len(line) > 3 {
				report(i, "text on the line of a fence")
			}
			heading = 0
			if codeFrom < 0 {
				codeFrom = i
			} else {
				codeFrom = -1
			}
			continue
		}
		if codeFrom >= 0 {
			continue
		}
		if m := headLine.FindStringSubmatch(line); m != nil {
			if heading > 0 && (len(m[1]) <= heading || heading == 1) {
				report(i, "no text under the heading before %q", m[2])
			}
			heading = len(m[1])
		} else if line != "" {
			heading = 0
		}
		inList := listed
		if itemLine.MatchString(lines[i]) {
			listed = true
		} else if line != "" && !strings.HasPrefix(lines[i], " ") && at(i-1) == "" {
			listed = false
		}
		row, rowAbove := strings.HasPrefix(line, "|"), strings.HasPrefix(at(i-1), "|")
		switch {
		case row && !rowAbove:
			columns = cells(line)
			if !ruleLine.MatchString(at(i + 1)) {
				report(i, "a table without a heading")
			}
			if above := at(i - 1); above != "" && !strings.HasPrefix(above, "<!--") {
				report(i, "a table right under text")
			}
		case row && cells(line) != columns:
			report(i, "%d cells in a table of %d columns", cells(line), columns)
		case itemLine.MatchString(lines[i]) && at(i-1) != "" && !inList:
			report(i, "a list right under text, which the site shows as text")
		case line == "" && at(i-1) == "" && i > 0:
			report(i, "two empty lines")
		}
	}
	if codeFrom >= 0 {
		report(codeFrom, "a code block that does not end")
	}
	if heading > 0 {
		report(len(lines)-1, "no text under the last heading")
	}
	return found
}

func TestPages_Markdown_IsNotDamaged(t *testing.T) {
	for _, file := range documents(t) {
		assert.Empty(t, damage(read(t, file)), file)
		assert.NotContains(t, read(t, file), "\n>>>>>>> ", file+" has the mark of a merge")
	}
}

func TestDamage_PlantedPage_IsFound(t *testing.T) {
	const table = "| a | b |\n|---|---|\n| 1 | 2 |\n"
	for name, c := range map[string]struct {
		page string
		want string // the beginning of the only report; none if empty
	}{
		"Sound":                 {"# T\n\nText.\n\n## H\n\n### I\n\n" + table + "\n```go\n# x\n\n\n| y\n```\n", ""},
		"EscapedBar":            {"# T\n\n| a | b |\n|---|---|\n| `x\\|y` | 2 |\n", ""},
		"TableCutInTwo":         {"# T\n\n" + table + "\n| 3 | 4 |\n", "line 7: a table without a heading"},
		"TableUnderText":        {"# T\n\nText:\n" + table, "line 4: a table right under text"},
		"RowTooLong":            {"# T\n\n" + table + "| `x|y` | 4 |\n", "line 6: 3 cells in a table of 2 columns"},
		"FenceWithText":         {"# T\n\n``` go run . ```\n\nText\n```\n", "line 3: text on the line of a fence"},
		"TextBehindFence":       {"# T\n\n```\ngo run .\n``` and so on\n", "line 5: text on the line of a fence"},
		"FenceOpen":             {"# T\n\n```\ngo run .\n", "line 3: a code block that does not end"},
		"HeadingEmpty":          {"# T\n\nText.\n\n## H\n\n## I\n\nText.\n", `line 7: no text under the heading before "I"`},
		"HeadingEmptyAtTheEnd":  {"# T\n\nText.\n\n## H\n", "line 5: no text under the last heading"},
		"TitleWithoutText":      {"# T\n\n## H\n\nText.\n", `line 3: no text under the heading before "H"`},
		"ListUnderText":         {"# T\n\nText:\n- item\n", "line 4: a list right under text"},
		"ListWithLongItems":     {"# T\n\nText:\n\n- item\n  goes on\n- item\n\n  more\n- item\n", ""},
		"ParagraphGone":         {"# T\n\nText.\n\n\n- item\n", "line 5: two empty lines"},
		"HeadingOnlyCodeFollow": {"# T\n\n```\ngo run .\n```\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := damage(c.page)
			if c.want == "" {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Contains(t, found[0], c.want)
		})
	}
}
