// Package testenv stands in for internal/testenv of the Go tree, which no other module may import.
package testenv

import (
	"os"
	"testing"
)

// Executable is the path of the running program.
func Executable(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// MustHaveExec skips nothing: these tests run where programs can be started.
func MustHaveExec(testing.TB) {}
