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

// Await waits until the latch is open: until its count is zero, or it has none. It returns at once if it is.
//
// A latch that was not set yet has no count: it is open, as Redisson's is, and Await before TrySetCount does not wait.
// So set the count first, then start the processes that count down, and await only after TrySetCount has returned.
//
// It returns
//
//   - nil if the latch was open at some moment during the call;
//   - ErrLatchExpired or ErrLatchDeleted if it will never open, see there;
//   - ctx's error and cause if ctx ended while the latch was closed, joined with ErrUnavailable if the server gave no
//     answer lately;
//   - ErrClosed if the client was closed.
//
// All waiters are woken when the latch opens. A lost message delays a waiter by at most Options.PollCap. If the latch
// has been set again by then, the waiter still learns that it was open, unless Java set it. The record of that ends at
// some time: a waiter that could not ask the server for longer takes a latch whose TTL is over for expired.
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
	// If the latch is set again before any look, only waiters that came before an earlier look learn that it was open.
	// So a waiter that looks for all of them must look once more for this one.
	waiters.WakeAll(key)
	onMessage := func(payload string) bool { return l.opens(began, payload) }
	err := waiters.Wait(ctx,
		wait.Request{Name: l.name, Of: l, Began: began, QueueKey: key, Channel: l.channel, OnMessage: onMessage,
			Try: func(ctx context.Context) (wait.Answer, error) {
				since := firstLook
				note, noted := waiters.LastNote(key, began)
				closed, again := note.(latchClosedAt)
				if again {
					since = closed.mark
				}
				sent := time.Now()
				r, err := l.lookExchange(since).by(ctx, l.c.runner.Attempt)
				if err != nil {
					return wait.Answer{}, err
				}
				var why error
				// What a look says about the previous latch serves only the waiters that were there then:
				//
				//	this waiter looks: closed      another process             a second waiter, of this process
				//	                               opens it, sets it again
				//	                                                           comes; waits for the new one
				//	looks: opened since last look
				//	must not release the second
				//
				// So the time of the look stays the time of the look before
				// (TestLatch_SetAgainAtOnce_KeepsNoneThatSawItOpen).
				switch r.status {
				case latchClosed:
					now := latchClosedAt{mark: r.mark, opens: r.opens}
					if r.left >= 0 {
						now.until = sent.Add(r.left)
					}
					waiters.Note(key, sent, now)
					return wait.Answer{Left: r.left}, nil
				case latchOpen:
					noted = sent
				case latchExpired:
					noted, why = sent, l.is(ErrLatchExpired)
				case latchRanOut:
					why = l.is(ErrLatchExpired)
				case latchOverSomehow:
					if !closed.until.IsZero() && !time.Now().Before(closed.until) {
						why = l.is(ErrLatchExpired)
					}
				case latchDeleted:
					why = l.is(ErrLatchDeleted)
				}
				waiters.Serve(key, noted, why)
				return wait.Answer{Granted: why == nil}, why
			}})
	return wait.Ending{Package: "rsemaphore", Name: l.name, Contended: func(g *wait.GaveUp) error {
		return fmt.Errorf("rsemaphore: latch %q is still closed: %w", l.name, g.Cause)
	}}.Explain(err)
}

// opens reports whether a message says that the latch has opened for which a waiter waits that came at began. Then it
// says so to all of the process that the message is for, and none of them asks. The rules are:
//
// The message. Each opening has a message of its own, which the call that set the latch has chosen. A look at the
// closed latch gets the message, and the script that opens the latch publishes it and forgets it. So the latch has
// opened since the last look that got it, whenever the message comes: late, after a gap, or when the latch has
// long been set again.
//
//	waiter                          another process             the channel
//	looks: closed, opens with A
//	                                opens it                    A (is late)
//	                                sets it again, opens with B
//	asks: it has been opened since: returns
//	a second waiter comes
//	looks: closed, opens with B
//	                                                            A: not B, so it asks: closed
//
// (TestLatch_MessageOfEarlierOpening_OpensNothing)
//
// The waiters. Those that came before the look was sent waited for that latch. A later one may wait for the next: it
// asks, or is looked for by the contender.
//
//	waiter                          another process             a second waiter, of this process
//	looks: closed, opens with A
//	                                opens it, sets it again
//	                                                            comes; waits for the new one
//	hears A: returns                                            asks: closed, opens with B
//
// (TestLatch_SetAgainAtOnce_KeepsNoneThatSawItOpen)
//
// Asking. A message that comes before the subscription is confirmed is not heard: the look after the confirmation finds
// the latch open. One that is lost is found by the look after PollCap, or after the gap that the hub reports.
// Redisson's bare "0", also ours for a latch without a record or with a channel in another slot, tells nothing but that
// a look is due.
//
// A primary that fails after it has published, and before its replica knows, has opened the latch for those that heard
// it. What its replica knows is that the latch is closed. A script's reply has the same fate.
func (l *CountDownLatch) opens(began time.Time, payload string) bool {
	note, sent := l.c.waiters.LastNote(l.queueKey(), time.Time{})
	closed, ok := note.(latchClosedAt)
	if !ok || closed.opens == "" || closed.opens != payload {
		return false
	}
	l.c.waiters.Serve(l.queueKey(), sent, nil)
	return !sent.Before(began)
}

// openingMessage returns a message that says that one latch has opened. Redisson reads each message on this channel as
// a number, and takes 0 for an opening. Java's numbers may be written with the digits of any script, and this one is a
// 0 with digits of four of them, which spell 64 random bits (TestLatch_OpenedByEitherSide_OpensForBoth, in
// proof/redisson). Another message, next to a plain "0", would be a second one for each process.
func openingMessage() string {
	zeros := [...]rune{'0', '\u0660', '\u06f0', '\u07c0'} // ASCII, Arabic-Indic, extended Arabic-Indic, N'Ko
	text := []rune{'0'}
	for bits, n := rand.Uint64(), 0; n < 32; bits, n = bits>>2, n+1 {
		text = append(text, zeros[bits&3])
	}
	return string(text)
}

// latchClosedAt is what a look at a closed latch passes on to the next look. A latch is known by the call that set it,
// not by its count: a job that sets it again at once leaves no moment in which the key is missing, and a waiter that
// looked only after that would wait for the next opening, and the next
// (TestLatch_SetAgainBeforeALook_WasOpen).
type latchClosedAt struct {
	mark  string    // the server's word for which latch it was
	opens string    // the message of its opening; "" if it is not known
	until time.Time // it does not expire before; zero: never
}

// firstLook stands for the mark of a waiter that has not looked yet.
const firstLook = "-"

type latchLook struct {
	status, count int64
	left          time.Duration // negative: no TTL
	mark          string        // for the next look
	opens         string        // as latchClosedAt has it
}

func (l *CountDownLatch) lookExchange(since string) exchange[latchLook] {
	return exchange[latchLook]{script.Call{Script: latchLookScript, Keys: l.keys(), Args: []string{
		since, script.Millis(l.memory()),
	}}, func(m rueidis.RedisMessage) (r latchLook, err error) {
		if err = read(m, "look at latch", l.key, &r.status, &r.count, &r.left, &r.mark, &r.opens); err == nil &&
			r.status == latchNoInteger {
			err = notInteger(l.key)
		}
		return r, err
	}}
}
