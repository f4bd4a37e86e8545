package house_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/redlatch/redlatch"
	_ "github.com/redlatch/redlatch/pubsub"
	_ "github.com/redlatch/redlatch/rcounter"
	_ "github.com/redlatch/redlatch/rcounter/ratelimit"
	_ "github.com/redlatch/redlatch/rcounter/redpacket"
	_ "github.com/redlatch/redlatch/rcounter/stock"
	_ "github.com/redlatch/redlatch/redlatchdebug"
	_ "github.com/redlatch/redlatch/redlatchtest"
	_ "github.com/redlatch/redlatch/rlock"
	_ "github.com/redlatch/redlatch/rlock/election"
	_ "github.com/redlatch/redlatch/rlock/locker"
	_ "github.com/redlatch/redlatch/rsemaphore"
)

// initLine is what the runtime says of the start of one package.
var initLine = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, \S+ ms clock, (\d+) bytes, (\d+) allocs$`)

// What a package makes before main, every program pays that imports it, at each start, whether it uses it or not. This
// test's own program is started again, to run nothing.
func TestImportingTheModuleAllocatesNextToNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process; leave -short out")
	}
	const mostBytes, mostAllocs = 256 << 10, 3000 // of all packages together
	_, all := house(t)
	var imported []string
	for _, s := range all {
		if s.path == "internal/house/import_test.go" {
			for _, i := range s.file.Imports {
				imported = append(imported, strings.Trim(i.Path.Value, `"`))
			}
		}
	}
	ours := map[string]bool{}
	for _, s := range library(all) {
		if s.file == nil || s.file.Name.Name == "main" {
			continue
		}
		pkg := strings.TrimSuffix(module+"/"+s.dir(), "/")
		ours[pkg] = !strings.HasPrefix(s.dir(), "internal/redistest")
		if !strings.Contains(pkg, "/internal/") && !slices.Contains(imported, pkg) {
			t.Errorf("%s is not imported here", pkg)
		}
	}

	program, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	bytes, allocs, packages := 0, 0, 0
	var lines []string
	for _, m := range initLine.FindAllStringSubmatch(string(out), -1) {
		if ours[m[1]] {
			b, err := strconv.Atoi(m[2])
			require.NoError(t, err)
			a, err := strconv.Atoi(m[3])
			require.NoError(t, err)
			bytes, allocs, packages = bytes+b, allocs+a, packages+1
			lines = append(lines, m[0])
		}
	}
	t.Logf("%d packages, %d bytes, %d allocations:\n%s", packages, bytes, allocs, strings.Join(lines, "\n"))
	require.Greater(t, packages, 5, "%s", out)
	require.LessOrEqual(t, bytes, mostBytes)
	require.LessOrEqual(t, allocs, mostAllocs)
}
