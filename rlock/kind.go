package rlock

import (
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// kind is what the locks of one kind do in their own way: their keys, scripts and manner of waiting. Owners, holds, the
// watchdog, unknown outcomes and pending releases are the same for all.
//
//	kind          on the server                                    waiters                           calls when contended
//	Reentrant     hash, Redisson's RLock                           queue, and are handed the lock    1 to 2
//	NonReentrant  the same; the client refuses a re-entry          the same                          the same
//	Fenced        the same, and the last token                     the same; a grant is confirmed,   1 more
//	                                                               which mints its token
//	Spin          as Reentrant                                     one of each process polls         as many as it polls
//	Fair          as Reentrant, Redisson's list and sorted set of  queue, each for itself, and are   2
//	              waiters, and those that can be handed the lock   handed the lock
//	ReadWrite     hash with its mode, a string for each reader,    one reader and one writer of      2, for all readers of a
//	              and when each hold ends                          each process queue                process together, or for
//	                                                                                                 writers that take turns
//	Plain         a string, its owner                              one of each process queues, and   3
//	                                                               is notified
type kind struct {
	// keys are those of acquire and release; the first is the lock's own.
	keys       func(key string) []string
	queueIndex int // which of them the waiters' queue is
	// channel is where releases are published that waiters listen for. owner: for kinds that tell each waiter on its own.
	channel func(key, owner string) string
	// acquire and release are the calls; their replies are those of acquire.lua and release.lua.
	acquire func(lock *single, request acquireRequest) script.Call
	release func(lock *single, request releaseRequest) script.Call
	// renew is the watchdog's script, and runs on the lock's own key and those of more, of which every hold of the kind
	// has as many.
	renew          *script.Script
	extraRenewKeys func(lock *single, owner string) []string
	// leaseKey is the key that stands for a hold in place of the lock's own, if that is written by others all the time;
	// more has the lock's own then.
	leaseKey func(lock *single, owner string) string
	// keep leaves a hold to the end of a lease from now; see keep.lua. keepKeys are its keys.
	keep     *script.Script
	keepKeys func(lock *single, owner string) []string
	// locked is IsLocked, and replies as locked.lua does. force is ForceUnlock; its KEYS and replies are those of
	// force.lua.
	locked func(lock *single) script.Call
	force  *script.Script
	// field is that of an owner in the lock's hash; nil: the owner. holds reports whether a field is that of a hold of
	// this kind, and gone are the keys that go with it; nil: all are, and none do.
	fieldOf       func(owner string) string
	isHoldField   func(field string) bool
	companionKeys func(lock *single, field, count string) []string
	// resolve is single.resolve for a lock of two sides, whose owners are one lock's to contexts; nil: it has one.
	resolve func(lock *single, own *owner, turn int32) (again, under *owner, err error)

	title          string // in errors
	reentry        reentryPolicy
	coalesces      bool   // acquires and releases of free locks may share calls: see batch.Coalescer
	stringKeyArg   string // "1": to these, the lock's key is a string
	confirmsGrants bool   // a grant is confirmed, which mints the token that every new hold has
	allowsDrift    bool   // of a member of a Quorum: its deadline leaves room for the drift of clocks

	// queueEntry returns the entry with which a waiter queues on the server, and gets the lock, or a message that it is
	// free. first is the lease that a hand-over writes. nil: it has nothing there: it is woken, and asks.
	queueEntry func(acquiring *acquisition, poll, first time.Duration) string
	// request completes the request of one that waits for itself; nil: nothing is missing.
	request func(lock *single, owner string, request *wait.Request)
	// tenures reports whether a caller shares the tenures of its process (see cohort.go), and tenure is how long one
	// lasts; nil: none does, and tenureTime.
	sharesTenure        func(client *Client, opts terms) bool
	tenureLength        func(lock *single) time.Duration
	concurrentTurns     bool // turns of a tenure run together: see reading.go
	canChainTenures     bool // a release can name the next tenure
	pollsRarely         bool // waiters may poll rarely: they are handed the lock, or told of it
	hearsAllReleases    bool // waiters hear of every release, by any client
	refusesBracePair    bool // a name that is one pair of braces is refused: see keyname.CheckPair
	enqueuesWhenRefused bool // a refused request leaves a queue entry, which a release with that entry removes
}

// conflictingType says what the lock's key is where the lock of that name is of another kind, and keeps this one out.
func (k *kind) conflictingType() string {
	if k.stringKeyArg != "" {
		return "hash"
	}
	return "string"
}

// sharesIfItWaits is tenures of kinds whose turns follow each other: who asks once asks for itself.
func sharesIfItWaits(_ *Client, opts terms) bool { return opts.wait != 0 }

// handoverEntry is queueEntry of kinds whose waiters are handed the lock from a queue of ours. An entry that is not
// stamped for two and a half polls is passed over.
func handoverEntry(mode wait.EntryMode) func(acquiring *acquisition, poll, first time.Duration) string {
	return func(acquiring *acquisition, poll, first time.Duration) string {
		entry := wait.OwnerEntry(mode, acquiring.own.Lease.Owner, first, 5*poll/2)
		acquiring.entry = entry.Text()
		return acquiring.entry
	}
}

func lockKey(lock *single, _ string) []string { return lockAlone(lock.keys) }

// lockedCall is locked of a kind for which the lock's key says all.
func lockedCall(used *script.Script) func(lock *single) script.Call {
	return func(lock *single) script.Call { return script.Call{Script: used, Keys: lockAlone(lock.keys)} }
}

// reentryPolicy says under which contexts an acquisition re-enters or joins what an owner holds.
type reentryPolicy uint8

const (
	reentryNever      reentryPolicy = iota // under none
	reentryWithinHold                      // under a context of the hold
	reentryOrJoin                          // also under one that names the owner, in another process (WithOwner)
)

func (e reentryPolicy) reenters() bool { return e != reentryNever }
func (e reentryPolicy) joins() bool    { return e == reentryOrJoin }

// kindReentrant is Redisson's RLock: a hash, owner -> count.
var kindReentrant = &kind{
	keys:       func(key string) []string { return []string{key, queueKey(key)} },
	queueIndex: 1,
	channel:    func(key, _ string) string { return keyname.Prefix("redisson_lock__channel", key) },
	acquire:    acquireCall,
	release:    releaseCall,
	renew:      renewScript,
	keep:       keepScript, keepKeys: lockKey,
	locked:     lockedCall(lockedScript),
	force:      forceScript,
	title:      "Reentrant",
	reentry:    reentryOrJoin,
	coalesces:  true,
	queueEntry: handoverEntry(wait.EntryHash), sharesTenure: sharesIfItWaits, canChainTenures: true, pollsRarely: true,
}

func queueKey(key string) string { return keyname.Prefix("redlatch_queue", key) }

// derive is a copy of k with changes.
func (k *kind) derive(change func(*kind)) *kind {
	m := *k
	change(&m)
	return &m
}

var (
	// kindNonReentrant is Redisson's RedissonNonReentrantLock: an RLock on the wire.
	kindNonReentrant = kindReentrant.derive(func(kind *kind) { kind.title, kind.reentry = "NonReentrant", reentryNever })

	// kindSpin is Redisson's RSpinLock, but for its release, which wakes the others' waiters.
	kindSpin = kindReentrant.derive(func(kind *kind) {
		kind.title, kind.reentry = "Spin", reentryWithinHold
		kind.queueEntry, kind.sharesTenure = nil, nil
		kind.canChainTenures, kind.coalesces = false, false
	})

	// kindFenced is Redisson's RFencedLock: an RLock with a counter.
	kindFenced = kindReentrant.derive(func(kind *kind) {
		kind.title, kind.confirmsGrants, kind.reentry, kind.coalesces = "Fenced", true, reentryWithinHold, false
		kind.acquire = fencedCall
		kind.refusesBracePair = true // for the last token
	})
)
