package nats

import (
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestBefore verifies that Before returns the previous event of the object in both content modes, if
// the stream still has that event.
func TestBefore(t *testing.T) {
	for _, mode := range []ContentMode{Binary, Structured} {
		t.Run(string(mode), func(t *testing.T) {
			ns := natstest.Start(t)
			w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}, History: 3, ContentMode: mode})
			positions := w.put("a", "b", "a", "b", "a", "c", "a", "a") // the stream keeps the last three events of a
			bus := read(t, ns.URL)
			poll.Holds(t, "ready", func() bool { return bus.Ready() == nil })
			a := publishtest.Object{Name: "a"}.Key()
			for _, tc := range []struct {
				position uint64
				want     string
			}{
				{positions[7], "uid-of-a.7"},
				{positions[6], "uid-of-a.5"},
				{positions[5], "uid-of-a.5"}, // the position of another object's event
				{positions[4], ""},
				{positions[7] + 100, "uid-of-a.8"},
			} {
				m, err := bus.Before(t.Context(), subjectOf(a), tc.position)
				switch {
				case err != nil:
					t.Fatal(err)
				case m == nil && tc.want != "" || m != nil && (m.ID != tc.want || m.Key != a):
					t.Errorf("before %d: got %+v, want %q", tc.position, m, tc.want)
				}
			}
			if m, err := bus.Before(t.Context(), subjectOf(publishtest.Object{Name: "none"}.Key()), 100); m != nil || err != nil {
				t.Errorf("of none: got %+v (%v)", m, err)
			}
			if _, err := observe(t, ns.URL).Publish(t.Context(), subjectOf(a), []byte("by hand")); err != nil {
				t.Fatal(err)
			}
			if m, err := bus.Before(t.Context(), subjectOf(a), 100); m != nil || err != nil {
				t.Errorf("of another writer: got %+v (%v)", m, err)
			}
			w.bus.Close() // otherwise the bus would create the stream again
			if err := observe(t, ns.URL).DeleteStream(t.Context(), "KUBERELAY"); err != nil {
				t.Fatal(err)
			}
			if _, err := bus.Before(t.Context(), subjectOf(a), 100); err == nil {
				t.Error("no error without a stream")
			}
		})
	}
}
