package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// bench compiles the tests of packages with other texts in the place of files. Nothing is written to the tree, because
// the go command takes the texts from an overlay.
type bench struct {
	root, work string
	module     string
	library    []string          // the packages whose code is judged, as folders from the root
	testing    []string          // the packages whose tests judge it
	programs   map[string]string // package -> its tests, which plant in Lua what the environment says
}

func newBench(ctx context.Context) (b *bench, end func(), err error) {
	root, err := output(ctx, "..", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return nil, nil, err
	}
	b = &bench{root: root, programs: map[string]string{}}
	if b.module, err = output(ctx, root, "go", "list", "-m"); err != nil {
		return nil, nil, err
	}
	folders := func(args ...string) (all []string, err error) {
		out, err := output(ctx, root, "go", append([]string{"list"}, args...)...)
		for pkg := range strings.FieldsSeq(out) {
			if folder, ours := strings.CutPrefix(pkg+"/", b.module+"/"); ours {
				all = append(all, strings.TrimSuffix(folder, "/"))
			}
		}
		return all, err
	}
	b.library, err = folders("-deps", ".", "./rlock/...", "./rsemaphore/...", "./rcounter/...", "./pubsub",
		"./redlatchdebug")
	if err != nil {
		return nil, nil, err
	}
	if b.testing, err = folders("./..."); err != nil {
		return nil, nil, err
	}
	b.work, err = os.MkdirTemp("", "redlatch-faults-")
	return b, func() { _ = os.RemoveAll(b.work) }, err // under the system's temporary directory
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// compile makes the program of a package's tests in a tree, with other texts in the place of files.
func (b *bench) compile(ctx context.Context, tree, pkg string, texts map[string][]byte, flags ...string,
) (string, error) {
	dir, err := os.MkdirTemp(b.work, "")
	if err != nil {
		return "", err
	}
	replace, n := map[string]string{}, 0
	for file, text := range texts {
		n++
		to := filepath.Join(dir, fmt.Sprintf("%d-%s", n, filepath.Base(file)))
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(tree, file)] = to
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "tests")
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return "", err
	}
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(tree, dir, "go.mod")); err == nil { // a module of its own
			tree, pkg = filepath.Join(tree, dir), strings.TrimPrefix(strings.TrimPrefix(pkg, dir), "/")
			break
		}
	}
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", program}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
}

// program makes the tests of a package in which f is planted. The tests of a package are the same for all its faults in
// Lua, because the loader plants these when it reads a script.
func (b *bench) program(ctx context.Context, pkg string, f *fault, text []byte,
) (program string, env []string, err error) {
	if !f.isLua() {
		program, err = b.compile(ctx, b.root, pkg, map[string][]byte{f.file: text})
		return program, nil, err
	}
	if b.programs[pkg] == "" {
		texts, err := b.planting()
		if err != nil {
			return "", nil, err
		}
		if b.programs[pkg], err = b.compile(ctx, b.root, pkg, texts); err != nil {
			return "", nil, err
		}
	}
	_, name, _ := strings.Cut(f.file, "/lua/")
	return b.programs[pkg], []string{"REDLATCH_FAULT_FILE=lua/" + name, "REDLATCH_FAULT_OLD=" + f.old,
		"REDLATCH_FAULT_NEW=" + f.new}, nil
}
