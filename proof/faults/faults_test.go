package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fault whose text is gone plants nothing. A change of that text changes the fault, too.
func TestPlanted_EveryFault_AppliesAndItsTestsExist(t *testing.T) {
	faults, err := read("planted")
	require.NoError(t, err)
	require.Greater(t, len(faults), 400)
	names, packages := map[string]bool{}, map[string]map[string]string{}
	for _, f := range faults {
		_, _, err := f.plant("../..")
		if err != nil {
			t.Error(err)
			continue
		}
		require.False(t, names[f.name], "two faults are called %q", f.name)
		names[f.name] = true
		require.NotEmpty(t, f.breaks, f.name)
		require.NotEmpty(t, f.tests, f.name)
		if packages[f.pkg] == nil {
			packages[f.pkg] = bodies(t, f.pkg)
		}
		inFull := 0
		for _, test := range f.tests {
			test, of, _ := strings.Cut(test, "/")
			require.True(t, of == "" || len(f.tests) == 1, "%q: a case stands alone", f.name)
			body, is := packages[f.pkg][test]
			require.True(t, is, "%q: %s has no %s", f.name, f.pkg, test)
			if strings.Contains(body, "redistest.InFull(") {
				inFull++
			}
		}
		require.Less(t, inFull, len(f.tests), "%s: no test that `go test ./...` runs notices it", f.name)
	}
}

// bodies are the texts of a package's tests by their names.
func bodies(t *testing.T, pkg string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
	require.NoError(t, err)
	found := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?ms)^func (Test\w+)\((.*?)^}`).FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = m[2]
		}
	}
	return found
}

// The table is fixed. A fault whose line has changed is drawn anew with its area: go -C proof run ./faults -draw AREA.
func TestRandom_EveryArea_HasFaultsThatApply(t *testing.T) {
	faults, err := read("random")
	require.NoError(t, err)
	count, names := map[string]int{}, map[string]bool{}
	for _, f := range faults {
		_, _, err := f.plant("../..")
		require.NoError(t, err)
		require.False(t, names[f.name], "two faults are called %q", f.name)
		names[f.name] = true
		count[area(f.file)]++
	}
	for _, of := range areas {
		require.Equal(t, perArea, count[of], of)
	}
}

func TestChosen_AllShards_AreAllFaults(t *testing.T) {
	all, err := chosen("planted", "", "", "1/1")
	require.NoError(t, err)
	var parts []fault
	for _, shard := range []string{"1/3", "2/3", "3/3"} {
		part, err := chosen("planted", "", "", shard)
		require.NoError(t, err)
		parts = append(parts, part...)
	}
	require.Equal(t, all, parts)
	_, err = chosen("planted", "", "", "4/3")
	require.ErrorContains(t, err, `-shard "4/3"`)
	_, err = chosen("planted", "", "nowhere", "1/1")
	require.ErrorContains(t, err, `-area "nowhere"`)
}

func TestStatements_OfLua_AreLinesThatMayFollowAnother(t *testing.T) {
	text := "-- a comment\nlocal a = {\n  b = 1,\n}\nif a.b == 1\n  and a then\n  a = 2\nelse\n  return a\nend\n"
	require.Equal(t, []int{2, 5, 7, 9}, statements(text, false))
	require.Equal(t, []int{7, 9}, statements(text, true))
}

func TestRanges_OfNumbers_AreTheSameNumbers(t *testing.T) {
	require.Equal(t, "1-3 5-5 9-10", inRanges([]int{10, 1, 2, 2, 3, 5, 9}))
	require.Equal(t, []span{{1, 3}, {5, 5}, {9, 10}}, ranges("1-3 5-5 9-10"))
	require.Empty(t, ranges(inRanges(nil)))
}
