// Shop is a flash sale with payment, as a shop would run it: customers reserve over HTTP, pay at a bank, cancel, pay
// too late, and want their money back. Shop workers serve them, ledger movers write every sale into an order database
// (SQLite), and each of these processes may be killed at any moment. At the end the program proves that the answers
// to the customers, the sales of the stock, the orders in the database and the money at the bank agree.
//
// It needs nothing but Go. In docs/examples/shop:
//
//	go run .                          an embedded server; the program prints where its live page is
//	go run . -chaos                   kills, cuts, lost replies, SCRIPT FLUSH, restarts of the server
//	go run . -chaos -redis-server     the same on a redis-server of its own, with appendfsync always
//	go run . -help
//
// The two-minute start is examples/flashsale, which sells without payment. docs/stocks.md has a picture of the live
// page.
//
// # The processes
//
//	customers ---- POST /reserve, /cancel, /refund, GET /order/{id} ---> shop workers ---> stock (Redis)
//	    |                                                                 ^      |           | ledger
//	    | POST /charge                            POST /pay, again and    |      | POST      v
//	    +-------------------------------> bank ---again until 200 --------+      | /refund  movers ---> order database
//	                                        ^------------------------------------+
//
// Customers and bank are the world outside: they live in the parent process (program.go, sale.go), which also starts
// the others as copies of itself (process.go), injects the faults (chaos.go), shows the page (page.go, page.html) and
// checks (check.go).
//
// # One id
//
// The customer's client makes the id of an order before its first request. It is the id of the reservation in the stock
// and, with a suffix, of the payment at the bank (ids.go). So every request may be repeated by anybody, at any time, at
// any worker: the stock and the bank know the id, and give the answer they gave. No worker remembers anything.
//
// # What decides
//
// The stock decides what a payment has bought, by one act on the order's id; then money moves (stockroom.go). A payment
// that comes too late takes a unit if one is left. If none is, the order is closed in the stock by the same act:
// otherwise a second call of the bank, a moment later, could find a unit that has come back meanwhile, and the customer
// would have both.
//
// Every act is an entry of the stock's ledger, written by the script that does it. The movers (mover.go) bring the
// order database up to date with them: the entries and the shop's own table of orders in one transaction, each entry
// once (contrib/ledger).
//
// # What a crash leaves, and who mends it
//
//	killed                                        leaves                              mended by
//	a worker, before it answered /reserve         a unit that is perhaps held         the customer, who asks again; else its time ends
//	a worker, after Confirm and before its 200    a unit sold                         the bank, which calls again: the same answer
//	a worker, between the decision and the        money that is not paid back yet     the bank, which calls again: the same decision
//	  repayment of a late payment
//	a worker, between the return of a unit and    money that is not paid back yet     the customer, who asks again
//	  the repayment
//	a mover, before or after its commit           entries that stay in the ledger     the other mover, or the next: an entry counts once
//	the connection, or Redis (its data kept)      an answer that did not arrive       its caller, under the same id
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role, os.Stdin))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status := program{stdout: os.Stdout, stderr: os.Stderr}.run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}
