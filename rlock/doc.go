// Package rlock provides distributed locks on Redis or Valkey: use one where only one process at a time may do something.
//
// A lock has at most one owner at a time. Waiters do not spin: a release hands the lock to the next of them. A watchdog renews
// the lease of every hold, and a hold knows when it is over. The keys are those of Redisson's locks, so that Go and Java
// processes exclude each other on the same names.
//
//	hold, err := locks.Reentrant("order:1").Lock(ctx) // ctx bounds the waiting
//	...
//	defer hold.Unlock(ctx)
//	work(hold.Context(ctx)) // ends with the hold
//
// [Lock.Do] does all of that, and [Lock.DoOnce] runs a job once in a period. [Client.Reentrant] is the lock to begin with; "Kinds" below has
// the others.
//
// # What is guaranteed
//
//   - A lock has at most one owner. A holder that stops at its deadline ([Hold.Until], or the end of its hold's context)
//     never overlaps another.
//   - A holder learns of a loss by its own clock, without the network, before the server gives the lock to anybody else.
//   - Every script may run twice. If a reply is lost, or a request is sent again, no hold is counted twice and nobody else's
//     hold is released.
//   - A call that fails holds nothing. If a request was not answered, the library releases in the background what it may have
//     acquired.
//   - A failed attempt never changes the holder's lease. A re-entry never shortens it. No operation leaves
//     a key without an expiry.
//   - A lost message costs a waiter at most Options.PollCap. A hold begins with the answer of a script, or with a grant that a
//     release published after it had written it. A grant is trusted only for as long as the server surely keeps it.
//   - The lock of a crashed process is free when its lease is over, at most Options.WatchdogTimeout after its last renewal.
//
// # Deadlines
//
// A hold can be trusted until
//
//	(monotonic time before the request was sent) + lease - Margin
//	Margin = lease/200 + min(lease/10, 10ms)
//
// The request is the one that acquired the lock, or the last renewal that the server confirmed. A renewal that is under way
// does not move the deadline. At the default lease of 30 s the margin is 160 ms.
//
// Only durations are sent to the server, never a time. The wall clock has one use: if it runs ahead of the monotonic clock, the
// machine was suspended. Then every hold is renewed at once, or the server is asked how long it lasts, and Until is earlier by
// the difference until the answer.
//
// # The life of a hold
//
//	       Lock
//	        |
//	        v        renewed every third of the lease
//	   +--------+ <-----------------------------------+
//	   |  held  | ------------------------------------+
//	   +--------+
//	     |    |
//	     |    +-- the deadline passed, or the server says "not yours" --> ErrLost
//	     |    +-- Options.MaxHold is over -----------------------------> ErrMaxHold
//	     |    +-- Client.Close, or the hub was closed -----------------> ErrClosed
//	   Unlock                                                              |
//	     |                                                               Unlock
//	     v                                                                 v
//	ErrReleased                                             releases what is left on the server
//
// Each end is final. The contexts of the hold end with it, and the error is their cause. Unlock must be called in every case;
// after a loss it returns ErrLost.
//
// # What is not guaranteed
//
// A single Redis cannot promise these, so this package does not. In each case two owners may act at the same time, until the
// next renewal or the deadline of the first one:
//
//   - Failover: a lock that was not yet replicated is free on the promoted replica. Options.MinReplicas makes that less likely,
//     not impossible.
//   - The server's clock steps forward: leases end early. If it steps back, they last longer, and nobody is let in early.
//   - FLUSHALL, DEL, [Lock.ForceUnlock], and a restart without the data. Callers of the process that held the lock may still follow each other
//     for 20 ms.
//   - Eviction: set maxmemory-policy to noeviction. Options.Strict insists on it.
//   - A machine is suspended while Go's monotonic clock stands still. Its holders learn of it when it goes on.
//   - A process is paused for longer than its lease and acts before its timers have run. Check Hold.Until directly before an act
//     that cannot be undone.
//
// Where that matters, the resource itself must refuse an act that comes late: by a fencing token, a unique index, a
// compare-and-set or a version.
//
// # Kinds
//
//	Reentrant     Redisson's RLock: take this one unless there is a reason for another
//	NonReentrant  the same, but acquiring again under a hold's context is ErrReentry
//	Fenced        RFencedLock: each hold has a token that grows, for a resource that checks fencing tokens
//	Fair          RFairLock: in the order of asking, among all waiters of all processes
//	Spin          RSpinLock: its waiters poll with backoff, without any channel
//	ReadWrite     RReadWriteLock: many readers or one writer
//	Plain         the string of the Redis documentation (SET NX PX), for programs that follow that pattern
//
// All of them return the same Hold and keep the same promises. Waiters of one process on a name are served first come, first
// served. A Fair lock serves the waiters of all processes in that order. Of a read-write lock writers are served in order, and waiting
// readers together, in turn with the writers. Reentrant, NonReentrant and Fenced locks serve the waiting processes in the order in which they came. The
// callers of a process share what it has: they hold the lock one after the other, without a call, for 20 ms at most, and if others
// may wait for as many of them as waited when the process got it, 32 at most. Then the next process gets it. Only a Fair lock is in the order
// of all callers.
//
// # Crashed holders
//
// The lock of a process that died is free when its lease is over. With Options.Liveness it is taken over long before. A process
// that holds locks sends a heartbeat every Options.Heartbeat: one key, however many locks it holds. A process that waits
// watches the heartbeats of the holder. If it sees neither a change of that key nor another holder for three heartbeats, it
// removes the hold and hands the lock over. On average that is three heartbeats after the crash, at most about four: 3 to 4 s
// by default.
//
// Nothing is taken from a holder that is alive. In return, a hold ends (ErrLost) unless one of its last three heartbeats was
// confirmed, counted from before it was sent: a disconnected holder's lock ends locally before anyone can take it. Only
// holders with heartbeats are watched. Locks held by Redisson, by other software, or by clients with Liveness off are never
// taken over. The waiter needs Liveness, too. A call with a waitTime of 0 takes nothing over.
//
// When a process ends as planned, do better: finish the work and Unlock. The next holder then has the lock within a millisecond
// (docs/examples/leader).
//
// # Several locks as one
//
// [Multi] makes one lock of several, of any kind and on any servers. All are acquired or none, under one deadline, and the hold
// lasts while all of them do. Opposite orders cannot deadlock. [Quorum] makes one lock of the same name on three or more
// independent servers. The owner of a majority holds it (Redlock), so that any minority of the servers may be down, slow, or
// restarted without their data. Both return the same Lock and Hold; their comments say what each method means there.
//
//	             acquire, free                       acquire, contended         renew, every third   release
//	Multi        1 call if one slot and one client;  1, and for each lock       with all other       1 call for each,
//	             otherwise 1 for each, in a row      what it costs alone        holds of a client    in parallel
//	Quorum       1 call to each server, in parallel  the same for each round    the same             1 call to each, in parallel
//
// A Multi of one slot takes 1 round trip, any other as many as it has members. A Quorum takes 1, that of the server in the
// middle. It waits for a dead or slow server only the first time, because it does not know yet which server that is.
//
// # Contexts
//
// The ctx of [Lock.Lock] bounds the waiting, not the hold: a function that acquires under its own timeout returns a healthy
// hold. When a context ends, the lock stays held until Unlock, because nothing releases a lock under running work.
//
// Re-entry is decided by contexts, since goroutines have no identity. Every acquisition is a turn of its own, except under
// [Hold.Context] of a hold of the same lock. Such an acquisition re-enters that hold, at once and without a call, unless it has a
// lease of its own, and the lock is free after the last Unlock. A loss that nobody has told the process of yet is found by the last
// Unlock, the watchdog or Extend, and by no re-entry. A hold's context carries nothing for other names, so goroutines that work under one hold exclude each other on
// those. [Detach] takes the owner out of a context. [Lock.WithOwner] joins a hold of another process.
//
// # Keys
//
// P is Options.KeyPrefix; names are used as they are. If the name has braces of its own, those around P<name> are left out.
//
//	P<name>                             hash  owner -> count, with the lease as its expiry: Redisson's RLock
//	                                          owner! -> end, server ms, if a hold was joined from another process
//	redisson_lock__channel:{P<name>}    channel, "0" at each release that nobody is waiting for
//	redlatch_queue:{P<name>}            sorted set of waiters, while there are any, and a minute
//	redlatch_grant:<connectionID>       channel of a process; in a Cluster redlatch_grant:{P<name>}:<connectionID>
//	redlatch_grant:redisson_…           channel to which a process subscribes together with that one of Redisson's; nothing
//	                                          is published there: see lua/listeners.lua of internal/script
//	redisson_lock_token:{P<name>}       string, the last token of a Fenced lock, for [Options].TokenRetention
//	redisson_lock_queue:{P<name>}, redisson_lock_timeout:{P<name>}
//	                                    list and sorted set, the waiters of a Fair lock; beside Redisson's each listens on
//	                                          redisson_lock__channel:{P<name>}:<owner>
//	redlatch_fair:{P<name>}             hash, those of them that can be handed the lock: owner -> ticket, leases
//	P<name> of a read-write lock        hash  mode -> read or write, a reader's owner -> count, a writer's owner:write -> count
//	{P<name>}:<owner>:rwlock_timeout:1  string, lasts as long as that reader's lease
//	redlatch_rw:{P<name>}               sorted set, when holds end, in the server's time
//	redlatch_rwq:{P<name>}              sorted set of waiting readers and writers, while there are any, and a minute
//	redisson_rwlock:{P<name>}           channel, "0" when the last reader is gone, "1" when a writer is
//	redlatch_queue:{P<name>}:plain      sorted set of the waiters of a Plain lock, whose key is a string; while
//	                                          the slot is being migrated the channel redlatch_plain:{P<name>} in its place
//	redlatch_alive:<connectionID>       string, Options.Process, expires two trusts after the last heartbeat, without Liveness 20 min
//	                                          after it was last written; in a Cluster
//	                                          redlatch_alive:{<tag>}:<connectionID>, one for each sixteenth of the slots
//	redlatch_kept:{P<name>}:<owner>     string, until the time of an UnlockAfter, if the client has Liveness on
//
// An owner is "<connectionID>:<n>", with ":<label>" if [Lock.WithLabel] set one. The connection id is a random UUID of version
// 8 (Redisson's are of version 4). Twelve of its bits say for how long the process is trusted after a heartbeat, in units of
// 10 ms; 0 stands for ever. n counts what the process has asked for. Callers of one process that follow each other may hold the lock as one owner.
// No owner is used again once it was released.
//
// # Cost
//
// Lock and Unlock without contention are one script call each, two round trips, and use no channel. A hold that lasts is
// renewed every third of its lease, many holds in one call. If keys are tracked, it is also looked at once, after 50 ms, so
// that the server tells when its key changes.
//
// Under contention the next caller of the same process needs no call, and its predecessor's Unlock none either. When it is another process's
// turn, one call releases the lock, hands it to the first process in the queue, and queues this one if callers wait in it. So the more
// callers a process has, the less an acquisition costs the server: some 10 commands with two, one with thirty; commands inside scripts are
// counted. What has an owner of its own (Fenced, WithLabel, WithLease, Options.MaxHold) takes one call, a Fenced lock two. A Fair
// lock takes 2 calls, and one more for each waiter and Options.PollCap. A Plain lock takes 3 calls, which are some 20 commands.
//
// The readers of one process share one hold on the server. A reader needs no call while another of its process holds the lock and
// the server said within the last 2 to 10 ms that no writer waits. Otherwise one of them asks for all. So a process in which any
// number of readers come and go takes two calls for each phase of reading, and one for each such window. A writer takes 2 calls.
package rlock
