package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rlock"
)

// Locker is one lock for all goroutines that share it. These exclude each other, and all other holders of the lock.
// Like sync.Mutex, a Locker is not re-entrant, is safe for concurrent use, and must not be copied.
type Locker struct {
	ctx    context.Context
	lock   *rlock.Lock
	onLost func(error)

	localLock chan struct{} // full while a goroutine has the Locker: the others wait here, without the server
	mu        sync.Mutex
	hold      *rlock.Hold
	reported  *atomic.Bool // the end of hold was reported, or Unlock will report it
}

var _ sync.Locker = (*Locker)(nil)

// unlockTime bounds the wait of Unlock for the server. The release is retried in the background after that.
const unlockTime = 5 * time.Second

// New returns a Locker on lock. ctx bounds the waiting of every Lock. The time of lock's WithWait bounds the waiting
// for holders other than this Locker. An owner that ctx carries is not used.
//
// onLost is called in two cases. If the lock is lost before Unlock, it gets the error of [rlock.Hold.Err]. If an Unlock
// is not confirmed, it gets the error of [rlock.Hold.Unlock]. In both cases another owner may have worked at the same
// time. onLost runs on a goroutine of its own, or on the goroutine of Unlock.
//
// onLost must not be nil, and must not refer to the Locker: the lock of a locked Locker that the program can no longer
// reach is not renewed, like a forgotten [rlock.Hold], and a reference in onLost would keep it reachable.
func New(ctx context.Context, lock *rlock.Lock, onLost func(error)) *Locker {
	if ctx == nil || lock == nil || onLost == nil {
		panic("locker: New needs a context, a lock and a function to call at its loss")
	}
	return &Locker{ctx: rlock.Detach(ctx), lock: lock, onLost: onLost, localLock: make(chan struct{}, 1)}
}

// Lock acquires the lock, or panics with the error of [rlock.Lock.Lock]: ctx has ended, the time of WithWait is over,
// the client is closed or the name is invalid. While the server does not answer, Lock tries again.
func (x *Locker) Lock() {
	select {
	case x.localLock <- struct{}{}:
	case <-x.ctx.Done():
		panic(fmt.Errorf("locker: %q is held by this process: %w: %w", x.lock.Name(), errs.ErrNotAcquired,
			context.Cause(x.ctx)))
	}
	for failures := 0; ; failures++ {
		hold, err := x.lock.Lock(x.ctx)
		switch {
		case err == nil:
			x.setHold(hold)
			return
		case x.ctx.Err() == nil && (errors.Is(err, errs.ErrUnavailable) || errors.Is(err, errs.ErrUnknownOutcome)):
			// The Lock of package rlock stopped waiting after the time of WithWait, which may be 0. This Lock goes on.
			script.Pause(x.ctx, script.Backoff(failures))
			continue
		}
		<-x.localLock
		panic(err)
	}
}

// TryLock acquires the lock if it is free, and reports whether it did. If the server does not answer, TryLock returns
// false.
func (x *Locker) TryLock() bool {
	select {
	case x.localLock <- struct{}{}:
	default:
		return false
	}
	hold, err := x.lock.WithWait(0).Lock(x.ctx)
	if err != nil {
		<-x.localLock
		return false
	}
	x.setHold(hold)
	return true
}

func (x *Locker) setHold(hold *rlock.Hold) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hold, x.reported = hold, &atomic.Bool{}
	go reportEnd(hold.Done(), weak.Make(hold), x.reported, x.onLost)
}

// reportEnd waits for the end of a hold, and calls onLost unless Unlock was first. It runs as long as the hold lasts.
// The goroutine refers neither to the Locker nor to the hold, except by a weak pointer. A goroutine that waits on a
// context of the hold would keep the hold reachable, and the lock of a dropped Locker would be renewed forever
// (TestLocker_DroppedWhileLocked_IsRenewedNoMore).
func reportEnd(ended <-chan struct{}, hold weak.Pointer[rlock.Hold], reported *atomic.Bool, onLost func(error)) {
	<-ended
	endErr := errs.ErrLost // the cause if the hold was forgotten: its Err cannot be read any more
	if live := hold.Value(); live != nil {
		endErr = live.Err()
	}
	if reported.CompareAndSwap(false, true) {
		onLost(endErr)
	}
}

// Unlock releases the lock, or panics if the Locker is not locked. If the release is not confirmed, onLost is called,
// unless it was called for the loss before.
func (x *Locker) Unlock() {
	x.mu.Lock()
	hold, reported := x.hold, x.reported
	x.hold, x.reported = nil, nil
	x.mu.Unlock()
	if hold == nil {
		panic("locker: Unlock of a Locker that is not locked")
	}
	reportHere := reported.CompareAndSwap(false, true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), unlockTime)
	defer cancel()
	err := hold.Unlock(ctx)
	<-x.localLock
	if err != nil && reportHere {
		x.onLost(err)
	}
}
