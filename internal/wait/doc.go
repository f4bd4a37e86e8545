// Package wait holds the loop in which every call waits for a lock, a permit or a latch that is not free.
//
// # The loop
//
// A waiter makes a request. If the request is refused, the waiter subscribes, awaits the confirmation of the
// subscription, and makes a second request. Then the waiter sleeps until a message, a wake-up from inside the process,
// the end of the holder's lease, or PollCap, whichever is first, and makes the next request. The loop ends with a grant
// or when the caller's time is over.
//
//	waiter                         holder
//	request: refused
//	                               release, publish        (nobody is subscribed)
//	subscribe, confirmed
//	request: granted                                       without this request: asleep on a free lock
//	                                                       (TestWait_ReleaseBeforeSubscription_IsFound)
//
// Messages are hints. A lost message costs at most PollCap, or MaxPoll in a crowd; a needless message costs a request.
// In detail:
//
//  1. A waiter enters the local queue of its key and its class in this process. The class is the kind of a lock, or
//     the number of permits. The first waiter of the local queue is the contender: it makes requests. The others stand
//     behind it without requests, first come first served. Some requests never stand behind another waiter: re-entries,
//     joins, calls with no time to wait, waiters of fair and shared locks, and requests of a cohort. The first request
//     of a cohort is made before all this, because most locks are free.
//  2. The contender makes a request. A contender with a Taker enters the server's queue by its first request, if the
//     process is subscribed to grants already. A contender without a Taker shares the process's subscription to the
//     channel, if there is such a subscription.
//  3. The contender subscribes, to grants or to the channel, and makes a request at once. Subscribing replaces a sleep:
//     it takes no longer, and ends by the same wake-ups. If the user has no right to this kind of channel, the waiters
//     of the client poll, and do not subscribe for 30 s. After any other refusal they subscribe again after growing
//     pauses.
//  4. The contender sleeps until a grant, a message, a wake-up, the end of the holder's lease plus a little at random,
//     or PollCap (10 s at most in the server's queue), and makes the next request. A trusted grant ends the wait
//     without another request. So does a message that ends the wait by itself (Request.OnMessage). If the process waits
//     for many keys, a waiter that is subscribed to grants sleeps for longer (crowdSize).
//  5. A request that fails is followed by a pause of 2 ms and more, and of more still in a crowd (retryIn). The waiter
//     goes on for as long as its caller may wait.
//  6. A waiter that leaves the local queue lets the next waiter contend. If it leaves without a grant, and may be in
//     the server's queue, its owner is released in the background, because the release removes the entry.
//
// # Hand-over
//
// With a [Taker] the contender also has an entry in a queue on the server, and a release makes it the holder.
// Everything above stays true: whatever becomes of grants, the contender makes a request at least every PollCap, or
// MaxPoll in a crowd.
//
//	waiter                              server                          releasing process
//	request: held, ticket 7 <---------- queue: ... 7
//	sleeps
//	                                    removes entry 7, writes   <---- release
//	                                    the waiter's field, lease
//	grant: ticket 7, lease <----------- publishes
//	holds, until the send of its
//	last request + lease - margin
//
// The rules are:
//
//  1. The queue holds one entry for each process and key. The other callers of the process wait for a turn inside the
//     process (package rlock, cohort.go). The order is exact among processes, and exact within each process, but not
//     across all waiters. In return a contended acquisition is one call.
//  2. A grant is trusted if the last "held" reply named its ticket. Its lease counts from the send of that reply's
//     request, because the grant was written after the request ran. The waiter confirms a grant by a request, which
//     finds the waiter's own field, in three cases: half of the grant's lease is over; messages were missed before the
//     grant; or the caller wants replicas or a token.
//  3. In a slot that is being migrated a script with two keys is refused. It is sent again without the queue, and
//     waiters poll, twenty times in a PollCap.
//
// # Queue requests
//
// Several callers can hold permits at once, so their local queue has no contender: it would serve one waiter of a
// process in a round trip. The local queue of a Fair lock has none, either, because every waiter has a place of its own
// in the order of all processes. With a [Requester] every waiter has an entry, an owner and a ticket of its own on the
// server, and one call requests for many waiters. The rules of trust above are the same, and so is the code. The other
// rules are:
//
//  1. While no waiter of the local queue was refused, every request goes out at once, in parallel with others, in its
//     own call.
//  2. From the first refusal until no waiter is left, newcomers queue behind. One call at a time requests for up to 128
//     of them in their order. So 1,000 waiters that come together cost eight calls, and keep their order.
//  3. A waiter with an entry sleeps until its grant. Within a PollCap all waiters are requested for again, 128 in a
//     call, because a grant may be lost. Each such call keeps all entries of the process on the server. The server
//     replies when enough leases end for the first entry of its queue, and only the process of that entry sets a timer
//     for that instant ([Waiters.Served], or a grant of ticket 0 with that time).
//  4. A call of this process may serve other waiters of the process. Its reply names them ([Waiters.Served]), and their
//     leases count from the call's send. If the reply is lost, no message names them, so all waiters are requested for
//     ([Waiters.PollAll]).
//  5. A call that fails is made again for the same waiters after a pause. An outage costs a process one call at a time.
//  6. A process without a subscription to grants has no entries. One call requests for its first waiters, in their
//     order, after releases and PollCaps.
//  7. No grant is used while a call requests for its waiter, and a waiter that leaves during the call owes a release:
//     the call may run later, and be granted (TestGrant_WaiterIsAskedFor_IsNotUsedYet).
//  8. A Fair lock has one holder, so with [OneFirst] only one first request goes out by itself, and newcomers queue
//     behind that request, too. The server's queue keeps the order of all waiters of all processes. If callers give up,
//     few waiters of a process are in that queue (pace.go), and the others follow in their order.
//  9. A program that releases a Fair lock without a hand-over notifies the first waiter on a channel of that waiter
//     alone (QueueEntry.Channel). A waiter subscribes to its channel when a reply says that the holder is such a
//     program.
//
// # Notified waiters
//
// A Plain lock has to be free between two holders. Its waiters have a queue on the server, too, but no hand-over: a
// release publishes a grant of ticket 0 to the first waiter, which then makes a request. For a moment the script
// reserves the free lock for the notified waiter (handover.lua of package rlock). Such a waiter is a [Taker], too.
//
// # Cohorts
//
// The callers of a process can share a lock that the process holds. Then one request waits for all of them ([Cohort]).
// The first caller makes the first request ([Caller.Try]). If it is refused, a goroutine goes on ([Caller.Contend]),
// which no caller's patience ends. The callers sleep until they are woken ([Turn], [Caller.Await]); they come and go
// without a request. See cohort.go of package rlock.
//
// The server's side of the queue is in the Lua of package rlock (lib/handover.lua, lib/fair.lua).
package wait
