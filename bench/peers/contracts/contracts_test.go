package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestPeersTestsPassOnAdaptersExceptWhereTheDesignDiffers(t *testing.T) {
	redistest.NeedServer(t)
	redistest.SkipShort(t)
	var log strings.Builder
	all, err := runAll(t.Context(), "", false, writer(func(p []byte) { log.Write(p) }))
	t.Log(log.String())
	require.NoError(t, err)
	if len(all) < len(suites) {
		t.Skip("a module cannot be downloaded: see the log")
	}
	for _, o := range all {
		require.NotEmpty(t, o.passed, o.suite.name)
	}
	if dir := os.Getenv("REDLATCH_ARTEFACTS"); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "contracts.md"), []byte(table(all)), 0o666))
	}
}

func TestWhatASuiteLeavesIsCutOutAndNothingElse(t *testing.T) {
	s := &suite{imports: map[string]string{"a/b": "x/y"}, text: map[string]string{"here": "ADDR"},
		left: []left{{[]string{"gone"}, ""}}}
	out, err := s.adapt([]byte("package p\n\nimport (\n\t\"a/b\"\n\t\"c/d\"\n\tv \"e/v9\"\n)\n\n// stays\nfunc f() { "+
		"b.G(\"here\"); v.H() }\n\nfunc gone() { d.I() }\n\nfunc BenchmarkJ() { d.K() }\n"), "1:2")
	require.NoError(t, err)
	require.Equal(t, "package p\n\nimport (\n\tb \"x/y\"\n\t\n\tv \"e/v9\"\n)\n\n// stays\nfunc f() { b.G(\"1:2\"); "+
		"v.H() }\n\n\n\n\n", string(out))
}

func TestATestThatIsListedAsDifferentAndPassesIsAnError(t *testing.T) {
	o := &outcome{suite: &suite{name: "s", differ: []differ{{"TestA", "no", ""}}}}
	pass := func(string) (bool, string) { return true, "" }
	require.ErrorContains(t, o.judge("TestA", pass, &strings.Builder{}), "TestA is to differ, and passes")
	fail := func(says string) func(string) (bool, string) {
		return func(string) (bool, string) { return false, says }
	}
	require.ErrorContains(t, o.judge("TestA", fail("something else"), &strings.Builder{}), "fails")
	require.NoError(t, o.judge("TestA", fail("oh no"), &strings.Builder{}))
	require.NoError(t, o.judge("TestB", pass, &strings.Builder{}))
	require.ErrorContains(t, o.judge("TestC", fail("oh no"), &strings.Builder{}), "TestC fails")
	require.Equal(t, []string{"TestA"}, o.differ)
	require.Equal(t, []string{"TestB"}, o.passed)
}
