package rlock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

var (
	rwReadScript    = load("acquire read", "rw_read")
	rwWriteScript   = load("acquire write", "rw_write")
	rwReleaseScript = load("release read-write", "rw_release")
	rwKeepScript    = load("keep read-write", "rw_keep")
	rwLockedScript  = load("is read-write locked", "rw_locked").Reads()
	rwForceScript   = load("force unlock read-write", "rw_force")
	rwTrimScript    = load("trim read-write", "rw_trim")
)

// kindRead is the read half of Redisson's RReadWriteLock.
var kindRead = &kind{
	layout: &layout{
		keys:       rwKeys,
		queueIndex: 2,
		channel:    rwChannel,
		release: func(lock *single, request releaseRequest) script.Call {
			return rwReleaseCall(lock, lock.readKeys(request.owner), request, "0")
		},
		renew: load("renew reads", "rw_read_renew"),
		// Every reader that comes or goes writes the lock's own key. Only this owner writes its timeout key.
		leaseKey:       func(lock *single, owner string) string { return timeoutKey(lock.key, owner, 1) },
		extraRenewKeys: func(lock *single, _ string) []string { return lock.holdKeys() },
		keep:           rwKeepScript,
		keepKeys: func(lock *single, owner string) []string {
			return slices.Concat(lock.holdKeys(), []string{timeoutKey(lock.key, owner, 1)})
		},
		locked:        rwLocked("read"),
		force:         rwForceScript,
		isHoldField:   func(field string) bool { return field != "mode" && !strings.HasSuffix(field, writing) },
		companionKeys: (*single).timeouts,
	},
	waiting: &waiting{
		queueEntry: handoverEntry(wait.EntryReader),
		// A reader that does not wait, and needs a hold of its own, sends a request of its own.
		sharesTenure:    func(client *Client, opts terms) bool { return opts.wait != 0 || opts.canShareHold(client) },
		concurrentTurns: true,
	},
	acquire: func(lock *single, request acquireRequest) script.Call {
		return script.Call{Script: rwReadScript, Keys: lock.readKeys(request.owner),
			Args: lock.queueArgs(request, lock.channel, request.writeOwner, request.sharedOwner)}
	},
	resolve:          resolveReader,
	title:            "ReadWrite.Read",
	reentry:          reentryWithinHold,
	refusesBracePair: true, // for the timeout keys of readers
}

// writing is the end of a writer's field in the hash.
const writing = ":write"

// rwLocked returns layout.locked of a side, read or write.
func rwLocked(mode string) func(lock *single) script.Call {
	return func(lock *single) script.Call {
		return script.Call{Script: rwLockedScript, Keys: lock.holdKeys(), Args: []string{mode}}
	}
}

// rwReleaseCall returns the call that ends a hold of one side: "0" of a reader, "1" of the writer.
func rwReleaseCall(lock *single, keys []string, request releaseRequest, side string) script.Call {
	args := lock.publishArgs([]string{lock.field(request.owner), lock.channel, side}, request.entry)
	return script.Call{Script: rwReleaseScript, Keys: keys, Args: args}
}

// kindWrite is the write half.
var kindWrite = &kind{
	layout: &layout{
		keys:       rwKeys,
		queueIndex: 2,
		channel:    rwChannel,
		release: func(lock *single, request releaseRequest) script.Call {
			return rwReleaseCall(lock, lock.keys, request, "1")
		},
		renew:          load("renew writes", "rw_write_renew"),
		extraRenewKeys: func(lock *single, _ string) []string { return lock.holdKeys()[1:] },
		keep:           rwKeepScript,
		keepKeys: func(lock *single, _ string) []string {
			return slices.Concat(lock.holdKeys(), lockAlone(lock.keys))
		},
		locked:        rwLocked("write"),
		force:         rwForceScript,
		fieldOf:       func(owner string) string { return owner + writing },
		isHoldField:   func(field string) bool { return strings.HasSuffix(field, writing) },
		companionKeys: (*single).timeouts,
	},
	waiting: &waiting{queueEntry: handoverEntry(wait.EntryWriter), sharesTenure: sharesIfItWaits},
	acquire: func(lock *single, request acquireRequest) script.Call {
		return script.Call{Script: rwWriteScript, Keys: lock.keys, Args: lock.queueArgs(request, lock.channel)}
	},
	resolve:          resolveWriter,
	title:            "ReadWrite.Write",
	reentry:          reentryWithinHold,
	refusesBracePair: true,
}

// rwKeys returns the keys of a read-write lock: the lock, the ends of its holds, and its queue.
func rwKeys(key string) []string {
	return []string{key, keyname.Prefix("redlatch_rw", key), rwQueueKey(key)}
}

func rwQueueKey(key string) string { return keyname.Prefix("redlatch_rwq", key) }

// holdKeys returns the keys of all holds of a read-write lock: the lock, and the ends of its holds.
func (l *single) holdKeys() []string { return l.keys[:2:2] }

