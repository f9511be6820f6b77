package verify

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestReadPage verifies that readPage accepts each object that the API server accepts, and no text
// that is incomplete. Before the fix, one object with 9,999 levels made every run of verify fail,
// because the list around it adds two levels to the 10,000 that a parser accepts.
func TestReadPage(t *testing.T) {
	widgets := resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Kind: "Widget"}
	object := func(name, spec string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"uid":"u","resourceVersion":"5"},"spec":%s}`, name, spec)
	}
	const levels = 9_999 // of the spec
	deep := object("deep", strings.Repeat("[", levels)+strings.Repeat("]", levels))
	for _, tc := range []struct {
		text, want string // the names, the version and the token; "" for an error
	}{
		{`{"kind":"List","metadata":{"resourceVersion":"7","continue":"x"},"items":[` + object("a", "1") + `,` + deep + `]}`, "a deep 7 x"},
		{`{"items":[` + object("a", "{}") + `],"other":[{"metadata":1}],"metadata":{"resourceVersion":"7"}}`, "a 7 "},
		{`{"items":null,"metadata":{"resourceVersion":"7"}}`, "7 "},
		{`{"items":[],"metadata":{"resourceVersion":"7"}`, ""},
		{`{"items":[` + object("a", "1"), ""},
		{`{"items":[` + object("a", "[1") + `]}`, ""},
		{`{"items":[7]}`, ""},
		{`{"items":{}}`, ""},
		{`[]`, ""},
		{``, ""},
	} {
		got := ""
		version, next, err := readPage(widgets, []byte(tc.text), func(i item) error {
			got += i.key.Name + " "
			return nil
		})
		switch got += version + " " + next; {
		case err == nil && got != tc.want:
			t.Errorf("%.100s: got %q, want %q", tc.text, got, tc.want)
		case (err == nil) != (tc.want != ""):
			t.Errorf("%.100s: got %q, %v", tc.text, got, err)
		}
	}
}
