package redlatch

import "github.com/redlatch/redlatch/internal/errs"

// Several packages return these errors. Each error is one value and stands for one state, whichever package returns it:
// compare with errors.Is. An error of a single package is exported there, such as rsemaphore.ErrBrokenBarrier. The
// comment of a call lists the errors it returns; the package comment has their families.
var (
	// ErrNotAcquired: another owner held the lock, the permits or the leadership for as long as the caller was willing to
	// wait. Nothing is held; try later. If ctx ended, the error is joined with ctx's error and cause, even if nothing was
	// known of a holder by then, or a request was under way: a lock that the request still acquires is released in the
	// background. A handler checks for context.Canceled first. errors.As gives a *NotAcquiredError of a lock or of
	// permits.
	ErrNotAcquired = errs.ErrNotAcquired
	// ErrLost: a hold, permit or leadership ended without being released. Its lease ran out, its heartbeats were not
	// confirmed, or its key was deleted, evicted or taken over. Another owner may have it. Stop, and have the resource
	// refuse late writes (fencing). If the server said that the key now holds something else, the error is joined
	// with ErrWrongType, whichever call finds that out. A permit's ReleaseIDs returns it, too, if one of the ids was never
	// granted or was released before; nothing was changed.
	ErrLost = errs.ErrLost
	// ErrReleased is the cause of the contexts of a released hold, and the error of calls on it.
	ErrReleased = errs.ErrReleased
	// ErrMaxHold: a hold, permit or leadership reached Options.MaxHold. The hold is renewed no more, and stays taken until
	// it is released or its lease runs out, whichever is first.
	ErrMaxHold = errs.ErrMaxHold
	// ErrUnavailable: the server could not be asked, or refused before it did anything; or there was no reply to a call
	// that only reads. Nothing changed on the server. The error wraps its cause: the error of rueidis, or of ctx.
	ErrUnavailable = errs.ErrUnavailable
	// ErrUnknownOutcome: a request that writes was sent and its reply was not seen within Options.CallTimeout, or its
	// connection broke; or ctx ended before the reply came. The request may have run, or may run later. A hold that an
	// acquisition may have taken is released in the background. A release goes on in the background until it is confirmed
	// or the lease is over. Any other call can be made again with the same arguments, and gives the one answer; except for
	// the few that Retryable names, which may count twice then, requests of a rate limiter, which may take their units
	// twice, and orders of Anyone: units that the first call may have bought are given back in the background.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrDenied: the server does not know the user, or the user lacks a right. The text names the operation, and the
	// right, as far as the server reports it. No call waits, because waiting does not help. Nothing is acquired, and no
	// counter changes: a script undoes its writes before the refused command, as far as the rights go. No permit is
	// granted to a user who lacks a right that its release needs. Writes of a sale, a red packet, a latch or a limit
	// stand, and the call can be made again once the user has the right; if a part of a sale or packet is missing then,
	// all its calls return ErrCorrupt. A hold whose renewals are denied lasts until its Until, and ends with ErrLost
	// unless the right is back by then. A hold whose release is denied has ended here, and stays taken until the end of
	// its lease.
	ErrDenied = errs.ErrDenied
	// ErrNotReplicated: fewer than Options.MinReplicas replicas confirmed a grant in time. A lock, permit or leadership
	// was taken back; nothing is held. Decisions of a sale or a red packet stay, such as a unit, a share, a refund or a
	// return: make the call again with the same arguments, and the answer is the same once the decision is confirmed.
	ErrNotReplicated = errs.ErrNotReplicated
	// ErrClosed: the client, its hub or the subscription was closed. Nothing was sent, except to release what was held.
	ErrClosed = errs.ErrClosed
	// ErrInvalidName refuses a name that is empty, longer than 64 KiB with its prefix, not UTF-8, or that has a NUL byte,
	// or braces that would spread one object over two Cluster slots; and one that is, with its prefix, a key that another
	// object has next to its own, such as "redlatch_queue:{x}", the queue of the lock "x". A name that is one pair of
	// braces, such as "{x}", is refused for Fair, Fenced and ReadWrite locks, elections and Semaphores, because Redisson's
	// layout gives them keys that are those of "x", too; the other kinds accept it. The names of sales, red packets and
	// limiters have no braces. An id, a user, an item or a limit's key has at most 1024 bytes; the id of an order does not
	// begin with "~", and an item has none of ",;|+". A name that cannot be used is reported by every call on its object.
	// Nothing was sent, except to a sale that has no such item; then nothing was changed.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption refuses an option or argument. The text names it, its value and its bounds. Nothing was sent,
	// except where only the server knows the bounds, as for more permits than a semaphore has; then nothing was changed.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrWrongType: the key, or one that belongs to it, does not hold an object of this kind: another type, or a value
	// that no program of this library or of Redisson writes, such as "010" for a counter; the text says which. Another
	// program uses the same name. Nothing was changed. A hold whose key was overwritten is lost: its error is ErrLost,
	// too. A lock of another kind or of redsync under a lock's name is not such an error: callers wait for it.
	// (TestHostileValues_EveryKind_AreErrWrongType)
	ErrWrongType = errs.ErrWrongType
	// ErrNewer: a later version of redlatch wrote the object so that only later versions may use it. Nothing was changed.
	// Use that version in all programs; docs/compatibility.md has the order of an upgrade.
	ErrNewer = errs.ErrNewer
)

