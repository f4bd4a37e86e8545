// Package redsync has the types of github.com/go-redsync/redsync/v4, made of a Quorum.
package redsync

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	mathrand "math/rand/v2"
	"time"

	peer "github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// The errors are the peer's.
type (
	// ErrTaken is the peer's.
	ErrTaken = peer.ErrTaken
	// ErrNodeTaken is the peer's.
	ErrNodeTaken = peer.ErrNodeTaken
)

var errNotHeld = errors.New("redsync: this Mutex holds nothing")

// Redsync is the peer's.
type Redsync struct{ pools []redis.Pool }

// New is the peer's.
func New(pools ...redis.Pool) *Redsync { return &Redsync{pools} }

// NewMutex is the peer's.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := &Mutex{
		name: name, expiry: 8 * time.Second, tries: 32, genValueFunc: genValue, driftFactor: 0.01, timeoutFactor: 0.05,
		delayFunc: func(int) time.Duration { return time.Duration(50+mathrand.N(200)) * time.Millisecond },
		quorum:    len(r.pools)/2 + 1, pools: r.pools,
	}
	for _, o := range options {
		o(m)
	}
	return m
}

// Option is the peer's.
type Option func(*Mutex)

// WithExpiry is the peer's.
func WithExpiry(d time.Duration) Option { return func(m *Mutex) { m.expiry = d } }

// WithValue is the peer's.
func WithValue(v string) Option {
	return func(m *Mutex) { m.genValueFunc = func() (string, error) { return v, nil }; m.value = v }
}

func genValue() (string, error) { return rand.Text(), nil }

// Mutex is a Quorum, of one lock on each of the servers. Its value is the label of the owner.
type Mutex struct {
	name                       string
	expiry                     time.Duration
	tries                      int
	delayFunc                  func(tries int) time.Duration
	driftFactor, timeoutFactor float64 // the margin of a hold stands for them
	quorum                     int
	genValueFunc               func() (string, error)
	value                      string
	setNXOnExtend              bool // what is lost stays lost
	pools                      []redis.Pool

	hold *rlock.Hold
}

// Value is the peer's.
func (m *Mutex) Value() string { return m.value }

// Lock is the peer's: for as long as its tries and their pauses take.
func (m *Mutex) Lock() error {
	var wait time.Duration
	for i := 1; i < m.tries; i++ {
		wait += m.delayFunc(i)
	}
	return m.lock(context.Background(), wait)
}

// TryLock is the peer's.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext is the peer's.
func (m *Mutex) TryLockContext(ctx context.Context) error { return m.lock(ctx, 0) }

func (m *Mutex) lock(ctx context.Context, wait time.Duration) (err error) {
	if m.value, err = m.genValueFunc(); err != nil {
		return err
	}
	if want := len(m.pools)/2 + 1; m.quorum != want || math.IsNaN(m.driftFactor+m.timeoutFactor) {
		return errors.New("redsync: a majority is what Quorum needs")
	}
	var all []*rlock.Lock
	for _, p := range m.pools {
		all = append(all, p.(server).client().Reentrant(m.name))
	}
	lock, err := rlock.Quorum(all...)
	if err != nil {
		return err
	}
	m.hold, err = lock.WithLabel(m.value).TryLock(ctx, wait, m.expiry)
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return errors.Join(&ErrTaken{}, err)
	}
	return err
}

// Unlock is the peer's, of what this Mutex holds.
func (m *Mutex) Unlock() (bool, error) {
	if m.hold == nil {
		return false, errNotHeld
	}
	err := m.hold.Unlock(context.Background())
	return err == nil, err
}

// Extend is the peer's.
func (m *Mutex) Extend() (bool, error) {
	if m.hold == nil {
		return false, errNotHeld
	}
	err := m.hold.Extend(context.Background(), m.expiry)
	// Ours returns with the answers of a majority, the peer with those of all.
	for _, p := range m.pools {
		for range 500 {
			state, failed := p.(server).client().Reentrant(m.name).Inspect(context.Background())
			if err != nil || failed != nil || state.Lease > m.expiry-time.Second/2 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if errors.Is(err, redlatch.ErrLost) && m.setNXOnExtend {
		err = errors.Join(errors.New("redsync: a lost hold is not acquired again by Extend"), err)
	}
	return err == nil, err
}

// Valid is the peer's.
func (m *Mutex) Valid() (bool, error) {
	if m.hold == nil {
		return false, errNotHeld
	}
	return m.hold.Err() == nil && time.Now().Before(m.hold.Until()), nil
}

// server is what a pool of these tests is.
type server interface{ client() *rlock.Client }
