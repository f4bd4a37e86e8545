// Command larger prints the regular expression of the module's tests that do more with REDLATCH_LONG=1, for go test
// -run, and on a second line their packages. All others are the same in full, and need not run twice. Run it in the
// module's root. With -of 8 these are an eighth of the tests, others every day.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest/reach"
)

func main() {
	of := flag.Int("of", 1, "one `N`th of the tests, another every day")
	flag.Parse()
	tests, err := ofModule(".")
	if err == nil && (*of < 1 || flag.NArg() > 0) {
		err = fmt.Errorf("-of must be 1 or more, and is %d; what follows it is %q", *of, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "larger:", err)
		os.Exit(1)
	}
	names, packages := share(tests, *of, int(time.Now().Unix()/86400))
	fmt.Printf("^(%s)$\n%s\n", strings.Join(names, "|"), strings.Join(packages, " "))
}

// share returns every so many-th of the tests, and their folders. Those of one package, some of which take a minute,
// are on days that follow each other. After as many days all tests have had their turn.
func share(tests map[string][]string, of, day int) (names, packages []string) {
	i := 0
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		before := len(names)
		for _, name := range slices.Sorted(slices.Values(tests[dir])) {
			if i%of == day%of {
				names = append(names, name)
			}
			i++
		}
		if len(names) > before {
			packages = append(packages, "./"+filepath.ToSlash(dir))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), packages
}

// ofModule returns the tests of each folder of the module at root that has any.
func ofModule(root string) (map[string][]string, error) {
	asked, err := switches(root)
	if err != nil {
		return nil, err
	}
	return reach.Tests(root, asked)
}

// switches returns what a test may use to ask how much it should do. With -short SkipShort skips, which has nothing to
// do with how much is done in full.
func switches(root string) (map[string]bool, error) {
	return reach.Kit(root, map[string]bool{"LongEnv": true}, "SkipShort")
}
