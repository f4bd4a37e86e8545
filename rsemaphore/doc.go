// Package rsemaphore limits how many callers do something at the same time, and lets callers wait for each other, across
// processes, on Redis or Valkey.
//
//	slots := c.Semaphore("fragile-service", 5)
//	permit, err := slots.Acquire(ctx, 1) // ctx bounds the waiting
//	...
//	defer permit.Release(ctx)
//	call(permit.Context(ctx)) // ends with the permit
//
// [Semaphore] is the one to use. Its permits have leases: those of a crashed process come back after one lease, or soon with
// [Options].Liveness, without anybody's help. Its layout is that of Redisson's RPermitExpirableSemaphore. [CountingSemaphore] is Redisson's
// RSemaphore, for sharing one with Java: a crash leaks its permits. [WeightedSemaphore] shares out an amount, such as bytes or
// tokens, and Java does not see it. [CountDownLatch] is Redisson's RCountDownLatch with
// additions that Java does not see. [CyclicBarrier] makes parties wait for each other, again and again.
//
// All of them wait as the locks of package rlock do: no waiter spins, and a lost message delays a waiter by at most
// [Options].PollCap.
//
// # What a Semaphore guarantees
//
//   - A holder that acts only before [Permit.Until], and stops when its permit's context ends, never makes one more than
//     there are permits.
//   - A holder learns of its loss by its own clock, without the network, before the server gives the permit to anybody
//     else. A lost permit stays lost: no renewal brings it back.
//   - Every permit has an id, and a lease in the server's time. Every script that changes the semaphore first gives back
//     permits whose lease is over, 1,000 at most. So nobody has to clean up. Permits of running holders
//     are renewed, many in one call.
//   - Only an id that is held is given back. To release a handle twice, an id twice, or an id that was never granted,
//     raises nothing.
//   - Every script may run twice. A lost reply never grants twice. What a request without a reply may have taken is given
//     back in the background. An acquisition whose caller has given up is not granted later.
//   - The capacity is an argument of [Client.Semaphore], and the first acquisition writes it. A differing one is refused
//     (ErrCapacityMismatch) until [Semaphore.Resize], unless one is newer ([Semaphore.WithRevision]); after that the server's counts, as it always does for a semaphore
//     that is [Semaphore.Shared] with Redisson. No acquisition waits because nobody has set the permits yet.
//   - Waiters of all processes stand in one queue on the server, and a release hands them its permits in their order, in the same
//     script. A request that cannot be served when it is the first may be overtaken by later ones, by four times as many permits as
//     it asks for in all; then nobody goes before it. So a request for many is served, and the others are not idle meanwhile.
//     TryAcquire with waitTime 0 does not go past the queue.
//   - A waiter sleeps until it is handed its permits, or for PollCap (10 s at most). When enough leases end for the first in the
//     queue, its process asks.
//
// # What it does not guarantee
//
//   - A failover forgets what was not replicated. [Options].MinReplicas makes that less likely, not impossible. If the
//     server's clock steps forward, leases end early.
//   - DEL, FLUSHALL and eviction free all permits at once. A holder whose permit is renewed finds out at the next renewal,
//     within a third of its lease; another finds out when its lease is over. (The keys of a semaphore change all the time
//     and are not tracked, as those of a lock are.)
//   - If only the set of permits is deleted, the semaphore refuses everybody (ErrCapacityMismatch) until its count ends,
//     one lease later at most. A resized one has all its permits at once, because its notes say the capacity. A shared
//     one lacks those that were out until its capacity is set again, as in Redisson. If only the notes are deleted, a
//     resized semaphore that is not shared refuses every other capacity until it is resized again.
//   - The order is that of the requests as they reach the server. Who may not subscribe to its grant channel is in no queue: it polls
//     every PollCap, and may wait for ever while others queue. The same in a Cluster older than Redis 7, where nobody queues.
//   - A process that is handed permits and does not live keeps them for one short lease: four PollCaps or CallTimeouts, whichever is longer,
//     or less if the lease asked for is shorter. A process that lives raises it to the full one within 10 ms. An outage that begins
//     in these milliseconds, and lasts for longer than the short lease, ends what was handed over just before it.
//   - Redisson's waiters race, as they do among themselves. Where they listen, one release in eight leaves its permits to them for 5 ms; a
//     request of theirs for more than a release gives may wait for as long as others queue.
//   - It does not stop the work. When a permit is lost its context ends; what a service was asked to do may go on there.
//   - While its Cluster slot is migrated, a semaphore or latch whose keys are not all on one node, which is usual, cannot be
//     asked (TRYAGAIN). Calls are repeated until the slot has moved. Permits that are held are renewed all the same, key by
//     key, but cannot be extended.
//
// # Life of a permit
//
// A permit may be relied on until
//
//	(monotonic time before the request was sent) + lease - Margin
//	Margin = lease/200 + min(lease/10, 10ms)
//
// The request is the one that acquired it, or the last renewal that the server confirmed. Only durations go to the server,
// never a time.
//
//	Acquire ──▶ granted ──────────────────▶ held ──────────▶ Release ──▶ id gone: nil
//	   │                                   │    ▲  │                ├──▶ id was gone: ErrLost
//	   │ no reply                    renew └────┘  │ Until passes,  └──▶ no reply ─┐
//	   ▼                                           │ id not found                 │
//	ErrUnknownOutcome ─┐                           ▼                              │
//	                   │                         lost ─▶ Release: ErrLost ─┐      │
//	                   ▼                                                   ▼      ▼
//	       pending release: the ids are given back in the background, until the server
//	       has answered after the last instant at which a request for them can still run,
//	       or until the lease is over
//
// An acquisition makes new ids, one for each permit, of one base; they are never used again. The script that acquires adds up what is
// available and what is out, and refuses a capacity that differs from that sum. It takes all the permits or none.
//
// # Crashed holders
//
// The permits of a process that died are free when their leases are over. With [Options].Liveness they are taken over long before, as locks
// are: a process that holds permits which are renewed sends a heartbeat every [Options].Heartbeat, one key, however many they are. A process
// that waits watches the heartbeats of the holders. Of one that it has seen without a change for three heartbeats it takes the permits, and the
// first in the queue has them. That is three heartbeats after the crash on average, at most about four: 3 to 4 s by default.
//
// Nothing is taken from a process that lives. In return its renewed permits end (ErrLost) unless one of its last three heartbeats was
// confirmed, on its own clock and before anybody can have taken them over. A process that is cut off, or stopped, for as long has lost them.
// Holder and waiter both need Liveness. Nothing is taken from a process of which no heartbeat was seen: Redisson, and clients without
// Liveness. The first heartbeat is sent before the first request, and answered before the first permit is returned.
//
// A permit with a leaseTime of its own lasts for that, whatever becomes of its process. A party at a barrier has a lease of three heartbeats
// in place of the WatchdogTimeout. A [CountingSemaphore] knows no owners, and has nothing of this.
//
// # Waiting
//
// While nobody of a process waits for a semaphore each Acquire is a call of its own, all in parallel. The first that is refused gets
// a place in the queue, and newcomers stand behind it: one call at a time asks for up to 128 of them.
//
//	waiter B                         server                              holder A, of any process
//	acquire: too few ──────────────▶ queue: … B, ticket T
//	sleeps                                                               Release
//	                                 gives A's permits back,      ◀────── │
//	                                 writes B's, with a short lease,
//	                                 takes T out, publishes ──────┐
//	holds, until the send of its ◀────────────────────────────────┘
//	acquire + that lease - Margin
//	5 to 10 ms later the watchdog raises it to the full one, with those of others in one call
//
// A hold that is over by then costs no third call. What was asked for with a leaseTime is not used as it was handed over: the process asks
// once more, for all its waiters that were handed some, and the answer has the leaseTime in full.
//
// Internal package wait says which grants are trusted, and lua/lib/queue.lua how the server serves. A release that serves waiters of its
// own process names them in its reply. Permits that were handed over to a process which gave up meanwhile are released by it.
//
// Waiters of a [CountingSemaphore] are in no queue on the server. They wait as Redisson's do: try, subscribe, try again, and again after
// each message that enough are free, and after PollCap.
//
// # Latches
//
// The count of a [CountDownLatch] is Redisson's key; it is open when the key is missing. Beside it is a record of ours, a
// hash: which call set the latch, its end, the message that its opening will be, the participants that have counted it down in which generation, how the latch
// before it ended, and the last deletion. The record outlives the latch by a minute or more.
//
//  1. Each look at a closed latch replies with a mark: which call set it, and the last deletion.
//  2. The next look sends the mark. If the latch there is another one now, the one waited for is over, and the record says
//     whether it opened or expired. If the record is gone, too, the latch expired if it may have by then, counted from
//     before the look that saw its TTL; otherwise it opened.
//  3. One waiter of a process looks for all. "It is open" is passed on to those that came before that look was sent. "It
//     was open since the last look", after which it may be closed again, is passed on only to those that came before the
//     look that found it closed. So a new waiter has the one that looks do so again.
//  4. A look at a closed latch also replies with the message that its opening will be. When that message comes nobody looks:
//     it is passed on as "it was open since the last look". So an opening costs a process one message, however many wait
//     there, if a look was answered since the last of them came. CountDownLatch.told has the rules.
//
// # Barriers
//
// A generation of a [CyclicBarrier] is one filling of it. Each party has a lease, which is renewed while it waits.
//
//	           arrive             the last arrives
//	       ┌────────────┐         with an action
//	       ▼            │   ┌──────────────────────▶ acting
//	─▶ gathering ───────┴───┤                        │    │
//	       │                │ the last arrives       │    │ the action fails,
//	       │ a party leaves,│ without one            │    │ a party leaves,
//	       │ a lease ends   ▼                        │    │ a lease ends
//	       │             tripped ◀───────────────────┘    │
//	       │             all: nil    it returns nil       │
//	       ▼                                              │
//	     broken ◀─────────────────────────────────────────┘
//	     all that have arrived: ErrBrokenBarrier
//
// Tripped and broken are final, and the next arrival begins the next generation. While one acts, arrivals wait for the next.
// A generation that broke leaves a mark on the server for as long as its longest lease. A party that has not renewed for
// that long gives up by its own clock and asks no more. One that is over without a mark has tripped.
//
// The end of a generation is published with all that a look would tell, so it costs a process one message, and no call once its
// parties have looked.
//
// # Keys
//
// P is [Options].KeyPrefix. A name is used as it is. Where it has braces of its own, those around it below are left out.
//
//	P<name>             string  how many permits are available; with those out it adds up to the capacity
//	{P<name>}:timeout   zset    the permits out: id of 16 bytes -> the end of its lease, server ms
//	{P<name>}:notes     hash    ours: labels, and what a Resize says; missing without either
//	redlatch_queue:{P<name>}    zset    ours: waiters, while there are any, and a minute
//	redlatch_alive:<Holder.Client>      string  ours: Options.Process, for 20 min after it was last written; with Liveness the heartbeats, until
//	                                    two WatchdogTimeouts and two trusts after the last; in a Cluster
//	                                    redlatch_alive:{<tag>}:<Holder.Client>, one for each sixteenth of the slots
//	redisson_sc:{P<name>}       channel, the number available at each release that leaves nobody in the queue
//	redlatch_grant:<connectionID>       channel of a process; in a Cluster redlatch_grant:{P<name>}:<connectionID>
//	redlatch_grant:redisson_sc:{P<name>}  channel to which a process subscribes together with redisson_sc:{P<name>}; nothing is
//	                                    published there: see lua/listeners.lua of internal/script
//
//	P<name>             string  of a CountingSemaphore: how many permits are free; of a CountDownLatch: the count
//	{P<name>}:latch     hash    ours: the record of a latch
//	{P<name>}:barrier   hash    ours: a barrier
//
//	{P<name>}:weighted  hash    ours, of a WeightedSemaphore: its capacity, what is used, and the weight of each acquisition
//	{P<name>}:weights   zset    ours: the acquisitions out: 13 bytes -> the end of its lease, server ms
//	redlatch_queue:{P<name>}:weighted  zset  ours: who waits for a weight
//
// A semaphore's keys end with the longest lease in them; those of a resized semaphore seven days after its last use. Keys
// that Redisson made have no end and are left so ([Semaphore.Shared]). The first eight bytes of an id are its client's,
// the next five count the client's acquisitions, and three number the permits of one; Redisson's are random. Twelve bits of the first eight say
// for how long the client is trusted after a heartbeat, as in package rlock, and the first bit of the five that the permit is not renewed.
//
// # One name, one kind
//
// A Semaphore, a [CountingSemaphore], a [CountDownLatch] and an rcounter.Counter of one name have one key, a number,
// because Redisson lays them out so: a CountDown would take a permit. Give each kind names of its own, or an
// Options.KeyPrefix of its own. Where the kind can be known, another is refused with [ErrWrongType], which names the kind
// that is there:
//
//   - a Semaphore is known by a permit that is out; to a latch also by the end of its key, which a latch without our
//     record never has;
//   - a CountDownLatch that was set or counted down by this package is known by its record. Without a TTL the record is
//     kept for a minute, while somebody waits, or a day after the last CountDownBy.
//
// The kind cannot be known of a CountingSemaphore, a Counter, a latch of Java's, or a shared Semaphore of which nobody holds
// a permit: those are a number, and nothing else that tells.
//
// # Cost of a Semaphore
//
// Without contention Acquire and Release are one script call each, two round trips, and touch no channel. With contention they are
// two as well, or fewer, however many processes wait: the release is the acquisition of the next, and newcomers share
// calls. What was handed over and is held for more than 10 ms has its part in one renewal more, and what has a leaseTime in one acquire. While it waits a process asks for all of its waiters once in a
// PollCap, 128 in a call; where it waits for 64 semaphores and more, 64 of these are asked for in a call (not of weights, and not in a
// Cluster). A permit that is out takes about
// 100 bytes on the server; an acquisition of n takes n times that, and n of them are named by 14 bytes. A waiter takes about 250 bytes.
package rsemaphore