// Errors of counters, sales and red packets. Nothing was changed.
var (
	// ErrOutOfRange: a counter would leave its bounds, of which Add and AddOnce return the value; or the limit of a sale
	// would be below the units that are sold and reserved.
	ErrOutOfRange = errs.ErrOutOfRange
	// ErrOverflow: a counter would leave the 64-bit integers, or a sale has given out ordinal 2^53-1.
	ErrOverflow = errs.ErrOverflow
	// ErrMismatch: the id of an AddOnce or an order was used before with other arguments: another number, another user, or
	// other lines. Another order needs another id. From Sale.Pay: the order has none of the items that were paid for. From
	// Sale.Open: the sale was opened with another Spec, and the text names the difference. From Once.Do: the key has an
	// answer for another fingerprint.
	ErrMismatch = errs.ErrMismatch
	// ErrAlreadyOpen: the red packet exists, sent by another call, and its retention is not over. The epoch returned with
	// it is that of the existing one.
	ErrAlreadyOpen = errs.ErrAlreadyOpen
	// ErrCorrupt: the keys of a sale or red packet do not agree: records are missing (evicted, deleted, trimmed, lost in
	// a failover) or a number is impossible. No call sells or grants anything any more, because a user with a unit or
	// share could get a second one. The error of a sale is stock.ErrNoStock, too: Sale.Restore makes it anew from its
	// book, and Sale.Delete frees the name. Deleting the keys of a packet frees its name.
	ErrCorrupt = errs.ErrCorrupt
)

// NotAcquiredError is the type of an ErrNotAcquired of a lock or of permits. All fields are of the last answer to the
// call:
//
//   - Name of the lock or semaphore, or of the member of a Multi that another owner held; N, how many permits were
//     requested, and 0 for a lock; Waited, how long the call took.
//   - Lease, how long the holder's lease lasts unless it is renewed; for permits, how long until enough leases have run
//     out; negative if the time is not known. Lease bounds how long a dead holder keeps the lock, and says nothing
//     about the rest of the work: a lease that is renewed has two thirds of its length left, 20 s by default. So send
//     as Retry-After how long the work usually takes.
//   - Holders, ten at most; nil if they are not known. The call looks for holders only if it has waited for at least
//     100 ms and was not cancelled. The call then returns up to 20 ms later, and sends one request, and one for each
//     process that holds. Calls of a process for one name share the look, and look ten times in a second at most.
//   - Cause, the error and cause of ctx, if ctx ended; Unheard, ctx ended before anything was known of a holder.
//   - Ours: this client holds the lock. If the hold is the caller's own, acquire under its Context to re-enter it.
//   - Foreign: the holder is not of this library; NoEnd: the lock has no end, so ForceUnlock takes it. If both are
//     true, check whether two programs use one name: a lock of Redisson has an end.
//   - Kind: "string" or "hash", if the lock is held as another kind of lock, as while a service moves between kinds.
type NotAcquiredError = errs.NotAcquiredError

// Holder is one owner of a lock, or one held permit of a semaphore: its ID (a lock's Owner), N (how many
// permits, or how often the owner holds the lock), Client, Label, Process and Lease, and whether it is a writer.
type Holder = errs.Holder
