package main

import (
	"archive/zip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "module example.com/m\n\ngo 1.25.0\n"

func nested(dir, more string) string {
	return "module example.com/m/" + dir + "\n\ngo 1.25.0\n\nrequire example.com/m v0.0.0\n" + more
}

const replace = "\nreplace example.com/m => ../..\n"

// committed is a repository with two modules that are published, two that are not, and other files.
func committed(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	git(t, dir, "init", "-q")
	put(t, dir, map[string]string{
		"go.mod": root, "m.go": "package m\n", "LICENSE": "do as you like\n",
		"CHANGELOG.md":     "# Changelog\n\n## 1.2.3\n\nAll.\n",
		"contrib/a/go.mod": nested("contrib/a", replace), "contrib/a/a.go": "package a\n",
		"contrib/a/go.sum":         "example.com/a v1.0.0 h1:x\nexample.com/z v1.0.0 h1:x\n",
		"contrib/a/example/go.mod": nested("contrib/a/example", "\nreplace example.com/m => ../../..\n"),
		"cmd/c/go.mod":             nested("cmd/c", replace), "cmd/c/main.go": "package main\n", "cmd/c/go.sum": "",
		"bench/go.mod": nested("bench", "\nreplace example.com/m => ..\n"),
	})
	put(t, dir, files)
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "-q", "-m", "all")
	return dir
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

func TestWhatCannotBeReleasedIsRefusedAndNamed(t *testing.T) {
	for name, c := range map[string]struct {
		files, later map[string]string
		args         []string
		says         string
	}{
		"neither way":        {args: []string{"v1.2.3"}, says: "usage"},
		"both ways":          {args: []string{"-tag", "-proxy", "x", "v1.2.3"}, says: "usage"},
		"write what":         {args: []string{"-write", "v1.2.3"}, says: "usage"},
		"no version":         {args: []string{"-tag"}, says: "usage"},
		"no v":               {args: []string{"-tag", "1.2.3"}, says: `version "1.2.3"`},
		"short":              {args: []string{"-tag", "v1.2"}, says: `version "v1.2"`},
		"build metadata":     {args: []string{"-tag", "v1.2.3+x"}, says: `version "v1.2.3+x"`},
		"the checkout's":     {args: []string{"-tag", "v0.0.0"}, says: `version "v0.0.0"`},
		"needs another path": {args: []string{"-tag", "v2.0.0"}, says: "should be v0 or v1, not v2"},
		"dirty":              {later: map[string]string{"m.go": "package n\n"}, says: "not committed:\nM\tm.go"},
		"dirty go.mod": {later: map[string]string{"cmd/c/go.mod": nested("cmd/c", "\n"+replace)},
			says: "not committed:\nM\tcmd/c/go.mod"},
		"untracked": {later: map[string]string{"n.go": "package m\n"}, says: "not committed:\nA\tn.go"},
		"not in changelog": {files: map[string]string{"CHANGELOG.md": "## Unreleased\n\n## 1.2.30\n"},
			says: `no heading "## 1.2.3"`},
		"root replaces": {files: map[string]string{"go.mod": root + "replace example.com/x => ./x\n"},
			says: "go.mod replaces example.com/x"},
		"nested replaces": {files: map[string]string{"cmd/c/go.mod": nested("cmd/c", "replace example.com/x => ./x\n")},
			says: "cmd/c/go.mod replaces example.com/x"},
		"misnamed": {files: map[string]string{"cmd/c/go.mod": nested("cmd/d", "")},
			says: "it must be example.com/m/cmd/c"},
		"requires another": {files: map[string]string{"cmd/c/go.mod": nested("cmd/c",
			"require example.com/m/bench v0.0.0\n")}, says: "requires example.com/m/bench"},
		"no module": {files: map[string]string{"go.mod": "go 1.25.0\n"}, says: "go.mod names no module"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := committed(t, c.files)
			put(t, dir, c.later)
			args := c.args
			if args == nil {
				args = []string{"-tag", "-write", "v1.2.3"}
			}
			require.ErrorContains(t, run(dir, args, io.Discard), c.says)
			require.Empty(t, git(t, dir, "tag"))
		})
	}
	t.Run("root without go.mod", func(t *testing.T) {
		dir := committed(t, nil)
		require.NoError(t, os.Remove(filepath.Join(dir, "go.mod")))
		require.ErrorContains(t, run(dir, []string{"-proxy", t.TempDir(), "v1.2.3"}, io.Discard), "go.mod: no module")
	})
	t.Run("no repository", func(t *testing.T) {
		require.ErrorContains(t, run(t.TempDir(), []string{"-tag", "v1.2.3"}, io.Discard), "not a git repository")
	})
}

