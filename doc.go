// Package redlatch coordinates the processes of a Go service through Redis or Valkey: locks, semaphores, latches,
// barriers, counters, sales in which the first N win, red packets and rate limiters. Redlatch is built on rueidis, and
// shares its keys with Redisson: Java and Go processes can hold the same lock.
//
// [Open] connects once and makes the client of every package; one Close ends all of it:
//
//	red, err := redlatch.Open(ctx, rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}}, redlatch.Options{})
//	if err != nil {
//		return err
//	}
//	defer red.Close(context.Background())
//
//	report := red.Locks().Reentrant("nightly-report").WithWait(10 * time.Second)
//	err = report.Do(ctx, func(ctx context.Context) error {
//		return write(ctx) // ctx ends if the lock is lost
//	})
//	if errors.Is(err, redlatch.ErrNotAcquired) {
//		return nil // another process has it
//	}
//
// # Which client for what
//
//	Locks        rlock               one owner at a time: reentrant, fenced, fair, read-write, several as one, a quorum
//	Elections    rlock/election      one leader among several processes
//	Semaphores   rsemaphore          at most n at a time; latches; barriers
//	Counters     rcounter            a number with bounds that all processes count on
//	Sales        rcounter/stock      the first N of a crowd get a unit each; reservations; a ledger
//	RedPackets   rcounter/redpacket  a sum of money in shares, one for each of the first N
//	Limiters     rcounter/ratelimit  so many units a second, for all processes together
//	Hub          pubsub              Pub/Sub that reports where messages may have been missed
//
// Package redlatchdebug shows what a client holds and waits for; redlatchtest is a server for tests. Each package can
// be used alone: call pubsub.Dial, give the hub to rlock.New, and close the client before the hub.
//
// # What is guaranteed
//
//   - A call that waits for others lasts until its context ends, or its waitTime is over. Any other lasts one
//     CallTimeout at most, or Options.RetryTimeout, if that is set.
//   - Each hold has a lease, which is renewed while the holder lives. Work runs under the context of the hold, which
//     ends when the hold is lost: before another process can acquire the lock if the lease runs out, and soon after a
//     key was deleted.
//   - A lost reply never makes anything count twice. The few calls that cannot guarantee this are never retried; their
//     comments say so.
//   - One error value stands for one state in all packages, and is exported here. There are four families. Contended
//     (ErrNotAcquired): another owner has the lock. Lost (ErrLost, ErrMaxHold): the caller's hold is over. Not run
//     (ErrUnavailable, ErrDenied and others): nothing changed on the server. Unknown (ErrUnknownOutcome,
//     ErrNotReplicated): the request was sent, and no reply came or too few replicas confirmed it. Sold out, over and
//     taken before are answers, not errors.
//   - The zero value of every Options is good. Options that cannot be used are refused before anything is sent, with
//     field, value and bounds.
//   - Making a Lock or a Counter sends nothing. All values are safe for concurrent use.
//
// # What is not guaranteed
//
// A promoted replica may lack the last writes, and so a lock that was just acquired. Options.MinReplicas makes that
// rare, rlock's Quorum survives it, and a fenced lock's token lets the resource refuse the earlier holder. FLUSHALL,
// DEL and eviction end holds. A step of the server's clock moves leases. A process that was suspended may act
// after its deadline.
//
// In the repository, docs/guarantees.md has every promise, docs/operations.md the settings of the server.
package redlatch
