package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A mutant whose text has gone plants nothing. Whoever changes that text changes the mutant, too.
func TestEveryMutantStillAppliesAndItsTestsAreThere(t *testing.T) {
	names, full := map[string]bool{}, map[string]map[string]bool{}
	for _, m := range mutants() {
		text, err := m.plant("../../..")
		if err != nil {
			t.Error(err)
			continue
		}
		require.NotEmpty(t, text)
		require.False(t, names[m.name], "two mutants are called %q", m.name)
		names[m.name] = true
		require.NotEmpty(t, m.breaks, m.name)
		require.NotEmpty(t, m.tests, m.name)
		if full[m.pkg] == nil {
			full[m.pkg], err = inFull("../../..", m.pkg)
			require.NoError(t, err)
		}
		require.False(t, m.inFull(full[m.pkg]), "%s: no test that go test ./... runs notices it", m.name)
		declared := testsOf(t, m.pkg)
		for _, test := range strings.Fields(m.tests) {
			require.True(t, declared[test], "%q: %s has no %s", m.name, m.pkg, test)
		}
	}
	require.Greater(t, len(names), 60)
}

var known = map[string]map[string]bool{}

func testsOf(t *testing.T, pkg string) map[string]bool {
	if known[pkg] == nil {
		known[pkg] = map[string]bool{}
		files, err := filepath.Glob(filepath.Join("../../..", pkg, "*_test.go"))
		require.NoError(t, err)
		for _, f := range files {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			for _, d := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
				known[pkg][d[1]] = true
			}
		}
	}
	return known[pkg]
}

func TestASampleIsAnotherOneEveryDayUntilAllWereThere(t *testing.T) {
	all := mutants()
	seen := map[string]bool{}
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range len(all) {
		sample := choose(all, "", 3, day)
		require.Len(t, sample, 3)
		for _, m := range sample {
			seen[m.name] = true
		}
		day = day.AddDate(0, 0, 1)
	}
	require.Len(t, seen, len(all))
	require.Len(t, choose(all, "", 0, day), len(all))
}
