package stock

// FilterOf is a filter with these in it.
func FilterOf(texts []string) (has func(string) bool) {
	f := newFilter(int64(len(texts)))
	for _, s := range texts {
		f.add(s)
	}
	return f.has
}
