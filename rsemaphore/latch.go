package rsemaphore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

var (
	// ErrLatchExpired: the latch was set with a TTL, which ran out before the count reached zero. What was waited for
	// did not happen, or was not reported. The server remembers for as long again, and at least a minute; then, or when
	// it is set again, the name is free.
	ErrLatchExpired = errs.New("latch_expired", "latch expired")
	// ErrLatchDeleted: the latch was deleted while it was waited for (CountDownLatch.Delete), with its count above zero.
	ErrLatchDeleted = errs.New("latch_deleted", "latch deleted")
)

const (
	maxCount          = 1 << 53 // up to there the server's scripts count exactly
	maxParticipant    = 1024    // bytes
	participantMemory = 24 * time.Hour
	latchMemory       = time.Minute // how long the record of a latch is kept at least
)

// CountDownLatch is Redisson's RCountDownLatch: a count, for which callers wait until it is zero. Zero is a missing
// key, so a latch that was never set is open. A latch can be set again once it is open. The value is an immutable
// description, safe for concurrent use, and costs nothing until used.
//
// Java processes may set, count down, delete and await the same latch. What Redisson does not have is kept in a record
// of our own next to the count ({name}:latch, or name:latch where the name has braces), which Java does not read:
//
//   - A TTL, if one was given. If a process that was to count down has died, the count never reaches zero. With a TTL
//     the waiters then get ErrLatchExpired.
//   - The participants that have counted down (CountDownBy), so that a repeated message or a restarted job does not
//     count twice.
//   - That the latch was deleted, for its waiters.
//
// Its name must not be that of a Semaphore, a counting.Semaphore or an rcounter.Counter: a CountDown would take from
// those. Where it can be known the call is refused with ErrWrongType: see the package comment.
//
// A latch that a Java process deletes, or that is removed by hand, cannot be distinguished from one that was counted
// down. One that a Java process sets again within moments of its opening is, for waiters that have not looked in
// between, the same latch still closed.
type CountDownLatch struct {
	object
	record  string
	permits string // the set that a Semaphore of that name would have
}

// CountDownLatch describes the latch of that name. Nothing is sent. A name that cannot be used is reported by every
// call on it.
func (c *Client) CountDownLatch(name string) *CountDownLatch {
	l := &CountDownLatch{object: c.object(name)}
	l.record, l.permits = keyname.Suffix(l.key, "latch"), permitsKey(l.key)
	l.channel = "redisson_countdownlatch__channel__{" + l.key + "}" // Redisson adds braces here whatever the name has
	return l
}

// What the scripts reply first.
const (
	latchOpen      int64 = 0
	latchClosed    int64 = 1 // to a look
	latchCounted   int64 = 1 // to a count-down
	latchNoInteger int64 = 3
	latchExpired   int64 = 4
	latchDeleted   int64 = 5

	// These, and deleted, are about the latch that was closed at the last look; there may be another now.
	latchOpened      int64 = 6
	latchRanOut      int64 = 7
	latchOverSomehow int64 = 8
)

func (l *CountDownLatch) keys() []string { return []string{l.key, l.record, l.permits} }

func (l *CountDownLatch) is(what error) error { return fmt.Errorf("%q: %w", l.name, what) }

// memory is how long the record outlives what it is about: longer than any waiter sleeps or any call is repeated.
func (l *CountDownLatch) memory() time.Duration {
	return max(latchMemory, 4*l.c.opts.PollCap, 2*l.c.session.Bound())
}

// publishing is what a script gets to publish with, "" if it cannot: a sharded channel of another slot than the keys',
// as a name with braces of its own has. A Java process may wait on that channel all the same, so we publish there.
func (l *CountDownLatch) publishing() string {
	cmd := l.c.session.Inner.PublishCommand()
	if cmd != "PUBLISH" && keyname.Slot(l.channel) != keyname.Slot(l.key) {
		return ""
	}
	return cmd
}

// publish is what the script could not.
func (l *CountDownLatch) publish(ctx context.Context, payload string) {
	if l.publishing() == "" {
		_, _ = l.c.session.Hub.Publish(ctx, l.channel, payload) // if it fails, waiters poll
	}
}

// queueKey is where the process's waiters of this latch stand.
func (l *CountDownLatch) queueKey() string { return "latch:" + l.key }

// TrySetCount closes the latch with count, 1 to 2⁵³, if it is open, and reports whether it did; a latch that is
// there is not changed. It may be repeated: a call whose first request got no reply does not take its own work for
// another caller's.
//
// With ttl, at least a millisecond, the latch expires: waiters then get ErrLatchExpired. Give one wherever a process
// that counts down may die. 0 means no end, as in Redisson.
func (l *CountDownLatch) TrySetCount(ctx context.Context, count int64, ttl time.Duration) (bool, error) {
	if err := cmp.Or(l.bad, session.CheckNumber("count", count, 1, maxCount), session.CheckTTL(ttl)); err != nil {
		return false, l.c.session.Error(err)
	}
	return l.change(ctx, l.setExchange(count, ttl), "1")
}

func (l *CountDownLatch) setExchange(count int64, ttl time.Duration) exchange[bool] {
	return exchange[bool]{script.Call{Script: latchSetScript, Keys: l.keys(), Args: []string{
		decimal(count), script.Millis(ttl), rand.Text(), script.Millis(l.memory()), l.channel, l.publishing(),
		openingMessage(),
	}}, func(m rueidis.RedisMessage) (set bool, err error) {
		err = read(m, "set count", l.key, &set)
		return set, err
	}}
}

