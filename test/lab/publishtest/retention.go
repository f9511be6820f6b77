package publishtest

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// testEarlyPurges verifies purges of deletes right after they were stored, as when the bus holds too
// many deletes. Existing objects and other deletes remain. An object can be recreated, whether its
// delete was purged or not. The bus refuses a publish that expects a purged event.
func testEarlyPurges(t *testing.T, bus Bus) {
	p := open(t, bus)
	b, can := p.(publish.Bus)
	need(t, can && bus.CompareAndSet, "purge")
	const deletes, purges = 24, 10
	positions := map[event.Key]uint64{}
	put := func(o Object) {
		m := o.Message(t, positions[o.Key()])
		positions[m.Key] = mustPublish(t, p, m)
	}
	gone := func(n int) Object { return Object{Name: fmt.Sprint("gone-", n), Version: 1} }
	for n := range deletes {
		o := gone(n)
		put(o)
		o.Deleted = true
		put(o)
	}
	put(Object{Name: "there", Version: 1})
	load := func() map[event.Key]event.Acked {
		all := map[event.Key]event.Acked{}
		if err := b.Load(t.Context(), func(k event.Key, a event.Acked) error {
			if all[k] = a; a == (event.Acked{}) {
				delete(all, k)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}

	want := load()
	if len(want) != deletes+1 {
		t.Fatalf("%d objects are loaded, want %d", len(want), deletes+1)
	}
	for n := range purges {
		k := gone(n).Key()
		switch err := b.Purge(t.Context(), k, positions[k]); {
		case err == nil:
			delete(want, k)
		case !errors.Is(err, event.ErrNewest):
			t.Fatal(err)
		}
	}
	if got := load(); len(got) == deletes+1 || !maps.Equal(got, want) {
		t.Errorf("after %d purges the bus has %v, want %v", purges, got, want)
	}
	for n := range deletes {
		k := gone(n).Key()
		again := Object{Name: k.Name, UID: "another", Version: 100 + n}
		if kept, is := want[k]; is {
			wantConflict(t, p, again.Message(t, 0), kept)
		} else {
			wantConflict(t, p, again.Message(t, positions[k]), event.Acked{})
			positions[k] = 0
		}
		put(again)
	}
	live := 0
	for _, a := range load() {
		if a.Live() {
			live++
		}
	}
	if live != deletes+1 {
		t.Errorf("%d objects exist on the bus after all have come back, want %d", live, deletes+1)
	}
}
