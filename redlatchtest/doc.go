// Package redlatchtest is for the tests of programs that use redlatch: a server in the test's own process, what other processes do
// to the program, and what goes wrong between it and the server. It is not for programs: import it in tests only.
//
//	func TestTheReportIsNotWrittenByTwo(t *testing.T) {
//		srv := redlatchtest.New(t)
//		red := srv.Open() // a *redlatch.Client, closed with the test
//		srv.HoldElsewhere("report")
//		err := writeReport(t.Context(), red)
//		if !errors.Is(err, rlock.ErrNotAcquired) {
//			t.Fatal(err)
//		}
//	}
//
// [New] needs neither a Redis nor a port, and ends with the test. The test fails if it leaves a hold, a permit or a client.
// Goroutines are not counted, because those of tests that run side by side cannot be told apart; a bubble of testing/synctest
// does not end while one is left.
//
// # What others do
//
//	HoldElsewhere, TakeElsewhere   another process has the lock, or permits: ErrNotAcquired
//	SellOut                        others have bought the stock, or emptied the red packet
//	Lose                           the lock, or the permits, are taken from whoever has them: ErrLost
//	Expire                         their leases run out on the server
//	Advance                        the server's clock runs ahead: reservations, sales, latches and leases end
//	Break                          calls fail, are slow, or get no answer: see [Fault]
//	Open, again                    another process, for everything else
//
// # Time
//
// There are two clocks, this process's and the server's, and three ways to move them:
//
//   - In a bubble of testing/synctest, with a server made there, both are the bubble's. Whatever waits, waits no time: a lease of an
//     hour is renewed and ends within milliseconds. What is sent meanwhile takes its time: a day in which a hold is renewed every 10 s
//     has 8,640 renewals, a second or two; with a WatchdogTimeout of an hour it has 72. This is the way for everything that ends by time, retries or polls.
//   - [Server.Advance] moves the server's alone, in a bubble or not.
//   - Lose and Expire move none: what they name ends on the server, and on it alone.
//
// A holder of a lock is told by the server that something happened to its key, as a real one does it by CLIENT TRACKING. It asks
// at once, and its contexts have ended a moment later; if the hold is younger than 50 ms, when it is as old. So a lock that is
// lost in the middle of the work takes no bubble and no time worth the name: wait for hold.Done(), or for the end of the work's
// ctx. A permit is looked at when it is renewed, every third of WatchdogTimeout, 10 s by default. There use a bubble, or have the
// holder ask: Permit.Extend returns ErrLost at once.
//
// In a bubble a hold must be released, or kept in a variable of the test, even after it was lost. One that is forgotten is found by
// the garbage collector, which is outside, and may not wake what is inside: Go ends the process with "close of synctest channel
// from outside bubble". And a Lock whose ctx has no end waits for ever on a server that is never healed, also in a bubble: give
// it a ctx with an end, or a waitTime.
//
// # What it is not
//
// The server is miniredis, which runs the library's scripts, with what it lacks of CLIENT TRACKING and WAIT beside it. It is one
// server: no Cluster, no Sentinel, no replica, no failover; nothing is evicted or written to disk; there are no users and rights
// (Denied plays them); the cache of rcounter's Cached is off, each look asks. What depends on these needs a real server.
// Times say nothing about the speed of one.
package redlatchtest
