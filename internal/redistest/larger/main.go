// Command larger prints the regular expression of the module's tests that do more with REDLATCH_LONG=1, for go test
// -run. All others are the same in full, and need not run twice. Run it in the module's root.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/redistest/reach"
)

func main() {
	tests, err := ofModule(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "larger:", err)
		os.Exit(1)
	}
	var names []string
	for _, list := range tests {
		names = append(names, list...)
	}
	slices.Sort(names)
	fmt.Printf("^(%s)$\n", strings.Join(slices.Compact(names), "|"))
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
