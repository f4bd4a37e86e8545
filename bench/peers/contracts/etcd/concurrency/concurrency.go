// Package concurrency has the types of etcd's client/v3/concurrency, made of Reentrant locks and elections.
package concurrency

import (
	"context"
	"errors"
	"sync"

	peer "go.etcd.io/etcd/client/v3/concurrency"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/bench/peers/contracts/etcd/clientv3"
	"github.com/redlatch/redlatch/bench/peers/contracts/rig"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
)

// The errors are etcd's.
var (
	ErrLocked       = peer.ErrLocked
	ErrLockReleased = peer.ErrLockReleased
)

// Session is a process: a client of its own. What it holds ends with it.
type Session struct {
	Red *redlatch.Client

	mu    sync.Mutex
	holds map[string]*rlock.Hold // the session is the owner of a lock, whichever Mutex it is acquired by
	leads map[string]*election.Leadership
}

// NewSession begins one.
func NewSession(*clientv3.Client) (*Session, error) {
	red, err := rig.Open()
	return &Session{Red: red, holds: map[string]*rlock.Hold{}, leads: map[string]*election.Leadership{}}, err
}

// Close ends it. Of what it holds it must say that no caller works under it any more: a Client that is closed waits for
// that.
func (s *Session) Close() error {
	ctx := context.Background()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holds {
		_ = h.Unlock(ctx)
	}
	for _, l := range s.leads {
		_ = l.Resign(ctx)
	}
	return s.Red.Close(ctx)
}

// Orphan ends it, too: what is left is released, and does not have to expire.
func (s *Session) Orphan() { s.Close() }

// Mutex is a Reentrant lock.
type Mutex struct {
	s    *Session
	name string
	hold *rlock.Hold
}

// NewMutex is etcd's.
func NewMutex(s *Session, name string) *Mutex { return &Mutex{s: s, name: name} }

func (m *Mutex) owner(ctx context.Context) (*rlock.Lock, context.Context) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if h := m.s.holds[m.name]; h != nil && h.Err() == nil {
		ctx = h.Context(ctx)
	}
	return m.s.Red.Locks().Reentrant(m.name), ctx
}

func (m *Mutex) keep(h *rlock.Hold, err error) error {
	if err != nil {
		return err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.hold, m.s.holds[m.name] = h, h
	return nil
}

// Lock is etcd's.
func (m *Mutex) Lock(ctx context.Context) error {
	l, ctx := m.owner(ctx)
	return m.keep(l.Lock(ctx))
}

// TryLock is etcd's.
func (m *Mutex) TryLock(ctx context.Context) error {
	l, ctx := m.owner(ctx)
	err := m.keep(l.TryLock(ctx, 0, 0))
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return ErrLocked
	}
	return err
}

// Unlock is etcd's. Where ours returns its first result again, etcd's says that the lock is released.
func (m *Mutex) Unlock(ctx context.Context) error {
	if m.hold == nil {
		return ErrLockReleased
	}
	err := m.hold.Unlock(ctx)
	m.hold = nil
	return err
}

// Election is an election.
type Election struct {
	s    *Session
	name string
}

// NewElection is etcd's.
func NewElection(s *Session, name string) *Election { return &Election{s, name} }

// ResumeElection is etcd's. The session knows what it leads.
func ResumeElection(s *Session, name, _ string, _ int64) *Election { return &Election{s, name} }

// Campaign is etcd's.
func (e *Election) Campaign(ctx context.Context, value string) error {
	e.s.mu.Lock()
	led := e.s.leads[e.name]
	e.s.mu.Unlock()
	if led != nil && led.Err() == nil {
		return led.Proclaim(ctx, value)
	}
	l, err := e.s.Red.Elections().Election(e.name).Campaign(ctx, value)
	if err != nil {
		return err
	}
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	e.s.leads[e.name] = l
	return nil
}

// Resign is etcd's.
func (e *Election) Resign(ctx context.Context) error {
	e.s.mu.Lock()
	led := e.s.leads[e.name]
	e.s.mu.Unlock()
	if led == nil {
		return nil
	}
	return led.Resign(ctx)
}

// Leader is etcd's.
func (e *Election) Leader(ctx context.Context) (*clientv3.GetResponse, error) {
	l, err := e.s.Red.Elections().Election(e.name).Leader(ctx)
	if err == nil && !l.Elected() {
		err = peer.ErrElectionNoLeader
	}
	r := e.response(l)
	return &r, err
}

func (e *Election) response(l election.Leader) clientv3.GetResponse {
	return clientv3.GetResponse{Kvs: []*clientv3.KeyValue{
		{Key: []byte(e.name + string(l.Owner)), Value: []byte(l.Value), CreateRevision: l.Token}}}
}

// Observe is etcd's, which tells of leaders only.
func (e *Election) Observe(ctx context.Context) <-chan clientv3.GetResponse {
	responses := make(chan clientv3.GetResponse)
	go func() {
		defer close(responses)
		for l, err := range e.s.Red.Elections().Election(e.name).Observe(ctx) {
			if err != nil {
				return
			}
			if !l.Elected() {
				continue
			}
			select {
			case responses <- e.response(l):
			case <-ctx.Done():
				return
			}
		}
	}()
	return responses
}
