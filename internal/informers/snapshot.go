package informers

import (
	"maps"
	"sync/atomic"
)

// snapshot is a map that is read without a lock. A change replaces the whole map, so a reader never
// sees half of a change. The zero value is an empty map.
type snapshot[K comparable, V any] struct {
	current atomic.Pointer[map[K]V]
}

// all returns the current map, which the caller must not modify.
func (s *snapshot[K, V]) all() map[K]V {
	if m := s.current.Load(); m != nil {
		return *m
	}
	return nil
}

// change replaces the map with a copy that f has modified. The caller serializes changes.
func (s *snapshot[K, V]) change(f func(map[K]V)) {
	m := maps.Clone(s.all())
	if m == nil {
		m = map[K]V{}
	}
	f(m)
	s.current.Store(&m)
}

func (s *snapshot[K, V]) put(k K, v V) { s.change(func(m map[K]V) { m[k] = v }) }
