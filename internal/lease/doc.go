// Package lease is the watchdog: it renews what is held, and tells holders when it no longer is.
//
// # Deadlines
//
// A lease's deadline is
//
//	(monotonic time before the request that confirmed it was sent) + lease - Margin(lease)
//
// and moves only when the server confirms a renewal. A renewal in flight moves nothing: a holder cut off from the
// server must stop before the server lets somebody else in, and the server started counting no earlier than the send.
//
// # Renewal
//
// One goroutine keeps the time of all leases of a client. Every third of its length a lease is renewed, on an absolute
// schedule; what is due at about the same time for the same node's slot goes into one script call of at most batchSize
// leases. A failed call says nothing about the leases in it, and is repeated until their deadlines; one lease's
// failure never touches another's.
//
// A renewal script has KEYS = the leases' keys (Key and More of each) and ARGV = owner, lease in ms for each; it
// replies one integer for each: 1 renewed, 0 the owner holds nothing there, -1 not known (an error on that key alone), -3 the
// user may not read that key, -2 the key holds another type: the lease is over, and was not released.
// Lease -1 asks only whether it is held, and for how long: 1 + ms left, 1 without end. (0 asks only whether it is held; nothing
// here does.)
//
// While a slot is being migrated its keys may be on two nodes, for as long as that takes, and the server refuses what uses
// both (TRYAGAIN; also if a key that is not there is among them). Then each lease is renewed alone, and one of several keys
// key by key: KEYS = one of them, ARGV = owner, lease, which it is (from 1); the script does what is to be done there, and
// replies the same. The lease is renewed if every key says so, twice (see askByKey).
//
// # Sleep
//
// The monotonic clock of most systems stands still while the machine is suspended, or its virtual machine stopped; the
// server's goes on. A deadline is then later than the server's end of the lease, by the length of the sleep:
//
//	holder                                    server
//	granted for 60 s, trusted until 60 s
//	10 s later it falls asleep for 20 s
//	wakes at 10 s of its clock                30 s left
//	                                          lets somebody else in when the holder's clock says 40 s
//	stops at 60 s
//
// That it slept shows in nothing but the wall clock, which has run ahead; but that may have been set. So a jump ends
// nothing, and is not believed either: everything is renewed or asked about at once, and until the answer Until is earlier by
// the jump. A renewal that is confirmed counts from its own send. What is not renewed is asked how long it has left, and
// that, counted from before the question was sent, less the margin, is its deadline from then on. If the clock was only set,
// this is what the deadline was. What was sent before the jump was noticed is no answer.
//
// A jump is noticed within a tick, and by Until at once. While the server does not answer, the hold's contexts last until
// the deadline as it was: what is acted on then has to ask Until.
//
// # The race with release
//
// A lease is removed before its release is sent, and the answer of a renewal that was under way then is dropped. The
// renewal itself may still reach the server after the release: it names an owner that is never used again, finds
// nothing, and changes nothing.
package lease
