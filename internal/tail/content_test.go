package tail

import (
	"bytes"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsoncompare"
)

// TestContentTooDeep verifies that an object that is nested too deeply to print doesn't hide the
// others. Before the fix, nothing was printed.
func TestContentTooDeep(t *testing.T) {
	deep := web(t, event.Created, "1", strings.Repeat("[", 2*jsoncompare.MaxDepth)+strings.Repeat("]", 2*jsoncompare.MaxDepth))
	plain := web(t, event.Created, "2", "{}").of("staging")
	p := readPresent(t, &Present{Whole: true}, deep, plain)
	objects, _ := p.Objects()
	for name, write := range map[string]func(*bytes.Buffer, []Object, bool) error{
		"json": func(b *bytes.Buffer, all []Object, single bool) error { return WriteJSON(b, all, single) },
		"yaml": func(b *bytes.Buffer, all []Object, single bool) error { return WriteYAML(b, all, single) },
	} {
		var b bytes.Buffer
		err := write(&b, objects, false)
		if err == nil || !strings.Contains(err.Error(), "shop/web: it is nested too deeply") || strings.Count(b.String(), "uid-of-web") != 1 {
			t.Errorf("%s: got %v and %s; want an error about one object, and the other", name, err, b.String())
		}
		b.Reset()
		if err := write(&b, objects[:1], true); err == nil || b.Len() > 0 {
			t.Errorf("%s: got %v and %s; want only an error", name, err, b.String())
		}
	}
}

// TestContentOfHostileNames verifies that the names of members don't change in YAML. Before the fix,
// escapes of unprintable characters became a part of the names.
func TestContentOfHostileNames(t *testing.T) {
	p := readPresent(t, &Present{Whole: true}, web(t, event.Created, "1", "{\"a\u202eb\":{\"n\":1e400,\"s\":\"1\",\"c\u00a0\":[12345678901234567890]},\"d\":null,\"e\\n\":\"x\"}"))
	objects, _ := p.Objects()
	var b bytes.Buffer
	if err := WriteYAML(&b, objects, true); err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := yaml.Unmarshal(b.Bytes(), &root); err != nil {
		t.Fatalf("%v in %s", err, b.String())
	}
	spec, _ := root["spec"].(map[string]any)
	inner, _ := spec["a\u202eb"].(map[string]any)
	if len(spec) != 3 || spec["e\n"] != "x" || len(inner) != 3 || inner["s"] != "1" || inner["c\u00a0"] == nil || !strings.Contains(b.String(), "1e400") || strings.Contains(b.String(), "\u202e") {
		t.Errorf("got %q from %s", spec, b.String())
	}
}

// TestUnprintableNamesWithAValueThatYAMLRefuses verifies that the error reaches the caller.
func TestUnprintableNamesWithAValueThatYAMLRefuses(t *testing.T) {
	got, err := quoteUnprintable([]any{map[string]any{"\x01": "\xff"}})
	if err == nil {
		t.Errorf("got %v, want an error", got)
	}
}
