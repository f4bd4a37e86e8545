package dialect_test

import (
	"crypto/sha1"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/dialect"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// traced are tests that run every script on a server, by their folder.
var traced = map[string]string{
	"internal/rights": "IsEnough", // all of what users call
	"rlock":           "Script|Table|Java|TestManyWaitersAskTogether",
	"rlock/election":  "Script|Table",
	"rsemaphore":      "Script|Table|TestManySemaphoresAreAskedForTogether",
	"rcounter":        "Table|Shared|AddsInOneCall",
	"rcounter/stock":  "Script|Table",
}

func TestEveryScriptKeepsToTheDialect(t *testing.T) {
	for file, text := range scripts(t) {
		l, err := dialect.Read(text)
		require.NoError(t, err, file)
		require.Empty(t, l.Wrong, file)
		require.NotEmpty(t, l.Commands, file)
	}
}

// What MONITOR tells of the scripts while tests run them: they touch the keys that they are given, and no others. The
// scripts of Redisson that a test has, which make keys of their own, show that others would be noticed.
func TestScriptsTouchTheKeysThatTheyAreGiven(t *testing.T) {
	redistest.InFull(t, "TestEveryScriptKeepsToTheDialect")
	names := map[string]string{}
	for file, text := range scripts(t) {
		if strings.HasPrefix(file, "contrib/") { // modules of their own, whose tests are not run here
			continue
		}
		sum := sha1.Sum([]byte(text))
		names[hex.EncodeToString(sum[:])] = file
	}
	file := filepath.Join(t.TempDir(), "trace")
	for pkg, run := range traced {
		cmd := exec.Command("go", "test", "-count=1", "-run", run, ".")
		cmd.Dir, cmd.Env = filepath.Join("../..", pkg), append(os.Environ(), redistest.TraceEnv+"="+file,
			redistest.LongEnv+"=")
		if out, err := cmd.CombinedOutput(); err != nil { // some count commands or clients, which MONITOR adds to
			t.Logf("%s: %v: %.2000s", pkg, err, out)
		}
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	undeclared, ran := 0, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		sha, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, keys, beyond := strings.Cut(rest, " ")
		if name := names[sha]; name != "" {
			ran[name] = true
			require.False(t, beyond, "%s: %s", name, keys)
		} else if beyond {
			undeclared++
		}
	}
	require.Positive(t, undeclared, "those of Redisson's scripts")
	for _, name := range names {
		require.True(t, ran[name], "no test ran %s", name)
	}
}

// scripts are the texts that are sent of all scripts of the module, and of the modules in it, by their files.
func scripts(t *testing.T) map[string]string {
	texts := map[string]string{}
	require.NoError(t, filepath.WalkDir("../..", func(at string, d fs.DirEntry, err error) error {
		file := strings.TrimPrefix(filepath.ToSlash(at), "../../")
		folder, is := strings.CutSuffix(path.Dir(file), "/lua")
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".lua") || !is || folder == "internal/script" {
			return err
		}
		texts[file], err = script.Compose(os.DirFS(filepath.Join("../..", folder)),
			strings.TrimSuffix(path.Base(file), ".lua"))
		return err
	}))
	require.Greater(t, len(texts), 80)
	return texts
}
