// Package rsemaphore limits how many callers do something at the same time, and lets callers wait for each other,
// across processes, on Redis or Valkey.
//
//	slots := semaphores.Semaphore("fragile-service", 5)
//	permit, err := slots.Acquire(ctx, 1) // ctx bounds the waiting
//	if err != nil {
//		return err
//	}
//	defer permit.Release(ctx)
//	return call(permit.Context(ctx)) // this context ends with the permit
//
// Use [Semaphore] if in doubt. Its permits have leases, and its layout is that of Redisson's RPermitExpirableSemaphore.
// A semaphore of [Client.WeightedSemaphore] shares out an amount, such as bytes; Java does not see it. Package counting
// is Redisson's RSemaphore, for semaphores that Java uses: a crash leaks its permits.
// [CountDownLatch] is Redisson's RCountDownLatch with additions that Java does not see. [CyclicBarrier] makes parties
// wait for each other, again and again.
//
// # What is guaranteed
//
//   - Holders that stop at [Permit.Until], or when their permit's context ends, are never more than there are permits.
//   - A holder learns of its loss by its own clock, before the server gives the permit to another. A lost permit stays
//     lost.
//   - Permits of running holders are renewed. The permits of a crashed process come back by themselves after
//     one lease. With [Options].Liveness in both clients they are taken over after three to four heartbeats. A permit
//     with a leaseTime lasts for that time.
//   - Releasing a handle or an id twice, or an id that was never granted, never adds a permit.
//   - Every script may run twice: a lost reply grants nothing twice. If a request without a reply was granted,
//     the permits are given back in the background.
//   - The first acquisition writes the capacity. A different capacity is refused (ErrCapacityMismatch) until
//     [Semaphore.Resize], unless it is newer ([Semaphore.WithRevision]); from then on, and always for a
//     [Semaphore.Shared] one, the server's applies.
//   - Waiters of all processes are served in the order of their requests. At most four times its size in smaller
//     requests goes ahead of the first one that does not fit.
//   - A latch opens for all its waiters. A barrier lets all parties of a generation go, or breaks for all of them.
//
// # What is not guaranteed
//
//   - Failover forgets writes that were not replicated; [Options].MinReplicas makes that less likely. A forward step of
//     the server's clock ends leases early.
//   - DEL, FLUSHALL and eviction free all permits at once; a holder learns of it at its next renewal, or when a fixed
//     lease ends.
//   - A process without the right to its grant channel, or in a Cluster older than Redis 7, polls outside the queue, as
//     Redisson's waiters do.
//
// # One name, one kind
//
// A Semaphore, a counting.Semaphore, a CountDownLatch and an rcounter.Counter of one name share a key, as in Redisson.
// Use different names, or an Options.KeyPrefix for each kind. Where the kind can be known, another is refused with
// [ErrWrongType].
//
// The errors that several packages return are in package redlatch, such as redlatch.ErrNotAcquired. Compare with
// errors.Is.
//
// In the repository, docs/guarantees.md has the limits of each promise, docs/design the keys and the protocol.
package rsemaphore