func TestTagsNameWhatIsReleasedAndTheBranchStays(t *testing.T) {
	t.Setenv("GIT_AUTHOR_NAME", "t")
	t.Setenv("GIT_AUTHOR_EMAIL", "t@example.com")
	t.Setenv("GIT_COMMITTER_NAME", "t")
	t.Setenv("GIT_COMMITTER_EMAIL", "t@example.com")
	dir := committed(t, nil)
	head := git(t, dir, "rev-parse", "HEAD")
	var out strings.Builder
	require.NoError(t, run(filepath.Join(dir, "bench"), []string{"-tag", "v1.2.3"}, &out))
	require.Contains(t, out.String(), "contrib/a/v1.2.3")
	require.Empty(t, git(t, dir, "tag"), "it was not told to write")

	out.Reset()
	require.NoError(t, run(dir, []string{"-tag", "-write", "v1.2.3"}, &out))
	require.Contains(t, out.String(), "\ngit push --atomic origin v1.2.3 cmd/c/v1.2.3 contrib/a/v1.2.3\n")
	require.Equal(t, []string{"cmd/c/v1.2.3", "contrib/a/v1.2.3", "v1.2.3"}, strings.Fields(git(t, dir, "tag")))
	require.Equal(t, head, git(t, dir, "rev-parse", "v1.2.3"))
	require.Equal(t, head, git(t, dir, "rev-parse", "contrib/a/v1.2.3^"))
	require.Equal(t, head, git(t, dir, "rev-parse", "HEAD"))
	require.Empty(t, git(t, dir, "status", "--porcelain"))
	require.Equal(t, []string{"cmd/c/go.mod", "cmd/c/go.sum", "contrib/a/go.mod", "contrib/a/go.sum"},
		strings.Fields(git(t, dir, "diff", "--name-only", "HEAD", "contrib/a/v1.2.3")))
	require.NotContains(t, git(t, dir, "show", "contrib/a/v1.2.3:contrib/a/go.mod"), "replace")
	require.Contains(t, git(t, dir, "show", "contrib/a/v1.2.3:contrib/a/go.mod"), "require example.com/m v1.2.3")

	require.ErrorContains(t, run(dir, []string{"-tag", "-write", "v1.2.3"}, io.Discard), "tag v1.2.3 exists")
}

func TestAProxyHasEachPublishedModuleWithItsLicense(t *testing.T) {
	dir, proxy := committed(t, nil), t.TempDir()
	put(t, dir, map[string]string{"contrib/a/new.go": "package a\n"}) // not committed: what is tried is what is there
	for _, v := range []string{"v0.10.0", "v0.9.0", "v0.9.0"} {
		require.NoError(t, run(dir, []string{"-proxy", proxy, v}, io.Discard))
	}
	for path, files := range map[string][]string{
		"":           {"CHANGELOG.md", "LICENSE", "go.mod", "m.go"},
		"/contrib/a": {"LICENSE", "a.go", "go.mod", "go.sum", "new.go"},
		"/cmd/c":     {"LICENSE", "go.mod", "go.sum", "main.go"},
	} {
		at := filepath.Join(proxy, "example.com/m"+path, "@v")
		list, err := os.ReadFile(filepath.Join(at, "list"))
		require.NoError(t, err)
		require.Equal(t, "v0.9.0\nv0.10.0\n", string(list))
		z, err := zip.OpenReader(filepath.Join(at, "v0.9.0.zip"))
		require.NoError(t, err)
		var names []string
		for _, f := range z.File {
			names = append(names, strings.TrimPrefix(f.Name, "example.com/m"+path+"@v0.9.0/"))
		}
		require.NoError(t, z.Close())
		require.ElementsMatch(t, files, names)
	}
	mods, err := filepath.Glob(filepath.Join(proxy, "example.com/m", "*", "*", "*", "v0.9.0.mod"))
	require.NoError(t, err)
	require.Len(t, mods, 2)
	sums := extract(t, filepath.Join(proxy, "example.com/m/contrib/a/@v/v0.9.0.zip"),
		"example.com/m/contrib/a@v0.9.0/go.sum")
	lines := strings.Split(sums, "\n")
	require.Len(t, lines, 5)
	require.Regexp(t, `^example.com/m v0.9.0 h1:.{44}$`, lines[1])
	require.Regexp(t, `^example.com/m v0.9.0/go.mod h1:.{44}$`, lines[2])
}

func extract(t *testing.T, name, file string) string {
	t.Helper()
	z, err := zip.OpenReader(name)
	require.NoError(t, err)
	defer z.Close()
	f, err := z.Open(file)
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	return string(text)
}
