package contracts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/bench/peers/contracts/rig"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// errNoModule says that the tests cannot be had.
var errNoModule = errors.New("the module cannot be downloaded")

// version ends the path of a module, and is not the name of its package.
var version = regexp.MustCompile(`^v[0-9]+$`)

// A test may fail so often, in so much time: many of them allow what they do ten milliseconds, or fifty.
const (
	tries    = 20
	patience = 2 * time.Minute
)

// run copies a suite's tests, compiles them with the adapter, and runs each in a process of its own.
func (s *suite) run(t *testing.T) {
	from, err := s.find(t.Context())
	if errors.Is(err, errNoModule) && os.Getenv(redistest.RequireEnv) == "" {
		t.Skipf("run go mod download in bench/peers: %v", err)
	}
	require.NoError(t, err)
	server, work := redistest.Start(t), t.TempDir()
	bin := redistest.NoError(s.compile(t.Context(), from, work, server.Addr()))(t)
	listed := redistest.NoError(exec.CommandContext(t.Context(), bin, "-test.list", "^(Test|Example)").Output())(t)
	tests := strings.Fields(string(listed))
	require.NotEmpty(t, tests)
	for _, d := range s.differ {
		require.Contains(t, tests, d.test, "it is to differ, and is not there: take it off the list")
	}
	one := func(test string) (bool, string) {
		server.Ask(t, "FLUSHALL")
		args := []string{"-test.run", "^" + test + "$", "-test.timeout", "3m"}
		if !redistest.Long() {
			args = append(args, "-test.short")
		}
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), rig.AddrEnv+"="+server.Addr())
		out, err := cmd.CombinedOutput()
		return err == nil, string(out)
	}
	for _, test := range tests {
		if err := s.judge(test, one, t.Logf); err != nil {
			t.Error(err)
		}
	}
}

// judge runs a test until it passes, or once if it should not.
func (s *suite) judge(test string, run func(string) (bool, string), logf func(string, ...any)) error {
	at := slices.IndexFunc(s.differ, func(d differ) bool { return d.test == test })
	var out string
	first := time.Now()
	for try := 1; try <= tries && time.Since(first) < patience; try++ {
		began := time.Now()
		var ok bool
		ok, out = run(test)
		logf("%s: passed=%t, %.1fs", test, ok, time.Since(began).Seconds())
		switch {
		case at >= 0 && ok:
			return fmt.Errorf("%s is to differ, and passes: take it off the list", test)
		case ok, at >= 0 && strings.Contains(out, s.differ[at].says):
			return nil
		}
	}
	return fmt.Errorf("%s fails:\n%s", test, tail(out, 60))
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// find is the tests' folder in the Go tree or in a module, which is in the cache or fetched into it.
func (s *suite) find(ctx context.Context) (dir string, err error) {
	if s.module == "" {
		root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		return filepath.Join(strings.TrimSpace(string(root)), s.dir), err
	}
	var m struct{ Dir, Version, Error string }
	ask := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "go", args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		_ = json.Unmarshal(out, &m) // output that is not JSON leaves m without a Dir
		if err != nil || m.Dir == "" && args[0] == "mod" {
			//nolint:errorlint // err may be nil
			return fmt.Errorf("%w: %v, %s%s", errNoModule, err, m.Error, &stderr)
		}
		return nil
	}
	if err := ask("list", "-m", "-f", `{"Version":"{{.Version}}"}`, s.module); err != nil {
		return "", err
	}
	err = ask("mod", "download", "-json", s.module+"@"+m.Version)
	return filepath.Join(m.Dir, s.dir), err
}

// compile makes the program of the suite's tests.
func (s *suite) compile(ctx context.Context, from, work, addr string) (string, error) {
	here, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", ours+s.adapter).Output()
	if err != nil {
		return "", err
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for _, file := range s.files {
		text, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			return "", err
		}
		if text, err = s.adapt(text, addr); err != nil {
			return "", err
		}
		to := filepath.Join(work, file)
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
		overlay["Replace"][filepath.Join(strings.TrimSpace(string(here)), "peer_"+file)] = to
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	to := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(to, text, 0o644); err != nil {
		return "", err
	}
	bin := filepath.Join(work, "suite.test")
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", to, "-o", bin,
		ours+s.adapter).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s does not compile: %w\n%s", s.name, err, out)
	}
	return bin, nil
}

// adapt cuts out of a file what the suite leaves, its benchmarks, and the imports that nothing needs then, and gives it
// other imports. All else stays word for word.
func (s *suite) adapt(text []byte, addr string) ([]byte, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	type edit struct {
		from, to int
		with     string
	}
	var edits []edit
	change := func(from, to token.Pos, with string) {
		edits = append(edits, edit{set.Position(from).Offset, set.Position(to).Offset, with})
	}
	used := map[string]bool{}
	for _, d := range f.Decls {
		if s.leaves(d) {
			change(d.Pos(), d.End(), "")
			continue
		}
		addQualifiers(used, d)
	}
	for _, i := range f.Imports {
		old := strings.Trim(i.Path.Value, `"`)
		name := path.Base(old)
		if version.MatchString(name) {
			name = strings.TrimPrefix(path.Base(path.Dir(old)), "go-")
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		if name != "." && name != "_" && !used[name] {
			change(i.Pos(), i.End(), "")
		} else if to := s.imports[old]; to != "" {
			with := `"` + to + `"`
			if i.Name == nil {
				with = name + " " + with
			}
			change(i.Path.Pos(), i.Path.End(), with)
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	for _, e := range edits {
		text = slices.Concat(text[:e.from], []byte(e.with), text[e.to:])
	}
	for old, to := range s.text {
		text = bytes.ReplaceAll(text, []byte(old), []byte(strings.ReplaceAll(to, "ADDR", addr)))
	}
	return text, nil
}

// addQualifiers adds the names before a dot in d, which may be those of imports.
func addQualifiers(used map[string]bool, d ast.Decl) {
	ast.Inspect(d, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok {
				used[id.Name] = true
			}
		}
		return true
	})
}

// leaves reports whether a declaration is left out.
func (s *suite) leaves(d ast.Decl) bool {
	var names []string
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					names = append(names, n.Name)
				}
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			}
		}
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "Benchmark") || slices.ContainsFunc(s.left, func(l left) bool {
			return slices.Contains(l.decls, name)
		})
	})
}
