// Package house_test holds the tree to the rules of the house: what may import what, what is the same in all packages,
// what has a comment and an Example.
package house_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	longestFile     = 600
	longestFunction = 90
	module          = "github.com/redlatch/redlatch"
	root            = "../.."
)

// tooLong are the files and functions that are longer than the house allows. Nothing is added here.
var tooLong = []string{}

// layers are the packages of the module that a package may import, beside the standard library and other modules. A
// package that is not named is a public one.
var layers = map[string][]string{
	"internal/errs":     {},
	"internal/keyname":  {"internal/errs"},
	"internal/script":   {"internal/keyname", "internal/errs"},
	"internal/accessor": {"internal/errs"},
	"pubsub":            {"internal/script", "internal/keyname", "internal/accessor", "internal/errs"},
	"internal/wait":     {"internal/script", "internal/keyname", "internal/accessor", "internal/errs", "pubsub"},
	"internal/lease":    {"internal/script", "internal/keyname", "internal/errs"},
	"internal/batch":    {"internal/script", "internal/keyname", "internal/errs"},
	"internal/ledger":   {"internal/session", "internal/script", "internal/errs"},
	"internal/session": {"internal/lease", "internal/wait", "internal/script", "internal/keyname", "internal/accessor",
		"internal/errs", "pubsub"},

	// the command imports it
	"internal/acl": {},

	// the modules in contrib import it
	"internal/measure": {"internal/errs", "internal/session", "", "pubsub", "rlock/election", "rcounter", "rcounter/stock",
		"rcounter/redpacket",
		"rcounter/ratelimit", "rlock",
		"rsemaphore"},
	"internal/periodic": {"internal/errs", "internal/script", "rlock/election"},

	// only tests import these
	"internal/dialect": {},
	"redlatchtest": {"", "internal/errs", "internal/session", "pubsub", "rcounter/redpacket", "rlock", "rsemaphore",
		"internal/keyname"},
	"internal/redistest":             {"internal/keyname"},
	"internal/redistest/rig":         {"internal/redistest", "internal/errs", "internal/session", "pubsub"},
	"internal/profiles":              {"internal/redistest"},
	"internal/redistest/reach":       {},
	"internal/redistest/larger":      {"internal/redistest/reach"},
	"internal/redistest/mutants":     {"internal/redistest/reach"},
	"internal/redistest/servers":     {"internal/redistest", "internal/redistest/reach"},
	"internal/redistest/databases":   {"internal/redistest"},
	"internal/redistest/objectstore": {},
	"internal/simulation": {"", "pubsub", "rcounter/stock", "rcounter/ratelimit", "rlock", "rlock/election",
		"rsemaphore", "internal/redistest", "internal/errs", "internal/accessor", "internal/session"},
	"internal/redistest/stage":     {},
	"internal/simulation/simulate": {"internal/simulation"},
	"internal/model":               {},
	"internal/tenuremodel":         {"internal/model"},
	"internal/quorummodel":         {"internal/model"},
	"internal/leasemodel":          {"internal/model"},
	"internal/takeovermodel":       {"internal/model"},
	"internal/stockmodel":          {"internal/model"},
}

// below are the packages that a public package may import.
var below = []string{
	"internal/ledger", "internal/session", "internal/batch", "internal/lease", "internal/wait", "internal/script",
	"internal/keyname", "internal/accessor", "internal/errs",
	"pubsub",
}

// onTop are the public packages that are made of other public ones.
var onTop = map[string][]string{
	"": {"rlock", "rlock/election", "rsemaphore", "rcounter", "rcounter/stock", "rcounter/redpacket",
		"rcounter/ratelimit"},
	"rlock/locker":   {"rlock"},
	"rlock/election": {"rlock"},
	"redlatchdebug":  {"", "rlock", "rsemaphore", "rcounter/ratelimit"},
}

// withoutExample are the types, functions and methods that no Example of their package names yet. Nothing is added
// here.
var withoutExample = strings.Fields(`
`)

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

