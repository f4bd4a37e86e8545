package house_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each part of .ci/run has a budget and a job of the workflow, but for the compiling that others' time is not to have.
func TestTheWorkflowRunsEveryPartOfCI(t *testing.T) {
	t.Parallel()
	read := func(name ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root}, name...)...))
		require.NoError(t, err)
		return string(text)
	}
	parts := map[string]bool{}
	for line := range strings.Lines(read(".ci", "run")) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "beside" { // LANE PART...
			for _, part := range f[2:] {
				parts[part] = true
			}
		}
	}
	delete(parts, "$last")
	require.Greater(t, len(parts), 20)
	budgets, runs := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(read(".ci", "budgets")) {
		if f := strings.Fields(line); f[0] != "#" {
			budgets[f[1]] = true
		}
	}
	require.Equal(t, parts, budgets)
	for line := range strings.Lines(read(".github", "workflows", "ci.yml")) {
		if _, list, ok := strings.Cut(strings.TrimRight(line, "}\n"), "parts: "); ok {
			for part := range strings.FieldsSeq(list) {
				runs[part] = true
			}
		}
	}
	for part := range parts {
		if strings.HasPrefix(part, "compile") {
			runs[part] = true
		}
	}
	require.Equal(t, parts, runs)
	require.Contains(t, read(".github", "workflows", "nightly.yml"), " .ci/run all\n")
}
