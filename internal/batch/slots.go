package batch

import (
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/keyname"
)

// Slots are the Batchers of requests for many keys. If a call must be of one slot, each slot has a Batcher, because in
// a Cluster a node that is down must not delay the requests to other nodes. Otherwise several slots share a Batcher.
type Slots[Q, A any] struct {
	newBatcher func() *Batcher[Q, A]
	perSlot    func() bool // each call must be of one slot
	count      uint16

	shared, each func() []atomic.Pointer[Batcher[Q, A]] // tables of count and of one per slot; made when first needed
}

// NewSlots returns Slots whose Batchers newBatcher makes. While perSlot (Runner.Apart) returns true, each slot has its
// own. Otherwise count Batchers share the slots. Use a large count for keys whose requests gain nothing by sharing a
// call. A request that is in a shared Batcher when perSlot begins to return true is answered there.
func NewSlots[Q, A any](perSlot func() bool, count uint16, newBatcher func() *Batcher[Q, A]) *Slots[Q, A] {
	table := func(size uint16) func() []atomic.Pointer[Batcher[Q, A]] {
		return sync.OnceValue(func() []atomic.Pointer[Batcher[Q, A]] { return make([]atomic.Pointer[Batcher[Q, A]], size) })
	}
	return &Slots[Q, A]{newBatcher: newBatcher, perSlot: perSlot, count: count,
		shared: table(count), each: table(keyname.Slots)}
}

// Of returns the Batcher of requests for key.
func (s *Slots[Q, A]) Of(key string) *Batcher[Q, A] {
	table, size := s.shared, s.count
	if s.perSlot() {
		table, size = s.each, keyname.Slots
	}
	index := uint16(0)
	if size > 1 {
		index = keyname.Slot(key) % size
	}
	pointer := &table()[index]
	if batcher := pointer.Load(); batcher != nil {
		return batcher
	}
	pointer.CompareAndSwap(nil, s.newBatcher())
	return pointer.Load()
}
