package main

import (
	"fmt"
	"io"
	"path"
	"strings"
)

// tag makes the tags of the release, all or none, or prints them only.
//
// The root is the same in the release and in HEAD, so its tag is on HEAD: the branch has it, and the pseudo-versions of
// later commits are higher. The nested modules differ in go.mod and go.sum, so theirs are on a commit after HEAD that
// is on no branch.
func (r *release) tag(write bool, out io.Writer) error {
	if err := r.ready(); err != nil {
		return err
	}
	head, err := r.git(nil, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	onto := "a commit after it"
	if write {
		if onto, err = r.git(nil, "commit-tree", r.tree, "-p", head, "-m", "release: "+r.version); err != nil {
			return err
		}
	}
	var names, refs strings.Builder
	for _, d := range r.dirs {
		name, commit := path.Join(d, r.version), onto
		if d == "" {
			commit = head
		}
		fmt.Fprintf(out, "%-30s on %s\n", name, commit)
		fmt.Fprintf(&names, " %s", name)
		fmt.Fprintf(&refs, "create refs/tags/%s %s\n", name, commit)
	}
	if !write {
		fmt.Fprintln(out, "none of them is made: that takes -write")
		return nil
	}
	if _, err := r.git(strings.NewReader(refs.String()), "update-ref", "--stdin"); err != nil {
		return err
	}
	fmt.Fprintf(out, "made here. To publish them:\ngit push --atomic origin%s\n", names.String())
	return nil
}

// ready returns an error if HEAD is not what the release would be made from, or is released already.
func (r *release) ready() error {
	if r.changes != "" {
		return fmt.Errorf("not committed:\n%s", r.changes)
	}
	for _, d := range r.dirs {
		name := path.Join(d, r.version)
		if have, err := r.git(nil, "tag", "--list", name); err != nil {
			return err
		} else if have != "" {
			return fmt.Errorf("tag %s exists: a version is released once", name)
		}
	}
	text, err := r.text("CHANGELOG.md")
	if err != nil {
		return err
	}
	if heading := "## " + strings.TrimPrefix(r.version, "v"); !strings.Contains("\n"+text+"\n", "\n"+heading+"\n") {
		return fmt.Errorf("CHANGELOG.md has no heading %q", heading)
	}
	return nil
}
