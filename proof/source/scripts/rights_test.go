package scripts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// packages are those whose scripts a feature runs.
var packages = map[string][]string{
	"locks": {"rlock", "internal/lease"}, "elections": {"rlock", "rlock/election", "internal/lease"},
	"semaphores": {"rsemaphore", "rsemaphore/counting", "internal/lease"},
	"counters":   {"rcounter"}, "limits": {"rcounter/ratelimit"}, "sales": {"rcounter/stock", "internal/ledger"},
	"packets": {"rcounter/redpacket", "internal/ledger"},
}

// elected are the scripts of package rlock that an election runs: those of a Fenced lock that is acquired, waited for,
// renewed and released.
var elected = []string{"fenced_acquire", "keep", "look", "release", "renew"}

// sent are the commands that Go sends in place of a script.
var sent = regexp.MustCompile(`script\.Plain\("([a-z]+)"\)`)

func TestScripts_TheirCommands_AreInTheirFeaturesRights(t *testing.T) {
	for _, name := range acl.Features() {
		inScripts, plain := acl.Commands(name)
		scripts := map[string][]string{"inspect": {"rlock/lua/inspect.lua", "internal/lease/lua/heartbeat_look.lua",
			"rsemaphore/lua/inspect.lua"}}[name]
		for _, p := range packages[name] {
			found := redistest.NoError(filepath.Glob("../../../" + p + "/lua/*.lua"))(t)
			for _, path := range found {
				if name == "elections" && p == "rlock" &&
					!slices.Contains(elected, strings.TrimSuffix(filepath.Base(path), ".lua")) {
					continue
				}
				scripts = append(scripts, strings.TrimPrefix(path, "../../../"))
			}
		}
		used := map[string]bool{}
		for _, path := range scripts {
			dir, file, _ := strings.Cut(path, "/lua/")
			text := redistest.NoError(script.Compose(os.DirFS("../../../"+dir), strings.TrimSuffix(file, ".lua")))(t)
			for _, command := range redistest.ScriptCommands(text) {
				used[strings.ToLower(command)] = true
			}
		}
		declared := map[string]bool{}
		for _, command := range strings.Fields(inScripts) {
			declared[command] = true
		}
		require.Equal(t, used, declared, name)
		for _, p := range packages[name] {
			sources := redistest.NoError(filepath.Glob("../../../" + p + "/*.go"))(t)
			for _, path := range sources {
				text := redistest.NoError(os.ReadFile(path))(t)
				for _, m := range sent.FindAllStringSubmatch(string(text), -1) {
					require.Contains(t, strings.Fields(plain+" "+inScripts), m[1], path)
				}
			}
		}
	}
}
