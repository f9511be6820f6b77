// Package cow provides a copy-on-write map, for many readers and rare changes.
package cow

import (
	"maps"
	"sync/atomic"
)

// Map is a map that is read without a lock. A change replaces the whole map, so a reader never sees
// half of a change. The zero value is an empty map.
type Map[K comparable, V any] struct {
	current atomic.Pointer[map[K]V]
}

// All returns the current map, which the caller must not modify.
func (m *Map[K, V]) All() map[K]V {
	if current := m.current.Load(); current != nil {
		return *current
	}
	return nil
}

// Change replaces the map with a copy that f has modified. Calls of Change must not overlap.
func (m *Map[K, V]) Change(f func(map[K]V)) {
	next := maps.Clone(m.All())
	if next == nil {
		next = map[K]V{}
	}
	f(next)
	m.current.Store(&next)
}

// Put sets a value. See [Map.Change].
func (m *Map[K, V]) Put(key K, v V) { m.Change(func(next map[K]V) { next[key] = v }) }
