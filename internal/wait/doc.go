// Package wait is the one place where anything waits for a lock, permit or latch that is not free.
//
// # The loop
//
// Try; subscribe and have the subscription confirmed; try again; then sleep until a message, a wake-up from inside the
// process, the end of the holder's lease, or PollCap, whichever is first; and so on until granted or out of time.
//
//	waiter                         holder
//	try: held
//	                               release, publish        (no one hears)
//	subscribe, confirmed
//	try: granted                                           without this try: asleep on a free lock
//	                                                       (TestWait_ReleaseBeforeSubscription_IsFound)
//
// Messages are hints. One that is lost costs at most PollCap, or MaxPoll in a crowd; one too many costs a try. In
// detail:
//
//  1. A waiter enters the local queue of its key and its manner of waiting (the kind of a lock, the number of permits)
//     in this process. The first in the local queue contends on the server. The others stand behind it
//     without asking the server, first come first served. Re-entries, joins, waits of no time, waiters of fair and
//     shared locks, and requests of a cohort never stand behind another.
//  2. The contender tries. With a Taker, if grants are listened for already, the try asks for a place in the server's
//     queue at once. Without a Taker the waiter shares the subscription to the channel if the process has one.
//  3. It subscribes, to grants or to the channel, and tries again at once. Subscribing lasts no longer than the sleep
//     in whose place it is, and ends by the same wake-ups. If the user has no right to this kind of channel, the
//     waiters of the client poll, and do not ask again for 30 s. After any other refusal they ask again with growing
//     pauses.
//  4. It sleeps until a grant, a message, a wake-up, the end of the holder's lease plus a little at random, or PollCap
//     (10 s at most in the server's queue), and tries again. A grant that may be trusted ends the wait without another
//     try, and so does a message that the request knows for an answer (Request.OnMessage). In a process that
//     waits for many keys a waiter that hears grants sleeps for longer (crowdSize).
//  5. A try that fails pauses for 2 ms and more, and in such a process for longer (retryIn). The waiter goes on for as
//     long as its caller may wait.
//  6. A waiter that leaves the local queue lets the next one contend. One that leaves without a grant, and may have
//     been in the server's queue, has its release made in the background, which takes it out of the queue.
//
// # Hand-over
//
// With a [Taker] the contender also stands in a queue on the server, and a release makes it the holder. Everything
// above stays true: whatever becomes of grants, it asks at least every PollCap, or MaxPoll in a crowd.
//
//	waiter                              server                          releasing process
//	asks: held, ticket 7 <------------- queue: ... 7
//	sleeps
//	                                    takes 7 out, writes the   <---- release
//	                                    waiter's field and lease
//	grant: ticket 7, lease <----------- publishes
//	holds, until the send of its
//	last question + lease - margin
//
// The rules are:
//
//  1. The queue holds one entry for each process and key, not for each waiter: the other callers wait for a turn
//     inside the process (package rlock, cohort.go). The order is exact among processes, and within each, but not
//     across all waiters. It is what makes a contended acquisition one call.
//  2. A grant is trusted by the ticket that the last "held" answer named, and its lease counts from the send of that
//     call: the grant was written after the call ran. A grant of which half of the lease is gone, one after a gap in
//     the messages, and one for which replicas or a token are wanted, is confirmed: the waiter asks, and finds its own
//     field.
//  3. In a slot that is being migrated a script with two keys is refused. It is sent again without the queue, and
//     waiters poll, twenty times in a PollCap.
//
// # Queue requests
//
// What several can have at once, such as permits, has no contender: one waiter a process would be served in a round
// trip. With a [Requester] every waiter has a place of its own in the server's queue, its own owner, and its own
// ticket, and one call requests for many. The rules of trust above are the same, and so is the code. The rest is:
//
//  1. While none of the local queue waits every request goes out at once, in parallel with others, and is one call.
//  2. From the first that is refused until none waits any more, newcomers queue behind. One call at a time requests for
//     up to 128 of them in their order. So 1,000 that come together are eight calls, and keep their order.
//  3. A waiter that has a place sleeps until its grant. Within a PollCap all are requested for again, 128 in a call,
//     which finds a grant that was lost. Each such call keeps all entries of the process on the server. The server says
//     when enough leases end for the first in its queue, and one process has the timer for that ([Waiters.Served], or a
//     grant of ticket 0 with that time).
//  4. A call of this process may serve others of it: its reply names them ([Waiters.Served]), and their leases count
//     from its send. If the reply is lost no message names them; so all are requested for ([Waiters.PollAll]).
//  5. A call that fails is made again for the same waiters after a pause. An outage costs a process one call at a time.
//  6. A process that hears no grants has no places. One call requests for the first of its waiters, in their order,
//     after releases and PollCaps.
//  7. No grant is used while a call requests for its waiter, and a waiter that leaves meanwhile owes a release: a
//     request that arrives later may be granted (TestGrant_WaiterIsAskedFor_IsNotUsedYet).
//
// # Notified to ask
//
// What must be free between two holders, such as a Plain lock, has a queue on the server, too, but no grants: a release
// publishes a grant of ticket 0 to the first in it, which asks. The script leaves what is free to the one that was
// notified, for a moment (handover.lua of package rlock). Such a waiter is a [Taker], too.
//
// # Each for itself
//
// Where the order is that of all waiters of all processes ([Paced]), the first request of a waiter is its place. So it
// must stand behind none. Each waiter asks for itself; the rest is as for a contender. Where callers give up, few ask
// at once (pace.go).
//
// # One for many
//
// Where the callers of a process share what it has, one request waits for all of them ([Cohort]). The first caller
// makes the first try ([Caller.Try]). If that is refused, a goroutine goes on ([Caller.Contend]), and no caller's
// patience cuts it short. The callers wait to be woken ([Turn], [Caller.Await]); they come and go without a request.
// See cohort.go of package rlock.
//
// The server's side of the queue is in the Lua of package rlock (lib/handover.lua, lib/fair.lua).
package wait
