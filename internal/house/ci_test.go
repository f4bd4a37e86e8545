package house_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
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
		if f := strings.Fields(line); len(f) > 2 && f[0] == "in_lane" { // LANE PART...
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

// Each module but the library's is compiled ahead, and a part looks at it and runs its tests.
func TestCIRunsTheTestsOfEveryModule(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	require.NoError(t, err)
	words := strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" ;()'\n", r) })
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(path) != "go.mod" {
			return err
		}
		module, err := filepath.Rel(root, filepath.Dir(path))
		require.NoError(t, err)
		in := 0
		for _, word := range words {
			if strings.TrimPrefix(word, "modules=") == filepath.ToSlash(module) {
				in++
			}
		}
		require.True(t, module == "." || in >= 2, "%s is in .ci/run %d times", module, in)
		return nil
	}))
}

// A test that asks twice to run beside others panics. Of a test that runs in full only, nobody sees it for days.
func TestATestAsksOnceToRunBesideOthers(t *testing.T) {
	set, all := house(t)
	type function struct {
		of   string // its *testing.T
		body *ast.BlockStmt
	}
	byPackage := map[string]map[string]function{}
	for _, s := range all {
		if s.file == nil {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Body == nil {
				continue
			}
			for _, p := range f.Type.Params.List {
				if x, ok := p.Type.(*ast.StarExpr); ok && len(p.Names) == 1 && fmt.Sprint(x.X) == "&{testing T}" {
					at := s.dir() + " " + s.file.Name.Name
					if byPackage[at] == nil {
						byPackage[at] = map[string]function{}
					}
					byPackage[at][f.Name.Name] = function{p.Names[0].Name, f.Body}
				}
			}
		}
	}
	for _, functions := range byPackage {
		asking := map[string]bool{}
		asks := func(f function) (at []token.Pos) {
			ast.Inspect(f.body, func(n ast.Node) bool {
				if _, inner := n.(*ast.FuncLit); inner {
					return false
				}
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch to := call.Fun.(type) {
				case *ast.SelectorExpr:
					if to.Sel.Name == "Parallel" && fmt.Sprint(to.X) == f.of {
						at = append(at, call.Pos())
					}
				case *ast.Ident:
					for _, arg := range call.Args {
						if asking[to.Name] && fmt.Sprint(arg) == f.of {
							at = append(at, call.Pos())
						}
					}
				}
				return true
			})
			return at
		}
		for grown := true; grown; {
			grown = false
			for name, f := range functions {
				if !asking[name] && len(asks(f)) > 0 {
					asking[name], grown = true, true
				}
			}
		}
		for name, f := range functions {
			if at := asks(f); len(at) > 1 {
				t.Errorf("%s asks at %v and at %v", name, set.Position(at[0]), set.Position(at[1]))
			}
		}
	}
}
