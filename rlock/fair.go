package rlock

import (
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

// kindFair is Redisson's RFairLock: the hash of an RLock, a list of waiters, and a sorted set with the instants after
// which the waiters count as dead. Another hash, of this library, has the waiters that can be handed the lock.
var kindFair = &kind{
	layout: &layout{
		keys: func(key string) []string {
			return []string{key, keyname.Prefix("redisson_lock_queue", key), keyname.Prefix("redisson_lock_timeout", key),
				keyname.Prefix("redlatch_fair", key)}
		},
		queueIndex: 1,
		channel: func(key, owner string) string {
			channel := keyname.Prefix("redisson_lock__channel", key)
			if owner != "" {
				channel += ":" + owner
			}
			return channel
		},
		release: func(lock *single, request releaseRequest) script.Call {
			return script.Call{Script: fairReleaseScript, Keys: lock.keys,
				Args: append([]string{request.owner, lock.channel, lock.c.publish, request.entry, lock.grants},
					request.alsoLeaving...)}
		},
		renew: renewScript,
		keep:  keepScript, keepKeys: lockKey,
		locked: lockedCall(lockedScript),
		force:  load("fair force unlock", "fair_force"),
	},
	waiting: &waiting{
		// An entry in Redisson's queue, from which releases hand the lock over. Each waiter also has a channel of its own, on
		// which a release notifies it that it is next.
		queueEntry: func(acquiring *acquisition, _, first time.Duration) string {
			patience := acquiring.lock.c.patience()
			entry := wait.OwnerEntry(wait.EntryHash, acquiring.own.Lease.Owner, first, patience)
			return acquiring.entry + " " + entry.Text()
		},
		request: func(lock *single, owner string, request *wait.Request) {
			request.Channel, request.PrivateChannel, request.Mode = lock.kind.layout.channel(lock.key, owner), true, wait.Paced
		},
		enqueuesWhenRefused: true,
	},
	acquire: func(lock *single, request acquireRequest) script.Call {
		patience, text, _ := strings.Cut(request.entry, " ")
		if entry, ok := wait.ReadEntry(text); ok {
			entry.LeavesAt = request.leavesAt
			text = entry.Text()
		}
		args := append(request.baseArgs(5), lock.c.publish, lock.channel, patience, lock.grants, text)
		return script.Call{Script: fairAcquireScript, Keys: lock.keys, Args: args}
	},
	title:   "Fair",
	reentry: reentryWithinHold,
	// A name in one pair of braces would share the list and the sorted set: see keyname.CheckPair.
	refusesBracePair: true,
}

// Fair describes a lock that serves the waiters of all processes in the order in which the server received their first
// requests. It has the layout and the queue of Redisson's RFairLock, and shares them with Redisson. TryLock with a
// waitTime of 0 acquires the lock only if it is free and the queue is empty.
//
// A waiter that has sent no request for three PollCaps (of 10 s at most) counts as dead. Dead waiters are passed over
// at once, in any number; a waiter that lives after all queues again at the end. A waiter whose deadline or waitTime
// would be over before its turn is passed over as well. Where callers give up, only a few callers of a process queue on
// the server at a time, in their order.
//
// Redisson's waiters, and those of a process that may not subscribe, cannot be handed the lock. Such a waiter is
// notified, and the others wait until it has sent a request, or counts as dead. So a process that may not subscribe
// slows all waiters: each of its turns takes up to a PollCap.
//
// Each waiter sends a request every PollCap. So a Fair lock with many waiters costs more than a Reentrant lock, which
// serves processes in their order, too. Use only one of the two kinds for a name: the two exclude each other, but do
// not wake each other's waiters.
func (c *Client) Fair(name string) *Lock { return c.lock(name, kindFair) }

// patience is how long a waiter in a fair queue may send no request before it counts as dead.
func (c *Client) patience() time.Duration { return 3 * min(c.opts.PollCap, wait.MaxPoll) }
