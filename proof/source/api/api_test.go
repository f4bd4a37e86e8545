// Package api_test compares the exported API with its golden listing, and holds it to rules that no linter knows: the
// tests of redlatchtest provoke every error, every log line is documented, and packages link what a user expects.
package api_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/redlatch/redlatch"
	root   = "../../.."
)

// source is a file of the tree, parsed if it is Go.
type source struct {
	path string // from the root, with slashes
	text []byte
	file *ast.File
}

func (s source) dir() string {
	if d := path.Dir(s.path); d != "." {
		return d
	}
	return ""
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// tree is all Go and Lua of the tree, its other modules included.
func tree(t *testing.T) (set *token.FileSet, all []source) {
	t.Helper()
	read, err := files()
	require.NoError(t, err)
	require.Greater(t, len(read.all), 100, "the tree was not found")
	return read.set, read.all
}

type sources struct {
	set *token.FileSet
	all []source
}

// files reads the tree once for all tests.
var files = sync.OnceValues(func() (sources, error) {
	set := token.NewFileSet()
	var all []source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != root {
			return fs.SkipDir
		}
		if ext := filepath.Ext(name); d.IsDir() || ext != ".go" && ext != ".lua" {
			return nil
		}
		s := source{path: strings.TrimPrefix(filepath.ToSlash(name), root+"/")}
		if s.text, err = os.ReadFile(name); err != nil {
			return err
		}
		if strings.HasSuffix(name, ".go") {
			if s.file, err = parser.ParseFile(set, s.path, s.text,
				parser.ParseComments|parser.SkipObjectResolution); err != nil {
				return err
			}
		}
		all = append(all, s)
		return nil
	})
	return sources{set, all}, err
})

// library are the files of the module that users import, without tests and without modules of their own.
func library(all []source) (files []source) {
	for _, s := range all {
		if !s.test() && !elsewhere(s.dir()) {
			files = append(files, s)
		}
	}
	return files
}

// elsewhere reports whether a folder is of another module, or has documents.
func elsewhere(dir string) bool {
	for ; dir != "" && dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil || dir == "docs" || dir == "bench" {
			return true
		}
	}
	return false
}

func public(dir string) bool { return !strings.HasPrefix(dir, "internal/") }

// TestEveryErrorIsProvokedWithTheTestKit goes by names: pkg.ErrX in a test of redlatchtest. An error that several
// packages share, which is one value under one name, counts once.
func TestEveryErrorIsProvokedWithTheTestKit(t *testing.T) {
	_, all := tree(t)
	provoked := map[string]bool{} // ErrX, and pkg.ErrX
	for _, s := range all {
		if s.file == nil || !s.test() || s.dir() != "redlatchtest" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(sel.Sel.Name, "Err") {
				if pkg, ok := sel.X.(*ast.Ident); ok {
					provoked[sel.Sel.Name], provoked[pkg.Name+"."+sel.Sel.Name] = true, true
				}
			}
			return true
		})
	}
	found := 0
	for _, s := range library(all) {
		if s.file == nil || !public(s.dir()) {
			continue
		}
		for _, d := range s.file.Decls {
			vars, ok := d.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			for _, spec := range vars.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if !strings.HasPrefix(name.Name, "Err") {
						continue
					}
					found++
					as := s.file.Name.Name + "." + name.Name
					if i < len(v.Values) {
						if shared, ok := v.Values[i].(*ast.SelectorExpr); ok { // errs.ErrX
							as = shared.Sel.Name
						}
					}
					if !provoked[as] {
						t.Errorf("%s: no test of redlatchtest shows how a test provokes %s", s.path, as)
					}
				}
			}
		}
	}
	require.Greater(t, found, 25, "of all packages")
}
