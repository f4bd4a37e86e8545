package docs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tables are those of a document by the first cell of their header, or by the last line before them if that cell is empty. A
// table is its rows by their first cell, and a row its cells by their column.
func tables(text string) map[string]map[string]map[string]string {
	all := map[string]map[string]map[string]string{}
	var caption, line string
	var header []string
	for next := range strings.Lines(text + "\n") {
		next = strings.TrimSpace(next)
		if !strings.HasPrefix(next, "|") {
			header = nil
			if next != "" {
				line = next
			}
			continue
		}
		cells := strings.Split(strings.Trim(next, "|"), "|")
		for i, c := range cells {
			cells[i] = strings.Trim(c, " *")
		}
		if header == nil {
			if header, caption = cells, cells[0]; caption == "" {
				caption = line
			}
			if all[caption] == nil {
				all[caption] = map[string]map[string]string{}
			}
			continue
		}
		row := map[string]string{}
		for i := 0; i < len(cells) && i < len(header); i++ {
			if _, there := row[header[i]]; !there { // "over the floor" is there twice
				row[header[i]], _, _ = strings.Cut(cells[i], " [")
			}
		}
		all[caption][cells[0]] = row
	}
	return all
}

func TestTheFiguresOfTheComparisonAreThoseOfTheBenchmarks(t *testing.T) {
	measured := tables(read(t, "benchmarks.md"))
	_, table, ok := strings.Cut(read(t, "comparison.md"), "\n| table of benchmarks.md ")
	require.True(t, ok)
	table, _, _ = strings.Cut("| table of benchmarks.md "+table, "\n\n")
	lines := strings.Split(table, "\n")
	peers := strings.Split(strings.Trim(lines[0], "|"), "|")[2:]
	var want []string
	for _, l := range lines[2:] {
		cells := strings.Split(strings.Trim(l, "|"), "|")
		caption, column := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1])
		row := []string{"", caption, column}
		for _, peer := range peers {
			value := measured[caption][strings.TrimSpace(peer)][column]
			require.NotEmpty(t, value, "benchmarks.md has no %s of %s in %q", column, peer, caption)
			row = append(row, value)
		}
		want = append(want, strings.TrimSpace(strings.Join(row, " | "))+" |")
	}
	require.Equal(t, strings.Join(want, "\n"), strings.Join(lines[2:], "\n"), "after a new run: the rows are the expected ones above")
}
