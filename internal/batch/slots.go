package batch

import (
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/keyname"
)

// Slots are the Batchers of requests for many keys. Where a call goes to one slot, each has one, because in a Cluster a
// node that is down must not hold up the requests to the others. Elsewhere the slots may share them.
type Slots[Q, A any] struct {
	make         func() *Batcher[Q, A]
	apart        func() bool
	n            uint16
	shared, each func() []atomic.Pointer[Batcher[Q, A]] // made when first needed
}

// NewSlots returns Batchers that create makes: one for each slot while apart, which is Runner.Apart, returns true, and
// otherwise so many. Those of keys whose requests gain nothing by sharing a call are many. A request that is in a
// Batcher of several slots when apart begins to return true is answered there.
func NewSlots[Q, A any](apart func() bool, many uint16, create func() *Batcher[Q, A]) *Slots[Q, A] {
	table := func(n uint16) func() []atomic.Pointer[Batcher[Q, A]] {
		return sync.OnceValue(func() []atomic.Pointer[Batcher[Q, A]] { return make([]atomic.Pointer[Batcher[Q, A]], n) })
	}
	return &Slots[Q, A]{make: create, apart: apart, n: many, shared: table(many), each: table(keyname.Slots)}
}

// Of returns the Batcher of requests for key.
func (s *Slots[Q, A]) Of(key string) *Batcher[Q, A] {
	all, n := s.shared, s.n
	if s.apart() {
		all, n = s.each, keyname.Slots
	}
	at := uint16(0)
	if n > 1 {
		at = keyname.Slot(key) % n
	}
	p := &all()[at]
	if b := p.Load(); b != nil {
		return b
	}
	p.CompareAndSwap(nil, s.make())
	return p.Load()
}
