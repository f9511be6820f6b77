package verify

import (
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestChanges verifies that verify finds an event whose object is right, but whose previous state or
// patch is not.
func TestChanges(t *testing.T) {
	for _, tc := range []struct {
		name     string
		old, new string     // in the previous state and the patch
		typ      event.Type // of the event; updated if empty
		want     []string
	}{
		{name: "right"},
		{"another previous state", `"data":{"k":"old"}`, `"data":{"k":"old"},"extra":1`, "", []string{"malformed a: the patch does not turn"}},
		{"another previous version", `"resourceVersion":"OLD"`, `"resourceVersion":"1"`, "", []string{"malformed a: the previous state has uid"}},
		{"another previous object", `"uid":"`, `"uid":"x`, "", []string{"malformed a: the previous state has uid"}},
		{"another patch", `"path":"/data/k","value":"new"`, `"path":"/data/k","value":"FORGED"`, "", []string{"malformed a: the patch does not turn"}},
		{"a patch of something else", `"path":"/data/k"`, `"path":"/data/l"`, "", []string{"malformed a: the data: the patch cannot be applied"}},
		{"a previous state without a patch", `"patch":[`, `"patch":null,"other":[`, "", []string{"malformed a: the data: the data must have both"}},
		{"a created object", "", "", event.Created, []string{"malformed a: an event of type created has a previous state", "misordered a: type created"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.builder.Data = event.DataChange
			a := w.create(configMaps, "a", map[string]any{"data": map[string]any{"k": "old"}})
			var first event.Change
			w.publish(event.Created, configMaps, a, func(c *event.Change) { first = *c })
			was := a.GetResourceVersion()
			m, err := w.message(event.Updated, configMaps, w.set(a, "k", "new"), func(c *event.Change) { c.Before = first.Object })
			if err != nil {
				t.Fatal(err)
			}
			for i := range m.Attributes {
				if a := &m.Attributes[i]; a.Name == "type" && tc.typ != "" {
					a.Value = string(tc.typ)
				}
			}
			text := string(m.Data)
			from := strings.Index(text, `"previous":`)
			m.Data = []byte(text[:from] + strings.Replace(text[from:], strings.Replace(tc.old, "OLD", was, 1), tc.new, 1))
			if changed := string(m.Data) != text; changed != (tc.old != "") {
				t.Fatalf("the data is %s", m.Data)
			}
			if _, err := w.send(m); err != nil {
				t.Fatal(err)
			}
			want(t, w.found(), tc.want...)
		})
	}
}
