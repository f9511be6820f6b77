package publish

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestStoredRead verifies that a truncated event yields its data separately, together with an object
// that has no body. Any other event yields only the object.
func TestStoredRead(t *testing.T) {
	for truncated, want := range map[string]struct{ object, truncated bool }{"": {object: true}, "true": {truncated: true}} {
		m := &event.Message{
			Attributes: []event.Attribute{{Name: "uid", Value: "u"}},
			Data:       []byte(`{"kind":"Pod","metadata":{"name":"web","uid":"u"}}`),
		}
		if truncated != "" {
			m.Attributes = append(m.Attributes, event.Attribute{Name: "truncated", Value: truncated})
		}
		var s Stored
		if err := s.Read(m); err != nil {
			t.Fatal(err)
		}
		if s.Object == nil || s.Object.Name != "web" || s.Object.Body.None() == want.object || s.Truncated.None() == want.truncated {
			t.Errorf("truncated %q: object %v, truncated data of %s", truncated, s.Object, s.Truncated)
		}
		s, m.Data = Stored{}, []byte("{")
		if err := s.Read(m); err == nil || s.Object != nil || !s.Truncated.None() {
			t.Errorf("truncated %q: malformed data gives %+v, err %v", truncated, s, err)
		}
	}
}
