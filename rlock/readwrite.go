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
	keys:       rwKeys,
	queueIndex: 2,
	channel:    rwChannel,
	acquire: func(l *single, r acquireRequest) script.Call {
		return script.Call{Script: rwReadScript, Keys: l.readKeys(r.owner),
			Args: l.queueArgs(r, l.channel, r.writeOwner, r.sharedOwner)}
	},
	release: func(l *single, r releaseRequest) script.Call { return rwReleaseCall(l, l.readKeys(r.owner), r, "0") },
	renew:   load("renew reads", "rw_read_renew"),
	// The lock's own key is written by every reader that comes or goes. Only this owner writes its timeout key.
	leaseKey:       func(l *single, owner string) string { return timeoutKey(l.key, owner, 1) },
	extraRenewKeys: func(l *single, _ string) []string { return l.holdKeys() },
	keep:           rwKeepScript,
	keepKeys: func(l *single, owner string) []string {
		return slices.Concat(l.holdKeys(), []string{timeoutKey(l.key, owner, 1)})
	},
	locked:           rwLocked("read"),
	force:            rwForceScript,
	isHoldField:      func(field string) bool { return field != "mode" && !strings.HasSuffix(field, writing) },
	companionKeys:    (*single).timeouts,
	resolve:          resolveReader,
	title:            "ReadWrite.Read",
	reentry:          reentryWithinHold,
	refusesBracePair: true, // for the timeout keys of readers
	queueEntry:       handoverEntry(wait.EntryReader),
	// One that does not wait, and has a hold of its own, asks for itself.
	sharesTenure:    func(c *Client, t terms) bool { return t.wait != 0 || t.canShareHold(c) },
	concurrentTurns: true,
}

// writing ends the field of an owner that writes.
const writing = ":write"

// rwLocked is locked of a side.
func rwLocked(mode string) func(l *single) script.Call {
	return func(l *single) script.Call {
		return script.Call{Script: rwLockedScript, Keys: l.holdKeys(), Args: []string{mode}}
	}
}

// rwReleaseCall ends a hold of either side: "0" of a reader, "1" of the writer.
func rwReleaseCall(l *single, keys []string, r releaseRequest, side string) script.Call {
	args := l.publishArgs([]string{l.field(r.owner), l.channel, side}, r.entry)
	return script.Call{Script: rwReleaseScript, Keys: keys, Args: args}
}

// kindWrite is the write half.
var kindWrite = &kind{
	keys:       rwKeys,
	queueIndex: 2,
	channel:    rwChannel,
	acquire: func(l *single, r acquireRequest) script.Call {
		return script.Call{Script: rwWriteScript, Keys: l.keys, Args: l.queueArgs(r, l.channel)}
	},
	release:          func(l *single, r releaseRequest) script.Call { return rwReleaseCall(l, l.keys, r, "1") },
	renew:            load("renew writes", "rw_write_renew"),
	extraRenewKeys:   func(l *single, _ string) []string { return l.holdKeys()[1:] },
	keep:             rwKeepScript,
	keepKeys:         func(l *single, _ string) []string { return slices.Concat(l.holdKeys(), lockAlone(l.keys)) },
	locked:           rwLocked("write"),
	force:            rwForceScript,
	fieldOf:          func(owner string) string { return owner + writing },
	isHoldField:      func(field string) bool { return strings.HasSuffix(field, writing) },
	companionKeys:    (*single).timeouts,
	resolve:          resolveWriter,
	title:            "ReadWrite.Write",
	reentry:          reentryWithinHold,
	refusesBracePair: true,
	queueEntry:       handoverEntry(wait.EntryWriter), sharesTenure: sharesIfItWaits,
}

// rwKeys are the lock, the ends of its holds, and its queue.
func rwKeys(key string) []string {
	return []string{key, keyname.Prefix("redlatch_rw", key), rwQueueKey(key)}
}

func rwQueueKey(key string) string { return keyname.Prefix("redlatch_rwq", key) }

// holdKeys are those of all holds of a read-write lock: the lock and their ends.
func (l *single) holdKeys() []string { return l.keys[:2:2] }

func rwChannel(key, _ string) string { return keyname.Prefix("redisson_rwlock", key) }

// timeoutKey is where Redisson looks for the end of an owner's k-th read hold.
func timeoutKey(key, owner string, k int) string {
	return keyname.Suffix(key, owner+":rwlock_timeout:"+strconv.Itoa(k))
}

// readKeys are those of a read hold: the lock's, and the owner's timeout key.
func (l *single) readKeys(owner string) []string {
	return slices.Concat(l.keys, []string{timeoutKey(l.key, owner, 1)})
}

