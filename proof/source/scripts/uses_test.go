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

// luaFile is a script or library of the module.
type luaFile struct {
	file    string // from the module's root
	text    string
	uses    []string
	defines []string // at the top level
}

var (
	topLevel  = regexp.MustCompile(`(?m)^local (?:function (\w+)|(\w+(?:, \w+)*))`)
	functions = regexp.MustCompile(`\blocal function (\w+)`)
	bound     = regexp.MustCompile(`\b(?:local )?function \w*\(([^)]*)\)|\blocal (\w+(?:, \w+)*)|\bfor (\w+(?:, \w+)*)`)
	called    = regexp.MustCompile(`(?:^|[^\w.:'])([a-z_]\w*)\(|\b([A-Z][A-Z_]{2,})\b`)
	quoted    = regexp.MustCompile(`--.*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"`)
	builtin   = strings.Fields("tonumber tostring type ipairs pairs unpack error pcall function if and or not return " +
		"while until elseif in KEYS ARGV")
)

func code(text string) string { return quoted.ReplaceAllString(text, "''") }

func names(lists ...string) (all []string) {
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name != "" {
				all = append(all, name)
			}
		}
	}
	return all
}

func readLua(t *testing.T, file string) luaFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../..", file))
	require.NoError(t, err)
	f := luaFile{file: file, text: string(text)}
	for line := range strings.Lines(f.text) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		if list, ok := strings.CutPrefix(line, "-- uses: "); ok {
			require.Empty(t, f.uses, "%s declares twice what it uses", file)
			f.uses = strings.Split(strings.TrimSpace(list), ", ")
		}
	}
	for _, m := range topLevel.FindAllStringSubmatch(code(f.text), -1) {
		f.defines = append(f.defines, names(m[1], m[2])...)
	}
	return f
}

