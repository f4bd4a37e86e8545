package acl

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/dialect"
	"github.com/redlatch/redlatch/internal/script"
)

// packages are those whose scripts a feature runs.
var packages = map[string][]string{
	"locks": {"rlock", "internal/lease"}, "elections": {"rlock", "rlock/election", "internal/lease"},
	"semaphores": {"rsemaphore", "internal/lease"},
	"counters":   {"rcounter"}, "limits": {"rcounter/ratelimit"}, "stocks": {"rcounter/stock"},
	"packets": {"rcounter/redpacket"},
}

// elected are the scripts of package rlock that an election runs: those of a Fenced lock that is acquired, waited for,
// renewed, kept for a LockDelay, and released.
var elected = []string{"fenced_acquire", "keep", "look", "recheck", "release", "renew"}

// sent are the commands that Go sends in place of a script.
var sent = regexp.MustCompile(`script\.Plain\("([a-z]+)"\)`)

func TestEveryCommandOfAScriptIsInTheRightsOfItsFeature(t *testing.T) {
	for _, f := range features {
		scripts := map[string][]string{"inspect": {"rlock/lua/inspect.lua", "internal/lease/lua/heartbeat_look.lua",
			"rsemaphore/lua/inspect.lua"}}[f.name]
		for _, p := range packages[f.name] {
			found, err := filepath.Glob("../../" + p + "/lua/*.lua")
			require.NoError(t, err)
			for _, path := range found {
				if f.name == "elections" && p == "rlock" &&
					!slices.Contains(elected, strings.TrimSuffix(filepath.Base(path), ".lua")) {
					continue
				}
				scripts = append(scripts, strings.TrimPrefix(path, "../../"))
			}
		}
		used := map[string]bool{}
		for _, path := range scripts {
			dir, file, _ := strings.Cut(path, "/lua/")
			text, err := script.Compose(os.DirFS("../../"+dir), strings.TrimSuffix(file, ".lua"))
			require.NoError(t, err)
			l, err := dialect.Read(text)
			require.NoError(t, err)
			for _, command := range l.Commands {
				used[strings.ToLower(command)] = true
			}
		}
		declared := map[string]bool{}
		for _, name := range strings.Fields(f.scripts) {
			declared[name] = true
		}
		require.Equal(t, used, declared, f.name)
		for _, p := range packages[f.name] {
			sources, err := filepath.Glob("../../" + p + "/*.go")
			require.NoError(t, err)
			for _, path := range sources {
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				for _, m := range sent.FindAllStringSubmatch(string(text), -1) {
					require.Contains(t, strings.Fields(f.plain+" "+f.scripts), m[1], path)
				}
			}
		}
	}
}

// The lines of the document are those of redlatch acl, and of redlatch acl --prefix shop:.
func TestTheLinesOfTheDocumentAreThese(t *testing.T) {
	document, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	lines := strings.Split(string(document), "\n")
	for _, prefix := range []string{"", "shop:"} {
		require.True(t, slices.Contains(lines, Line("redlatch", prefix)), "write into docs/operations.md:\n%s",
			Line("redlatch", prefix))
	}
}

func TestAPrefixBoundsTheNamesAsTheyAreWritten(t *testing.T) {
	require.Contains(t, Line("u", "a*b:", "limits"), ` ~rc:{a\*b:* ~rc:a\*b:* `)
	require.Contains(t, Line("u", "{t}:", "semaphores"),
		` ~{t}:* ~redlatch_queue:{t}:* ~redlatch_alive:* &redisson_sc:{t}:* `)
	require.NotContains(t, Line("u", "p", "limits"), " ~p*")
	require.Contains(t, Line("u", "", "locks"), " ~* &redisson_lock__channel:* ")
	require.Empty(t, Line("u", "", "locks", "nothing"))
}

func TestALineForOneKindOfServerLeavesOutWhatOthersAreSent(t *testing.T) {
	single, sentinel, cluster := LineOn("single", "u", "", "locks"), LineOn("sentinel", "u", "", "locks"),
		LineOn("cluster", "u", "", "locks")
	require.NotContains(t, single, "+ssubscribe")
	require.NotContains(t, single, "shardnumsub")
	require.Contains(t, single, " +subscribe ")
	require.Equal(t, len(single)+len(" +role"), len(sentinel))
	require.Contains(t, sentinel, "+role")
	require.NotContains(t, cluster, " +subscribe ")
	require.NotContains(t, cluster, "|numsub")
	require.Contains(t, cluster, " +ssubscribe ")
}
