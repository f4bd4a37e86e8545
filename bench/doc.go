// Package bench measures redlatch, side by side with the least that would do the same work:
//
//	go test -run '^$' -bench . ./bench
//
// It takes four minutes on two processors, and half a minute of that is Cost, the first of the benchmarks. Every
// benchmark uses its own redis-server, which is started if one is in PATH. Otherwise it uses the embedded server of the
// tests, and the line "server:" says so: the embedded server does not count commands, and its times say little.
//
// # How to read a line
//
// Cost has x-raw: the time for an operation divided by that of the same scripts and commands, as they were recorded,
// sent by rueidis alone, and not together. So x-raw is what the client adds, or saves by sending calls together.
//
// Elsewhere start with x-floor. The floor is the shortest code for the task without redlatch:
//
//	locks, permits   SET NX PX to acquire, a script that compares and deletes to release
//	counters         INCR
//	claims, limits   the shortest script that does it, see bench/internal/load/floor.go
//	places           the same lock, on loopback
//
// Both take turns within one benchmark, a tenth of the operations each time, so that a change of the machine's speed
// meets both. x-floor is the time for an operation divided by the floor's: 1.3 means 1.3 times as long. 0.4 means that
// redlatch is faster, because it sends the calls of many goroutines together. Compare x-floor between runs and
// machines, and times only within one run.
//
//	ns/op        the time in which one operation was completed, of whichever goroutine
//	p50-us       the time of one operation as its caller sees it: lock and unlock, or the call
//	p99-us
//	cmds/op      commands that the server ran for one operation, those inside scripts included
//	scripts/op   script calls for one operation: with one goroutine, its round trips
//
// Where callers wait for each other there is no floor, because code that does not queue has no order to compare. An
// operation is then an acquisition, and p50-us and p99-us are the times from the call until it has the lock:
//
//	jain         1 if every goroutine got as much as the others, 1/n if one of n got everything
//
// Large shows what one process and one server bear: 100,000 held locks, and 40,000 goroutines that wait. With -short
// these are a hundredth:
//
//	B/each       memory of the process for one lock or waiter: heap and stacks, after a collection
//	cmds/s       what the server ran per second while nothing changed: for held locks the renewals, whose lease is the
//	scripts/s    default of 30 s
//	lost         held locks that the machine was too busy to renew in time
//
// The module bench/peers compares redlatch with other libraries.
package bench
