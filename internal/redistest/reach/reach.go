// Package reach finds the tests of the module that use something, themselves or by way of others. It goes by the names
// in the source alone.
package reach

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// Tests returns the tests of each folder of the module at root that has any which use one of these names.
func Tests(root string, of map[string]bool) (map[string][]string, error) {
	tests := map[string][]string{}
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if _, none := os.Stat(filepath.Join(dir, "go.mod")); dir != root && none == nil {
			return filepath.SkipDir // a module of its own
		}
		p, err := Read(dir, "_test.go")
		if err != nil {
			return err
		}
		for name := range p.Users(of) {
			if strings.HasPrefix(name, "Test") && name != "TestMain" && p[name].Func {
				tests[dir] = append(tests[dir], name)
			}
		}
		return nil
	})
	return tests, err
}

// Kit returns what of redistest, and of what is above it, uses one of the names in redistest that are given, by the
// name that a test has for it, such as redistest.Start. What is in but is to be taken for a user of nothing.
func Kit(root string, of map[string]bool, but ...string) (map[string]bool, error) {
	found := map[string]bool{}
	for _, dir := range []string{"", "rig"} {
		p, err := Read(filepath.Join(root, "internal", "redistest", dir), ".go")
		if err != nil {
			return nil, err
		}
		for _, name := range but {
			delete(p, name)
		}
		in, name := maps.Clone(found), "rig"
		if dir == "" {
			in, name = of, "redistest"
		}
		for user := range p.Users(in) {
			if ast.IsExported(user) {
				found[name+"."+user] = true
			}
		}
	}
	return found, nil
}

// Decl is what a package declares under one name: a function, all methods of that name, a variable, a constant or a
// type.
type Decl struct {
	Func bool
	Uses map[string]bool // every name in it
}

// Pack is the declarations of a package by name; methods have a dot before it.
type Pack map[string]*Decl

// Read reads the files of dir with that ending; test files only if it asks for them.
func Read(dir, ending string) (Pack, error) {
	p := Pack{}
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
			p.addDecl(d)
		}
	}
	return p, nil
}

func (p Pack) addDecl(d ast.Decl) {
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

func (p Pack) add(name string, isFunc bool, node ast.Node) {
	d := p[name]
	if d == nil {
		d = &Decl{Uses: map[string]bool{}}
		p[name] = d
	}
	d.Func = d.Func || isFunc
	var note func(n ast.Node) bool
	note = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			d.Uses[n.Name] = true
		case *ast.SelectorExpr:
			d.Uses["."+n.Sel.Name] = true
			if of, ok := n.X.(*ast.Ident); ok {
				d.Uses[of.Name+"."+n.Sel.Name] = true
			}
			ast.Inspect(n.X, note) // the name after the dot is none of the package's own
			return false
		}
		return true
	}
	ast.Inspect(node, note)
}

// Users returns what uses one of these names, itself or by way of others. It goes by names alone: a local variable or a
// method that has the name of another is taken for that one. So it may find too much.
func (p Pack) Users(of map[string]bool) map[string]bool {
	found := map[string]bool{}
	for again := true; again; {
		again = false
		for name, d := range p {
			if found[name] {
				continue
			}
			for used := range d.Uses {
				if of[used] || found[used] {
					found[name], again = true, true
					break
				}
			}
		}
	}
	return found
}
