package api_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dependencies are the packages that these packages of the root module link, without the standard library's.
func dependencies(t *testing.T, standard bool, packages ...string) []string {
	t.Helper()
	format := "{{if not .Standard}}{{.ImportPath}}{{end}}"
	if standard {
		format = "{{.ImportPath}}"
	}
	out, err := exec.Command("go", append([]string{"-C", root, "list", "-deps", "-f", format}, packages...)...).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

func TestDependencies_OfAPackage_AreWhatAUserLinks(t *testing.T) {
	everything := []string{".", "./pubsub", "./rlock/...", "./rsemaphore/...", "./rcounter/...", "./redlatchdebug"}
	allowed := regexp.MustCompile(`^(` + module + `|github\.com/redis/rueidis|golang\.org/x/(sync|sys|time))(/|$)`)
	for _, pkg := range dependencies(t, false, everything...) {
		require.Regexp(t, allowed, pkg)
		require.NotEqual(t, module+"/redlatchtest", pkg)
	}
	linked := dependencies(t, true, everything[:len(everything)-1]...)
	for _, web := range []string{"net/http", "html/template"} {
		require.False(t, slices.Contains(linked, web), "redlatchdebug alone may link %s", web)
	}
	// A program that imports a package links that package, and what it is built on.
	public := regexp.MustCompile("^" + module + "(/r|$)")
	for _, pkg := range []string{"rlock", "rsemaphore", "rcounter", "rcounter/stock", "rcounter/redpacket",
		"rcounter/ratelimit"} {
		for _, dependency := range dependencies(t, false, "./"+pkg) {
			if public.MatchString(dependency) {
				require.Equal(t, module+"/"+pkg, dependency)
			}
		}
	}
}

// Leases are counted on the monotonic clock, and the server is sent differences only.
func TestClocks_OfTheLibrary_AreMonotonicOrTheServers(t *testing.T) {
	wall := regexp.MustCompile(`\b(PXAT|EXAT|PEXPIREAT|EXPIREAT|Pxat|Exat|Pexpireat|Expireat)\b|` +
		`\b(UnixMilli|UnixNano|UnixMicro)\b|time\.Now\(\)\.Unix`)
	for _, s := range library(t) {
		// The debug page shows times to people: it sends none of them.
		if strings.HasPrefix(s.dir(), "internal/redistest") || strings.HasPrefix(s.dir(), "internal/oracle") ||
			strings.HasPrefix(s.dir(), "redlatchdebug") {
			continue
		}
		for line := range strings.Lines(s.text) {
			// latch_set.lua takes its instant from the server's TIME, which it reads itself.
			if s.path == "rsemaphore/lua/latch_set.lua" && strings.Contains(line, "PXAT") {
				continue
			}
			require.NotRegexp(t, wall, line, s.path)
		}
	}
}
