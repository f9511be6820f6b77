package progress

import (
	"sync"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

func TestCount(t *testing.T) {
	var c Count
	all := func(string) bool { return true }
	selected, unselected := &event.Object{Namespace: "a"}, &event.Object{Namespace: "a", Unselected: true}
	for _, step := range []struct {
		what               string
		before, after      *event.Object
		in, selected, none int
	}{
		{"created", nil, selected, 1, 1, 0},
		{"updated", selected, selected, 1, 1, 0},
		{"leaves the selection", selected, unselected, 1, 0, 0},
		{"returns", unselected, selected, 1, 1, 0},
		{"deleted", selected, nil, 0, 0, 1},
	} {
		c.Change(step.before, step.after)
		if in, n, none := c.In("a"), c.Selected(all), c.None(); in != step.in || n != step.selected || none != (step.none > 0) {
			t.Errorf("%s: %d objects, %d selected, none: %t", step.what, in, n, none)
		}
	}
	for range c.of.Range {
		t.Error("a namespace without objects is left")
	}
}

// TestCountDuringAnUpdate verifies that the only object of a namespace counts while it leaves the
// selection.
func TestCountDuringAnUpdate(t *testing.T) {
	var c Count
	selected, unselected := &event.Object{Namespace: "a"}, &event.Object{Namespace: "a", Unselected: true}
	c.Change(nil, selected)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if c.In("a") < 1 {
				t.Error("the namespace has no object")
				return
			}
		}
	})
	for range 50_000 {
		c.Change(selected, unselected)
		c.Change(unselected, selected)
	}
	close(stop)
	reader.Wait()
}
