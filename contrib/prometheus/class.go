package redlatchprom

import "sync"

// other is the class of what has none, and of classes beyond the most.
const other = "other"

// classes makes classes of names, and bounds their number.
type classes struct {
	of    func(kind, name string) string // nil: one class
	most  int
	fresh func(kind, class string) // called once for each, before it is used

	mu    sync.RWMutex
	known map[string]map[string]struct{} // by kind
}

func (c *classes) get(kind, name string) string {
	class := "all"
	if c.of != nil {
		class = c.of(kind, name)
	}
	if class == "" {
		class = other
	}
	c.mu.RLock()
	_, ok := c.known[kind][class]
	c.mu.RUnlock()
	if ok {
		return class
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.known[kind]
	if of == nil {
		of = map[string]struct{}{other: {}}
		c.known[kind] = of
		c.fresh(kind, other)
	}
	if _, ok := of[class]; ok {
		return class
	}
	if len(of)-1 >= c.most { // beside other
		return other
	}
	of[class] = struct{}{}
	c.fresh(kind, class)
	return class
}
