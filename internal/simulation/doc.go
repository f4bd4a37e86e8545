// Package simulation runs the whole library in simulated time: several clients, a network and servers, all in one
// bubble of testing/synctest. It is for tests, and for internal/simulation/simulate.
//
// A seed makes a [Plan]: acts of clients and faults, each at its time; [NewCrowd] makes one without faults, of callers
// who give up. [Run] plays it. An oracle knows the true time and what each client believes, and says what was not kept.
// [Shrink] finds the shortest plan that still fails. A [Mutant] is a fault that is planted in the library's scripts, to
// see that it is found.
//
// [Plan].Wired has it keep what is seen on the wire. Tests follow that in the models of tenures, deadlines, take-over
// and stocks (docs/safety/models.md), which refuse what the library may not do at the step at which it does it.
//
// What is real: all of the library, rueidis, the protocol on the wire, and our scripts. What is simulated: streams of
// bytes with latencies by the seed; servers, which are miniredis with a clock, a replica and restarts of our own; and
// time.
//
// The plan, and how long each parcel is under way, are the same in each run of a seed. Owners, the pauses that the
// library makes at random, and the order of goroutines within one instant are not. So most runs of a seed have the same
// outcome of each step, none is the same to the nanosecond, and what fails seldom must be run several times.
//
// # What the oracle checks
//
//   - Holders: while they believe that they hold (until Done, or until they release), never more than the lock or the
//     semaphore allows. A server that forgets (restart without data, FLUSHALL, failover without MinReplicas) or whose
//     clock steps forward excuses those that held then, and only until their next renewal.
//   - Tokens of a fenced lock grow, also after such a loss, unless the clock was stepped back as well; those of a
//     quorum, unless a majority has lost something.
//   - A fair lock serves in the order of asking, where nothing goes wrong.
//   - No caller waits for what is free: for longer than two polls and four calls after it is free and nothing is done
//     to anybody.
//   - A hold is over when it says so. A hold that is renewed is not lost where nothing goes wrong. Calls end.
//   - A stock: one owner for each ordinal, one answer to each question, never more out than there is, no SoldOut that
//     cannot be. After it has lost its data it grants nothing.
//   - Reservations and requests, whose ids several clients use at once: an answer about an id agrees with all that were
//     there before it. What is sold stays sold under its ordinals, but for what is returned; cancelled and returned are
//     for good; expired is, but for a payment that comes late, whose own answer is for good; what is held can be
//     confirmed until then. What is done once is answered once. While the sale is paused, or over, no caller gets what
//     it did not have.
//   - A cart of a Group: what is done to one line is done to all, in one moment, but for what is sold late. A cart over
//     stocks that share nothing: sold lines only with a last line that is, and none that was given back at the same
//     time, wherever a process has crashed.
//   - A ledger, which movers that are slow or crash bring into a database: every number once, without a hole; entries
//     that make sense one after the other, never of more than the limit; and together what the stock says, and what was
//     answered.
//   - A latch: no caller passes before all have begun to count, all pass soon after all have. A barrier: all or none,
//     and not before all came.
//   - A crowd ([NewCrowd]): while the network is well and callers give up, no caller waits long for what is free, and
//     what no caller holds is not taken for long: see progress.go.
//   - At the end nothing is left: no goroutine, no subscription, no key without an end, and after an hour none but
//     those that last.
package simulation