// house is all Go and Lua of the tree, its other modules included.
func house(t *testing.T) (set *token.FileSet, all []source) {
	t.Helper()
	read, err := tree()
	require.NoError(t, err)
	require.Greater(t, len(read.all), 100, "the tree was not found")
	return read.set, read.all
}

type sources struct {
	set *token.FileSet
	all []source
}

// tree reads all there is once for all tests.
var tree = sync.OnceValues(func() (sources, error) {
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
		if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil || dir == "docs" {
			return true
		}
	}
	return false
}

// offered are the files of the library, and of the packages in contrib, which are modules of their own.
func offered(all []source) []source {
	files := library(all)
	for _, s := range all {
		if strings.HasPrefix(s.path, "contrib/") && !s.test() && s.file != nil && s.file.Name.Name != "main" {
			files = append(files, s)
		}
	}
	return files
}

func public(dir string) bool { return !strings.HasPrefix(dir, "internal/") }

// only fails for what is found and not excepted, and for what is excepted and not found: exceptions go when they can.
func only(t *testing.T, what string, found, excepted []string) {
	t.Helper()
	for _, f := range found {
		if !slices.Contains(excepted, f) {
			t.Errorf("%s: %s", what, f)
		}
	}
	for _, e := range excepted {
		if !slices.Contains(found, e) {
			t.Errorf("%s: %s is an exception that is no longer needed: take it off the list", what, e)
		}
	}
}

func TestNoFileAndNoFunctionIsTooLong(t *testing.T) {
	set, all := house(t)
	var found []string
	for _, s := range all {
		if s.test() {
			continue
		}
		if bytes.Count(s.text, []byte("\n")) > longestFile {
			found = append(found, path.Base(s.path))
		}
		if s.file == nil {
			continue
		}
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && set.Position(fn.End()).Line-set.Position(fn.Pos()).Line+1 > longestFunction {
				found = append(found, path.Base(s.path)+": "+fn.Name.Name)
			}
		}
	}
	only(t, "too long", found, tooLong)
}

// The core is what waits and leases. A struct there has at most 15 fields and 3 flags, so that one can hold it in the
// head: what only some ways need is in a type of its own, and what excludes each other is an enum. Excepted are
// options, tables and parameters.
var wide = strings.Fields(`
	rlock/kind.go:kind
	rlock/options.go:Options
	rlock/errors.go:NotAcquiredError
	internal/wait/wait.go:Request
	internal/wait/wait.go:Answer
`)

func TestNoStructOfTheCoreIsWide(t *testing.T) {
	_, all := house(t)
	var found []string
	for _, s := range all {
		if s.test() || s.file == nil ||
			!slices.Contains([]string{"rlock", "internal/wait", "internal/session", "internal/lease"}, s.dir()) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok {
				fields, flags := 0, 0
				for _, f := range st.Fields.List {
					n := max(1, len(f.Names))
					fields += n
					if id, ok := f.Type.(*ast.Ident); ok && id.Name == "bool" {
						flags += n
					}
				}
				if fields > 15 || flags > 3 {
					found = append(found, s.path+":"+spec.Name.Name)
				}
			}
			return true
		})
	}
	only(t, "wide", found, wide)
}

func TestEveryPackageImportsOnlyWhatIsBelowIt(t *testing.T) {
	_, all := house(t)
	for _, s := range library(all) {
		if s.file == nil {
			continue
		}
		allowed, known := layers[s.dir()]
		if !known {
			if !public(s.dir()) {
				t.Errorf("%s has no place among the layers", s.dir())
				continue
			}
			allowed = append(slices.Clone(below), onTop[s.dir()]...)
		}
		for _, i := range s.file.Imports {
			imported := strings.Trim(i.Path.Value, `"`)
			if p, ours := strings.CutPrefix(imported, module); ours && !slices.Contains(allowed, strings.TrimPrefix(p, "/")) {
				t.Errorf("%s imports %s", s.path, imported)
			}
		}
	}
}

