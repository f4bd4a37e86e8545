package batch

import (
	"runtime"
	"sync"
	"weak"
)

// WeakMap has one V for each key, for as long as the program refers to that V. It holds the state that all values share
// which describe one object, however many of these a program makes. It is safe for concurrent use, and its zero value
// is ready.
type WeakMap[V any] struct {
	all sync.Map // key -> weak.Pointer[V]
}

// Of returns the V of key, and makes it if there is none.
func (s *WeakMap[V]) Of(key string, newValue func() *V) *V {
	for {
		if stored, ok := s.all.Load(key); ok {
			if value := stored.(weak.Pointer[V]).Value(); value != nil {
				return value
			}
			s.all.CompareAndDelete(key, stored)
		}
		value := newValue()
		pointer := weak.Make(value)
		if _, loaded := s.all.LoadOrStore(key, pointer); !loaded {
			runtime.AddCleanup(value, func(key string) { s.all.CompareAndDelete(key, pointer) }, key)
			return value
		}
	}
}
