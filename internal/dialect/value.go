package dialect

// value is what may be said of an expression. from are the variables whose table it may be.
type value struct {
	key, table bool
	from       []*variable
}

var (
	nothing = value{key: true, table: true} // nil, and what is never there
	other   = value{}
)

func of(v *variable) value { return value{!v.noKey, !v.noTable, []*variable{v}} }

func (w *walk) set(flag *bool) {
	if !*flag {
		*flag, w.changed = true, true
	}
}

// assign notes that a variable may have a value, and that both are then one table.
func (w *walk) assign(v *variable, to value) {
	if !to.key {
		w.set(&v.noKey)
	}
	if !to.table {
		w.set(&v.noTable)
	}
	for _, from := range to.from {
		w.join(v, from)
		if from.computed {
			w.set(&v.computed)
		}
		if v.computed {
			w.set(&from.computed)
		}
		if v.noTable && to.table {
			w.set(&from.noTable)
		}
	}
}

// join: the elements of two tables that are one are the same.
func (w *walk) join(a, b *variable) {
	switch {
	case a.element == b.element:
	case a.element == nil:
		a.element, w.changed = b.element, true
	case b.element == nil:
		b.element, w.changed = a.element, true
	default:
		w.assign(a.element, of(b.element))
		w.assign(b.element, of(a.element))
	}
}

func (w *walk) elementOf(v *variable) *variable {
	if v.element == nil {
		v.element, w.changed = &variable{}, true
	}
	return v.element
}

// lose: nothing is known of a table any more.
func (w *walk) lose(v value) {
	for _, from := range v.from {
		if from.computed && from.noTable {
			continue
		}
		w.set(&from.noTable)
		w.set(&from.computed)
		if from.element != nil {
			w.lose(of(from.element))
		}
	}
}
