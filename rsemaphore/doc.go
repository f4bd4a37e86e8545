// Package rsemaphore limits how many callers do something at the same time, and lets callers wait for each other, across
// processes, on Redis or Valkey.
//
//	slots := c.Semaphore("fragile-service", 5)
//	permit, err := slots.Acquire(ctx, 1) // ctx bounds the waiting
//	...
//	defer permit.Release(ctx)
//	call(permit.Context(ctx)) // ends with the permit
//
// [Semaphore] is the one to use. Its permits have leases: those of a crashed process come back after one lease, without
// anybody's help. Its layout is that of Redisson's RPermitExpirableSemaphore. [CountingSemaphore] is Redisson's
// RSemaphore, for sharing one with Java: a crash leaks its permits. [CountDownLatch] is Redisson's RCountDownLatch with
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
//     the permits whose lease is over. So counts are never stale, and nobody has to clean up. Permits of running holders
//     are renewed, many in one call.
//   - Only an id that is held is given back. To release a handle twice, an id twice, or an id that was never granted,
//     raises nothing.
//   - Every script may run twice. A lost reply never grants twice. What a request without a reply may have taken is given
//     back in the background. An acquisition whose caller has given up is not granted later.
//   - The capacity is an argument of [Client.Semaphore], and the first acquisition writes it. A differing one is refused
//     (ErrCapacityMismatch) until [Semaphore.Resize]; after that the server's counts, as it always does for a semaphore
//     that is [Semaphore.Shared] with Redisson. No acquisition waits because nobody has set the permits yet.
//   - Waiters of one process are served first come, first served, also one that asks for many permits. A waiter sleeps
//     until a message comes, until the lease ends that frees enough, or for PollCap, whichever is first.
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
//   - There is no order among waiters of different processes: the first to ask after a release gets the permit. A request
//     for many can wait for as long as other processes keep taking few.
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
// An acquisition makes new ids, one for each permit; they are never used again. The script that acquires adds up what is
// available and what is out, and refuses a capacity that differs from that sum. It takes all the permits or none.
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
//	redisson_sc:{P<name>}       channel, the number available at each release
//
//	P<name>             string  of a CountingSemaphore: how many permits are free; of a CountDownLatch: the count
//	{P<name>}:latch     hash    ours: the record of a latch
//	{P<name>}:barrier   hash    ours: a barrier
//
// A semaphore's keys end with the longest lease in them; those of a resized semaphore seven days after its last use. Keys
// that Redisson made have no end and are left so ([Semaphore.Shared]). The first eight bytes of an id are its client's, the
// others are random; Redisson's are random.
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
// a permit: those are a number and nothing else.
//
// # Cost of a Semaphore
//
// Without contention Acquire and Release are one script call each, two round trips, and touch no channel. A waiter costs one
// call when it starts, one when it is subscribed, and one at each wake-up. Of the waiters of one process on one semaphore,
// one at a time asks. A permit that is out takes about 100 bytes on the server; an acquisition of n takes n times that.
package rsemaphore
