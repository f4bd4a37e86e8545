// Package redlatch is the front door of a coordination library for Go services on Redis or Valkey, built on rueidis. It
// shares its keys with Java's Redisson.
//
// [Open] connects once and gives every client of the library:
//
//	red, err := redlatch.Open(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}}, redlatch.Options{})
//	if err != nil {
//		return err
//	}
//	defer red.Close(context.Background())
//
//	err = red.Locks().Reentrant("nightly-report").Do(ctx, func(ctx context.Context) error {
//		return report(ctx) // ctx ends if the lock is lost
//	})
//
// # Which client for what
//
//	Locks        rlock               one worker at a time: reentrant, fair, read-write, fenced, several at once, a quorum
//	Semaphores   rsemaphore          at most n at a time; latches; barriers
//	Counters     rcounter            a number that all processes count on
//	Stocks       rcounter/stock      the first N of a crowd win a unit each; reservations
//	RedPackets   rcounter/redpacket  a sum that the first N share
//	Limiters     rcounter/ratelimit  so many requests a second
//	Hub          pubsub              messages, with gaps that are never silent
//
// Each package stands alone as well: a program that imports rlock only links rlock only. It then makes the hub with
// pubsub.Dial, gives it to rlock.New, and closes both.
//
// # What holds in all packages
//
//   - Every wait has a bound: ctx, or a waitTime. Work runs under the context of what is held, which ends when that is lost.
//   - Every script may run twice. A lost reply never counts a hold, a permit or a claim twice. The few calls that cannot
//     be repeated are sent once, and their comments say so.
//   - An error belongs to one of three families. Contended (ErrNotAcquired): another owner has it. Lost (ErrLost,
//     ErrMaxHold): the caller had it. Unknown (ErrUnknownOutcome): a request was sent and no reply came. Sold out, ended,
//     already granted are outcomes, and no errors.
//   - An argument that cannot be used is refused before anything is sent. The error names the field and the value.
//
// One Redis cannot promise that a write survives a failover to a replica that had not received it, nor that its clock is
// never stepped. docs/guarantees.md says what follows from that for each promise, and which test shows it.
package redlatch
