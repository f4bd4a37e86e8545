package batch

import (
	"runtime"
	"sync"
	"weak"
)

// WeakMap has one V for each key, for as long as something refers to it: what all values that describe one object have
// in common, however many of them a program makes. It is safe for concurrent use, and its zero value is ready.
type WeakMap[V any] struct {
	all sync.Map // key -> weak.Pointer[V]
}

// Of is the V of key, made if there is none.
func (s *WeakMap[V]) Of(key string, create func() *V) *V {
	for {
		if v, ok := s.all.Load(key); ok {
			if d := v.(weak.Pointer[V]).Value(); d != nil {
				return d
			}
			s.all.CompareAndDelete(key, v)
		}
		d := create()
		p := weak.Make(d)
		if _, loaded := s.all.LoadOrStore(key, p); !loaded {
			runtime.AddCleanup(d, func(key string) { s.all.CompareAndDelete(key, p) }, key)
			return d
		}
	}
}
