package rsemaphore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

var (
	// ErrLatchExpired: the latch was set with a TTL, and the TTL ran out before the count reached zero. Some work was not
	// done, or not reported. The server remembers the end for as long again, and at least a minute. Then, or when the
	// latch is set again, the name is free.
	ErrLatchExpired = errs.New("latch_expired", "latch expired")
	// ErrLatchDeleted: the latch was deleted (CountDownLatch.Delete) during the wait, with its count above zero.
	ErrLatchDeleted = errs.New("latch_deleted", "latch deleted")
)

const (
	maxCount          = 1 << 53 // the server's scripts count exactly up to there
	maxParticipant    = 1024    // bytes
	participantMemory = 24 * time.Hour
	latchMemory       = time.Minute // the minimum time for which the record of a latch is kept
)

// CountDownLatch is Redisson's RCountDownLatch: a count, and callers that wait until it is zero. Zero is a missing key,
// so a latch that was never set is open. A latch can be set again once it is open. The value is an immutable
// description, safe for concurrent use, and costs nothing until used.
//
// Java processes may set, count down, delete and await the same latch. Features that Redisson does not have are kept in
// a record next to the count ({name}:latch, or name:latch if the name has braces), which Java does not read:
//
//   - A TTL, if one was given. If a process dies before it counts down, the count never reaches zero. With a TTL the
//     waiters then get ErrLatchExpired.
//   - The participants that have counted down (CountDownBy), so that a repeated message or a restarted job does not
//     count twice.
//   - The deletion of the latch, for its waiters.
//
// The name must not be the name of a Semaphore, a counting.Semaphore or an rcounter.Counter, because CountDown would
// lower their counts. Where the kind can be known the call is refused with ErrWrongType: see the package comment.
//
// A latch that a Java process deletes, or that is removed by hand, looks like a latch that was counted down. If a Java
// process sets a latch again within moments of its opening, waiters that have not read it in between see the same
// latch, still closed.
type CountDownLatch struct {
	object
	record  string
	permits string // the key of the permits of a Semaphore of that name
}

// CountDownLatch describes the latch of that name. Nothing is sent. If the name cannot be used, every call returns the
// error.
func (c *Client) CountDownLatch(name string) *CountDownLatch {
	latch := &CountDownLatch{object: c.object(name)}
	latch.record, latch.permits = keyname.Suffix(latch.key, "latch"), permitsKey(latch.key)
	// Redisson adds braces here even if the name has braces.
	latch.channel = "redisson_countdownlatch__channel__{" + latch.key + "}"
	return latch
}

// The first element of the scripts' replies.
const (
	latchOpen      int64 = 0
	latchClosed    int64 = 1 // reply to a read
	latchCounted   int64 = 1 // reply to a count-down
	latchNoInteger int64 = 3
	latchExpired   int64 = 4
	latchDeleted   int64 = 5

	// These, and latchDeleted, are about the latch that was closed at the last read; there may be another latch now.
	latchOpened int64 = 6
	latchRanOut int64 = 7
	latchGone   int64 = 8
)

func (l *CountDownLatch) keys() []string { return []string{l.key, l.record, l.permits} }

// named returns err with the name of the latch in front.
func (l *CountDownLatch) named(err error) error { return fmt.Errorf("%q: %w", l.name, err) }

// recordTime returns how long the record is kept after the latch is over: longer than any waiter sleeps or any call is
// repeated.
func (l *CountDownLatch) recordTime() time.Duration {
	return max(latchMemory, 4*l.c.opts.PollCap, 2*l.c.session.Bound())
}

// publishCommand returns the command with which a script publishes. It is "" if the script cannot: a sharded channel of
// another slot than the keys', as a name with braces of its own has. A Java process may wait on that channel all the
// same, so wakeWaiters publishes there.
func (l *CountDownLatch) publishCommand() string {
	cmd := l.c.session.Inner.PublishCommand()
	if cmd != "PUBLISH" && keyname.Slot(l.channel) != keyname.Slot(l.key) {
		return ""
	}
	return cmd
}

// wakeWaiters wakes the waiters after a call that changed the latch, and publishes payload if the script could not.
func (l *CountDownLatch) wakeWaiters(ctx context.Context, payload string) {
	if l.publishCommand() == "" {
		_, _ = l.c.session.Hub.Publish(ctx, l.channel, payload) // after a failure waiters poll
	}
	l.c.waiters.Wake(l.queueKey())
}

// queueKey names the queue of this process's waiters for the latch.
func (l *CountDownLatch) queueKey() string { return "latch:" + l.key }

// TrySetCount closes the latch with count, 1 to 2⁵³, if it is open, and reports whether it did. A latch that is closed
// is not changed. TrySetCount may be repeated: a call whose first request got no reply recognises its own work.
//
// With ttl, at least a millisecond, the latch expires: waiters then get ErrLatchExpired. Give a ttl wherever a process
// that counts down may die. 0 means no end, as in Redisson.
func (l *CountDownLatch) TrySetCount(ctx context.Context, count int64, ttl time.Duration) (bool, error) {
	if err := cmp.Or(l.bad, session.CheckNumber("count", count, 1, maxCount), session.CheckTTL(ttl)); err != nil {
		return false, l.c.session.Error(err)
	}
	return l.change(ctx, "set count", script.Call{Script: latchSetScript, Keys: l.keys(), Args: []string{
		decimal(count), script.Millis(ttl), rand.Text(), script.Millis(l.recordTime()), l.channel, l.publishCommand(),
		newOpeningMessage(),
	}})
}

