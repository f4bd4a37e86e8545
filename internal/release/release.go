package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// develop is the version of the root that nested modules require in the checkout. It is never released.
const develop = "v0.0.0"

// A release is the published modules of a checkout at one version. Nothing of it is in the work tree: it is a tree in
// the object store of git, made with an index of its own.
type release struct {
	repo    string   // the top directory of the checkout
	scratch string   // a temporary directory, with the index
	version string   // of all modules
	root    string   // the path of the root module
	dirs    []string // of the modules, in the repository; "" is the root, which is the first
	changes string   // what is not committed, a line for each file
	tree    string   // the files of the release, as git names the tree
}

// prepare makes the tree of a release from all files of the checkout that git does not ignore, committed or not. The
// caller closes it.
func prepare(dir, version string) (_ *release, err error) {
	if semver.Canonical(version) != version || version == "" {
		return nil, fmt.Errorf("version %q: it must be as v0.1.0 or v0.1.0-rc.1 is", version)
	}
	if version == develop {
		return nil, fmt.Errorf("version %q: that is what modules require in the checkout", version)
	}
	r := &release{version: version}
	if r.scratch, err = os.MkdirTemp("", "release"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	r.repo = dir
	if r.repo, err = r.git(nil, "rev-parse", "--show-toplevel"); err != nil {
		return nil, err
	}
	if _, err := r.git(nil, "read-tree", "HEAD"); err != nil {
		return nil, err
	}
	if _, err := r.git(nil, "add", "--all"); err != nil {
		return nil, err
	}
	if r.changes, err = r.git(nil, "diff-index", "--cached", "--name-status", "HEAD"); err != nil {
		return nil, err
	}
	if err := r.find(); err != nil {
		return nil, err
	}
	if r.tree, err = r.git(nil, "write-tree"); err != nil {
		return nil, err
	}
	sums, err := r.sums()
	if err != nil {
		return nil, err
	}
	for _, d := range r.dirs[1:] {
		if err := r.pin(d, sums); err != nil {
			return nil, err
		}
	}
	r.tree, err = r.git(nil, "write-tree")
	return r, err
}

func (r *release) close() { os.RemoveAll(r.scratch) }

// git runs git at the top of the checkout, on the index of the release, and returns what it prints, but for white space
// around it.
func (r *release) git(in io.Reader, args ...string) (string, error) {
	out, err := r.raw(in, args...)
	return strings.TrimSpace(out), err
}

// text returns a file of the release, or "" with an error.
func (r *release) text(name string) (string, error) { return r.raw(nil, "cat-file", "blob", ":"+name) }

func (r *release) raw(in io.Reader, args ...string) (string, error) {
	c := exec.Command("git", args...)
	c.Dir, c.Stdin = r.repo, in
	c.Env = append(os.Environ(), "GIT_INDEX_FILE="+filepath.Join(r.scratch, "index"))
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// find sets the directories of the published modules, and the path of the root.
func (r *release) find() error {
	files, err := r.git(nil, "ls-files", "-z", "--", "go.mod", "contrib/*/go.mod", "cmd/*/go.mod")
	if err != nil {
		return err
	}
	for f := range strings.SplitSeq(strings.TrimRight(files, "\x00"), "\x00") {
		if strings.Count(f, "/") == 2 { // git's * matches slashes, too
			r.dirs = append(r.dirs, path.Dir(f))
		}
	}
	slices.Sort(r.dirs)
	r.dirs = slices.Insert(r.dirs, 0, "")
	mod, err := r.mod("")
	if err != nil {
		return err
	}
	if len(mod.Replace) > 0 {
		return fmt.Errorf("go.mod replaces %s, which holds for no consumer", mod.Replace[0].Old)
	}
	r.root = mod.Module.Mod.Path
	if err := module.Check(r.root, r.version); err != nil {
		return fmt.Errorf("version %q: %w", r.version, err)
	}
	return nil
}

// mod returns the go.mod of the module in dir.
func (r *release) mod(dir string) (*modfile.File, error) {
	name := path.Join(dir, "go.mod")
	text, err := r.text(name)
	if err != nil {
		return nil, fmt.Errorf("%s: no module: %w", name, err)
	}
	f, err := modfile.Parse(name, []byte(text), nil)
	if err != nil {
		return nil, err
	}
	if f.Module == nil {
		return nil, fmt.Errorf("%s names no module", name)
	}
	return f, nil
}

// pin has the module in dir require the root at the version of the release, and drops the replace directives that name
// modules of ours.
func (r *release) pin(dir, sums string) error {
	f, err := r.mod(dir)
	if err != nil {
		return err
	}
	name := path.Join(dir, "go.mod")
	if want := r.path(dir); f.Module.Mod.Path != want {
		return fmt.Errorf("%s is of module %s: it must be %s", name, f.Module.Mod.Path, want)
	}
	for _, q := range slices.Clone(f.Require) {
		switch {
		case q.Mod.Path == r.root:
			if err := f.AddRequire(r.root, r.version); err != nil {
				return err
			}
		case strings.HasPrefix(q.Mod.Path, r.root+"/"):
			return fmt.Errorf("%s requires %s: what is published may require %s alone of our modules", name, q.Mod.Path, r.root)
		}
	}
	for _, p := range slices.Clone(f.Replace) {
		if p.Old.Path != r.root {
			return fmt.Errorf("%s replaces %s, which holds for no consumer", name, p.Old)
		}
		if err := f.DropReplace(p.Old.Path, p.Old.Version); err != nil {
			return err
		}
	}
	f.Cleanup()
	text, err := f.Format()
	if err != nil {
		return err
	}
	if err := r.put(name, string(text)); err != nil {
		return err
	}
	name = path.Join(dir, "go.sum")
	old, err := r.text(name)
	if err != nil {
		return err
	}
	lines := slices.Collect(strings.Lines(old))
	at, _ := slices.BinarySearchFunc(lines, r.root, func(line, root string) int {
		p, _, _ := strings.Cut(line, " ")
		return strings.Compare(p, root)
	})
	return r.put(name, strings.Join(slices.Insert(lines, at, sums), ""))
}

// put changes a file of the release.
func (r *release) put(name, text string) error {
	blob, err := r.git(strings.NewReader(text), "hash-object", "-w", "--stdin")
	if err != nil {
		return err
	}
	_, err = r.git(nil, "update-index", "--add", "--cacheinfo", "100644,"+blob+","+name)
	return err
}

// sums are the lines of go.sum that name the root. The root has no files of nested modules: pin does not change it.
func (r *release) sums() (string, error) {
	name := filepath.Join(r.scratch, "root.zip")
	if err := r.zip("", name); err != nil {
		return "", err
	}
	all, err := dirhash.HashZip(name, dirhash.Hash1)
	if err != nil {
		return "", err
	}
	text, err := r.text("go.mod")
	if err != nil {
		return "", err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text)), nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%[1]s %[2]s %[3]s\n%[1]s %[2]s/go.mod %[4]s\n", r.root, r.version, all, mod), nil
}

// zip writes the module in dir to a file, as the go command makes it from a tag.
func (r *release) zip(dir, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := zip.CreateFromVCS(f, module.Version{Path: r.path(dir), Version: r.version}, r.repo, r.tree,
		dir); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (r *release) path(dir string) string { return path.Join(r.root, dir) }
