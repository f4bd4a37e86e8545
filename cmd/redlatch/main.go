//go:build unix

// Command redlatch runs commands under locks and semaphores on Redis or Valkey, shows who holds and waits, and manages
// sales.
//
//	redlatch run --lock nightly-report --wait 10s -- ./report.sh
//	redlatch inspect nightly-report
//
// `redlatch help` lists the commands, and docs/cli.md has a first use, the exit codes and what each command promises.
// It is built on the packages of the library, so its locks are those of Go and Java programs that use the same names.
package main

import (
	"io"
	"os"
)

func main() {
	os.Exit(execute(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// streams are where a command reads and writes: data to out, messages to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}
