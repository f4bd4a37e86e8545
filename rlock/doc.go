// Package rlock is locks that processes share through Redis or Valkey: at most one owner at a time, waiting without
// spinning, releases that hand the lock to the next waiter, a watchdog that renews what is held, and a hold that knows
// when it is over. Their keys are those of Redisson's locks, so that Go and Java processes exclude each other on the same
// names.
//
//	hold, err := locks.Reentrant("order:1").Lock(ctx) // ctx bounds the waiting
//	...
//	defer hold.Unlock(ctx)
//	work(hold.Context(ctx)) // ends with the hold
//
// # What is guaranteed
//
//   - At most one owner holds a lock, as seen by holders that act before [Hold.Until] and stop when their hold's
//     context ends.
//   - A holder learns of its loss by its own clock, without the network, before the server lets anybody else in.
//   - Every script may run twice. A reply that is lost, or a request that is sent again, never counts a hold twice and
//     never releases somebody else's.
//   - A call that fails holds nothing. What a request without a reply may have acquired is released in the background.
//   - An attempt that fails never touches the holder's lease; a re-entry or a partial unlock never shortens it. No
//     operation leaves a key without an expiry.
//   - A lost message costs a waiter [Options].PollCap at most. A hold begins with what a script answered, or with a
//     grant published by the release that wrote it, trusted only for as long as the server surely keeps it.
//   - The lock of a crashed process is free when its lease is over: [Options].WatchdogTimeout after its last renewal
//     at the latest.
//
// # Deadlines
//
// A hold may be relied on until
//
//	(monotonic time before the request was sent) + lease - Margin
//	Margin = lease/200 + min(lease/10, 10ms)
//
// where the request is the one that acquired it, or the last renewal that the server confirmed; at the default lease of
// 30 s the margin is 160 ms. A renewal under way moves nothing. Only durations go to the server, never a time, and the
// wall clock is read for one purpose: if it runs ahead of the monotonic clock, as on a machine that was suspended,
// every hold is renewed at once, or the server asked how long it lasts, and Until is earlier by that much until the answer.
//
// # What is not
//
// One Redis cannot promise these, so neither does this package. In each case two owners may act at the same time, until
// the first one's next renewal or deadline:
//
//   - Failover: a lock that was granted and not yet replicated is free on the promoted replica.
//     [Options].MinReplicas makes that less likely, not impossible.
//   - The server's clock stepping forward: leases end early. Backward: they last longer, and nobody is let in early.
//   - FLUSHALL, DEL, [Lock.ForceUnlock], and a restart without the data.
//   - Eviction: set maxmemory-policy to noeviction ([Options].Strict insists).
//   - A machine that is suspended while Go's monotonic clock stands still: its holders find out when it goes on.
//   - A process that is paused for longer than its lease, and acts before its timers have run. Check [Hold.Until]
//     directly before what cannot be taken back.
//
// Where that matters, the resource must refuse the late one itself: a unique index, a compare-and-set, a version.
//
// # Kinds
//
//	Reentrant     Redisson's RLock: the one to take unless there is a reason for another
//	NonReentrant  the same, but acquiring again under a hold's context is ErrReentry
//	Fenced        RFencedLock: each hold has a token that grows, for a resource that refuses the late
//	Fair          RFairLock: in the order of asking, among all waiters of all processes
//	Spin          RSpinLock: its waiters poll with backoff, without any channel
//	ReadWrite     RReadWriteLock: many readers or one writer
//	Plain         the string of the Redis documentation (SET NX PX), for programs that follow that pattern
//
// All return the same [Hold] and keep the same promises. Waiters of one process on a name are served first come, first
// served (Fair: of all processes; readers: all of them as soon as no writer has the lock). Reentrant, NonReentrant and
// Fenced locks serve the processes that wait in turns, in the order in which they came; a process keeps the lock for as
// many of its own waiters as there were, 32 and 20 ms at most.
//
// # Crashed holders
//
// The lock of a process that died is free when its lease is over. With [Options].Liveness it is taken over long before:
// a process that holds anything shows every [Options].Heartbeat that it is there, by one key however many locks it holds,
// and one that waits and sees neither a change of that key nor of the hold for three of them removes the hold, hands the
// lock over and goes on. On average that is three heartbeats after the crash, at most about four; 3 to 4 s as it is by default.
//
// Nothing is taken from a holder that is alive: the other side of it is that a hold ends ([ErrLost]) unless a heartbeat was
// confirmed within the last three, as seen from before it was sent. Who is cut off from the server is over before anybody
// can take what it had. Only holders with heartbeats are looked at: not Redisson's, nor those of clients that have Liveness
// off. Who waits has to have it on, too. A call with a waitTime of 0 takes nothing over.
//
// At a planned end do better: finish the work, Unlock, and the next holder has the lock within a millisecond
// (docs/examples/leader).
//
// # Several locks as one
//
// [Multi] makes one lock of several, of any kind and on any servers: all are acquired or none, under one deadline, and the
// hold lasts while all of them do. Opposite orders cannot deadlock. [Quorum] makes one lock of the same name on three or
// more independent servers: whoever has a majority holds it (Redlock), so that any minority of them may be down, slow, or
// come back with nothing. Both return the same [Lock] and [Hold]; their comments say what each method means there.
//
//	             acquire, free                       acquire, contended         renew, every third   release
//	Multi        1 call if one slot and one client;  1, and for each lock       with all other       1 call for each,
//	             otherwise 1 for each, in a row      what it costs alone        holds of a client    in parallel
//	Quorum       1 call to each server, in parallel  the same for each round    the same             1 call to each, in parallel
//
// A Multi of one slot takes 1 round trip, any other as many as it has members. A Quorum takes 1, that of the server in the
// middle; a dead or slow one is not waited for, but the first time, when it has not said yet which server it is.
//
// # Contexts
//
// The ctx of [Lock.Lock] bounds the waiting, not the hold: a helper that acquires under its own timeout hands out a
// healthy hold. Nothing releases a lock under running work; when a context ends, the lock stays until Unlock.
//
// Reentrancy goes by contexts, since goroutines have no identity. Every acquisition is a new owner, except under
// [Hold.Context] of a hold of the same lock: that one is re-entered, at once, and the lock is free after the last
// Unlock. A hold's context says nothing about other names, so goroutines that work under one hold exclude each other on
// those. [Detach] takes the owner out of a context again. [Lock.WithOwner] joins a hold from another process.
//
// # Keys
//
// P is [Options].KeyPrefix; names are used as they are.
//
//	P<name>                             hash  owner -> count, with the lease as its expiry: Redisson's RLock
//	                                          owner! -> end, server ms, where a hold was joined from another process
//	redisson_lock__channel:{P<name>}    channel, "0" at each release that nobody is waiting for; without the braces if
//	                                          the name has its own, here and below
//	redlatch_queue:{P<name>}            sorted set of waiters, while there are any, and a minute
//	redlatch_grant:<connectionID>       channel of a process; in a Cluster redlatch_grant:{P<name>}:<connectionID>
//	redisson_lock_token:{P<name>}       string, the last token of a Fenced lock, for [Options].TokenRetention
//	redisson_lock_queue:{P<name>}, redisson_lock_timeout:{P<name>}
//	                                    list and sorted set, the waiters of a Fair lock; each listens on
//	                                          redisson_lock__channel:{P<name>}:<owner>
//	P<name> of a read-write lock        hash  mode -> read or write, a reader's owner -> count, a writer's owner:write -> count
//	{P<name>}:<owner>:rwlock_timeout:1  string, lasts as long as that reader's lease
//	redlatch_rw:{P<name>}               sorted set, when holds end, in the server's time; writers that wait and go first
//	redisson_rwlock:{P<name>}           channel, "0" when the last reader is gone, "1" when a writer is
//	redlatch_plain:{P<name>}            channel of a Plain lock, whose key is a string
//	redlatch_alive:<connectionID>       string, Options.Process, expires two trusts after the last heartbeat; in a Cluster
//	                                          redlatch_alive:{<tag>}:<connectionID>, one for each sixteenth of the slots
//	redlatch_kept:{P<name>}:<owner>     string, until the time of an UnlockAfter, where the client has Liveness on
//
// An owner is "<connectionID>:<n>", with ":<label>" where [Lock.WithLabel] set one. The connection id is a random UUID
// of version 8 (Redisson's are of version 4) in which 12 bits say for how long the process is trusted without a heartbeat,
// in units of 10 ms, 0 for ever; n counts the acquisitions of the process, and none is used again.
//
// # Cost
//
// Lock and Unlock without contention are one script call each, two round trips, and touch no channel. A hold that
// lasts is renewed every third of its lease, many holds in one call; where keys are tracked it is also looked at once,
// after 50 ms, so that the server tells when its key changes.
//
// Under contention a release is one call, and hands the lock over: to a waiter of its own process, which has then cost
// no call of its own, or to the first process in the queue, whose waiter has cost one. With one waiter or hundreds that
// is 7 to 17 commands on the server for an acquisition, those inside scripts counted. A Fenced lock takes one call more.
// A Fair lock takes a subscription for each waiter and 3 calls, a Plain lock 2 to 3 for each process that waits. A reader
// that had to wait has cost 3 calls and one more for every wake-up or Options.PollCap in vain, and so has the one writer of
// a process that asks; there is no hand-over between readers and writers.
package rlock
