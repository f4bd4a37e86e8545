// Command rivals has locks of other libraries, and ours, contended for while the faults of internal/chaos befall them,
// and writes docs/chaos/rivals.md.
//
//	go -C internal/chaos/rivals run . -markdown ../../../docs/chaos/rivals.md    # all: about half an hour
//	go -C internal/chaos/rivals run . -only redsync/holder-paused -seed 7        # one cell
//	go -C internal/chaos/rivals run . -only "redsync,*/FLUSHALL" -without redisson
//	go -C internal/chaos/rivals run . -only redislock/replies-lost -edn DIR      # with its history, as Knossos reads it
//	go -C internal/chaos/rivals run . -resume rivals.jsonl                       # what is in the file is not run again
//
// A cell that a library cannot be run in, as there is no Java or no C compiler, is "not run". The exit code is 1 if our
// own lock had two holders where docs/safety.md promises one.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/redlatch/redlatch/internal/chaos/cells"
)

var libraries = slices.Concat(cells.Ours[:1], redisLibraries, []cells.Library{redissonLibrary, etcdLibrary},
	cells.Ours[1:])

func main() {
	if order := os.Getenv(etcdEnv); order != "" {
		if err := serveEtcd(order); err != nil {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			os.Exit(1)
		}
		return
	}
	cells.Contest(libraries, claims)
}