func rwChannel(key, _ string) string { return keyname.Prefix("redisson_rwlock", key) }

// timeoutKey returns the key in which Redisson looks for the end of an owner's read hold. Holds count from 1.
func timeoutKey(key, owner string, number int) string {
	return keyname.Suffix(key, owner+":rwlock_timeout:"+strconv.Itoa(number))
}

// readKeys returns the keys of a read hold: the lock's keys, and the owner's timeout key.
func (l *single) readKeys(owner string) []string {
	return slices.Concat(l.keys, []string{timeoutKey(l.key, owner, 1)})
}

// ReadWriteLock describes a lock with two sides: any number of readers, or one writer. It is Redisson's RReadWriteLock.
// Like Lock it is immutable and has no state. Its sides are Locks and do everything that Locks do, except that another
// process cannot join them. docs/design/protocols.md describes in which order readers and writers are served.
//
//   - Each side is re-entered under a context of one of its holds. Under a context of a write hold the read side is
//     acquired at once, as a hold of its own, with its own owner and lease; it may outlive the write hold. The reverse
//     is refused: Write under a context of a read hold returns ErrReentry at once, because it would wait for itself.
//     Release the read hold first, and check again what was read.
//   - Every reader has a lease of its own, in the server's time. A reader that dies keeps writers out until its own
//     lease is over, whatever other readers do.
//   - Readers of one process that are renewed (no WithLease, no WithLabel, no Options.MaxHold) share one hold on the
//     server: they have the same Owner and the same Until, are lost together, and count as one holder. The last of
//     these readers to unlock releases the hold. The Unlock of another reader, and a re-entry, send nothing.
//   - Readers and writers of all processes are served in turn. A reader waits for one phase of writers at most, and a
//     writer for one phase of reading. New readers do not pass a waiting writer. So a goroutine that reads, and reads
//     again, must do so under a context of its hold. Otherwise a writer may come in between, and the goroutine waits
//     for itself. The same is true of a reader that waits for another reader.
type ReadWriteLock struct{ read, write *Lock }

// ReadWrite describes the read-write lock of that name. If the name cannot be used, every call on its sides returns
// ErrInvalidName. Do not use the name for another kind of lock: the two would exclude each other, but not wake each
// other's waiters.
func (c *Client) ReadWrite(name string) *ReadWriteLock {
	return &ReadWriteLock{c.lock(name, kindRead), c.lock(name, kindWrite)}
}

// Read returns the side for readers: any number of owners can hold it while no other owner holds the write side.
func (x *ReadWriteLock) Read() *Lock { return x.read }

// Write returns the side for writers: one owner can hold it while no other owner holds either side.
func (x *ReadWriteLock) Write() *Lock { return x.write }

// field returns the field of an owner in the lock's hash.
func (l *single) field(owner string) string {
	if l.kind.layout.fieldOf != nil {
		return l.kind.layout.fieldOf(owner)
	}
	return owner
}

// resolve decides what an acquisition of l is under a context that carries own: a re-entry of the owner again, or a new
// hold under the write hold of the owner under. turn is the turn to which the context belongs.
func (l *single) resolve(own *owner, turn int32) (again, under *owner, err error) {
	if own == nil || own.lock.kind == l.kind || l.kind.resolve == nil {
		return own, nil, nil
	}
	return l.kind.resolve(l, own, turn)
}

// resolveReader is kind.resolve of the read side. A read under a write hold may outlive that hold, so no other writer
// of the process may follow in the same tenure:
//
//	A holds for writing             B waits for writing
//	reads under that
//	unlocks the write hold: were it
//	B's turn now, B would write
//	while A reads
func resolveReader(l *single, own *owner, turn int32) (again, under *owner, err error) {
	if !own.Lasts() || !own.Bar(turn) {
		return nil, nil, fmt.Errorf("read %q under its write hold: %w", l.name, errs.ErrLost)
	}
	return nil, own, nil
}

// resolveWriter is kind.resolve of the write side: it finds the write hold under which own reads.
func resolveWriter(l *single, own *owner, _ int32) (again, under *owner, err error) {
	if own.writeHold != nil && own.writeHold.Lasts() {
		return own.writeHold, nil, nil
	}
	return nil, nil, fmt.Errorf("%w: %q is held for reading, and would wait for itself: release that first", ErrReentry,
		l.name)
}

// timeouts returns the keys in which Redisson may have written the ends of a reader's holds. count is the reader's
// count in the lock's hash.
func (l *single) timeouts(field, count string) (keys []string) {
	if strings.HasSuffix(field, writing) {
		return nil
	}
	holds, _ := strconv.Atoi(count)
	if lease.Ours(field) {
		holds = 1
	}
	for k := 1; k <= min(holds, maxTimeouts); k++ {
		keys = append(keys, timeoutKey(l.key, field, k))
	}
	return keys
}

// maxTimeouts limits how many timeout keys of one reader of Redisson's are deleted, and how many of all its readers are
// read. Further keys expire.
const maxTimeouts = 1000
