package event

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// hostile returns pairs of objects that take long to compare. Each object has about 1 MB, the limit
// of an API server.
func hostile() map[string][2][]byte {
	object := func(spec string) []byte {
		return []byte(`{"kind":"Widget","metadata":{"name":"a","resourceVersion":"1"},"spec":` + spec + `}`)
	}
	array := func(items string) []byte { return object(`{"args":[` + items + `]}`) }
	members := func(value string) []byte {
		var b strings.Builder
		for n := range 100_000 {
			fmt.Fprintf(&b, `"%05d":%s,`, n, value)
		}
		return object(`{` + b.String() + `"z":0}`)
	}
	const levels = 126 // below jsoncompare.MaxDepth
	deep := func(value string) []byte {
		return object(strings.Repeat(`{"a":`, levels) + `[` + strings.Repeat(`[],`, 350_000) + value + `]` + strings.Repeat(`}`, levels))
	}
	same := strings.Repeat(`"",`, 350_000)
	return map[string][2][]byte{
		"items":    {array(same + `""`), array(strings.Repeat(`"a",`, 260_000) + `"a"`)},
		"removed":  {array(same + `""`), array(`""`)},
		"shifted":  {array(strings.Repeat(`"a","b",`, 130_000) + `""`), array(`"x",` + strings.Repeat(`"a","b",`, 130_000) + `""`)},
		"one item": {array(same + `1`), array(same + `2`)},
		"members":  {members("1"), members("2")},
		"deep":     {deep("1"), deep("2")},
	}
}

// TestHostile verifies that the attribute "changed" ends early for hostile pairs, and that the
// patch is no longer than the object.
func TestHostile(t *testing.T) {
	for name, p := range hostile() {
		places, err := changedPlaces(p[0], p[1])
		if err != nil || strings.HasSuffix(places, moreChanged) == (name == "one item") {
			t.Errorf("%s: changed %q, %v", name, places, err)
		}
		patch, err := PatchOf(p[0], p[1])
		if err != nil || len(patch) > max(maxPatch, len(p[1]))+100 {
			t.Errorf("%s: %d bytes of patch, %v", name, len(patch), err)
		}
	}
}

func BenchmarkHostile(b *testing.B) {
	for name, p := range hostile() {
		b.Run(name+"/changed", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := changedPlaces(p[0], p[1]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/patch", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := PatchOf(p[0], p[1]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestObjectFromDataIsCheap verifies that reading an object of many small values from the bus does
// not allocate a multiple of its size. An object that is larger than any valid object does not
// become a state.
func TestObjectFromDataIsCheap(t *testing.T) {
	get := func(name string) string { return map[string]string{"uid": "u"}[name] }
	var members bytes.Buffer
	for n := range 2_000_000 {
		fmt.Fprintf(&members, `"%07d":0,`, n)
	}
	const head = `"kind":"Widget","metadata":{"name":"a","uid":"u","labels":{`
	for name, data := range map[string][]byte{
		"at the top":   []byte(`{` + members.String() + head + `}}}`),
		"in metadata":  []byte(`{` + head + strings.TrimSuffix(members.String(), ",") + `}}}`),
		"many numbers": []byte(`{` + head + `}},"x":[` + strings.Repeat("0,", 10<<20) + `0]}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o, err := ObjectFromData(get, data)
		runtime.ReadMemStats(&after)
		if err != nil || o.Name != "a" || o.Kind != "Widget" || !o.Body.None() {
			t.Errorf("%s: got %v, %v", name, o, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: allocated %d MiB for %d MiB", name, got>>20, len(data)>>20)
		}
	}
}

// TestManyAttributesAreCheap verifies that parsing stops with an error at an event with too many
// attributes, before it allocates memory for all of them.
func TestManyAttributesAreCheap(t *testing.T) {
	var body bytes.Buffer
	body.WriteString(`{"id":"i","specversion":"1.0"`)
	for n := range 1_000_000 {
		fmt.Fprintf(&body, `,"a%d":"x"`, n)
	}
	body.WriteString(`}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if m, err := ParseStructured(body.Bytes()); err == nil {
		t.Errorf("got an event of %d attributes", len(m.Attributes))
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("allocated %d MiB for %d MiB", got>>20, body.Len()>>20)
	}
}
