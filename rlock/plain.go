package rlock

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

var (
	plainAcquireScript = load("plain acquire", "plain_acquire")
	plainReleaseScript = load("plain release", "plain_release")
)

// A notified waiter needs one round trip for its request. The free lock is reserved for the waiter for two round trips,
// within these bounds. The minimum covers a process that gets no processor for a moment: other requests are refused
// meanwhile. The maximum is MAX_RESERVATION in queue.lua.
const (
	minReservation = 5 * time.Millisecond
	maxReservation = 200 * time.Millisecond
)

// kindPlain is a lock that is one string key, whose value is the owner.
var kindPlain = &kind{
	layout: &layout{
		keys:         func(key string) []string { return []string{key, queueKey(key)} },
		queueIndex:   1,
		stringKeyArg: "1",
		channel:      func(key, _ string) string { return keyname.Prefix("redlatch_plain", key) },
		release: func(lock *single, request releaseRequest) script.Call {
			return script.Call{Script: plainReleaseScript, Keys: lock.keys,
				Args: lock.publishArgs([]string{request.owner, lock.channel}, request.entry)}
		},
		renew: load("plain renew", "plain_renew"),
		keep:  load("plain keep", "plain_keep"), keepKeys: lockKey,
		locked: lockedCall(load("plain is locked", "plain_locked").Reads()),
		force:  load("plain force unlock", "plain_force"),
	},
	waiting: &waiting{
		// A release notifies the first entry of the queue that the lock is free, and reserves the lock for it for a moment.
		// The notified waiter sends an ordinary request.
		queueEntry: func(acquiring *acquisition, _, _ time.Duration) string {
			trip := acquiring.lock.c.runner.Clock.Trip(acquiring.lock.key)
			reservation := min(max(2*trip, minReservation), maxReservation)
			entry := wait.OwnerEntry(wait.EntryString, acquiring.own.Lease.Owner, reservation, 5*wait.MaxPoll/2)
			acquiring.entry = entry.Text()
			return acquiring.entry
		},
		sharesTenure: sharesIfItWaits,
		// The lock should be free for other programs, because they only poll. With a tenure of two round trips after its
		// first hold, the lock is free for about half of the time for which it would be free without turns.
		tenureLength: func(lock *single) time.Duration { return min(2*lock.c.runner.Clock.Trip(lock.key), maxTenure) },
	},
	acquire: func(lock *single, request acquireRequest) script.Call {
		args := append(request.baseArgs(3), lock.c.publish, lock.grants)
		if request.replacedOwner != "" {
			return script.Call{Script: plainAcquireScript, Keys: lockAlone(lock.keys),
				Args: append(args, "", request.replacedOwner)}
		}
		if request.entry != "" {
			args = append(args, request.entry)
		}
		return script.Call{Script: plainAcquireScript, Keys: lock.keys, Args: args}
	},
	title:     "Plain",
	coalesces: true,
}

// Plain describes the mutex of the Redis documentation: one string key, set with NX and PX to a unique value. Only the
// owner of that value deletes or prolongs the key. A Plain lock excludes every program that follows the pattern on the
// same key, and all other kinds of lock of this package and of Redisson, which are hashes. It cannot be re-entered
// (ErrReentry). Names longer than Options.HashOver are hashed.
//
//   - An acquisition takes at most 3 calls and one message, however many processes wait.
//   - Waiting processes of this library are served in their order, but not exactly: other programs take the lock
//     whenever they find it free. No process starves.
//   - A release notifies the first process in the queue, and for two round trips, at least 5 ms and at most 200 ms, no
//     other caller of this library gets the lock; a TryLock with a waitTime of 0 fails.
//   - Releases of other programs notify no waiter. The waiters learn of them within Options.PollCap. A process that may
//     not subscribe polls, too.
//
// A service can move from one kind to another while it works: see docs/migration.md. Waiters of the Plain lock and of
// the Reentrant, NonReentrant or Fenced lock of the name are served in one order. Waiters of the Fair or ReadWrite lock
// of the name poll, and so do waiters of the Plain lock while such a lock is held. A hash without an expiry, or with
// fields that are not owners, is ErrWrongType. docs/design/protocols.md has the protocol ("Waiting without a
// hand-over").
func (c *Client) Plain(name string) *Lock {
	hashed := name
	if limit := c.lockOptions.HashOver; limit > 0 && len(name) > limit {
		digest := sha256.Sum256([]byte(name))
		hashed = hex.EncodeToString(digest[:])
	}
	lock, argErr := c.single(hashed, kindPlain)
	lock.name = name
	return lock.asLock(argErr)
}
