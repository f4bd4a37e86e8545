// Package rlock provides distributed locks on Redis or Valkey.
//
//	hold, err := locks.Reentrant("order:1").Lock(ctx) // ctx bounds the waiting
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return work(hold.Context(ctx)) // this context ends with the hold
//
// Waiters do not spin: a release hands the lock to the next waiter. A watchdog renews the lease of every hold. The keys
// are those of Redisson's locks, so Go and Java processes exclude each other. [Lock.Do] acquires, works and releases;
// [Lock.DoOnce] runs a job once in a period.
//
// # Kinds
//
//	Reentrant     Redisson's RLock: use this one unless you need another
//	NonReentrant  the same, but acquiring again under a hold's context is ErrReentry
//	Fenced        RFencedLock: each hold has a growing token, for a resource that checks it
//	Fair          RFairLock: first come, first served among all waiters of all processes
//	Spin          RSpinLock: waiters poll with backoff, without any channel
//	ReadWrite     RReadWriteLock: many readers or one writer
//	Plain         a string (SET NX PX), for programs that follow that pattern
//
// All return the same [Hold] and keep the same promises. [Multi] makes one lock of several, without deadlocks, and
// [Quorum] one of a majority of independent servers (Redlock).
//
// # What is guaranteed
//
//   - A holder that stops at [Hold.Until], or when its hold's context ends, never overlaps another holder. That
//     deadline is the monotonic time before the last confirmed request was sent, plus the lease, minus lease/200 +
//     min(lease/10, 10ms).
//   - A holder learns of a loss by its own clock, without the network, before the server gives the lock to another
//     owner.
//   - Every script may run twice: a lost reply never counts a hold twice, and never releases another owner's hold.
//   - A call that fails holds nothing. A grant without a reply is released in the background.
//   - A lost message delays a waiter by Options.PollCap at most, or by 10 s in a client that waits for more than 64
//     names.
//   - A crashed process's lock is free when its lease is over, Options.WatchdogTimeout after its last renewal; with
//     Options.Liveness in both clients a waiter takes it over after three to four heartbeats.
//
// # What is not guaranteed
//
// Two owners may act at once, until the first one's next renewal or deadline, after a failover to a replica that lacked
// the write, a forward step of the server's clock, FLUSHALL, DEL, [Lock.ForceUnlock], eviction or a restart without
// data, and when a process is paused or its machine suspended for longer than the lease. If your program cannot
// tolerate that, the resource itself must refuse the late act, by a fencing token or a unique index.
//
// # Contexts
//
// The ctx of [Lock.Lock] bounds the waiting, not the hold, which lasts until Unlock. Goroutines have no identity:
// acquiring under the [Hold.Context] of a hold of the same lock re-enters that hold, unless it has a lease of its own.
// [Detach] takes the owner out of a context; [Lock.WithOwner] joins another process's hold.
//
// Package redlatch declares the errors that several packages return, such as redlatch.ErrNotAcquired. Compare with
// errors.Is.
//
// In the repository, docs/guarantees.md has the limits of each promise, docs/design the keys and the protocol.
package rlock
