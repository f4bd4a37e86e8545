package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/redlatch/redlatch/internal/redistest"
)

const version = "v0.1.0"

// program takes a lock on the server whose address it is given.
const program = `package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

func main() {
	ctx := context.Background()
	hub, err := pubsub.Dial(ctx, rueidis.ClientOption{InitAddress: os.Args[1:]}, pubsub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(ctx)
	locks, err := rlock.New(hub, rlock.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	err = locks.Reentrant("nightly-report").Do(ctx, func(context.Context) error {
		fmt.Println("locked")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
`

// A consumer has an empty module cache, and nothing of the checkout. Modules of others come from the downloads of this
// machine's cache, if they are there, so that this needs no network where other tests have run.
type consumer struct {
	t   *testing.T
	env []string
	bin string
}

func consume(t *testing.T, proxy string) consumer {
	t.Helper()
	here := func(name string) string {
		out, err := exec.Command("go", "env", name).Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	bin := t.TempDir()
	return consumer{t, append(os.Environ(),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(here("GOMODCACHE"), "cache", "download")+","+here("GOPROXY"),
		"GOENV=off", "GOPRIVATE=", "GONOPROXY=", // nothing keeps a module from the proxies
		"GOSUMDB=off", // it knows nothing of a version that was never published
		"GOMODCACHE="+t.TempDir(),
		"GOFLAGS=-modcacherw -trimpath", // so that the cache can be removed, and what is compiled is the same at the next run
		"GOWORK=off",
		"GOBIN="+bin,
	), bin}
}

// run runs a program of the consumer and returns what it prints.
func (c consumer) run(dir, name string, args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, c.env
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return string(out)
}

// program makes a module of a program, gets what it needs, get being an argument of go get, and has go work on it.
func (c consumer) program(source, get string, work ...string) (dir string) {
	c.t.Helper()
	dir = c.t.TempDir()
	c.run(dir, "go", "mod", "init", "example.com/consumer")
	put(c.t, dir, map[string]string{"main.go": source})
	c.run(dir, "go", "get", get)
	c.run(dir, "go", work...)
	return dir
}

func TestAConsumerGetsAndInstallsARelease(t *testing.T) {
	server := redistest.Start(t)
	proxy := t.TempDir()
	require.NoError(t, run(".", []string{"-proxy", proxy, version}, io.Discard))
	r, err := prepare(".", version)
	require.NoError(t, err)
	defer r.close()
	c := consume(t, proxy)

	t.Run("the library", func(t *testing.T) {
		c := consumer{t, c.env, c.bin}
		dir := c.program(program, r.root+"@"+version, "build", "-o", "program", ".")
		require.Equal(t, "locked\n", c.run(dir, filepath.Join(dir, "program"), server.Addr()))
		// What a program gets that imports no redlatchtest.
		all := []string{r.root, "github.com/redis/rueidis", "golang.org/x/sync", "golang.org/x/sys"}
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		require.NoError(t, err)
		mod, err := modfile.Parse("go.mod", text, nil)
		require.NoError(t, err)
		var requires []string
		for _, q := range mod.Require {
			requires = append(requires, q.Mod.Path)
		}
		require.ElementsMatch(t, all, requires)
		sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		require.NoError(t, err)
		for line := range strings.Lines(string(sum)) {
			require.Contains(t, all, strings.Fields(line)[0], "go.sum")
		}
	})
	for _, d := range r.dirs[1:] {
		t.Run(d, func(t *testing.T) {
			c := consumer{t, c.env, c.bin}
			if name, ok := strings.CutPrefix(d, "cmd/"); ok {
				c.run(t.TempDir(), "go", "install", r.path(d)+"@"+version)
				require.Equal(t, name+" "+version+", "+runtime.Version()+"\n",
					c.run(t.TempDir(), filepath.Join(c.bin, name), "--version"))
			} else {
				work := []string{"build", "-o", "program", "."}
				if (d == "contrib/k8s" || d == "contrib/river") && os.Getenv(redistest.LongEnv) == "" {
					work = []string{"list", "-deps", "."} // finds all packages; to compile them takes minutes
				}
				c.program("package main\n\nimport _ \""+r.path(d)+"\"\n\nfunc main() {}\n", r.path(d)+"@"+version, work...)
			}
			// A checkout of the tag can be built and tested, too: its go.sum has all.
			tagged := filepath.Join(t.TempDir(), "tagged")
			m := module.Version{Path: r.path(d), Version: version}
			require.NoError(t, zip.Unzip(tagged, m, filepath.Join(proxy, m.Path, "@v", version+".zip")))
			c.run(tagged, "go", "list", "-deps", "-test", "./...")
		})
	}
}
