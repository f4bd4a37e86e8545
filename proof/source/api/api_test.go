// Package api_test compares the exported API with its golden listing, and holds it to rules that no linter knows: the
// tests of redlatchtest provoke every error, every log line is documented, and packages link what a user expects.
package api_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/redlatch/redlatch"
	root   = "../../.."
)

// source is a Go or Lua file of the library.
type source struct{ path, text string } // from the root, with slashes

// dir is the file's folder, "" for the root.
func (s source) dir() string { return strings.TrimPrefix(path.Dir(s.path), ".") }

func (s source) public() bool { return !strings.HasPrefix(s.path, "internal/") }

// library are the files of the module that users import, without tests and without modules of their own.
func library(t *testing.T) []source {
	t.Helper()
	all, err := files()
	require.NoError(t, err)
	require.Greater(t, len(all), 100, "the tree was not found")
	return all
}

// files reads the tree once for all tests.
var files = sync.OnceValues(func() (all []source, err error) {
	return all, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if base := d.Name(); name != root && (err == nil || base[0] == '.' || base == "docs" || base == "bench") {
				return fs.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(name); ext != ".go" && ext != ".lua" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		all = append(all, source{strings.TrimPrefix(filepath.ToSlash(name), root+"/"), string(text)})
		return err
	})
})

// TestErrors_Exported_AreProvokedWithTheTestKit goes by names: pkg.ErrX in a test of redlatchtest. An error that
// several packages share, which is one value under one name, counts once.
func TestErrors_Exported_AreProvokedWithTheTestKit(t *testing.T) {
	provoked := map[string]bool{} // ErrX, and pkg.ErrX
	tests, err := filepath.Glob(root + "/redlatchtest/*_test.go")
	require.NoError(t, err)
	used := regexp.MustCompile(`\b\w+\.(Err[A-Z]\w*)`)
	for _, file := range tests {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range used.FindAllStringSubmatch(string(text), -1) {
			provoked[m[0]], provoked[m[1]] = true, true
		}
	}
	found := 0
	declared := regexp.MustCompile(`(?m)^(?:var |\t)(Err[A-Z]\w*)\s+= (?:errs\.(Err\w+))?`)
	for _, s := range library(t) {
		if !s.public() {
			continue
		}
		pkg := regexp.MustCompile(`(?m)^package (\w+)`).FindStringSubmatch(s.text)
		for _, m := range declared.FindAllStringSubmatch(s.text, -1) {
			found++
			as := m[2] // one that packages share
			if as == "" {
				as = pkg[1] + "." + m[1]
			}
			require.True(t, provoked[as], "%s: no test of redlatchtest shows how a test provokes %s", s.path, as)
		}
	}
	require.Greater(t, found, 25, "of all packages")
}
