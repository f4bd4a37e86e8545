package rlock

import (
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

var (
	fairAcquireScript = load("fair acquire", "fair_acquire")
	fairReleaseScript = load("fair release", "fair_release")
)

// fair is Redisson's RFairLock: the hash of an RLock, a list of waiters and a sorted set of when they count as dead.
// A hash has those that can be handed the lock.
var fair = &kind{
	keys: func(key string) []string {
		return []string{key, keyname.Prefix("redisson_lock_queue", key), keyname.Prefix("redisson_lock_timeout", key),
			keyname.Prefix("redlatch_fair", key)}
	},
	queue: 1,
	channel: func(key, owner string) string {
		c := keyname.Prefix("redisson_lock__channel", key)
		if owner != "" {
			c += ":" + owner
		}
		return c
	},
	acquire: func(l *single, r acquireRequest) script.Call {
		patience, first, _ := strings.Cut(r.entry, " ")
		args := append(r.asked(6), l.c.publish, l.channel, patience, l.grants, first)
		if r.leaves != 0 {
			args = append(args, strconv.FormatInt(r.leaves, 10))
		}
		return script.Call{Script: fairAcquireScript, Keys: l.keys, Args: args}
	},
	release: func(l *single, r releaseRequest) script.Call {
		return script.Call{Script: fairReleaseScript, Keys: l.keys,
			Args: append([]string{r.owner, l.channel, l.c.publish, r.entry, l.grants}, r.others...)}
	},
	renew: renewScript,
	keep:  keepScript, keepKeys: lockKey,
	locked: lockedCall(lockedScript),
	force:  load("fair force unlock", "fair_force"),
	title:  "Fair",
	entry:  entryInside,
	// An entry in Redisson's queue, from which releases hand the lock over. Each also has a
	// channel of its own, on which it learns that it is next.
	queueEntry: func(a *acquisition, _, first time.Duration) string { return a.entry + " " + script.Millis(first) },
	request: func(l *single, owner string, r *wait.Request) {
		r.Channel, r.Own, r.Mode = l.kind.channel(l.key, owner), true, wait.Paced
	},
	unpaired: true, // for the list and the sorted set
	leaves:   true,
}

// Fair describes a lock that is acquired in the order in which it was asked for, by the waiters of all processes. It
// has the layout and the queue of Redisson's RFairLock, and shares them with it. The order is that in which the server
// saw the waiters' first requests. A waiter that has not asked for three PollCaps (of 10 s at most) counts as dead. The
// dead are passed over at once, however many there are; a waiter that is alive after all queues again. TryLock with a
// waitTime of 0 acquires the lock only if it is free and the queue is empty.
//
// A waiter whose deadline or waitTime is over before the lock could reach it is passed over. Where callers give up,
// those of one process ask a few at a time, first come first, and only then stand in line.
//
// A release makes the first in line the holder in the same call, and notifies its process. Two kinds of waiters cannot
// be handed the lock: Redisson's, and those of a process that may not subscribe. If one of them is the first, it is
// notified that the lock is free, and no other waiter gets the lock until it has asked, or counts as dead. A process
// whose connections are gone counts as dead after half of that time. So one process that lacks the right to subscribe
// slows all down: each of its turns takes up to a PollCap, and the others wait for theirs behind it.
//
// Each waiter asks for itself, every PollCap. So a Fair lock with many waiters costs more than a Reentrant one, which
// serves processes in their order, too. Use only one of the two for a name: they exclude each other, but do not wake
// each other's waiters.
func (c *Client) Fair(name string) *Lock { return c.lock(name, fair) }

// patience is for how long a waiter in a fair queue may not ask before it counts as dead.
func (c *Client) patience() time.Duration { return 3 * min(c.opts.PollCap, wait.MaxPoll) }
