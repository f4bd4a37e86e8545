package rlock

import (
	"context"
	"strings"
	"time"

	"github.com/redis/rueidis"

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
		request: func(acquiring *acquisition, request *wait.Request) {
			request.Taker, request.Mode = fairRequester{acquiring}, wait.OneFirst
			request.MaxRunTime = acquiring.lock.c.opts.CallTimeout
		},
		enqueuesWhenRefused: true,
	},
	acquire: func(lock *single, request acquireRequest) script.Call {
		patience, text := fairEntry(request.entry, request.leavesAt)
		args := append(request.baseArgs(5), lock.c.publish, lock.channel, patience, lock.grants, text)
		return script.Call{Script: fairAcquireScript, Keys: lock.keys, Args: args}
	},
	title:   "Fair",
	reentry: reentryWithinHold,
	// A name in one pair of braces would share the list and the sorted set: see keyname.CheckPair.
	refusesBracePair: true,
}

// fairEntry returns the patience and the text of a waiter's queueEntry. leavesAt is when the caller gives up, in the
// server's ms.
func fairEntry(queueEntry string, leavesAt int64) (patience, text string) {
	patience, text, _ = strings.Cut(queueEntry, " ")
	if entry, ok := wait.ReadEntry(text); ok {
		entry.LeavesAt = leavesAt
		text = entry.Text()
	}
	return patience, text
}

// fairRequester is the acquisition of one caller. One call requests for several callers of the process, in the order in
// which they came, and each of them has an owner of its own in Redisson's queue. Its effect is that of one call for
// each, one right after the other: an owner that finds the lock free and no waiter before it is granted the lock, and
// the next owners queue.
//
//	caller A        caller B        requesting goroutine      server
//	                                call: A, B, … ----------> A: granted; B: held, ticket 8
//	B's time is over: B leaves, its release is pending
//	                                <------------------------ A: granted; B: held
//	works                           B's release is sent once more, because the call may have run after the first one
//
// The call runs twice: A is granted the lock again, and B keeps its place and ticket.
type fairRequester struct{ *acquisition }

// fairReplies is the replies to a call for several owners, with the times of the call.
type fairReplies struct {
	replies                     []acquireReply
	sentAt, lastRunAt, received time.Time
	sentWithoutQueue            bool
}

// Clock implements script.Reply.
func (r fairReplies) Clock() (server int64, late bool) { return r.replies[0].Clock() }

// decodeFair reads the replies for so many owners.
func decodeFair(message rueidis.RedisMessage, owners int) (fairReplies, error) {
	list, err := message.ToArray()
	if err != nil || len(list) == 0 {
		return fairReplies{}, script.Unexpected("acquire", list, err)
	}
	if list[0].IsInt64() { // one owner, or too late
		list = []rueidis.RedisMessage{message}
	}
	replies := make([]acquireReply, len(list))
	for i := range list {
		if replies[i], err = decodeAcquire(list[i]); err != nil {
			return fairReplies{}, err
		}
	}
	if len(list) != owners && replies[0].status != acquireLate {
		return fairReplies{}, script.Unexpected("acquire", list, nil)
	}
	return fairReplies{replies: replies}, nil
}

// RequestAll implements wait.Requester.
func (r fairRequester) RequestAll(ctx context.Context, entries []wait.QueueEntry, enqueue bool) (any, error) {
	lock := r.lock
	client, sentAt, sentWithoutQueue := lock.c, time.Time{}, false
	timed := script.Timed[fairReplies]{
		Key: lock.key,
		Send: func(ctx context.Context, sent time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			sentAt = sent
			call := fairCall(lock, entries, enqueue, notAfter)
			call.Replicas, call.ReplicasWait = client.opts.MinReplicas, client.opts.ReplicaTimeout
			message, err := client.callWithQueue(ctx, &call)
			sentWithoutQueue = len(call.Keys) == 1
			return message, err
		},
		Decode: func(message rueidis.RedisMessage) (fairReplies, error) { return decodeFair(message, len(entries)) },
	}
	reply, err := timed.Run(ctx, client.runner)
	reply.sentAt, reply.lastRunAt, reply.received = sentAt, sentAt.Add(timed.Runs), time.Now()
	reply.sentWithoutQueue = sentWithoutQueue
	return &reply, err
}

// fairCall returns the call of RequestAll.
func fairCall(lock *single, entries []wait.QueueEntry, enqueue bool, notAfter int64) script.Call {
	var call script.Call
	for i, entry := range entries {
		patience, text := fairEntry(entry.Entry, lock.c.runner.Clock.Leaves(lock.key, entry.LeavesAt))
		if !enqueue {
			text = ""
		}
		if lease := lock.c.millis(entry.Lease); i == 0 {
			request := acquireRequest{owner: entry.Owner, leaseMillis: lease, notAfter: notAfter}
			args := append(request.baseArgs(2+3*len(entries)), lock.c.publish, lock.channel, patience, lock.grants, text)
			call = script.Call{Script: fairAcquireScript, Keys: lock.keys, Args: args}
		} else {
			call.Args = append(call.Args, entry.Owner, lease, text)
		}
	}
	return call
}

// Reply implements wait.Requester.
func (r fairRequester) Reply(all any, i int, err error) (wait.Answer, error) {
	a, replies := r.acquisition, all.(*fairReplies)
	a.times.sent(replies.sentAt)
	a.times.lastRunAt = replies.lastRunAt
	var reply acquireReply
	if i < len(replies.replies) {
		reply = replies.replies[i]
	}
	return a.readReply(context.Background(), reply, err, replies.received, replies.sentWithoutQueue)
}

// Fair describes a lock that serves the waiters of all processes in the order in which the server received their first
// requests. It has the layout and the queue of Redisson's RFairLock, and shares them with Redisson. TryLock with a
// waitTime of 0 acquires the lock only if it is free and the queue is empty.
//
// A waiter that has sent no request for three PollCaps (of 10 s at most) counts as dead. Dead waiters are passed over
// at once, in any number; a waiter that lives after all queues again at the end. A waiter whose deadline or waitTime
// would be over before its turn is passed over as well. Where callers give up within a PollCap, only a few callers of a
// process queue on the server at a time, in their order, so a later caller of another process may come before the
// others.
//
// Redisson's waiters, and those of a process that may not subscribe, cannot be handed the lock. Such a waiter is
// notified, and the others wait until it has sent a request, or counts as dead. So a process that may not subscribe
// slows all waiters: each of its turns takes up to a PollCap.
//
// A process sends a request for its waiters every PollCap, 128 waiters in a call. The server does some 20 commands for
// each waiter. So a Fair lock with many waiters costs more than a Reentrant lock, which serves processes in their
// order, too. Use only one of the two kinds for a name: the two exclude each other, but do not wake each other's
// waiters.
func (c *Client) Fair(name string) *Lock { return c.lock(name, kindFair) }

// patience is how long a waiter in a fair queue may send no request before it counts as dead.
func (c *Client) patience() time.Duration { return 3 * min(c.opts.PollCap, wait.MaxPoll) }
