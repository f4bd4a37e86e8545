package house_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// identifiers are the exported constants, variables, functions, types and methods of each package: what a user may
// depend on. Who adds one adds it here, and looks first for one to take away.
var identifiers = map[string]int{
	"": 33, "pubsub": 22, "rlock": 66, "rlock/election": 40, "rlock/locker": 5, "rsemaphore": 84,
	"rcounter": 20, "rcounter/stock": 98, "rcounter/redpacket": 45, "rcounter/ratelimit": 52,
	"redlatchdebug": 1, "redlatchtest": 35,
}

// documented are the public packages by directory, as go doc sees them.
func documented(t *testing.T) map[string]*doc.Package {
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
	found := map[string]*doc.Package{}
	for dir, of := range files {
		//nolint:staticcheck // package doc takes one, and no types are needed here
		found[dir] = doc.New(&ast.Package{Name: dir, Files: maps.Clone(of)}, dir, doc.PreserveAST)
	}
	return found
}

func TestExportedIdentifiersAreCounted(t *testing.T) {
	found := map[string]int{}
	for dir, p := range documented(t) {
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

// What a call is given or answers has a word of its own: stock.SoldOut, ratelimit.GCRA, redlatchtest.Slow. What events
// and reports say has its type's name before it, because it says the same words: EventReleased, KindExpired, PhaseOpen.
func TestConstantsOfOneTypeAreNamedAlike(t *testing.T) {
	prefixes := map[string]string{"EventKind": "Event", "Kind": "Kind", "Phase": "Phase"}
	types := 0
	for dir, p := range documented(t) {
		for _, typ := range p.Types {
			prefix, reported := prefixes[typ.Name]
			if dir == "redlatchtest" { // its Kind is given: that of a fault
				reported = false
			}
			for _, v := range typ.Consts {
				types++
				for _, name := range v.Names {
					require.Equal(t, reported && token.IsExported(name), strings.HasPrefix(name, cmp.Or(prefix, typ.Name)),
						"%s: %s of %s", dir, name, typ.Name)
				}
			}
		}
	}
	require.GreaterOrEqual(t, types, 10)
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

// A name that is longer is neither remembered nor typed after -run.
func TestNoTestHasALongName(t *testing.T) {
	_, all := house(t)
	seen := 0
	for _, s := range all {
		if !s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				seen++
				if n := len(fn.Name.Name); n > 60 {
					t.Errorf("%s: %s has %d letters, and at most 60 are allowed", s.path, fn.Name, n)
				}
			}
		}
	}
	require.Greater(t, seen, 1000)
}

// vague are words of sentences that do not say who acts: "is told", "nobody waits". Write which party does it, and
// what.
var vague = regexp.MustCompile(`(?i)\b(?:told|nobody|beside|somebody|whoever)\b`)

// It reads the comments and strings of Go, all of Lua, and the documents. Tests may have such words.
func TestSentencesSayWhoActs(t *testing.T) {
	set, all := house(t)
	var found []string
	look := func(name string, line int, text string) {
		for _, at := range vague.FindAllStringIndex(text, -1) {
			found = append(found, fmt.Sprintf("%s:%d: %s", name, line+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]]))
		}
	}
	for _, s := range all {
		if s.test() || s.dir() == "internal/redistest/databases" { // which name a user of the system
			continue
		}
		if s.file == nil {
			look(s.path, 1, string(s.text))
			continue
		}
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				look(s.path, set.Position(c.Pos()).Line, c.Text)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				look(s.path, set.Position(lit.Pos()).Line, lit.Value)
			}
			return true
		})
	}
	documents := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".md" {
			return err
		}
		documents++
		text, err := os.ReadFile(name)
		look(strings.TrimPrefix(filepath.ToSlash(name), root+"/"), 1, string(text))
		return err
	}))
	require.Greater(t, documents, 20)
	require.Empty(t, found, "words that hide who acts")
}
