package measure

import "sync"

// other is the class of what has none, and of classes beyond the most.
const other = "other"

// Classes makes classes of names, and bounds their number.
type Classes struct {
	of    func(kind, name string) string // nil: one class
	most  int
	fresh func(kind, class string) // called once for each, before it is used

	mu    sync.RWMutex
	known map[string]map[string]struct{} // by kind
}

// NewClasses returns classes that of makes of names; nil: one class, "all". At most most of each kind are counted
// separately, besides other; 50 if that is not positive. fresh is called once for each, before it is used.
func NewClasses(of func(kind, name string) string, most int, fresh func(kind, class string)) *Classes {
	if most <= 0 {
		most = 50
	}
	return &Classes{of: of, most: most, fresh: fresh, known: map[string]map[string]struct{}{}}
}

// Get returns the class of a name.
func (c *Classes) Get(kind, name string) string {
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
	if len(of)-1 >= c.most { // besides other
		return other
	}
	of[class] = struct{}{}
	c.fresh(kind, class)
	return class
}
