package wait

// List is a doubly linked list in order of arrival. The elements embed their Links, so an element needs no allocation.
// The zero value is an empty list.
type List[T linked[T]] struct {
	first, last T
	length      int32
}

// linked is a pointer to an element of a list.
type linked[T any] interface {
	comparable
	own() *Links[T]
}

// Links are the neighbours of an element.
type Links[T any] struct{ before, behind T }

func (l *Links[T]) own() *Links[T] { return l }

// Behind returns the next element; nil after the last.
func (l *Links[T]) Behind() T { return l.behind }

// First returns the first element; nil if there is none.
func (l *List[T]) First() T { return l.first }

// Len returns the number of elements.
func (l *List[T]) Len() int32 { return l.length }

// Add puts an element behind all others, or with first before all others.
func (l *List[T]) Add(element T, first bool) {
	var none T
	switch {
	case l.first == none:
		l.first, l.last = element, element
	case first:
		element.own().behind, l.first.own().before = l.first, element
		l.first = element
	default:
		element.own().before, l.last.own().behind = l.last, element
		l.last = element
	}
	l.length++
}

// Remove removes an element of the list.
func (l *List[T]) Remove(element T) {
	var none T
	own := element.own()
	if own.before == none {
		l.first = own.behind
	} else {
		own.before.own().behind = own.behind
	}
	if own.behind == none {
		l.last = own.before
	} else {
		own.behind.own().before = own.before
	}
	*own = Links[T]{}
	l.length--
}
