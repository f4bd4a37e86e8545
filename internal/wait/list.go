package wait

// list is a doubly linked list in order of arrival. The elements embed their links, so that nothing is allocated for
// one. Its zero value is empty.
type list[T linked[T]] struct{ first, last T }

// linked is a pointer to an element of a list.
type linked[T any] interface {
	comparable
	own() *links[T]
}

// links are the neighbours of an element.
type links[T any] struct{ before, behind T }

func (l *links[T]) own() *links[T] { return l }

// add puts an element behind the others.
func (l *list[T]) add(element T) {
	var none T
	if l.last == none {
		l.first = element
	} else {
		element.own().before, l.last.own().behind = l.last, element
	}
	l.last = element
}

// remove takes out an element of the list.
func (l *list[T]) remove(element T) {
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
	*own = links[T]{}
}
