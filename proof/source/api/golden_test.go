package api_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden listings of the API")

// A change of the exported API shows in a review as a change of its listing. Once a version is tagged, gorelease
// compares with that in place of this.
func TestAPI_EveryPublicPackage_IsItsGoldenListing(t *testing.T) {
	packages := map[string]bool{}
	for _, s := range library(t) {
		if strings.HasSuffix(s.path, ".go") && s.public() {
			packages[strings.TrimSuffix(module+"/"+s.dir(), "/")] = true
		}
	}
	require.GreaterOrEqual(t, len(packages), 12)
	for pkg := range packages {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			golden, now := filepath.Join("testdata", strings.ReplaceAll(pkg, "/", ".")+".txt"), listing(t, pkg)
			require.NotRegexp(t, `(?m)^(\t|const |var )(Default|Min|Max)[A-Z]\w*( \S+)? = `, now,
				"a bound is said in the comment of its option, and by the error that refuses it")
			looks := strings.ReplaceAll(now, "func (s *Sale) Status(", "") // of an order, which it may ask for often
			require.NotRegexp(t, `\) (State|Status|Stat|Info)\(`, looks, "the verb of looking is Inspect")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(now), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err, "go -C proof test ./source/api -run API -update")
			require.Equal(t, string(want), now,
				"if this change of the API is meant: go -C proof test ./source/api -run API -update")
		})
	}
}

// declared is where go doc is done with the comment of the package.
var declared = regexp.MustCompile(`\n(CONSTANTS|VARIABLES|FUNCTIONS|TYPES)\n\n`)

// listing is go doc of a package without its comments.
func listing(t *testing.T, pkg string) string {
	t.Helper()
	out, err := exec.Command("go", "-C", root, "doc", "-all", pkg).Output()
	require.NoError(t, err)
	from := declared.FindIndex(out)
	require.NotNil(t, from)
	lines := code(string(out[from[0]:]))
	if pkg == module { // the types that all packages have: the listings of the others name them
		for _, of := range aliased.FindAllStringSubmatch(lines, -1) {
			out, err := exec.Command("go", "-C", root, "doc", module+"/internal/"+of[1], of[2]).Output()
			require.NoError(t, err)
			lines += code(string(out))
		}
	}
	return lines
}

// aliased is a type that an internal package declares.
var aliased = regexp.MustCompile(`(?m)^type \w+ = (\w+)\.(\w+)$`)

// code is what go doc prints without comments.
func code(text string) string {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "//")
		if code = strings.TrimRight(code, " \t\n"); code != "" && !strings.HasPrefix(line, "    ") {
			lines.WriteString(code + "\n")
		}
	}
	return lines.String()
}
