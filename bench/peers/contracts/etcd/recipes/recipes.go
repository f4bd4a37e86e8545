// Package recipes has what etcd's client/v3/experimental/recipes has of locks and barriers.
package recipes

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/bench/peers/contracts/etcd/clientv3"
	"github.com/redlatch/redlatch/bench/peers/contracts/etcd/concurrency"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// RWMutex is a ReadWrite lock.
type RWMutex struct {
	in          *rlock.ReadWriteLock
	read, write *rlock.Hold
}

// NewRWMutex is etcd's.
func NewRWMutex(s *concurrency.Session, name string) *RWMutex {
	return &RWMutex{in: s.Red.Locks().ReadWrite(name)}
}

// RLock is etcd's.
func (m *RWMutex) RLock() (err error) {
	m.read, err = m.in.Read().Lock(context.Background())
	return err
}

// RUnlock is etcd's.
func (m *RWMutex) RUnlock() error { return m.read.Unlock(context.Background()) }

// Lock is etcd's.
func (m *RWMutex) Lock() (err error) {
	m.write, err = m.in.Write().Lock(context.Background())
	return err
}

// Unlock is etcd's.
func (m *RWMutex) Unlock() error { return m.write.Unlock(context.Background()) }

// Barrier is a latch of one.
type Barrier struct{ in *rsemaphore.CountDownLatch }

// NewBarrier is etcd's.
func NewBarrier(c *clientv3.Client, name string) *Barrier {
	return &Barrier{c.Red.Semaphores().CountDownLatch(name)}
}

var errHeld = errors.New("recipes: the barrier is held")

// Hold is etcd's.
func (b *Barrier) Hold() error {
	set, err := b.in.TrySetCount(context.Background(), 1, 0)
	if err == nil && !set {
		err = errHeld
	}
	return err
}

// Release is etcd's.
func (b *Barrier) Release() error {
	_, err := b.in.CountDown(context.Background())
	return err
}

// Wait is etcd's.
func (b *Barrier) Wait() error { return b.in.Await(context.Background()) }

// ErrTooManyClients is what no barrier of ours returns: see the suite's list.
var ErrTooManyClients = errors.New("recipes: too many clients")

// DoubleBarrier is two barriers: to begin together, and to end together.
type DoubleBarrier struct{ enter, leave *rsemaphore.CyclicBarrier }

// NewDoubleBarrier is etcd's.
func NewDoubleBarrier(s *concurrency.Session, name string, parties int) *DoubleBarrier {
	c := s.Red.Semaphores()
	return &DoubleBarrier{c.CyclicBarrier(name+":enter", parties), c.CyclicBarrier(name+":leave", parties)}
}

// Enter is etcd's.
func (b *DoubleBarrier) Enter() error {
	_, err := b.enter.Await(context.Background())
	return err
}

// Leave is etcd's.
func (b *DoubleBarrier) Leave() error {
	_, err := b.leave.Await(context.Background())
	return err
}
