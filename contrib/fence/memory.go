package redlatchfence

import (
	"context"
	"sync"
)

// Memory is a Guard in the memory of a process, for what that process alone serves. It forgets when the process ends; a
// resource that outlives it needs a guard where the resource is kept. It keeps a token for each resource that it has
// seen, and removes none. The zero Memory is ready. It is safe for concurrent use, and is not copied.
type Memory struct {
	mu    sync.Mutex
	fence map[string]*place
}

type place struct {
	turn chan struct{} // holds a value while an act lasts
	seen Token         // of the one who has the turn
}

func (m *Memory) place(resource string) *place {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fence == nil {
		m.fence = map[string]*place{}
	}
	p := m.fence[resource]
	if p == nil {
		p = &place{turn: make(chan struct{}, 1)}
		m.fence[resource] = p
	}
	return p
}

// Advance is Do without an act: see Guard.
func (m *Memory) Advance(ctx context.Context, resource string, token Token) error {
	return m.Do(ctx, resource, token, func(context.Context) error { return nil })
}

// Do calls act if the token is not stale, and nothing else for the resource meanwhile: see Exclusive. The token stays
// seen whatever act returns.
func (m *Memory) Do(ctx context.Context, resource string, token Token, act func(ctx context.Context) error) error {
	if err := admissible(resource, token); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p := m.place(resource)
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.turn }()
	// After the wait, not before it: 33 that waited for the act of 34 must see 34.
	if token < p.seen {
		return stale(resource, token)
	}
	p.seen = token
	return act(ctx)
}
