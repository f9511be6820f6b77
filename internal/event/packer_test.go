package event

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/podtest"
)

// TestPacker verifies that unpacking returns the packed text, with and without a dictionary, and
// that the dictionary saves memory.
func TestPacker(t *testing.T) {
	p := NewPacker()
	var objects []*Object
	var want []string
	before, after := 0, 0
	for n := range 2 * dictionaries[1] {
		text := podtest.Published(uint64(n % 40))
		o := packed(p, text)
		objects, want = append(objects, o), append(want, string(text))
		if n < dictionaries[0]/2 {
			before += o.Body.Size()
		} else if n >= 2*dictionaries[1]-dictionaries[0]/2 {
			after += o.Body.Size()
		}
	}
	for n, o := range objects {
		if got := textOf(o); got != want[n] {
			t.Fatalf("object %d:\n got %s\nwant %s", n, got, want[n])
		}
	}
	if after >= before*3/4 {
		t.Errorf("%d bytes with a dictionary, %d without", after, before)
	}
	if empty := (Body{}); !empty.None() || textOf(&Object{}) != "" {
		t.Error("no body is one")
	}
	if got := fmt.Sprintf("%v %+v", objects[0].Body, JSON([]byte(`"canary"`))); strings.Contains(got, "canary") || got != fmt.Sprintf("%d bytes 8 bytes", objects[0].Body.Size()) {
		t.Errorf("a body prints as %q", got)
	}
}

// TestUnpackCorrupted verifies that a body that was corrupted in memory causes an error.
func TestUnpackCorrupted(t *testing.T) {
	o := packed(NewPacker(), podtest.Published(1))
	o.Body.bytes = o.Body.bytes[:len(o.Body.bytes)/2]
	c := change(pods, o.Namespace, o.Name, nil)
	c.Object = o
	if _, err := builder.Message(c); err == nil {
		t.Error("an event was made of it")
	}
}
