package rsemaphore_test

import (
	"fmt"
	"os"
	"testing"
)

// roles are what this test binary can be when it runs itself again as another process: by the name in REDLATCH_ROLE.
// A role reads its orders from standard input, whose end means that the test is gone, and answers on standard output.
var roles = map[string]func() error{}

func TestMain(m *testing.M) {
	if name := os.Getenv("REDLATCH_ROLE"); name != "" {
		if err := roles[name](); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