// change runs a call that sets or removes the latch, wakes its waiters if it did, and reports whether it did.
func (l *CountDownLatch) change(ctx context.Context, what string, call script.Call) (done bool, err error) {
	return session.Ask(ctx, l.c.session, l.bad, func(ctx context.Context) (bool, error) {
		err := exchange(ctx, l.c.runner.Do, what, call, &done)
		if done {
			l.wakeWaiters(ctx, "1")
		}
		return done, err
	})
}

// CountDown lowers the count by one, as Redisson's countDown, and returns the count that is left. At 0 the latch is
// open and all waiters are woken. For an open latch it returns 0 and changes nothing, and for an expired latch it
// returns ErrLatchExpired. The request is sent once: after ErrUnknownOutcome it may have counted. See CountDownBy.
func (l *CountDownLatch) CountDown(ctx context.Context) (left int64, err error) {
	return l.down(ctx, "")
}

// CountDownBy is CountDown that counts once for each participant, however often it is called: a repeated call changes
// nothing and returns the count that is left. So it may be repeated after any error. The participant is text of 1 to
// 1,024 bytes, such as the id of a job. The next count that is set starts without participants.
//
// Participants are remembered until the latch opens or expires; without a TTL, for a day after the last of them. If a
// Java process counts a latch down to zero and another sets it anew, the latch still has the participants of before,
// unless some process read it through this package in between.
func (l *CountDownLatch) CountDownBy(ctx context.Context, participant string) (left int64, err error) {
	if l.bad == nil && (participant == "" || len(participant) > maxParticipant || !utf8.ValidString(participant)) {
		return 0, fmt.Errorf("rsemaphore: %w",
			errs.InvalidOption("participant", fmt.Sprintf("%.64q", participant),
				fmt.Sprintf("UTF-8 of 1 to %d bytes", maxParticipant)))
	}
	return l.down(ctx, participant)
}

func (l *CountDownLatch) down(ctx context.Context, participant string) (int64, error) {
	call, send := script.Call{Script: latchDownScript, Keys: l.keys(), Args: []string{
		participant, rand.Text(), script.Millis(participantMemory), script.Millis(l.recordTime()), l.channel,
		l.publishCommand(),
	}}, l.c.runner.Do
	if participant == "" {
		call.Once, send = true, l.c.session.DoOnce
	}
	return session.Ask(ctx, l.c.session, l.bad, func(ctx context.Context) (int64, error) {
		var status, left int64
		err := exchange(ctx, send, "count down", call, &status, &left)
		if err == nil {
			err = l.statusError(status)
		}
		if err == nil && status == latchCounted && left == 0 {
			l.wakeWaiters(ctx, "0")
		}
		return left, err
	})
}

// statusError returns the error of a status, or nil.
func (l *CountDownLatch) statusError(status int64) error {
	switch status {
	case latchNoInteger:
		return notInteger(l.key)
	case latchExpired:
		return l.named(ErrLatchExpired)
	}
	return nil
}

// Count returns the count that is left: 0 if the latch is open, or was never set. It returns ErrLatchExpired if the
// latch expired.
func (l *CountDownLatch) Count(ctx context.Context) (int64, error) {
	state, err := l.Inspect(ctx)
	return state.Count, err
}

// LatchState is the state of a latch on the server at one moment.
type LatchState struct {
	Count int64         // the count that is left: 0 if the latch is open, or was never set
	TTL   time.Duration // the time until it expires; negative: it has no end, or is open
}

// Inspect returns the state of the latch, or ErrLatchExpired if it expired.
func (l *CountDownLatch) Inspect(ctx context.Context) (LatchState, error) {
	return session.Ask(ctx, l.c.session, l.bad, func(ctx context.Context) (LatchState, error) {
		reply, err := l.read(ctx, l.c.runner.Do, firstRead)
		if err == nil {
			err = l.statusError(reply.status)
		}
		if reply.status != latchClosed {
			reply.ttlLeft = -1
		}
		return LatchState{Count: reply.count, TTL: reply.ttlLeft}, err
	})
}

// Delete removes the latch and reports whether it was there. Waiters of this package get ErrLatchDeleted; Java's go on
// waiting, as in Redisson. Later calls of Await find a latch that was never set. Delete may be repeated.
func (l *CountDownLatch) Delete(ctx context.Context) (bool, error) {
	return l.change(ctx, "delete latch", script.Call{Script: latchDeleteScript, Keys: l.keys(), Args: []string{
		rand.Text(), script.Millis(l.recordTime()), l.channel, l.publishCommand(),
	}})
}

// permitsKey returns the key of the permits of a Semaphore of that name. None of our Semaphores has a name that is one
// pair of braces, and Redisson's key for such a name belongs to another Semaphore. So for such a name the key is one
// that no program writes.
func permitsKey(key string) string { return keyname.Suffix(keyname.Own(key), "timeout") }

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
				reply, err := l.read(ctx, l.c.runner.Attempt, since)
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
	var random [32]byte
	rand.Read(random[:]) // never fails
	text := []rune{'0'}
	for _, choice := range random {
		text = append(text, zeros[choice&3])
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

func (l *CountDownLatch) read(ctx context.Context, send sender, since string) (reply latchReply, err error) {
	err = exchange(ctx, send, "look at latch", script.Call{Script: latchLookScript, Keys: l.keys(), Args: []string{
		since, script.Millis(l.recordTime()),
	}}, &reply.status, &reply.count, &reply.ttlLeft, &reply.mark, &reply.openingMessage)
	if err == nil && reply.status == latchNoInteger {
		err = notInteger(l.key)
	}
	return reply, err
}
