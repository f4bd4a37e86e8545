package scripts_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// eachLua calls do with every Lua file of the tree, by its path from the root.
func eachLua(t *testing.T, do func(file, source string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("../../..", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(at, ".lua") {
			return err
		}
		source, err := os.ReadFile(at)
		do(strings.TrimPrefix(filepath.ToSlash(at), "../../../"), string(source))
		return err
	}))
}

// eachScript calls do with every script of the tree, as it is written and as it is sent, with its libraries.
func eachScript(t *testing.T, do func(file, source, text string)) {
	t.Helper()
	eachLua(t, func(file, source string) {
		folder, isScript := strings.CutSuffix(path.Dir(file), "/lua")
		if !isScript || folder == "internal/script" {
			return
		}
		text, err := script.Compose(os.DirFS(filepath.Join("../../..", folder)), strings.TrimSuffix(path.Base(file), ".lua"))
		require.NoError(t, err, file)
		do(file, source, text)
	})
}

var (
	functions = regexp.MustCompile(`\blocal function (\w+)`)
	bound     = regexp.MustCompile(`\b(?:local )?function \w*\(([^)]*)\)|\blocal (\w+(?:, \w+)*)|\bfor (\w+(?:, \w+)*)`)
	called    = regexp.MustCompile(`(?:^|[^\w.:'])([a-z_]\w*)\(|\b([A-Z][A-Z_]{2,})\b`)
	quoted    = regexp.MustCompile(`--.*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"`)
	word      = regexp.MustCompile(`\w+`)
	builtin   = strings.Fields("tonumber tostring type ipairs pairs unpack error pcall function if and or not return " +
		"while until elseif in next KEYS ARGV")
)

// undefinedNames are the functions that a text calls, and the constants that it names, which it does not define.
func undefinedNames(text string) (list []string) {
	text = quoted.ReplaceAllString(text, "''")
	known := slices.Clone(builtin)
	for _, m := range functions.FindAllStringSubmatch(text, -1) {
		known = append(known, m[1])
	}
	for _, m := range bound.FindAllStringSubmatch(text, -1) {
		known = append(known, word.FindAllString(strings.Join(m[1:], ","), -1)...)
	}
	for _, m := range called.FindAllStringSubmatch(text, -1) {
		if name := m[1] + m[2]; !slices.Contains(known, name) && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

func TestScripts_Libraries_AreDeclared(t *testing.T) {
	t.Parallel()
	e := redistest.Embedded(t).Client(t)
	eachScript(t, func(file, source, text string) {
		require.Empty(t, undefinedNames(text), "%s calls functions of libraries that it does not declare", file)
		require.NoError(t, e.Do(t.Context(), e.B().ScriptLoad().Script(text).Build()).Error(), file)
		header, _, _ := strings.Cut("\n"+source, "\nlocal ")
		for _, part := range []string{"\n-- KEYS", "\n-- Repl", "wice"} {
			require.Contains(t, header, part, file)
		}
	})
	require.Equal(t, []string{"HIGH", "one"},
		undefinedNames("local function two(a) return a(HIGH) end\nreturn one() -- three()"))
}