func TestEveryPublicPackageHasItsDocGo(t *testing.T) {
	_, all := house(t)
	documented := map[string]bool{}
	for _, s := range offered(all) {
		if s.file != nil && public(s.dir()) {
			documented[s.dir()] = documented[s.dir()] || path.Base(s.path) == "doc.go" && s.file.Doc != nil
		}
	}
	require.GreaterOrEqual(t, len(documented), 4)
	for dir, ok := range documented {
		require.True(t, ok, "%s has no doc.go with a package comment", dir)
	}
}

// exported calls fn for every exported type, function and method, and every exported name of a var or const.
func exported(set *token.FileSet, f *ast.File, fn func(name string, doc bool)) {
	last, documented := 0, false // where the declaration before ends
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			// functions of a line each may share the comment above them
			documented = d.Doc != nil || documented && set.Position(d.Pos()).Line == last+1
			last = set.Position(d.End()).Line
			on := ""
			if d.Recv != nil {
				if on = receiver(d.Recv.List[0].Type); !ast.IsExported(on) {
					continue
				}
				on += "."
			}
			if d.Name.IsExported() {
				fn(on+d.Name.Name, documented)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						fn(spec.Name.Name, d.Doc != nil || spec.Doc != nil)
					}
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						if n.IsExported() {
							fn("="+n.Name, d.Doc != nil || spec.Doc != nil || spec.Comment != nil)
						}
					}
				}
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	panic(fmt.Sprintf("a receiver of %T", e))
}

// standard reports whether a method is one that the standard library's interfaces ask for: its name says what it does,
// and nobody calls it.
func standard(name string) bool {
	_, method, ok := strings.Cut(name, ".")
	return ok && slices.Contains([]string{"Error", "Unwrap", "Is", "As", "String", "Len", "Less", "Swap", "Push", "Pop",
		"Describe", "Collect"}, method)
}

func TestEveryExportedNameHasADocComment(t *testing.T) {
	set, all := house(t)
	for _, s := range offered(all) {
		if s.file == nil {
			continue
		}
		exported(set, s.file, func(name string, doc bool) {
			if !doc && !standard(name) {
				t.Errorf("%s: %s has no doc comment", s.path, strings.TrimPrefix(name, "="))
			}
		})
	}
}

// TestEveryTypeAndVerbIsMetInAnExample goes by names: one that stands in the body of an Example, or in its name, is
// met.
func TestEveryTypeAndVerbIsMetInAnExample(t *testing.T) {
	set, all := house(t)
	met := map[string]map[string]bool{}
	for _, s := range all {
		if !s.test() || !public(s.dir()) {
			continue
		}
		if met[s.dir()] == nil {
			met[s.dir()] = map[string]bool{}
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Name.Name, "Example") {
				continue
			}
			for _, word := range strings.Split(strings.TrimPrefix(fn.Name.Name, "Example"), "_") {
				met[s.dir()][word] = true
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					met[s.dir()][id.Name] = true
				}
				return true
			})
		}
	}
	var unmet []string
	for _, s := range offered(all) {
		if s.file == nil || !public(s.dir()) {
			continue
		}
		exported(set, s.file, func(name string, _ bool) {
			last := name[strings.LastIndex(name, ".")+1:]
			if !strings.HasPrefix(name, "=") && !met[s.dir()][last] && !standard(name) {
				unmet = append(unmet, s.file.Name.Name+"."+name)
			}
		})
	}
	only(t, "met in no Example", unmet, withoutExample)
}

// TestOnlyTestsImportTheTestKit also holds for the programs of the examples and benchmarks: what a user copies of them
// is not a test.
func TestOnlyTestsImportTheTestKit(t *testing.T) {
	_, all := house(t)
	for _, s := range all {
		if s.file == nil || s.test() || s.dir() == "redlatchtest" {
			continue
		}
		for _, i := range s.file.Imports {
			if strings.Trim(i.Path.Value, `"`) == module+"/redlatchtest" {
				t.Errorf("%s imports redlatchtest and is not a test", s.path)
			}
		}
	}
}

// TestEveryErrorIsProvokedWithTheTestKit goes by names: pkg.ErrX in a test of redlatchtest. An error that several
// packages share, which is one value under one name, counts once.
func TestEveryErrorIsProvokedWithTheTestKit(t *testing.T) {
	_, all := house(t)
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
