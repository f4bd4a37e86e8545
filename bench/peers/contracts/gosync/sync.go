// Package sync has the types of the standard library's package of that name, made of locks and latches on a server.
package sync

import (
	"context"
	"sync" // the original

	"github.com/redlatch/redlatch/bench/peers/contracts/rig"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/locker"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Locker is sync's.
type Locker = sync.Locker

// Cond is sync's own, on a Mutex of this package.
type Cond = sync.Cond

// NewCond is sync's.
func NewCond(l Locker) *Cond { return sync.NewCond(l) }

// Mutex is a Reentrant lock behind a locker.Locker.
type Mutex struct {
	once sync.Once
	in   *locker.Locker
}

func (m *Mutex) locker() *locker.Locker {
	m.once.Do(func() {
		m.in = locker.New(context.Background(), rig.Shared().Locks().Reentrant(rig.Name()), func(err error) { panic(err) })
	})
	return m.in
}

// Lock is sync.Mutex's.
func (m *Mutex) Lock() { m.locker().Lock() }

// TryLock is sync.Mutex's.
func (m *Mutex) TryLock() bool { return m.locker().TryLock() }

// Unlock is sync.Mutex's.
func (m *Mutex) Unlock() { m.locker().Unlock() }

// RWMutex is a ReadWrite lock. Holds are handles: it keeps them for the caller that unlocks.
type RWMutex struct {
	once sync.Once
	in   *rlock.ReadWriteLock

	mu             sync.Mutex
	reads, writing []*rlock.Hold
}

func (m *RWMutex) lock() *rlock.ReadWriteLock {
	m.once.Do(func() { m.in = rig.Shared().Locks().ReadWrite(rig.Name()) })
	return m.in
}

func (m *RWMutex) keep(holds *[]*rlock.Hold, h *rlock.Hold, err error) {
	if err != nil {
		panic(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	*holds = append(*holds, h)
}

func (m *RWMutex) end(holds *[]*rlock.Hold) {
	m.mu.Lock()
	if len(*holds) == 0 {
		m.mu.Unlock()
		panic("gosync: unlock of an unlocked lock")
	}
	last := len(*holds) - 1
	h := (*holds)[last]
	*holds = (*holds)[:last]
	m.mu.Unlock()
	if err := h.Unlock(context.Background()); err != nil {
		panic(err)
	}
}

// Lock is sync.RWMutex's.
func (m *RWMutex) Lock() {
	h, err := m.lock().Write().Lock(context.Background())
	m.keep(&m.writing, h, err)
}

// TryLock is sync.RWMutex's.
func (m *RWMutex) TryLock() bool {
	h, err := m.lock().Write().TryLock(context.Background(), 0, 0)
	if err == nil {
		m.keep(&m.writing, h, nil)
	}
	return err == nil
}

// Unlock is sync.RWMutex's.
func (m *RWMutex) Unlock() { m.end(&m.writing) }

// RLock is sync.RWMutex's.
func (m *RWMutex) RLock() {
	h, err := m.lock().Read().Lock(context.Background())
	m.keep(&m.reads, h, err)
}

// TryRLock is sync.RWMutex's.
func (m *RWMutex) TryRLock() bool {
	h, err := m.lock().Read().TryLock(context.Background(), 0, 0)
	if err == nil {
		m.keep(&m.reads, h, nil)
	}
	return err == nil
}

// RUnlock is sync.RWMutex's.
func (m *RWMutex) RUnlock() { m.end(&m.reads) }

// RLocker is sync.RWMutex's.
func (m *RWMutex) RLocker() Locker { return (*reading)(m) }

type reading RWMutex

func (r *reading) Lock()   { (*RWMutex)(r).RLock() }
func (r *reading) Unlock() { (*RWMutex)(r).RUnlock() }

// WaitGroup is a CountDownLatch.
type WaitGroup struct {
	once sync.Once
	in   *rsemaphore.CountDownLatch
}

func (w *WaitGroup) latch() *rsemaphore.CountDownLatch {
	w.once.Do(func() { w.in = rig.Shared().Semaphores().CountDownLatch(rig.Name()) })
	return w.in
}

// Add is sync.WaitGroup's. It panics if it would raise a count that is not zero, which a latch does not do.
func (w *WaitGroup) Add(n int) {
	set, err := w.latch().TrySetCount(context.Background(), int64(n), 0)
	if err != nil {
		panic(err)
	}
	if !set {
		panic("gosync: a latch that is closed keeps its count")
	}
}

// Done is sync.WaitGroup's.
func (w *WaitGroup) Done() {
	if _, err := w.latch().CountDown(context.Background()); err != nil {
		panic(err)
	}
}

// Wait is sync.WaitGroup's.
func (w *WaitGroup) Wait() {
	if err := w.latch().Await(context.Background()); err != nil {
		panic(err)
	}
}

// Go is sync.WaitGroup's.
func (w *WaitGroup) Go(fn func()) {
	w.Add(1)
	go func() {
		fn()
		w.Done()
	}()
}
