package api_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/keyname"
)

// Every prefix that some package puts before the name of an object.
func TestKeys_Prefixes_AreListed(t *testing.T) {
	found := derivations(t, `keyname\.Prefix\("([^"]*)"`)
	require.Greater(t, len(found), 8)
	for p, path := range found {
		require.Contains(t, keyname.Derived, p, path)
	}
}

// And every suffix.
func TestKeys_Suffixes_AreListed(t *testing.T) {
	found := derivations(t, `keyname\.Suffix\([\w.]+, "([^"]+)"`)
	require.Greater(t, len(found), 4)
	for s, path := range found {
		require.Contains(t, append([]string{"p"}, keyname.Endings...), s, path)
	}
}

// derivations are what the library's calls have that match, and where.
func derivations(t *testing.T, call string) map[string]string {
	calls := regexp.MustCompile(call)
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range calls.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = path
		}
		return err
	})
	require.NoError(t, err)
	return found
}