// ReadWriteLock describes a lock with two sides: any number of readers, or one writer. It is Redisson's RReadWriteLock.
// Like Lock it is immutable and has no state. Its sides are Locks and do everything that Locks do, except that another
// process cannot join them.
//
// Each side is re-entered under a context of one of its holds. Under a context of a write hold the read side is
// acquired at once, as a hold of its own, with its own owner and lease; it may outlive the write hold. When the write
// hold is released, other readers can acquire the lock, and waiting ones are woken. The reverse is refused: Write under
// a context of a read hold returns ErrReentry at once, because it would wait for itself. Release the read hold first,
// and check again what was read.
//
// Every reader has a lease of its own, in the server's time. A reader that dies keeps writers out until its own lease
// is over, whatever other readers do. Readers of one process that are renewed (no WithLease, no WithLabel, no
// Options.MaxHold) share one hold on the server: they have the same Owner and the same Until, are lost together, and
// count as one holder. The lock is released when the last of them unlocks; the Unlock of another one sends nothing and
// returns nil. Nor does a re-entry of such a hold send anything.
//
// Waiters of all processes queue on the server and are handed the lock: readers and writers in turn. When the last
// reader leaves, the first writer is next; writers are served in their order, one of each process in turn. When a
// writer leaves, the next one is, unless writers have had the lock for as long as the readers before them, for 200 ms,
// or 16 times in a row. Then all waiting readers are next, together. So a reader waits for one such phase of writers at
// most, and a writer for one phase of reading. New readers do not pass a waiting writer, except those that share a hold
// of their process within 10 ms of its last look.
//
// So a goroutine that reads, and reads again, must do so under a context of its hold: otherwise a writer may come in
// between, and it waits for itself. The same is true of a reader that waits for another one.
//
// A reader that hangs keeps writers out, and these would keep out other readers. Therefore, when the first writer has
// waited for one Options.PollCap (of 10 s at most), then for two, four and so on, the waiting readers are let in once
// each.
//
// A reader that does not wait (TryLock with a waitTime of 0) makes a call of its own while another reader of its
// process asks. It does not pass a waiting writer. But many of such calls slow a writer down more than readers that
// wait.
//
// A waiter that gets no messages, because they are lost or it may not subscribe, asks every PollCap. One that may not
// subscribe is in no queue, and while others queue it may wait for as long as they do. There is no queue while the
// lock's slot is being migrated: then waiters race, and a read waits until the slot has moved. Redisson's clients are
// in no queue: see docs/redisson.md.
type ReadWriteLock struct{ read, write *Lock }

// ReadWrite describes the read-write lock of that name. If the name cannot be used, every call on its sides returns
// ErrInvalidName. Do not use the name for another kind of lock: each would exclude the other, but not wake its waiters.
func (c *Client) ReadWrite(name string) *ReadWriteLock {
	return &ReadWriteLock{c.lock(name, kindRead), c.lock(name, kindWrite)}
}

// Read returns the side that any number of owners can hold at the same time, while no other owner holds the other side.
func (x *ReadWriteLock) Read() *Lock { return x.read }

// Write returns the side that one owner holds at a time, while no other owner holds either side.
func (x *ReadWriteLock) Write() *Lock { return x.write }

// field is what the server has of an owner.
func (l *single) field(owner string) string {
	if l.kind.fieldOf != nil {
		return l.kind.fieldOf(owner)
	}
	return owner
}

// resolve decides, for an acquisition of l under a context that carries own, whether it is a re-entry (again is its
// owner) or a new hold under a write hold of the same lock (under is the owner of that). turn is that in which ctx
// carries it.
func (l *single) resolve(own *owner, turn int32) (again, under *owner, err error) {
	if own == nil || own.lock.kind == l.kind || l.kind.resolve == nil {
		return own, nil, nil
	}
	return l.kind.resolve(l, own, turn)
}

// resolveReader: what reads under a write hold may outlive that hold, so no other writer of the process may have it
// next:
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

func resolveWriter(l *single, own *owner, _ int32) (again, under *owner, err error) {
	if own.writeHold != nil && own.writeHold.Lasts() {
		return own.writeHold, nil, nil
	}
	return nil, nil, fmt.Errorf("%w: %q is held for reading, and would wait for itself: release that first", ErrReentry,
		l.name)
}

// timeouts are the keys in which Redisson may have put the end of a field of a read-write lock's hash.
func (l *single) timeouts(field, count string) (keys []string) {
	if strings.HasSuffix(field, writing) {
		return nil
	}
	n, _ := strconv.Atoi(count)
	if lease.Ours(field) {
		n = 1
	}
	for k := 1; k <= min(n, maxTimeouts); k++ {
		keys = append(keys, timeoutKey(l.key, field, k))
	}
	return keys
}

// maxTimeouts bounds how many timeout keys of one of Redisson's readers are deleted, and of all of them are looked at.
// Others expire.
const maxTimeouts = 1000
