package redistest

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
)

// RoleEnv names the role of a process that a test has started.
const RoleEnv = "REDLATCH_ROLE"

// waiters is how many tests of a package run side by side where the user did not say. Nearly all of them wait for
// leases, polls and servers most of their time, so that one for each core, go test's default, leaves the cores idle.
const waiters = 8

// SideBySide runs fn as a test of each case, all at the same time, and in the one place that t has among those that
// -parallel allows. It is for cases that wait nearly all the time; fn must not call t.Parallel.
func SideBySide[C any](t *testing.T, cases map[string]C, fn func(t *testing.T, name string, c C)) {
	t.Helper()
	var all sync.WaitGroup
	for name, c := range cases {
		all.Go(func() { t.Run(name, func(t *testing.T) { fn(t, name, c) }) })
	}
	all.Wait()
}

// Main is a package's TestMain. In a process that has a role it is that role, one of roles: which reads its orders from
// standard input, whose end means that the test is gone, and answers on standard output.
func Main(m *testing.M, roles map[string]func() error) {
	if name := os.Getenv(RoleEnv); name != "" {
		if err := roles[name](); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", strconv.Itoa(waiters)) // there is one in every test program, and it is a number
	}
	debug.SetGCPercent(1600) // a test lives shortly, and has little
	reusing = true
	status := m.Run()
	endUnused()
	os.Exit(status)
}
