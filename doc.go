// Package redlatch coordinates the processes of a Go service through Redis or Valkey: locks, semaphores, latches, barriers,
// counters, stocks of which the first N win, red packets and rate limiters. It is built on rueidis, and shares its keys with
// Redisson: Java and Go processes can hold the same lock.
//
//	go get github.com/redlatch/redlatch
//
// [Open] connects once and makes the client of every package; one Close ends all of it:
//
//	red, err := redlatch.Open(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}}, redlatch.Options{})
//	if err != nil {
//		return err
//	}
//	defer red.Close(context.Background())
//
//	report := red.Locks().Reentrant("nightly-report").WithWait(10 * time.Second)
//	err = report.Do(ctx, func(ctx context.Context) error {
//		return write(ctx) // ctx ends if the lock is lost
//	})
//	if errors.Is(err, rlock.ErrNotAcquired) {
//		return nil // another process has it
//	}
//
// # Which client for what
//
//	Locks        rlock               one owner at a time: reentrant, fenced, fair, read-write, several as one, a quorum of servers
//	Elections    rlock/election      one leader among several processes, and who it is for all others
//	Semaphores   rsemaphore          at most n at a time; latches; barriers
//	Counters     rcounter            a number with bounds that all processes count on
//	Stocks       rcounter/stock      the first N of a crowd get a unit each; reservations; a ledger
//	RedPackets   rcounter/redpacket  a sum of money in shares, one for each of the first N
//	Limiters     rcounter/ratelimit  so many units a second, for all processes together
//	Hub          pubsub              channels, with a word for every gap in the messages
//
// Each method of [Client] returns one of them: [Client.Locks], [Client.Stocks] and so on. In the repository, docs/recipes.md has a
// cron job, an outbox, a webhook, a cache and a sale with payment; docs/comparison.md says when to take something else.
//
// Package redlatchdebug has a page that shows what a client holds and waits for; redlatchtest a server for tests.
//
// Each package can be used alone: a program that imports rlock links rlock only. It calls pubsub.Dial, gives the hub to rlock.New,
// and closes the client before the hub.
//
// # What holds in all packages
//
//   - A call that waits for others lasts until its context ends, or its waitTime is over; while the server is away the client logs it
//     once. Any other lasts one CallTimeout at most, whatever its context allows, or Options.RetryTimeout, if that is set.
//   - What is held has a lease, which is renewed while the holder lives. Work runs under the context of the hold, which ends
//     when the hold is lost: before another process can have it where the lease runs out, soon after where a key is deleted.
//   - Every script may run twice. A lost reply never counts a hold, a permit or a claim twice. The few calls that cannot
//     be repeated are sent once, and their comments say so.
//   - An error belongs to one family. Contended (ErrNotAcquired): another owner has it. Lost (ErrLost, ErrMaxHold): the
//     caller had it. Not run (ErrUnavailable): nothing changed. Unknown (ErrUnknownOutcome): the request was sent and no
//     reply came. The same value stands for the same state in all packages, so errors.Is works across them. Sold out, over, taken
//     before are answers, not errors.
//   - Options are structs whose zero value is good. An option, an argument or a name that cannot be used is refused before
//     anything is sent, and the error names the field, the value and the bounds.
//   - Values such as a Lock, a Semaphore or a Counter describe an object. Making one sends nothing and costs nothing. All are
//     safe for concurrent use.
//   - An Observer is a function that is called with events, and with the context of the call in question. Log lines go to
//     Options.Logger.
//
// # What one Redis cannot promise
//
// A replica that is promoted may lack the last writes, and then a lock that was just acquired is free again.
// Options.MinReplicas makes that rare, rlock's Quorum survives it, and a fenced lock's token lets the resource refuse
// the earlier holder. FLUSHALL, DEL and eviction end what is held; set maxmemory-policy to noeviction. A step of the server's
// clock moves what the server counts by that clock. A holder that acts after its deadline, because its process was suspended,
// may act beside the next one; fencing tokens are the answer again.
//
// # Where to read on
//
// The package comments say what each package promises, its protocol, its keys and its costs. In the repository,
// docs/guarantees.md has every promise with the failures under which it holds and the test that shows it;
// docs/operations.md what to set on the server, which rights a user needs, and what to do about each error;
// docs/redisson.md what is shared with Java; docs/examples programs that run without a server.
package redlatch
