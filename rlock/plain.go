package rlock

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

var (
	plainAcquireScript = load("plain acquire", "plain_acquire")
	plainReleaseScript = load("plain release", "plain_release")
)

// A waiter that a release tells asks after a trip, and the free lock is left to it for two, in these bounds. The least
// covers a process that gets no processor for a moment: those that ask meanwhile have to wait for it. The most is
// MOST_OPEN in handover.lua.
const (
	leastReservation = 5 * time.Millisecond
	mostReservation  = 200 * time.Millisecond
)

// plain is one string key, owner as its value.
var plain = &kind{
	keys:    func(key string) []string { return []string{key, queueKey(key)} },
	queue:   1,
	channel: func(key, _ string) string { return keyname.Prefix("redlatch_plain", key) },
	acquire: func(l *single, r acquireRequest) script.Call {
		args := append(r.asked(3), l.c.publish, l.grants)
		if r.entry != "" {
			args = append(args, r.entry)
		}
		return script.Call{Script: plainAcquireScript, Keys: l.keys, Args: args}
	},
	release: func(l *single, r releaseRequest) script.Call {
		return script.Call{Script: plainReleaseScript, Keys: l.keys,
			Args: l.publishing([]string{r.owner, l.channel}, r.entry)}
	},
	renew: load("plain renew", "plain_renew"),
	keep:  load("plain keep", "plain_keep"), keepKeys: lockKey,
	locked:    lockedCall(load("plain is locked", "plain_locked").Reads()),
	force:     load("plain force unlock", "plain_force"),
	title:     "Plain",
	coalesces: true,
	plain:     "1",
	// An entry in a queue of which a release tells the first that the lock is free, and reserves it for a moment. It asks
	// like anybody else.
	queueEntry: func(a *acquisition, _, _ time.Duration) string {
		trip := a.l.c.runner.Clock.Trip(a.l.key)
		a.entry = a.own.Lease.Owner + " 0 " + script.Millis(min(max(2*trip, leastReservation), mostReservation))
		return a.entry
	},
	tenures: oneByOne,
	// It is to be free for other programs, which only poll: a tenure that lasts for two round trips beyond its first hold
	// leaves it free for about half of the time for which it would be without turns.
	tenure: func(l *single) time.Duration { return min(2*l.c.runner.Clock.Trip(l.key), tenureTime) },
	hears:  true,
}

// Plain describes the mutex of the Redis documentation: one string key, set with NX and PX to a unique value.
// Only the owner of that value deletes or prolongs it. A Plain lock excludes every program that follows the pattern on
// the same key, and all other kinds of lock of this package and of Redisson's, which are hashes.
//
// A service can so move from one kind to another while it works: see docs/migration.md. Processes that wait for the
// lock as a Reentrant, NonReentrant or Fenced one and those that wait for it as a Plain one are served in the order in
// which they came. Those that wait for a Fair or ReadWrite lock of the name, or for a Plain one while such a lock is
// held, poll. A hash that has no expiry, or fields that are not owners, is ErrWrongType.
//
// It cannot be re-entered (ErrReentry). Waiters of one process stand in line, and so do the processes of this library
// that wait, in the queue of the other kinds. A release deletes the key and notifies the first process in line, which
// asks. The lock is not handed from process to process as other kinds are: it would never be free for the other
// programs, which only poll. For the same reason the callers of one process follow each other without a call for two
// round trips only, about as long as the lock is free afterwards. So
//
//   - an acquisition takes 3 calls and one message at most, however many processes wait;
//   - the free lock is left to the first in line for two round trips, at least 5 ms and at most 200 ms. No other caller
//     of this library gets it meanwhile, so that no process starves; a TryLock with a waitTime of 0 fails. If the first
//     in line does not come, because its process is stopped or the message was lost, the next request has it dropped and
//     the one after it notified. If none asks, because all waiters sleep, the lock is idle for a PollCap at most;
//   - the order is not exact. Other programs take the lock whenever they find it free. A notified process keeps its
//     place;
//   - releases of other programs notify no waiter: waiters learn of them within Options.PollCap;
//   - a process that may not subscribe is not in line, and polls.
//
// While the lock's slot is being migrated there is no line. A release is a message to each process that waits, and each
// of these processes asks.
//
// Names longer than Options.HashOver are hashed.
func (c *Client) Plain(name string) *Lock {
	hashed := name
	if most := c.hashOver; most > 0 && len(name) > most {
		sum := sha256.Sum256([]byte(name))
		hashed = hex.EncodeToString(sum[:])
	}
	s, bad := c.single(hashed, plain)
	s.name = name
	return s.asLock(bad)
}
