package house_test

import (
	"go/ast"
	"go/doc"
	"go/token"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// identifiers are the exported constants, variables, functions, types and methods of each package: what a user may
// depend on. Who adds one adds it here, and looks first for one to take away.
var identifiers = map[string]int{
	"": 31, "pubsub": 23, "rlock": 69, "rlock/election": 22, "rlock/locker": 5, "rsemaphore": 101,
	"rcounter": 24, "rcounter/stock": 102, "rcounter/redpacket": 52, "rcounter/ratelimit": 57,
	"redlatchdebug": 1, "redlatchtest": 35,
}

func TestExportedIdentifiersAreCounted(t *testing.T) {
	_, all := house(t)
	files := map[string]map[string]*ast.File{}
	for _, s := range library(all) {
		if s.file == nil || !public(s.dir()) || s.file.Name.Name == "main" {
			continue
		}
		if files[s.dir()] == nil {
			files[s.dir()] = map[string]*ast.File{}
		}
		files[s.dir()][s.path] = s.file
	}
	found := map[string]int{}
	for dir, of := range files {
		//nolint:staticcheck // package doc takes one, and no types are needed here
		p := doc.New(&ast.Package{Name: dir, Files: maps.Clone(of)}, dir, doc.PreserveAST)
		values := func(list []*doc.Value) {
			for _, v := range list {
				for _, name := range v.Names {
					if token.IsExported(name) {
						found[dir]++
					}
				}
			}
		}
		values(p.Consts)
		values(p.Vars)
		found[dir] += len(p.Funcs) + len(p.Types)
		for _, typ := range p.Types {
			values(typ.Consts)
			values(typ.Vars)
			found[dir] += len(typ.Funcs) + len(typ.Methods)
		}
	}
	require.Equal(t, identifiers, found)
}

// A result has a name that says what it is, or none, and a parameter does not hide a builtin function or type.
func TestParametersAndResultsHaveUsefulNames(t *testing.T) {
	_, all := house(t)
	builtins := []string{"any", "append", "cap", "clear", "close", "copy", "delete", "error", "len", "make", "max", "min",
		"new", "panic", "print", "real", "recover", "string", "true", "false", "nil"}
	functions(all, func(s source, on string, d *ast.FuncDecl) {
		if !d.Name.IsExported() || on != "" && !ast.IsExported(on) {
			return
		}
		for _, p := range d.Type.Params.List {
			for _, name := range p.Names {
				require.False(t, slices.Contains(builtins, name.Name), "%s: %s hides %s", s.path, d.Name, name)
			}
		}
		if d.Type.Results == nil {
			return
		}
		for _, r := range d.Type.Results.List {
			for _, name := range r.Names {
				require.NotEqual(t, "_", name.Name, "%s: a result of %s", s.path, d.Name)
			}
		}
	})
}
