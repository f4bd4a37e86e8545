package rsemaphore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// Await waits until the latch is open, that is, until its count is zero, or it has none. It returns at once if it is
// open.
//
// A latch that was not set yet has no count: it is open, as Redisson's is, and Await before TrySetCount does not wait.
// So set the count first, then start the processes that count down, and await only after TrySetCount has returned.
//
// Await returns
//
//   - nil if the latch was open at some moment during the call;
//   - ErrLatchExpired or ErrLatchDeleted if it will never open, see there;
//   - ctx's error and cause if ctx ended while the latch was closed, joined with ErrUnavailable if the server has not
//     answered lately;
//   - ErrClosed if the client was closed.
//
// All waiters are woken when the latch opens. A lost message delays a waiter by at most Options.PollCap. If the latch
// has been set again by then, the waiter still learns that it was open, unless Java set it. The server forgets the
// opening after some time: a waiter that could not reach the server for longer takes a latch whose TTL is over for
// expired.
func (l *CountDownLatch) Await(ctx context.Context) error {
	if l.bad != nil {
		return l.bad
	}
	if err := l.c.session.Enter(); err != nil {
		return err
	}
	defer l.c.session.Leave()
	began := time.Now()
	err := l.await(ctx, began)
	l.c.session.Tell(ctx, errs.Event{Kind: errs.EventAwaited, Name: l.name, Took: time.Since(began), Err: err})
	return err
}

func (l *CountDownLatch) await(ctx context.Context, began time.Time) error {
	waiters, key := l.c.waiters, l.queueKey()
	// If the latch is set again before any read, only waiters that came before an earlier read learn that it was open. So
	// a waiter that reads for all of them must read once more for this one.
	waiters.WakeAll(key)
	onMessage := func(payload string) bool { return l.acceptOpening(began, payload) }
	err := waiters.Wait(ctx,
		wait.Request{Name: l.name, Object: l, Began: began, QueueKey: key, Channel: l.channel, OnMessage: onMessage,
			Try: func(ctx context.Context) (wait.Answer, error) {
				since := firstRead
				note, noted := waiters.LastNote(key, began)
				closed, again := note.(closedLatch)
				if again {
					since = closed.mark
				}
				sent := time.Now()
				reply, err := l.readExchange(since).by(ctx, l.c.runner.Attempt)
				if err != nil {
					return wait.Answer{}, err
				}
				var outcome error
				// The reply about the previous latch serves only the waiters that were there then:
				//
				//	this waiter reads: closed      another process             a second waiter, of this process
				//	                               opens it, sets it again
				//	                                                           comes; waits for the new latch
				//	reads: opened since last read
				//	must not release the second
				//
				// So the time of the read stays the time of the read before (TestLatch_SetAgainAtOnce_KeepsNoneThatSawItOpen).
				switch reply.status {
				case latchClosed:
					now := closedLatch{mark: reply.mark, openingMessage: reply.openingMessage}
					if reply.ttlLeft >= 0 {
						now.notExpiredBefore = sent.Add(reply.ttlLeft)
					}
					waiters.Note(key, sent, now)
					return wait.Answer{Left: reply.ttlLeft}, nil
				case latchOpen:
					noted = sent
				case latchExpired:
					noted, outcome = sent, l.named(ErrLatchExpired)
				case latchRanOut:
					outcome = l.named(ErrLatchExpired)
				case latchGone:
					if !closed.notExpiredBefore.IsZero() && !time.Now().Before(closed.notExpiredBefore) {
						outcome = l.named(ErrLatchExpired)
					}
				case latchDeleted:
					outcome = l.named(ErrLatchDeleted)
				}
				waiters.Serve(key, noted, outcome)
				return wait.Answer{Granted: outcome == nil}, outcome
			}})
	return wait.Ending{Package: "rsemaphore", Name: l.name, Contended: func(gaveUp *wait.GaveUp) error {
		return fmt.Errorf("rsemaphore: latch %q is still closed: %w", l.name, gaveUp.Cause)
	}}.Explain(err)
}

// acceptOpening reports whether a message announces the opening of the latch that a waiter waits for. began is the
// beginning of that wait. If it does, acceptOpening also serves the other waiters of this process that the message is
// for, so that none of them sends a request. The rules are as follows; docs/design/protocols.md, "Latches", has their
// interleavings.
//
//   - Each opening has a message of its own, chosen by the call that set the latch. A read of the closed latch returns
//     the message, and the script that opens the latch publishes it and forgets it. So the latch has opened since the
//     last read that returned it, whenever the message comes: late, after a gap, or when the latch has long been set
//     again (TestLatch_MessageOfEarlierOpening_OpensNothing).
//   - Waiters that came before the read was sent waited for that latch. A later one may wait for the next latch, so it
//     reads for itself, or the contender reads for it (TestLatch_SetAgainAtOnce_KeepsNoneThatSawItOpen).
//   - Redisson's bare "0" only says that a read is due. It is also ours for a latch without a record or with a channel
//     in another slot.
func (l *CountDownLatch) acceptOpening(began time.Time, payload string) bool {
	note, sent := l.c.waiters.LastNote(l.queueKey(), time.Time{})
	closed, ok := note.(closedLatch)
	if !ok || closed.openingMessage == "" || closed.openingMessage != payload {
		return false
	}
	l.c.waiters.Serve(l.queueKey(), sent, nil)
	return !sent.Before(began)
}

// newOpeningMessage returns a message that announces the opening of one latch. Redisson reads each message on this
// channel as a number, and takes 0 for an opening. Java's numbers may be written with the digits of any script, and
// this message is a 0 with digits of four scripts, which spell 64 random bits
// (TestLatch_OpenedByEitherSide_OpensForBoth, in proof/redisson). A further message, next to a plain "0", would cost
// each process a second message.
func newOpeningMessage() string {
	zeros := [...]rune{'0', '\u0660', '\u06f0', '\u07c0'} // ASCII, Arabic-Indic, extended Arabic-Indic, N'Ko
	text := []rune{'0'}
	for bits, n := rand.Uint64(), 0; n < 32; bits, n = bits>>2, n+1 {
		text = append(text, zeros[bits&3])
	}
	return string(text)
}

// closedLatch is the result of a read of a closed latch, for the next read. A latch is identified by the call that set
// it, not by its count. A job that sets it again at once leaves no moment in which the key is missing, and a waiter
// that read only after that would wait for the next opening, and the next (TestLatch_SetAgainBeforeALook_WasOpen).
type closedLatch struct {
	mark             string    // identifies the latch on the server
	openingMessage   string    // the message of its opening; "": not known
	notExpiredBefore time.Time // it does not expire before; zero: it has no TTL
}

// firstRead is the mark of a waiter that has not read the latch yet.
const firstRead = "-"

type latchReply struct {
	status, count  int64
	ttlLeft        time.Duration // negative: no TTL
	mark           string        // for the next read
	openingMessage string        // see closedLatch
}

func (l *CountDownLatch) readExchange(since string) exchange[latchReply] {
	return exchange[latchReply]{script.Call{Script: latchLookScript, Keys: l.keys(), Args: []string{
		since, script.Millis(l.recordTime()),
	}}, func(message rueidis.RedisMessage) (reply latchReply, err error) {
		err = read(message, "look at latch", l.key,
			&reply.status, &reply.count, &reply.ttlLeft, &reply.mark, &reply.openingMessage)
		if err == nil && reply.status == latchNoInteger {
			err = notInteger(l.key)
		}
		return reply, err
	}}
}
