package house_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The workflow runs each part of .ci/run that has a budget, but for the compiling that others' time is not to have.
func TestTheWorkflowRunsEveryPartOfCI(t *testing.T) {
	t.Parallel()
	budgets, err := os.ReadFile(filepath.Join(root, ".ci", "budgets"))
	require.NoError(t, err)
	workflow, err := os.ReadFile(filepath.Join(root, ".github", "workflows", "ci.yml"))
	require.NoError(t, err)
	runs := map[string]bool{}
	for line := range strings.Lines(string(workflow)) {
		if _, parts, ok := strings.Cut(strings.TrimRight(line, "}\n"), "parts: "); ok {
			for part := range strings.FieldsSeq(parts) {
				runs[part] = true
			}
		}
	}
	for line := range strings.Lines(string(budgets)) {
		if f := strings.Fields(line); f[0] != "#" {
			require.True(t, runs[f[1]] || strings.HasPrefix(f[1], "compile"), f[1])
			delete(runs, f[1])
		}
	}
	require.Empty(t, runs, "parts that .ci/run does not have")
}
