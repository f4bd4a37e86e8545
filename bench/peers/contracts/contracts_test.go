package contracts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m, nil) }

func TestSuites_OnAdapters_PassExceptWhereTheDesignDiffers(t *testing.T) {
	redistest.NeedServer(t)
	redistest.SkipShort(t)
	for i := range suites {
		t.Run(suites[i].name, func(t *testing.T) {
			t.Parallel()
			suites[i].run(t)
		})
	}
}

func TestAdapt_TestsLeftOut_CutsOutNothingElse(t *testing.T) {
	s := &suite{imports: map[string]string{"a/b": "x/y"}, text: map[string]string{"here": "ADDR"},
		left: []left{{[]string{"gone"}, ""}}}
	out, err := s.adapt([]byte("package p\n\nimport (\n\t\"a/b\"\n\t\"c/d\"\n\tv \"e/v9\"\n)\n\n// stays\nfunc f() { "+
		"b.G(\"here\"); v.H() }\n\nfunc gone() { d.I() }\n\nfunc BenchmarkJ() { d.K() }\n"), "1:2")
	require.NoError(t, err)
	require.Equal(t, "package p\n\nimport (\n\tb \"x/y\"\n\t\n\tv \"e/v9\"\n)\n\n// stays\nfunc f() { b.G(\"1:2\"); "+
		"v.H() }\n\n\n\n\n", string(out))
}

func TestJudge_ListedTestThatPasses_IsAnError(t *testing.T) {
	s := &suite{differ: []differ{{"TestA", "no", ""}}}
	for _, c := range []struct {
		test string
		ok   bool
		says string // of the suite's test
		want string
	}{
		{"TestA", true, "", "TestA is to differ, and passes"}, {"TestA", false, "something else", "fails"},
		{"TestA", false, "oh no", ""}, {"TestB", true, "", ""}, {"TestC", false, "oh no", "TestC fails"},
	} {
		err := s.judge(c.test, func(string) (bool, string) { return c.ok, c.says }, t.Logf)
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}
