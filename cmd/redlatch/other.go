//go:build !unix

package main

import (
	"fmt"
	"os"
)

// Signals, process groups and terminals are those of Unix.
func main() {
	fmt.Fprintln(os.Stderr, "redlatch: this command runs on Linux, macOS and other Unix systems only")
	os.Exit(71)
}
