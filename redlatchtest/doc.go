// Package redlatchtest is for the tests of programs that use redlatch: a server in the test's own process, the acts of
// other processes, and faults between the program and the server. Import the package in tests only.
//
//	func TestTheReportIsNotWrittenByTwo(t *testing.T) {
//		srv := redlatchtest.New(t)
//		red := srv.Open() // a *redlatch.Client, closed with the test
//		srv.HoldElsewhere("report")
//		err := writeReport(t.Context(), red)
//		if !errors.Is(err, redlatch.ErrNotAcquired) {
//			t.Fatal(err)
//		}
//	}
//
// [New] needs neither a Redis nor a port, and ends with the test. The test fails if it leaves a hold, a permit or a
// client. Goroutines are not counted, because those of parallel tests cannot be distinguished; a bubble of
// testing/synctest does not end while one is left.
//
// # What others do
//
//	HoldElsewhere, TakeElsewhere   another process has the lock, or permits: ErrNotAcquired
//	SellOut                        others have bought the sale out, or emptied the red packet
//	Lose                           the lock, or the permits, are taken from their holder: ErrLost
//	Expire                         their leases run out on the server
//	Advance                        the server's clock runs ahead: reservations, sales, latches and leases end
//	Break                          calls fail, are slow, or get no answer: the package's Faults
//	Open, again                    another process, for everything else
//
// # Time
//
// There are two clocks, this process's and the server's, and three ways to move them:
//
//   - In a bubble of testing/synctest, with a server made there, both are the bubble's, and waiting takes no time.
//     Requests do: a day in which a hold is renewed every 10 s has 8,640 renewals, a second or two; with a
//     WatchdogTimeout of an hour it has 72. Use this for everything that ends by time, retries or polls.
//   - [Server.Advance] moves the server's alone, in a bubble or not.
//   - Lose and Expire move neither clock: the lock or the permits end on the server, and only there.
//
// The server notifies a lock's holder of changes of its key, as a real server does by CLIENT TRACKING. A hold younger
// than 50 ms is notified when it is 50 ms old. So a lost lock needs no bubble and almost no time: wait for hold.Done(),
// or for the end of the work's ctx. A permit is only renewed, every third of WatchdogTimeout, 10 s by default: use a
// bubble, or Permit.Extend, which returns ErrLost at once.
//
// In a bubble a hold must be released, or kept in a variable of the test, even after it was lost. The garbage
// collector, which is outside the bubble, finds a forgotten hold: Go ends the process with "close of synctest channel
// from outside bubble". A Lock whose ctx has no end waits forever on a server that is never healed: give it a deadline
// or a waitTime.
//
// # What it is not
//
// The server is miniredis, with CLIENT TRACKING and WAIT added. The test has a single server, without Cluster,
// Sentinel, replica or failover. The server evicts nothing and writes nothing to disk, and has neither users nor rights
// (Denied plays them). The cache of rcounter's Cached is off. A test of these features needs a real server. Times say
// nothing about the speed of a real server.
package redlatchtest