// change runs an exchange that sets or removes the latch, and wakes its waiters if it did.
func (l *CountDownLatch) change(ctx context.Context, x exchange[bool], payload string) (bool, error) {
	return session.Ask(ctx, l.c.session, l.bad, func(ctx context.Context) (bool, error) {
		done, err := x.by(ctx, l.c.runner.Do)
		if done {
			l.publish(ctx, payload)
			l.c.waiters.Wake(l.queueKey())
		}
		return done, err
	})
}

// CountDown lowers the count by one, as Redisson's countDown, and returns what is left; at 0 the latch is open and
// all waiters are woken. Of a latch that is open, 0, and nothing is changed; ErrLatchExpired of one that
// expired. It is sent once: after ErrUnknownOutcome it may have counted. See CountDownBy.
func (l *CountDownLatch) CountDown(ctx context.Context) (left int64, err error) {
	return l.down(ctx, "")
}

// CountDownBy is CountDown that counts once for each participant, however often it is called: a repeated call changes
// nothing and returns what is left. So it may be repeated after any error. The participant is text of 1 to
// 1,024 bytes, such as the id of a job; the next count that is set starts without any.
//
// Participants are remembered until the latch opens or expires; of a latch without a TTL, for a day after
// the last of them. A latch that a Java process sets anew, after another Java process counted it down to zero, still
// has those of before, unless some process looked at it through this package in between.
func (l *CountDownLatch) CountDownBy(ctx context.Context, participant string) (left int64, err error) {
	if l.bad == nil && (participant == "" || len(participant) > maxParticipant || !utf8.ValidString(participant)) {
		return 0, fmt.Errorf("rsemaphore: %w",
			errs.InvalidOption("participant", fmt.Sprintf("%.64q", participant),
				fmt.Sprintf("UTF-8 of 1 to %d bytes", maxParticipant)))
	}
	return l.down(ctx, participant)
}

func (l *CountDownLatch) down(ctx context.Context, participant string) (int64, error) {
	x, send := l.downExchange(participant), l.c.runner.Do
	if participant == "" {
		x.Once, send = true, l.c.session.DoOnce
	}
	return session.Ask(ctx, l.c.session, l.bad, func(ctx context.Context) (int64, error) {
		r, err := x.by(ctx, send)
		if err == nil && r.status == latchCounted && r.left == 0 {
			l.publish(ctx, "0")
			l.c.waiters.Wake(l.queueKey())
		}
		return r.left, err
	})
}

type downReply struct{ status, left int64 }

func (l *CountDownLatch) downExchange(participant string) exchange[downReply] {
	return exchange[downReply]{script.Call{Script: latchDownScript, Keys: l.keys(), Args: []string{
		participant, rand.Text(), script.Millis(participantMemory), script.Millis(l.memory()), l.channel, l.publishing(),
	}}, func(m rueidis.RedisMessage) (r downReply, err error) {
		if err = read(m, "count down", l.key, &r.status, &r.left); err == nil {
			err = l.wrong(r.status)
		}
		return r, err
	}}
}

// wrong returns the error that a status stands for.
func (l *CountDownLatch) wrong(status int64) error {
	switch status {
	case latchNoInteger:
		return notInteger(l.key)
	case latchExpired:
		return l.is(ErrLatchExpired)
	}
	return nil
}

// Count returns what is left to be counted down: 0 for a latch that is open, or was never set.
// It returns ErrLatchExpired if the latch expired.
func (l *CountDownLatch) Count(ctx context.Context) (int64, error) {
	state, err := l.Inspect(ctx)
	return state.Count, err
}

// LatchState is a latch as the server knew it at one moment.
type LatchState struct {
	Count int64         // what is left to be counted down: 0 for a latch that is open, or was never set
	TTL   time.Duration // how long until it expires; negative: it has no end, or is open
}

// Inspect returns the state of the latch, or ErrLatchExpired if it expired.
func (l *CountDownLatch) Inspect(ctx context.Context) (LatchState, error) {
	return session.Ask(ctx, l.c.session, l.bad, func(ctx context.Context) (LatchState, error) {
		r, err := l.lookExchange(firstLook).by(ctx, l.c.runner.Do)
		if err == nil {
			err = l.wrong(r.status)
		}
		if r.status != latchClosed {
			r.left = -1
		}
		return LatchState{Count: r.count, TTL: r.left}, err
	})
}

// Delete removes the latch and reports whether it was there. Waiters of this package get
// ErrLatchDeleted; Java's go on waiting, as Redisson has it. Later calls of Await find a latch that was never set.
// It may be repeated.
func (l *CountDownLatch) Delete(ctx context.Context) (bool, error) {
	return l.change(ctx, l.deleteExchange(), "1")
}

func (l *CountDownLatch) deleteExchange() exchange[bool] {
	return exchange[bool]{script.Call{Script: latchDeleteScript, Keys: l.keys(), Args: []string{
		rand.Text(), script.Millis(l.memory()), l.channel, l.publishing(),
	}}, func(m rueidis.RedisMessage) (removed bool, err error) {
		err = read(m, "delete latch", l.key, &removed)
		return removed, err
	}}
}

// permitsKey is the key by which a Semaphore of that name is known. No Semaphore of ours has a name that is one pair of
// braces, and Redisson's key for such a name is another Semaphore's. So such a name gets a key that no program writes.
func permitsKey(key string) string { return keyname.Suffix(keyname.Own(key), "timeout") }
