package rlock

import (
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
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
//	                                                               is told to ask
type kind struct {
	// keys are those of acquire and release; the first is the lock's own.
	keys func(key string) []string
	// channel is where releases are published that waiters listen for. owner: for kinds that tell each waiter on its own.
	channel func(key, owner string) string
	// acquire and release are the calls; their replies are those of acquire.lua and release.lua.
	acquire func(l *single, r acquireRequest) script.Call
	release func(l *single, r releaseRequest) script.Call
	// renew is the watchdog's script, and runs on the lock's own key and those of more, of which every hold of the kind
	// has as many.
	renew *script.Script
	more  func(l *single, owner string) []string
	// leaseKey is the key that stands for a hold in place of the lock's own, if that is written by others all the time; more
	// has the lock's own then.
	leaseKey func(l *single, owner string) string
	// keep leaves a hold to the end of a lease from now; see keep.lua.
	keep *script.Script
	// locked and force are IsLocked and ForceUnlock; KEYS and replies are those of locked.lua and force.lua.
	locked, force *script.Script

	title string // in errors
	// manner is how waiters wait: those of a process that wait for a key in the same manner stand in one line, behind the one
	// that asks. "": each asks for itself.
	manner string
	place  place
	entry  entry
	side   side // of a read-write lock
	turns  bool // callers of a process that wait share its tenure: see tenancy.go
	fenced bool // every new hold has a token
	votes  bool // it is a member of a Quorum
	shares bool // acquires and releases of free locks may share calls: see lane
}

// place is what a waiter has on the server.
type place uint8

const (
	nowhere place = iota // nothing: it is woken, and asks
	handed               // an entry in the queue, from which releases hand the lock over
	// fairQueue is an entry in Redisson's queue, from which releases hand the lock over; beside Redisson's waiters also a channel of
	// its own, on which it is told that it is next.
	fairQueue
	// lined is an entry in a queue that releases serve, too, but in which they put nobody of their process.
	lined
	// told is an entry in a queue of which a release tells the first that the lock is free. It asks like anybody else.
	told
)

// left reports whether refused tries of one that waits leave something behind, which a release with its entry takes away.
func (p place) left() bool { return p == fairQueue }

// entry says under which contexts an acquisition re-enters or joins what an owner holds.
type entry uint8

const (
	entryNever    entry = iota // under none
	entryInside                // under a context of the hold
	entryAnywhere              // also under one that names the owner, in another process (WithOwner)
)

// reentrant is Redisson's RLock: a hash, owner -> count.
var reentrant = &kind{
	keys:    func(key string) []string { return []string{key, queueKey(key)} },
	channel: func(key, _ string) string { return keyname.Prefix("redisson_lock__channel", key) },
	acquire: acquireCall,
	release: releaseCall,
	renew:   renewScript,
	keep:    keepScript,
	locked:  lockedScript,
	force:   forceScript,
	title:   "Reentrant",
	manner:  "queue",
	place:   handed,
	entry:   entryAnywhere,
	turns:   true,
	shares:  true,
}

func queueKey(key string) string { return keyname.Prefix("redlatch_queue", key) }

// like is a copy of k with changes.
func (k *kind) like(change func(*kind)) *kind {
	m := *k
	change(&m)
	return &m
}

var (
	// nonReentrant is Redisson's RedissonNonReentrantLock: an RLock on the wire.
	nonReentrant = reentrant.like(func(k *kind) { k.title, k.entry = "NonReentrant", entryNever })

	// spinning is Redisson's RSpinLock, but for its release, which wakes the others' waiters.
	spinning = reentrant.like(func(k *kind) {
		k.title, k.manner, k.place, k.entry, k.turns, k.shares = "Spin", "spin", nowhere, entryInside, false, false
	})

	// fencing is Redisson's RFencedLock: an RLock, and a counter beside it.
	fencing = reentrant.like(func(k *kind) {
		k.title, k.fenced, k.entry, k.shares = "Fenced", true, entryInside, false
		k.acquire = fencedCall
	})
)
