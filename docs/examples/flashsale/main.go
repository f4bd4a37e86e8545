// Flashsale allocates a stock to a crowd: first come, first served, one unit to a user, from several processes that
// may be killed at any moment. It is what redlatch is for, in one program:
//
//   - rcounter's Stock decides who wins. A claim is answered the same however often it is asked, so after a crash or a
//     lost reply the whole recovery is to ask again.
//   - rlock's lock makes one of the worker processes the leader that opens the sale.
//
// Run it from the root of the repository; nothing but Go is needed:
//
//	go run ./docs/examples/flashsale
//	go run ./docs/examples/flashsale -redis 127.0.0.1:6379 -claims claims.csv -out winners.csv
//	go run ./docs/examples/flashsale -redpacket 200.00 -stock 50
//	go run ./docs/examples/flashsale -redis 127.0.0.1:6379 -shards 3
//	go run ./docs/examples/flashsale -help
//
// The first serves a Redis of its own (miniredis) and lets 10,000 simulated users claim 100 units. While a longer run
// goes on (-users 1000000), kill -9 any worker: their ids are shown when they start.
//
// # How it works
//
// The parent process (program.go, sale.go) reads the claims (claims.go) and runs itself again as worker processes
// (worker.go), to which it talks in lines (protocol.go). Each has a slot (slot.go) that remembers what it was asked and
// has not answered, and starts another in its place when it dies. Answers go into the books (books.go), which at the
// end are held against the promises. shop.go and goods.go are all that touches redlatch.
package main

import (
	"errors"
	"flag"
	"os"
)

func main() {
	if os.Getenv(workerEnv) == "1" {
		os.Exit(work(os.Stdin, os.Stdout))
	}
	os.Exit(program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, signals: listen()}.run(os.Args[1:]))
}

func isHelp(err error) bool { return errors.Is(err, flag.ErrHelp) }
