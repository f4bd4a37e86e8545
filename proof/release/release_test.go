// Package release shows that a consumer can get and use a release, from a module proxy in the file system.
package release_test

import (
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m, nil) }

const root = "github.com/redlatch/redlatch"

// source takes a lock on the server whose address is its argument.
//
//go:embed testdata/consumer.go.txt
var source string

// run runs a program in a directory, with more of an environment, and returns what it prints.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

func put(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func modOf(t *testing.T, dir string) *modfile.File {
	t.Helper()
	text := redistest.NoError(os.ReadFile(filepath.Join(dir, "go.mod")))(t)
	mod := redistest.NoError(modfile.Parse("go.mod", text, nil))(t)
	return mod
}

// published returns the version of versions.yaml and its modules, the root first. Of the modules that are published,
// each requires no other of ours than the root.
func published(t *testing.T, tree string) (version string, modules []string) {
	t.Helper()
	text := redistest.NoError(os.ReadFile(filepath.Join(tree, "versions.yaml")))(t)
	set, _, _ := strings.Cut(string(text), "excluded-modules:")
	version = regexp.MustCompile(`version: (\S+)`).FindStringSubmatch(set)[1]
	for _, line := range regexp.MustCompile(`- (\S+)`).FindAllStringSubmatch(set, -1) {
		modules = append(modules, line[1])
	}
	require.Equal(t, root, modules[0])
	changes := redistest.NoError(os.ReadFile(filepath.Join(tree, "CHANGELOG.md")))(t)
	require.Contains(t, string(changes), "\n## "+strings.TrimPrefix(version, "v")+"\n")
	for _, path := range modules {
		mod := modOf(t, filepath.Join(tree, strings.TrimPrefix(path, root)))
		require.Equal(t, path, mod.Module.Mod.Path)
		for _, q := range mod.Require {
			require.False(t, strings.HasPrefix(q.Mod.Path, root+"/"), "%s requires %s", path, q.Mod.Path)
		}
		for _, r := range mod.Replace {
			require.True(t, path != root && r.Old.Path == root, "%s replaces %s", path, r.Old.Path)
		}
	}
	return version, modules
}

// released is a commit of the checkout as it is, to which the steps of RELEASING.md were applied.
func released(t *testing.T) (tree, version string, modules []string) {
	t.Helper()
	repo := run(t, ".", nil, "git", "rev-parse", "--show-toplevel")
	tree = filepath.Join(t.TempDir(), "tree")
	index := []string{"GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index")}
	run(t, repo, index, "git", "read-tree", "HEAD")
	run(t, repo, index, "git", "add", "--all")
	run(t, repo, index, "git", "checkout-index", "--all", "--prefix="+tree+"/")
	version, modules = published(t, tree)
	for _, path := range modules[1:] { // what `multimod prerelease` does
		run(t, filepath.Join(tree, strings.TrimPrefix(path, root)), nil, "go", "mod", "edit", "-require="+root+"@"+version)
	}
	run(t, filepath.Join(tree, "cmd", "redlatch"), nil, "go", "mod", "edit", "-dropreplace="+root)
	run(t, tree, nil, "git", "init", "-q")
	run(t, tree, nil, "git", "add", "--all")
	run(t, tree, nil, "git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false", "commit",
		"-q", "-m", "release")
	return tree, version, modules
}

// proxied writes the release as the files of a module proxy.
func proxied(t *testing.T, tree, version string, modules []string) (proxy string) {
	t.Helper()
	proxy = t.TempDir()
	info := redistest.NoError(json.Marshal(map[string]any{"Version": version, "Time": time.Now().UTC()}))(t)
	for _, path := range modules {
		dir := strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		name := filepath.Join(proxy, path, "@v", version)
		mod := redistest.NoError(os.ReadFile(filepath.Join(tree, dir, "go.mod")))(t)
		put(t, name+".mod", string(mod))
		put(t, name+".info", string(info))
		put(t, filepath.Join(proxy, path, "@v", "list"), version+"\n")
		f := redistest.NoError(os.Create(name + ".zip"))(t)
		require.NoError(t, zip.CreateFromVCS(f, module.Version{Path: path, Version: version}, tree, "HEAD", dir))
		require.NoError(t, f.Close())
	}
	return proxy
}

func TestRelease_FromAProxy_IsGotBuiltAndInstalled(t *testing.T) {
	redistest.SkipShort(t)
	server := redistest.Start(t)
	tree, version, modules := released(t)
	downloads := filepath.Join(run(t, ".", nil, "go", "env", "GOMODCACHE"), "cache", "download")
	bin := t.TempDir()
	// A consumer has an empty module cache, and nothing of the checkout. Modules of others come from the downloads of
	// this machine's cache, if they are there, so that the test needs no network where other tests have run.
	env := []string{
		"GOPROXY=file://" + proxied(t, tree, version, modules) + ",file://" + downloads + "," +
			run(t, ".", nil, "go", "env", "GOPROXY"),
		"GOENV=off", "GOPRIVATE=", "GONOPROXY=", // nothing keeps a module from the proxies
		"GOSUMDB=off", // it knows nothing of a version that was never published
		"GOMODCACHE=" + t.TempDir(),
		"GOFLAGS=-modcacherw -trimpath", // so that the cache can be removed, and what is compiled is the same at the next run
		"GOWORK=off", "GOBIN=" + bin,
	}
	// consumer makes a module of a program, gets a module and has go work on the program.
	consumer := func(t *testing.T, text, path string, work ...string) (dir string) {
		t.Helper()
		dir = t.TempDir()
		put(t, filepath.Join(dir, "main.go"), text)
		run(t, dir, env, "go", "mod", "init", "example.com/consumer")
		run(t, dir, env, "go", "get", path+"@"+version)
		run(t, dir, env, "go", work...)
		return dir
	}
	for _, path := range modules {
		t.Run(path, func(t *testing.T) {
			dir := strings.TrimPrefix(path, root+"/")
			switch {
			case path == root:
				at := consumer(t, source, path, "build", "-o", "program", ".")
				require.Equal(t, "locked true <nil>", run(t, at, env, filepath.Join(at, "program"), server.Addr()))
				// What a program gets that imports no redlatchtest.
				all := []string{root, "github.com/redis/rueidis", "golang.org/x/sync", "golang.org/x/sys",
					"golang.org/x/time"}
				var requires []string
				for _, q := range modOf(t, at).Require {
					requires = append(requires, q.Mod.Path)
				}
				require.ElementsMatch(t, all, requires)
			case strings.HasPrefix(dir, "cmd/"):
				run(t, t.TempDir(), env, "go", "install", path+"@"+version)
				require.Equal(t, filepath.Base(dir)+" "+version+", "+runtime.Version(),
					run(t, bin, env, filepath.Join(bin, filepath.Base(dir)), "--version"))
				run(t, filepath.Join(tree, dir), env, "go", "list", "-mod=mod", "-deps", ".") // as goreleaser builds it
			default:
				work := []string{"list", "-deps", "."} // finds all packages; to compile them takes minutes
				if os.Getenv(redistest.LongEnv) != "" {
					work = []string{"build", "-o", "program", "."}
				}
				consumer(t, "package main\n\nimport _ \""+path+"\"\n\nfunc main() {}\n", path, work...)
			}
		})
	}
}
