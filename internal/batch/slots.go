package batch

import (
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/keyname"
)

// Slots are the Batchers of requests for many keys. In a Cluster each slot has one, because a call goes to one slot,
// and a node that is down must not hold up the requests to the others. Elsewhere the slots may share them.
type Slots[Q, A any] struct {
	make func() *Batcher[Q, A]
	n    uint16
	all  func() []atomic.Pointer[Batcher[Q, A]] // made when first needed
}

// NewSlots returns Batchers that create makes, so many outside a Cluster: those of keys whose requests gain nothing by
// sharing a call are many.
func NewSlots[Q, A any](cluster bool, many uint16, create func() *Batcher[Q, A]) *Slots[Q, A] {
	if cluster {
		many = keyname.Slots
	}
	return &Slots[Q, A]{make: create, n: many, all: sync.OnceValue(func() []atomic.Pointer[Batcher[Q, A]] {
		return make([]atomic.Pointer[Batcher[Q, A]], many)
	})}
}

// Of returns the Batcher of requests for key.
func (s *Slots[Q, A]) Of(key string) *Batcher[Q, A] {
	at := uint16(0)
	if s.n > 1 {
		at = keyname.Slot(key) % s.n
	}
	p := &s.all()[at]
	if b := p.Load(); b != nil {
		return b
	}
	p.CompareAndSwap(nil, s.make())
	return p.Load()
}
