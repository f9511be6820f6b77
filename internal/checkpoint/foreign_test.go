package checkpoint

import (
	"context"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestLoadMarksForeignEvents verifies that after the first load, an event at a later position than
// the known event is foreign, and that the entry takes only the position and the time of that event.
// Packed and unpacked entries take separate paths.
func TestLoadMarksForeignEvents(t *testing.T) {
	key := event.Key{Resource: "pods", Namespace: "default", Name: "web"}
	for form, uid := range map[string]string{"packed": "6f1b9f6e-6c5d-4c6e-8d5e-0c9b3f3c1a11", "unpacked": "A"} {
		known := event.Acked{UID: uid, ResourceVersion: "5", Position: 7, Time: 1, Digest: event.Digest{1}}
		forged := event.Acked{UID: uid, ResourceVersion: "999", Epoch: 9, Deleted: true, Position: 9, Time: 2}
		foreign := known
		foreign.Position, foreign.Time, foreign.Foreign = 9, 2, true
		rewritten, other := known, foreign
		rewritten.Deleted = true
		other.Position = 11
		again := forged
		again.Position = 11
		lost := known
		lost.ResourceVersion, lost.Position = "4", 6
		same := known
		same.Foreign, same.Time = true, 1
		for name, c := range map[string]struct{ known, bus, want event.Acked }{
			"the known event":             {known, known, known},
			"a later event":               {known, forged, foreign},
			"no event":                    {known, event.Acked{Position: 9, Time: 2}, foreign},
			"the bus lost its end":        {known, lost, lost},
			"another record of the event": {known, rewritten, same},
			"still foreign":               {foreign, forged, foreign},
			"foreign again":               {foreign, again, other},
			"another in its place":        {event.Acked{Position: 9, Foreign: true}, forged, event.Acked{UID: uid, Deleted: true, Position: 9, Time: 2, Foreign: true}},
			"an unknown object":           {event.Acked{}, forged, event.Acked{UID: uid, Deleted: true, Position: 9, Time: 2, Foreign: true}},
			"nothing":                     {known, event.Acked{}, event.Acked{}},
		} {
			t.Run(form+"/"+name, func(t *testing.T) {
				checkpoint := newBench()
				first := known // of another object
				if _, err := checkpoint.Load(t.Context(), loads{{Resource: "pods", Name: "other"}: first}); err != nil {
					t.Fatal(err)
				}
				checkpoint.Put(key, c.known)
				bus := loads{{Resource: "pods", Name: "other"}: first}
				if c.bus != (event.Acked{}) {
					bus[key] = c.bus
				}
				if _, err := checkpoint.Load(t.Context(), bus); err != nil {
					t.Fatal(err)
				}
				if got := checkpoint.Get(key); got != c.want {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
			})
		}
	}
}

// TestFirstLoadMarksNothing verifies that the first load of a term marks no event as foreign,
// because the term has no earlier events to compare with.
func TestFirstLoadMarksNothing(t *testing.T) {
	key := event.Key{Resource: "pods", Namespace: "default", Name: "web"}
	a := event.Acked{UID: "A", ResourceVersion: "5", Position: 7}
	c := newBench()
	if _, err := c.Load(t.Context(), loads{key: a}); err != nil {
		t.Fatal(err)
	}
	if got := c.Get(key); got != a {
		t.Errorf("got %+v, want %+v", got, a)
	}
}

// TestAcknowledgedDuringTheLoad verifies that an event whose acknowledgement arrives during a load
// is not foreign.
func TestAcknowledgedDuringTheLoad(t *testing.T) {
	key := event.Key{Resource: "pods", Namespace: "default", Name: "web"}
	a := event.Acked{UID: "A", ResourceVersion: "5", Position: 7}
	c := newBench()
	for range 2 {
		_, err := c.Load(t.Context(), sourceFunc(func(_ context.Context, yield func(event.Key, event.Acked) error) error {
			defer c.Put(key, a)
			return yield(key, a)
		}))
		if got := c.Get(key); err != nil || got != a {
			t.Fatalf("got %+v, %v; want %+v", got, err, a)
		}
		a.ResourceVersion, a.Position = "6", 8
	}
}
