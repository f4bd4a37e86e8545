// Command rivals has locks of other libraries, and ours, contended for while the faults of internal/chaos befall them,
// and writes docs/chaos/rivals.md.
//
//	go -C internal/chaos/rivals run . -markdown ../../../docs/chaos/rivals.md    # all: about half an hour
//	go -C internal/chaos/rivals run . -only redsync/holder-paused -seed 7        # one cell
//	go -C internal/chaos/rivals run . -only "redsync,*/FLUSHALL" -without redisson
//	go -C internal/chaos/rivals run . -only redislock/replies-lost -edn DIR      # with its history, as Knossos reads it
//	go -C internal/chaos/rivals run . -resume rivals.jsonl                       # what is in the file is not run again
//	go -C internal/chaos/rivals run . late -markdown ../../../docs/chaos/late.md # late writes: see late.go
//
// A cell that a library cannot be run in, as there is no Java or no C compiler, is "not run". The exit code is 1 if our
// own lock had two holders where docs/safety.md promises one, or lost an update under our guard.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/redlatch/redlatch/internal/chaos/cells"
)

var libraries = slices.Concat(cells.Ours[:1], redisLibraries, []cells.Library{redissonLibrary, etcdLibrary},
	cells.Ours[1:])

// role is what this program does as a process that another of it has started. It reports that there is such a role.
func role() (ok bool, err error) {
	if order := os.Getenv(etcdEnv); order != "" {
		return true, serveEtcd(order)
	}
	if os.Getenv(lateEnv) != "" {
		return true, holdLate(context.Background(), os.Stdin, os.Stdout)
	}
	return false, nil
}

func main() {
	ok, err := role()
	if !ok && !cells.Role() && len(os.Args) > 1 && os.Args[1] == "late" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		ok, err = true, late(ctx, os.Args[2:], os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rivals:", err)
		os.Exit(1)
	}
	if !ok {
		cells.Contest(libraries, claims)
	}
}
