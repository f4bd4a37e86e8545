// Flashsale sells a stock to a crowd: first come, first served, one unit to a user. Several processes sell it, and each
// of them may be killed at any moment. The program shows redlatch as a whole:
//
//   - A Stock (rcounter/stock) decides which users win. A repeated claim gets the same answer, so the whole recovery
//     after a crash or a lost reply is to ask again.
//   - A lock (rlock) makes one of the worker processes the leader, which opens the sale.
//
// Run it from the root of the repository. It needs nothing but Go:
//
//	go -C docs/examples run ./flashsale
//	go -C docs/examples run ./flashsale -redis 127.0.0.1:6379 -claims claims.csv -out winners.csv
//	go -C docs/examples run ./flashsale -redpacket 200.00 -stock 50
//	go -C docs/examples run ./flashsale -fast
//	go -C docs/examples run ./flashsale -help
//
// The first command starts an embedded server (miniredis) and lets 10,000 simulated users claim 5,000 units, 500 a
// second. It takes 20 s: kill any worker with kill -9 meanwhile. The program prints their ids when they start. With
// -fast it takes a second.
//
// A sale in which units are paid first, with an order database, is examples/shop.
//
// # How it works
//
//   - The parent process (program.go, sale.go) reads the claims (claims.go) and starts itself again as worker processes
//     (worker.go). It exchanges lines with them (protocol.go).
//   - Each worker has a slot (slot.go). The slot remembers the claims that the worker has not answered, and starts
//     another worker when it dies.
//   - Answers go into the books (books.go). At the end the program compares the books with the promises.
//   - Only shop.go and goods.go use redlatch.
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
