// Package script runs Lua scripts on the server and says what is known of each run.
//
// A call ends in one of three ways. Callers learn which, because they must act differently:
//
//	answered   the server replied, with a result or with an error of the script's own
//	not run    nothing happened on the server (errs.ErrUnavailable): anything may be sent again
//	unknown    the request was sent, and no reply was seen (errs.ErrUnknownOutcome), so the script may have run, or may
//	           run later; only a script that may run twice can be sent again
//
// # A request
//
//  1. Attempt makes the call in flight: a goroutine calls rueidis with a deadline of 15 s. The caller waits for the
//     reply, for the call timeout or for the end of its ctx. If the server replied within the last 25 ms, no connection
//     was begun since, and ctx leaves the call at least 7/8 of its call timeout, Attempt makes the call in place: a
//     cancellation may then go unnoticed until that timeout, if the server falls silent in that very call.
//  2. send sends EVALSHA and, after NOSCRIPT and after nothing else, EVAL.
//  3. classify says what an error proves: answered; not run (refused before the first write, connection refused, never
//     sent); unknown.
//  4. Attempt returns the error of that class. Do repeats a call that did not run, and a call of unknown outcome unless
//     Call.Once is set. The pauses grow from 2 ms to 256 ms, half of each random, and ctx ends the repetition.
//
// A caller that has left learns of a late grant by Call.Late, and releases it:
//
//	caller                          attempt's goroutine       server
//	Attempt ----------------------> EVALSHA ----------------> (slow)
//	the call timeout is over
//	returns ErrUnknownOutcome
//	                                                          runs: granted
//	                                Call.Late <-------------- reply
//
// # Not after
//
// A script that grants something gets an instant in the server's own time, after which it does nothing and answers
// LATE: see [Timed]. The server's clock is estimated ([Clock]) as the time that its last reply carried plus the
// monotonic time since. The better of two samples is kept, for 30 s at most; in a Cluster for each slot. Before the
// first reply nothing is known, and the request carries no limit. No wall-clock time is ever sent to a server.
//
// # Lua
//
// Scripts are files of Lua that declare the libraries they use: see [Load].
package script
