package keyname_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

func TestAKeyThatAnotherObjectHasBesideItsOwnIsRefused(t *testing.T) {
	for _, p := range keyname.Derived {
		for _, name := range []string{"x", "order:{7}", "{x}:plain"} {
			require.ErrorIs(t, keyname.Check(keyname.Prefix(p, name)), errs.ErrInvalidName, "%s of %s", p, name)
			require.NoError(t, keyname.Shape(keyname.Prefix(p, name)))
		}
	}
	for _, s := range append(slices.Clone(keyname.Endings), "2b3c4d5e:7:rwlock_timeout:1") {
		for _, name := range []string{"x", "order:{7}", "{x}:plain"} {
			require.ErrorIs(t, keyname.Check(keyname.Suffix(name, s)), errs.ErrInvalidName, "%s of %s", s, name)
			require.NoError(t, keyname.Shape(keyname.Suffix(name, s)))
		}
		for _, good := range []string{s, "order:7:" + s, "{order:7}:" + s + "s", "{" + s + "}", "{x}" + s, "x:{" + s + "}"} {
			if !strings.Contains(s, "rwlock_timeout") {
				require.NoError(t, keyname.Check(good), good)
			}
		}
	}
	for _, bad := range []string{"redlatch_alive:2b3c4d5e-5a1e-8c61-9d0a-6f4f3a2b1c0d",
		"redisson_countdownlatch__channel__{x}", "rc:{s}:e"} {
		require.ErrorIs(t, keyname.Check(bad), errs.ErrInvalidName, bad)
	}
	for _, good := range []string{"redlatch_queue", "redlatch_queues:{x}", "my:redlatch_queue:{x}", "rc:7", "rc",
		"redlatch_check:abc"} {
		require.NoError(t, keyname.Check(good), good)
	}
}

// Every prefix that some package puts before the name of an object.
func TestEveryPrefixIsListed(t *testing.T) {
	found := derivations(t, `keyname\.Prefix\("([^"]*)"`)
	require.Greater(t, len(found), 8)
	for p, path := range found {
		require.Contains(t, keyname.Derived, p, path)
	}
}

// And every suffix. The "plain" of a queue has a prefix before it.
func TestEverySuffixIsListed(t *testing.T) {
	found := derivations(t, `keyname\.Suffix\([\w.]+, "([^"]+)"`)
	require.Greater(t, len(found), 4)
	for s, path := range found {
		require.Contains(t, append([]string{"plain", "p"}, keyname.Endings...), s, path)
	}
}

// derivations are what the library's calls have that match, and where.
func derivations(t *testing.T, call string) map[string]string {
	calls := regexp.MustCompile(call)
	found := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
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
