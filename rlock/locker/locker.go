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

// Locker is one lock for all goroutines that share it: they exclude each other, and all other holders of the lock. Like
// sync.Mutex it is not re-entrant. It is safe for concurrent use and must not be copied.
type Locker struct {
	ctx  context.Context
	lock *rlock.Lock
	lost func(error)

	turn     chan struct{} // full with the hold: the goroutines here wait for each other without the server
	mu       sync.Mutex
	hold     *rlock.Hold
	reported *atomic.Bool // of the hold: its end was reported, or Unlock sees to it
}

var _ sync.Locker = (*Locker)(nil)

// unlockTime bounds an Unlock's waiting for the server; the release goes on in the background after that.
const unlockTime = 5 * time.Second

// New returns a Locker on l. ctx bounds the waiting of every Lock. WithWait of l bounds the waiting for holders other
// than this Locker. An owner of l that ctx carries is not used.
//
// lost is called when the lock is known to be no longer held although Unlock was not called, with the error of
// [rlock.Hold.Err]; and when an Unlock is not confirmed, with that of [rlock.Hold.Unlock]. What was done under the lock
// may have been done at the same time as another owner's work. lost runs on a goroutine of its own, or on that of
// Unlock. It must not be nil. It must not refer to the Locker: if the program can no longer reach a locked Locker, its
// lock is renewed no more, as that of a forgotten [rlock.Hold].
func New(ctx context.Context, l *rlock.Lock, lost func(error)) *Locker {
	if ctx == nil || l == nil || lost == nil {
		panic("locker: New needs a context, a lock and a function to call at its loss")
	}
	return &Locker{ctx: rlock.Detach(ctx), lock: l, lost: lost, turn: make(chan struct{}, 1)}
}

// Lock acquires the lock. It panics with the error of [rlock.Lock.Lock] if it cannot: ctx has ended, the time of
// WithWait is over, the client is closed or the name is invalid. While the server cannot be asked, Lock tries again.
func (x *Locker) Lock() {
	select {
	case x.turn <- struct{}{}:
	case <-x.ctx.Done():
		panic(fmt.Errorf("locker: %q is held by this process: %w: %w", x.lock.Name(), errs.ErrNotAcquired,
			context.Cause(x.ctx)))
	}
	for n := 0; ; n++ {
		hold, err := x.lock.Lock(x.ctx)
		switch {
		case err == nil:
			x.take(hold)
			return
		case x.ctx.Err() == nil && (errors.Is(err, errs.ErrUnavailable) || errors.Is(err, errs.ErrUnknownOutcome)):
			// Its own waiting is over, ours is not. It may have been none at all.
			script.Pause(x.ctx, script.Backoff(n))
			continue
		}
		<-x.turn
		panic(err)
	}
}

// TryLock acquires the lock if it is free, and reports whether it did. It returns false, too, if the server could not
// be asked.
func (x *Locker) TryLock() bool {
	select {
	case x.turn <- struct{}{}:
	default:
		return false
	}
	hold, err := x.lock.WithWait(0).Lock(x.ctx)
	if err != nil {
		<-x.turn
		return false
	}
	x.take(hold)
	return true
}

func (x *Locker) take(hold *rlock.Hold) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hold, x.reported = hold, &atomic.Bool{}
	go watch(hold.Done(), weak.Make(hold), x.reported, x.lost)
}

// watch tells of the end of a hold. It lasts as long as the hold. It refers neither to the hold, except by a weak
// pointer, nor to the Locker: whatever listens on a context of the hold keeps the hold in use, and a locked Locker that
// is dropped would be renewed forever (TestLocker_DroppedWhileLocked_IsRenewedNoMore).
func watch(over <-chan struct{}, hold weak.Pointer[rlock.Hold], reported *atomic.Bool, lost func(error)) {
	<-over
	why := errs.ErrLost // of one that was dropped
	if h := hold.Value(); h != nil {
		why = h.Err()
	}
	if reported.CompareAndSwap(false, true) {
		lost(why)
	}
}

// Unlock releases the lock. It panics if the Locker is not locked. If the release is not confirmed, the function given
// to New is called, unless it was called for the loss before.
func (x *Locker) Unlock() {
	x.mu.Lock()
	hold, reported := x.hold, x.reported
	x.hold, x.reported = nil, nil
	x.mu.Unlock()
	if hold == nil {
		panic("locker: Unlock of a Locker that is not locked")
	}
	unheard := reported.CompareAndSwap(false, true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), unlockTime)
	defer cancel()
	err := hold.Unlock(ctx)
	<-x.turn
	if err != nil && unheard {
		x.lost(err)
	}
}
