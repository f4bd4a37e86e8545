package api_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A user searches for the text of a log line on the page, and sets alerts on the texts that the page names. A text with
// words that vary has an ellipsis for each on the page, and is put together in the source.
func TestLogLines_TextsOfPageAndSource_AreTheSame(t *testing.T) {
	document, err := os.ReadFile(root + "/docs/observability.md")
	require.NoError(t, err)
	_, lines, ok := strings.Cut(string(document), "\n## Log lines\n")
	require.True(t, ok)
	page := strings.ReplaceAll(lines, `\|`, "|")
	joined := regexp.MustCompile(`" \+\s*"`)
	var source strings.Builder
	for _, s := range library(t) {
		if !strings.HasPrefix(s.dir(), "internal/redistest") {
			source.WriteString(joined.ReplaceAllString(s.text, ""))
		}
	}
	logged := regexp.MustCompile(`"redlatch: (\w[^"%…]+)`).FindAllStringSubmatch(source.String(), -1)
	require.Greater(t, len(logged), 15)
	for _, m := range logged {
		require.Contains(t, page, "`"+m[1], "the source logs a line that the page does not name")
	}
	row := regexp.MustCompile("(?m)^\\| (?:Debug|Info|Warn|Error) \\| `(.+?)` \\| .*? ?\\| \\S.* \\|$")
	rows := row.FindAllStringSubmatch(page, -1)
	require.Len(t, rows, strings.Count(page, "\n|")-2, "a row has another form")
	for _, row := range rows {
		for part := range strings.SplitSeq(row[1], "…") {
			require.True(t, strings.Contains(source.String(), strings.TrimSpace(part)), "the source does not log: %s", row[1])
		}
	}
}
