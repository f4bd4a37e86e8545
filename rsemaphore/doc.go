// Package rsemaphore limits how many may do something at the same time, and has them wait for each other, across
// processes, through Redis or Valkey.
//
//	slots := c.Semaphore("fragile-service", 5)
//	permit, err := slots.Acquire(ctx, 1) // ctx bounds the waiting
//	...
//	defer permit.Release(ctx)
//	call(permit.Context(ctx)) // ends with the permit
//
// [Semaphore] has leased permits: what a crashed process held comes back after one lease, with nobody's help. It is the
// one to use; its layout is that of Redisson's RPermitExpirableSemaphore. [CountingSemaphore] is Redisson's RSemaphore,
// for sharing one with Java: a crash leaks its permits. [CountDownLatch] is Redisson's RCountDownLatch, and more where
// Java does not look. [CyclicBarrier] has parties meet again and again.
//
// All stand on the wait loop, watchdog and hub of the locks of rlock: nobody waits by spinning, and a lost message costs
// a waiter [Options].PollCap at most.
//
// # What a Semaphore guarantees
//
//   - No more permits are held than there are, as seen by holders that act before [Permit.Until] and stop when their
//     permit's context ends.
//   - A holder learns of its loss by its own clock, without the network, before the server gives the permit to anybody
//     else. A lost permit is lost: no renewal brings it back.
//   - Every permit has an id and a lease in the server's time. What is over is given back inside every script that
//     changes the semaphore, so that counts are never stale and nobody has to clean up. Permits of running holders are
//     renewed, many in one call.
//   - Only an id that is held is ever given back: a handle released twice, an id released twice or never granted raises
//     nothing.
//   - Every script may run twice. A reply that is lost never grants twice; what a request without a reply may have
//     taken is given back in the background; an acquire whose caller has given up is not granted later.
//   - The capacity is part of [Client.Semaphore], written with the first acquisition; a differing one is refused
//     (ErrCapacityMismatch) until [Semaphore.Resize], after which the server's counts, as it always does of one that is
//     [Semaphore.Shared] with Redisson. No acquisition waits because nobody has set the permits yet.
//   - Waiters of one process are served first come, first served, also the one that asks for many. They sleep until a
//     message, until the lease is over whose end frees enough, or for PollCap, whichever is first.
//
// # Deadlines
//
// A permit may be relied on until
//
//	(monotonic time before the request was sent) + lease - Margin
//	Margin = lease/200 + min(lease/10, 10ms)
//
// where the request is the one that acquired it, or the last renewal that the server confirmed. Only durations go to the
// server, never a time.
//
// # What is not
//
//   - Failover forgets what was not replicated; [Options].MinReplicas makes that less likely, not impossible. The
//     server's clock stepping forward ends leases early.
//   - DEL, FLUSHALL and eviction free all permits at once; holders find out at their next renewal, within a third of
//     their lease, and those that are not renewed not before their lease is over: the keys of a semaphore change all the
//     time and are not tracked as those of a lock are. If only
//     the set of permits is gone, the semaphore refuses everybody (ErrCapacityMismatch) until its count's end has come,
//     one lease later at most; a resized one has all its permits at once, because its notes have the capacity; a shared
//     one, as in Redisson, has those that were out no more until its capacity is set again. If only the notes are gone, a
//     resized semaphore that is not shared refuses every other capacity until it is resized again.
//   - An order among the waiters of different processes: whoever asks first after a release gets it. A request for many
//     can wait for as long as other processes keep taking few.
//   - The work itself. When a permit is lost its context ends; what was asked of a service under it may go on there.
//   - During the migration of its Cluster slot, a semaphore or latch whose keys are not all there, which is usual, cannot be
//     asked (TRYAGAIN) until the slot is through. Calls are repeated; permits that are held are renewed all the same, key by key,
//     but not extended.
//
// # Keys of a Semaphore
//
// P is [Options].KeyPrefix; names are used as they are. Where a name has braces of its own, those around it go.
//
//	P<name>             string  how many permits are available; with those out it adds up to the capacity
//	{P<name>}:timeout   zset    those out: id of 16 bytes -> the end of its lease, server ms
//	{P<name>}:notes     hash    ours: labels, and what a Resize says; absent without either
//	redisson_sc:{P<name>}       channel, the number available at each release
//
// The keys end with the longest lease in them; a resized semaphore's seven days after its last use. Keys made by
// Redisson have no end and are left so ([Semaphore.Shared]). Of an id, the first eight bytes are its client's and the
// others random; Redisson's are random.
//
// # One name, one kind
//
// A Semaphore, a [CountingSemaphore], a [CountDownLatch] and an rcounter.Counter of one name have one key, a number,
// because Redisson has it so: a CountDown would take a permit. Give each kind names, or an Options.KeyPrefix, of its own.
// What can be known is refused with [ErrWrongType], which names the kind that is there:
//
//   - a Semaphore, by a permit that is out, or to a latch by the end of its key, which no latch without our record has;
//   - a CountDownLatch that was set or counted down here, by its record. Of one without a TTL the record is kept for a
//     minute, or a day after the last CountDownBy.
//
// What cannot: a CountingSemaphore or a Counter, a latch of Java's, a shared Semaphore nobody holds a permit of. Those are
// a number and nothing else.
//
// # Cost of a Semaphore
//
// Acquire and Release without contention are one script call each, two round trips, and touch no channel. A waiter costs
// one call when it starts, one when it is subscribed, and one at each wake-up; of the waiters of one process on a
// semaphore, one at a time asks. A permit that is out costs the server about 100 bytes, and one of n costs n times that.
package rsemaphore
