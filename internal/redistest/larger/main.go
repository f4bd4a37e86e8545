// Command larger prints the regular expression of the module's tests that do more with REDLATCH_LONG=1, for go test -run. All others
// are the same in full, and need not run twice. Run it in the module's root.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	tests, err := ofModule(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "larger:", err)
		os.Exit(1)
	}
	var names []string
	for _, list := range tests {
		names = append(names, list...)
	}
	slices.Sort(names)
	fmt.Printf("^(%s)$\n", strings.Join(slices.Compact(names), "|"))
}

// ofModule returns the tests of each folder of the module at root that has any.
func ofModule(root string) (map[string][]string, error) {
	asked, err := switches(root)
	if err != nil {
		return nil, err
	}
	tests := map[string][]string{}
	err = filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if _, none := os.Stat(filepath.Join(dir, "go.mod")); dir != root && none == nil {
			return filepath.SkipDir // a module of its own
		}
		p, err := read(dir, "_test.go")
		if err != nil {
			return err
		}
		for name := range p.reach(asked) {
			if strings.HasPrefix(name, "Test") && name != "TestMain" && p[name].isFunc {
				tests[dir] = append(tests[dir], name)
			}
		}
		return nil
	})
	return tests, err
}

// switches returns what a test may use to ask how much it should do: functions of redistest and of what is above it.
func switches(root string) (map[string]bool, error) {
	asked := map[string]bool{}
	for _, dir := range []string{"", "rig"} {
		p, err := read(filepath.Join(root, "internal", "redistest", dir), ".go")
		if err != nil {
			return nil, err
		}
		// with -short it skips, which has nothing to do with how much is done in full
		delete(p, "SkipShort")
		of, name := maps.Clone(asked), "rig"
		if dir == "" {
			of["LongEnv"], name = true, "redistest"
		}
		for found := range p.reach(of) {
			if ast.IsExported(found) {
				asked[name+"."+found] = true
			}
		}
	}
	return asked, nil
}

// decl is what a package declares under one name: a function, all methods of that name, a variable, a constant or a type.
type decl struct {
	isFunc bool
	uses   map[string]bool // every name in it
}

type pack map[string]*decl

// read reads the files of dir with that ending; test files only if it asks for them.
func read(dir, ending string) (pack, error) {
	p := pack{}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ending) || ending == ".go" && strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, f.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					p.add("."+d.Name.Name, false, d)
				} else {
					p.add(d.Name.Name, true, d)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							p.add(name.Name, false, spec)
						}
					case *ast.TypeSpec:
						p.add(spec.Name.Name, false, spec)
					}
				}
			}
		}
	}
	return p, nil
}

func (p pack) add(name string, isFunc bool, node ast.Node) {
	d := p[name]
	if d == nil {
		d = &decl{uses: map[string]bool{}}
		p[name] = d
	}
	d.isFunc = d.isFunc || isFunc
	var note func(n ast.Node) bool
	note = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			d.uses[n.Name] = true
		case *ast.SelectorExpr:
			d.uses["."+n.Sel.Name] = true
			if of, ok := n.X.(*ast.Ident); ok {
				d.uses[of.Name+"."+n.Sel.Name] = true
			}
			ast.Inspect(n.X, note) // the name after the dot is none of the package's own
			return false
		}
		return true
	}
	ast.Inspect(node, note)
}

// reach returns what uses one of these names, itself or by way of others. It goes by names alone: a local variable or a method that
// has the name of another is taken for that one. So it may find too much.
func (p pack) reach(of map[string]bool) map[string]bool {
	found := map[string]bool{}
	for again := true; again; {
		again = false
		for name, d := range p {
			if found[name] {
				continue
			}
			for used := range d.uses {
				if of[used] || found[used] {
					found[name], again = true, true
					break
				}
			}
		}
	}
	return found
}