// undefinedNames are the functions that a text calls, and the constants that it names, which it does not define.
func undefinedNames(text string) (list []string) {
	text = code(text)
	known := slices.Clone(builtin)
	for _, m := range functions.FindAllStringSubmatch(text, -1) {
		known = append(known, m[1])
	}
	for _, m := range bound.FindAllStringSubmatch(text, -1) {
		known = append(known, names(m[1], m[2], m[3])...)
	}
	for _, m := range called.FindAllStringSubmatch(text, -1) {
		if name := m[1] + m[2]; !slices.Contains(known, name) && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// checkUses says what is wrong with what a file declares, given the libraries by name.
func checkUses(f luaFile, libs map[string]luaFile) (wrong []string) {
	text := code(f.text)
	for _, name := range undefinedNames(f.text) {
		if !slices.ContainsFunc(f.uses, func(lib string) bool { return slices.Contains(libs[lib].defines, name) }) {
			wrong = append(wrong, f.file+" uses "+name+", of no library that it declares")
		}
	}
	for _, lib := range f.uses {
		if !slices.ContainsFunc(libs[lib].defines, func(name string) bool {
			return regexp.MustCompile(`\b` + name + `\b`).MatchString(text)
		}) {
			wrong = append(wrong, f.file+" declares "+lib+" and uses nothing of it")
		}
	}
	if before, _, ok := strings.Cut(f.text, "\n-- libraries\n"); ok && path.Base(path.Dir(f.file)) != "lib" &&
		len(undefinedNames(before)) > 0 {
		wrong = append(wrong, f.file+" uses a library above the line where libraries stand")
	}
	return wrong
}

// checkNames says what is defined twice in a text that is sent: functions, names of the top level, and what hides one.
func checkNames(file, text string) (wrong []string) {
	text = code(text)
	top, count := map[string]bool{}, map[string]int{}
	for _, m := range topLevel.FindAllStringSubmatch(text, -1) {
		for _, name := range names(m[1], m[2]) {
			top[name] = true
			if m[2] != "" {
				count[name]++
			}
		}
	}
	isFunction := map[string]bool{}
	for _, m := range functions.FindAllStringSubmatch(text, -1) {
		count[m[1]]++
		isFunction[m[1]] = true
	}
	for _, line := range strings.Split(text, "\n") {
		for _, m := range bound.FindAllStringSubmatch(line, -1) {
			for _, name := range names(m[1], m[2], m[3]) {
				if isFunction[name] && name != "function" {
					wrong = append(wrong, file+": "+name+" is a function and a variable")
				}
			}
		}
	}
	for name, n := range count {
		if n > 1 {
			wrong = append(wrong, file+": "+name+" is defined twice")
		}
	}
	return wrong
}

func TestScripts_Libraries_AreDeclared(t *testing.T) {
	t.Parallel()
	var scripts []luaFile
	folders := map[string]map[string]luaFile{} // of libraries, by name
	shared := map[string]luaFile{}
	require.NoError(t, filepath.WalkDir("../../..", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(at, ".lua") {
			return err
		}
		file := strings.TrimPrefix(filepath.ToSlash(at), "../../../")
		dir, name := path.Dir(file), strings.TrimSuffix(path.Base(file), ".lua")
		switch {
		case dir == "internal/script/lua":
			shared[name] = readLua(t, file)
		case strings.HasSuffix(dir, "/lua/lib"):
			folder := path.Dir(path.Dir(dir))
			if folders[folder] == nil {
				folders[folder] = map[string]luaFile{}
			}
			folders[folder][name] = readLua(t, file)
		case strings.HasSuffix(dir, "/lua"):
			scripts = append(scripts, readLua(t, file))
		}
		return nil
	}))
	libraries := func(folder string) map[string]luaFile {
		all := map[string]luaFile{}
		for name, f := range shared {
			all[name] = f
		}
		for name, f := range folders[folder] {
			require.NotContains(t, shared, name, "%s has the name of a library that all packages share", f.file)
			all[name] = f
		}
		return all
	}
	for folder := range folders {
		for _, f := range folders[folder] {
			require.Empty(t, checkUses(f, libraries(folder)))
		}
	}
	for _, f := range shared {
		require.Empty(t, checkUses(f, shared))
	}
	e := redistest.Embedded(t).Client(t)
	for _, f := range scripts {
		folder := path.Dir(path.Dir(f.file))
		require.Empty(t, checkUses(f, libraries(folder)))
		name := strings.TrimSuffix(path.Base(f.file), ".lua")
		text, err := script.Compose(os.DirFS(filepath.Join("../../..", folder)), name)
		require.NoError(t, err, f.file)
		require.Empty(t, checkNames(f.file, text))
		require.NoError(t, e.Do(t.Context(), e.B().ScriptLoad().Script(text).Build()).Error(), f.file)
		header, _, _ := strings.Cut("\n"+f.text, "\nlocal ")
		for _, part := range []string{"\n-- KEYS", "\n-- Repl", "wice"} {
			require.Contains(t, header, part, f.file)
		}
	}
}

func TestScripts_WrongDeclaration_IsFound(t *testing.T) {
	libs := map[string]luaFile{"a": {defines: []string{"one", "HIGH"}}, "b": {defines: []string{"two"}}}
	for _, c := range []struct{ text, uses, wrong string }{
		{"return one(HIGH)\n", "a", ""},
		{"return two()\n", "a b", "f declares a and uses nothing of it"},
		{"return one()\n", "", "f uses one, of no library that it declares"},
		{"return HIGH\n", "", "f uses HIGH, of no library that it declares"},
		{"local function two() end\nreturn two() -- one()\n", "", ""},
		{"return one()\n-- libraries\nreturn one()\n", "a", "f uses a library above the line where libraries stand"},
	} {
		got := checkUses(luaFile{file: "f", text: c.text, uses: strings.Fields(c.uses)}, libs)
		require.Equal(t, c.wrong, strings.Join(got, "; "), c.text)
	}
	for text, wrong := range map[string]string{
		"local function a(b) local c end\nlocal function d(b) local c end\n": "",
		"local function a() end\nlocal function a() end\n":                   "f: a is defined twice",
		"local a = 1\nlocal b, a = 2\n":                                      "f: a is defined twice",
		"local function a() end\nif x then\n  local a = 1\nend\n":            "f: a is a function and a variable",
		"local function a() end\nfor _, a in ipairs(x) do end\n":             "f: a is a function and a variable",
		"local function a(b) end\nlocal function c(a) end\n":                 "f: a is a function and a variable",
	} {
		require.Equal(t, wrong, strings.Join(checkNames("f", text), "; "), text)
	}
}
