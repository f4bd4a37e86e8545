package lease

// Heap is a binary heap of pointers: package container/heap changes it, and the first element comes before all others.
type Heap[T interface {
	Before(other T) bool
	SetIndex(index int) // called whenever the element has another place in the heap
}] []T

func (h Heap[T]) Len() int           { return len(h) }
func (h Heap[T]) Less(i, j int) bool { return h[i].Before(h[j]) }

func (h Heap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].SetIndex(i)
	h[j].SetIndex(j)
}

// Push implements heap.Interface.
func (h *Heap[T]) Push(added any) {
	element := added.(T)
	element.SetIndex(len(*h))
	*h = append(*h, element)
}

// Pop implements heap.Interface.
func (h *Heap[T]) Pop() any {
	last := len(*h) - 1
	element := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	return element
}
