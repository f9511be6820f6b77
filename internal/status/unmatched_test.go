package status

import (
	"slices"
	"testing"
)

// TestSelectingNothing verifies that the label and field selectors are named if they exclude every
// object.
func TestSelectingNothing(t *testing.T) {
	label, field := Unmatched{Setting: "KUBERELAY_LABEL_SELECTOR", Entry: "app=wbe"}, Unmatched{Setting: "KUBERELAY_FIELD_SELECTOR", Entry: "metadata.name=x"}
	for name, c := range map[string]struct {
		change func(*Document)
		want   []Unmatched
	}{
		"nothing":        {func(*Document) {}, []Unmatched{label, field}},
		"an object":      {func(d *Document) { d.Resources[1].Objects = 1 }, nil},
		"listing":        {func(d *Document) { d.Resources[1].State = "starting" }, nil},
		"forbidden":      {func(d *Document) { d.Resources[1].State = "degraded" }, nil},
		"no resource":    {func(d *Document) { d.Resources = nil }, nil},
		"other settings": {func(d *Document) { d.Selectors = d.Selectors[:1] }, nil},
	} {
		d := Document{
			Resources: []Resource{{Name: "pods", State: "synced"}, {Name: "services", State: "synced"}},
			Selectors: []string{"KUBERELAY_NAMESPACES=shop", "KUBERELAY_LABEL_SELECTOR=app=wbe", "KUBERELAY_FIELD_SELECTOR=metadata.name=x"},
		}
		c.change(&d)
		if got := d.SelectingNothing(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
