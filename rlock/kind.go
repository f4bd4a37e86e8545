package rlock

import (
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// kind is the part of a lock that depends on its kind: keys, scripts and how waiters wait. Owners, holds, the watchdog,
// unknown outcomes and pending releases are the same for all kinds.
//
//	kind          on the server                                    waiters                           calls, contended
//	Reentrant     hash, Redisson's RLock                           queue, and are handed the lock    1 to 2
//	NonReentrant  the same; the client refuses a re-entry          the same                          the same
//	Fenced        the same, and the last token                     the same; a grant is confirmed,   1 more
//	                                                               which mints its token
//	Spin          as Reentrant                                     one of each process polls         as many as it polls
//	Fair          as Reentrant, Redisson's list and sorted set of  queue, each for itself, and are   2
//	              waiters, and those that can be handed the lock   handed the lock
//	ReadWrite     hash with its mode, a string for each reader,    one reader and one writer of      2, for all readers
//	              and the end of each hold                         each process queue                of a process, or for
//	                                                                                                 writers in turns
//	Plain         a string, its owner                              one of each process queues, and   3
//	                                                               is notified
type kind struct {
	layout  *layout
	waiting *waiting
	// acquire returns the call of a request. Its replies have the form of acquire.lua.
	acquire func(lock *single, request acquireRequest) script.Call
	// resolve is single.resolve for a lock with two sides, Read and Write. A context carries one owner for both sides.
	// nil: the lock has one side.
	resolve func(lock *single, own *owner, turn int32) (again, under *owner, err error)

	title            string // the kind's name in errors
	reentry          reentryPolicy
	coalesces        bool // acquires and releases of free locks may share calls: see batch.Coalescer
	confirmsGrants   bool // a request confirms each grant, because it mints the new hold's token
	allowsDrift      bool // of a Quorum's member: the deadline allows for the drift of clocks
	refusesBracePair bool // a name in one pair of braces is refused: see keyname.CheckPair
}

// layout is how a lock is stored on the server, and the scripts that read and end its holds.
type layout struct {
	// keys returns the KEYS of acquire and release. The first is the lock's own key.
	keys         func(key string) []string
	queueIndex   int    // the index of the waiters' queue in keys
	stringKeyArg string // "1": the lock's key is a string; "": a hash
	// channel returns the channel on which releases are published to waiters. owner matters only for a kind with a channel
	// for each waiter.
	channel func(key, owner string) string
	// release returns the call of a release. Its replies have the form of release.lua.
	release func(lock *single, request releaseRequest) script.Call
	// renew is the watchdog's script. It runs on the lock's own key and on extraRenewKeys. Every hold of the kind has the
	// same number of extra keys.
	renew          *script.Script
	extraRenewKeys func(lock *single, owner string) []string
	// leaseKey returns the key by which the watchdog knows a hold; nil: the lock's own key. A kind needs another key if
	// other holders write the lock's own key all the time. extraRenewKeys then has the lock's own key.
	leaseKey func(lock *single, owner string) string
	// keep is the script that leaves a hold to the end of a lease from now: see keep.lua. keepKeys returns its KEYS.
	keep     *script.Script
	keepKeys func(lock *single, owner string) []string
	// locked returns the call of IsLocked, with the replies of locked.lua. force is the script of ForceUnlock, with the
	// KEYS and replies of force.lua.
	locked        func(lock *single) script.Call
	force         *script.Script
	fieldOf       func(owner string) string                        // the field of an owner in the hash; nil: the owner
	isHoldField   func(field string) bool                          // whether a hold of this kind has it; nil: always
	companionKeys func(lock *single, field, count string) []string // further keys of a hold; nil: none
}

// waiting is how the waiters of a lock get it.
type waiting struct {
	// queueEntry returns the entry of a waiter in the server's queue, by which a release hands the lock over or notifies
	// the waiter. first is the lease that a hand-over writes. nil: waiters have no entry; they are woken, and send
	// requests.
	queueEntry func(acquiring *acquisition, poll, first time.Duration) string
	// request completes the wait request of a caller that does not share a tenure; nil: the request is complete.
	request      func(acquiring *acquisition, request *wait.Request)
	sharesTenure func(client *Client, opts terms) bool // whether a caller shares tenures (cohort.go); nil: no caller does
	tenureLength func(lock *single) time.Duration      // how long turns may follow each other; nil: maxTenure

	handsOver           bool // by release.lua, which can request the next tenure, too. Waiters may poll rarely
	concurrentTurns     bool // the turns of a tenure run at the same time: see reading.go
	enqueuesWhenRefused bool // a refused request leaves a queue entry, which a release with that entry removes
}

// conflictingType returns the Redis type of a lock of another kind under the same name.
func (k *kind) conflictingType() string {
	if k.layout.stringKeyArg != "" {
		return "hash"
	}
	return "string"
}

// sharesIfItWaits is sharesTenure of kinds whose turns follow each other. A caller that does not wait sends a request
// of its own.
func sharesIfItWaits(_ *Client, opts terms) bool { return opts.wait != 0 }

// handoverEntry returns queueEntry of kinds whose releases hand the lock over from redlatch's queue. A release passes
// over an entry that was not stamped for two and a half polls.
func handoverEntry(mode wait.EntryMode) func(acquiring *acquisition, poll, first time.Duration) string {
	return func(acquiring *acquisition, poll, first time.Duration) string {
		entry := wait.OwnerEntry(mode, acquiring.own.Lease.Owner, first, 5*poll/2)
		acquiring.entry = entry.Text()
		return acquiring.entry
	}
}

func lockKey(lock *single, _ string) []string { return lockAlone(lock.keys) }

// lockedCall returns locked of a kind whose lock key alone tells whether the lock is held.
func lockedCall(used *script.Script) func(lock *single) script.Call {
	return func(lock *single) script.Call { return script.Call{Script: used, Keys: lockAlone(lock.keys)} }
}

// reentryPolicy says under which contexts an acquisition re-enters or joins an owner's hold.
type reentryPolicy uint8

const (
	reentryNever      reentryPolicy = iota // under no context
	reentryWithinHold                      // under a context of the hold
	reentryOrJoin                          // also under a context of WithOwner, with the owner of another process
)

func (e reentryPolicy) reenters() bool { return e != reentryNever }
func (e reentryPolicy) joins() bool    { return e == reentryOrJoin }

// kindReentrant is Redisson's RLock: a hash, owner -> count.
var kindReentrant = &kind{
	layout: &layout{
		keys:       func(key string) []string { return []string{key, queueKey(key)} },
		queueIndex: 1,
		channel:    func(key, _ string) string { return keyname.Prefix("redisson_lock__channel", key) },
		release:    releaseCall,
		renew:      renewScript,
		keep:       keepScript, keepKeys: lockKey,
		locked: lockedCall(lockedScript),
		force:  forceScript,
	},
	waiting:   &waiting{queueEntry: handoverEntry(wait.EntryHash), sharesTenure: sharesIfItWaits, handsOver: true},
	acquire:   acquireCall,
	title:     "Reentrant",
	reentry:   reentryOrJoin,
	coalesces: true,
}

func queueKey(key string) string { return keyname.Prefix("redlatch_queue", key) }

// derive returns a copy of k with changes.
func (k *kind) derive(change func(*kind)) *kind {
	derived := *k
	change(&derived)
	return &derived
}

var (
	// kindNonReentrant is Redisson's RedissonNonReentrantLock: an RLock on the wire.
	kindNonReentrant = kindReentrant.derive(func(kind *kind) { kind.title, kind.reentry = "NonReentrant", reentryNever })

	// kindSpin is Redisson's RSpinLock, but for its release, which wakes the others' waiters.
	kindSpin = kindReentrant.derive(func(kind *kind) {
		kind.title, kind.reentry, kind.coalesces = "Spin", reentryWithinHold, false
		kind.waiting = &waiting{}
	})

	// kindFenced is Redisson's RFencedLock: an RLock with a counter.
	kindFenced = kindReentrant.derive(func(kind *kind) {
		kind.title, kind.confirmsGrants, kind.reentry, kind.coalesces = "Fenced", true, reentryWithinHold, false
		kind.acquire = fencedCall
		kind.refusesBracePair = true // because of the key of the last token
	})
)
