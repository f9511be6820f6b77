package tail

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsoncompare"
)

// TestContentTooDeep verifies that an object that is nested too deep to print doesn't hide the
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
		if err == nil || !strings.Contains(err.Error(), "shop/web: it is nested too deep") || strings.Count(b.String(), "uid-of-web") != 1 {
			t.Errorf("%s: got %v and %s; want an error about one object, and the other", name, err, b.String())
		}
		b.Reset()
		if err := write(&b, objects[:1], true); err == nil || b.Len() > 0 {
			t.Errorf("%s: got %v and %s; want only an error", name, err, b.String())
		}
	}
}
