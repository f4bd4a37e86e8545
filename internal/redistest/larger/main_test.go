package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/reach"
	"github.com/stretchr/testify/require"
)

const root = "../../.."

func TestATestIsLargerHoweverItAsks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(`package x

import "example/redistest"

var many = redistest.Sized(1, 2, 3)

type shop struct{}

func (shop) open() int { return helper() }
func helper() int { if redistest.Long() { return 1 }; return 0 }
func Skip(t *testing.T) { redistest.SkipShort(t) }

func TestItself(t *testing.T)    { _ = redistest.Sized(1, 2, 3) }
func TestByAHelper(t *testing.T) { t.Run("x", func(t *testing.T) { helper() }) }
func TestByAMethod(t *testing.T) { shop{}.open() }
func TestByAVariable(t *testing.T) { for range many {} }
func TestByTheKit(t *testing.T)  { rig.StallsLess(t, nil, nil) }
func TestNot(t *testing.T)       { Skip(t); redistest.Start(t) }
func BenchmarkNot(b *testing.B)  { helper() }
`), 0o600))
	asked, err := switches(root)
	require.NoError(t, err)
	p, err := reach.Read(dir, "_test.go")
	require.NoError(t, err)
	var found []string
	for name := range p.Users(asked) {
		if strings.HasPrefix(name, "Test") {
			found = append(found, name)
		}
	}
	require.ElementsMatch(t, []string{"TestItself", "TestByAHelper", "TestByAMethod", "TestByAVariable", "TestByTheKit"},
		found)
}

// What asks is used by a test that is found, as far as anything in its package uses it; and nothing asks in a way that
// is not seen. Modules of their own are left out: CI runs their tests once, as they are.
func TestNoTestThatIsLargerInFullIsMissed(t *testing.T) {
	redistest.SkipShort(t)
	asked, err := switches(root)
	require.NoError(t, err)
	tests, err := ofModule(root)
	require.NoError(t, err)
	runs := regexp.MustCompile(`^(Test|Benchmark|Example|Fuzz)`)
	asks := regexp.MustCompile(`redistest\.(Long|Sized)\b`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			if !strings.HasSuffix(path, ".go") || strings.Contains(path, "internal/redistest/") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, i := range file.Imports {
				if strings.HasSuffix(i.Path.Value, `/internal/redistest"`) {
					require.Nil(t, i.Name, "%s imports %s by another name", path, i.Path.Value)
				}
			}
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NotContains(t, string(text), `"REDLATCH_LONG"`, path)
			if asks.Match(text) {
				require.True(t, strings.HasSuffix(path, "_test.go"), "%s asks for tests, which is not seen", path)
				require.NotEmpty(t, tests[filepath.Dir(path)], path)
			}
			return nil
		}
		if _, none := os.Stat(filepath.Join(path, "go.mod")); path != root && none == nil {
			return filepath.SkipDir
		}
		p, err := reach.Read(path, "_test.go")
		if err != nil {
			return err
		}
		for name, d := range p {
			for used := range d.Uses {
				if !asked[used] || runs.MatchString(name) {
					continue
				}
				by := false
				for user := range p.Users(map[string]bool{name: true}) {
					by = by || runs.MatchString(user)
				}
				require.True(t, by, "%s in %s asks, and no test is seen to use it", name, path)
			}
		}
		return nil
	}))
}

// Nothing that is promised is shown in full only.
func TestWhatRunsInFullOnlyIsShownInLittle(t *testing.T) {
	redistest.SkipShort(t)
	call := regexp.MustCompile(`redistest\.InFull\(t, "(\w+)"\)`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || strings.Contains(path, "internal/redistest") {
			return err
		}
		p, err := reach.Read(path, "_test.go")
		require.NoError(t, err)
		full := p.Users(map[string]bool{"redistest.InFull": true})
		files, err := filepath.Glob(filepath.Join(path, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			calls := call.FindAllSubmatch(text, -1)
			require.Len(t, calls, strings.Count(string(text), "redistest.InFull"), "%s: a literal names a test of the package",
				file)
			for _, m := range calls {
				shown := string(m[1])
				require.True(t, p[shown] != nil && p[shown].Func && !full[shown],
					"%s: %s, which is to show it in little, is not a test that runs by default", file, shown)
			}
		}
		return nil
	}))
}

func TestEveryLargerTestHasItsDay(t *testing.T) {
	redistest.SkipShort(t)
	tests, err := ofModule(root)
	require.NoError(t, err)
	total := 0
	for _, list := range tests {
		total += len(list)
	}
	whole, everywhere := share(tests, 1, 4)
	require.Len(t, everywhere, len(tests))
	seen := map[string]bool{}
	for day := range 8 {
		names, packages := share(tests, 8, 20_000+day)
		require.InDelta(t, total/8, len(names), 2)
		for _, name := range names {
			seen[name] = true
		}
		for _, dir := range packages {
			require.True(t, slices.ContainsFunc(tests[strings.TrimPrefix(dir, "./")], func(name string) bool {
				return slices.Contains(names, name)
			}), dir)
		}
	}
	require.Len(t, seen, len(whole))
}

// Those are a part of their own.
func TestHistoriesThatAreLargerAreInThePackagesOfTheirOwnSection(t *testing.T) {
	redistest.SkipShort(t)
	ci, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	require.NoError(t, err)
	require.Contains(t, string(ci), `-run "$larger" -skip Histor $packages`)
	m := regexp.MustCompile(`-run Histor (.*)`).FindStringSubmatch(string(ci))
	require.Len(t, m, 2)
	var own []string
	for dir := range strings.FieldsSeq(m[1]) {
		own = append(own, filepath.Join(root, dir))
	}
	tests, err := ofModule(root)
	require.NoError(t, err)
	require.NotEmpty(t, tests)
	for dir, names := range tests {
		for _, name := range names {
			if strings.Contains(name, "Histor") {
				require.Contains(t, own, dir, name)
			}
		}
	}
}
