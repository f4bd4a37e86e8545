// Package simulation runs the whole library in simulated time: several clients, a network and servers, all in one
// bubble of testing/synctest. It is for tests, and for proof/simulation/simulate.
//
// A seed makes a [Plan]: acts of clients and faults, each at its time; [NewCrowd] makes one without faults, of callers
// who give up. [Run] plays it. An oracle knows the true time and what each client believes, and says what was not kept.
// [Shrink] finds the shortest plan that still fails. A [Mutant] is a fault that is planted in the library's scripts, to
// see that it is found.
//
// [Plan].Wired has it keep what is seen on the wire. Tests follow that in the models of deadlines, take-over and
// tokens (proof/models/README.md), which refuse what the library may not do at the step at which it does it. Sales are
// followed in their model by the oracle itself.
//
// What is real: all of the library, rueidis, the protocol on the wire, and our scripts. What is simulated: streams of
// bytes with latencies by the seed; servers, which are miniredis with a clock, a replica and restarts of our own; and
// time.
//
// The plan, and how long each parcel is under way, are the same in each run of a seed. Owners, the pauses that the
// library makes at random, and the order of goroutines within one instant are not. So what fails seldom must be run
// several times.
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
//   - Sales: each reply of a server, to one client or to several that use an order at once, is that of the model of a
//     sale (internal/oracle/salemodel), through losses, failovers and Restore. Each answer of the library is such a
//     reply. In the end the server has the model's records, and the entries that movers brought into a database make
//     the same sale: every number once, without a hole, no unit twice. Customers who paid late, twice or in part have
//     units or money for each payment. Orders that a server forgot after it had answered are excused; after a failover
//     with MinReplicas there are none.
//   - A Once: one run at a time, and at most one answer that a caller got for each time that an answer is kept, which
//     all callers get, unless the server has forgotten it.
//   - A latch: no caller passes before all have begun to count, all pass soon after all have. A barrier: all or none,
//     and not before all came.
//   - A crowd ([NewCrowd]): while the network is well and callers give up, no caller waits long for what is free, and
//     what no caller holds is not taken for long: see progress.go. A tenant of a semaphore waits at most two
//     service times, however many calls of others wait: see shares.go.
//   - At the end nothing is left: no goroutine, no subscription, no key without an end, and after an hour none but
//     those that last.
package simulation
